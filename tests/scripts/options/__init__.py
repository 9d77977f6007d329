"""Tests of the options."""
