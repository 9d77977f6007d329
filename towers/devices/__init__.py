"""Devices: where towers and variables are, and what runs there."""
