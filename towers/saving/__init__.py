"""Saving: checkpoints whole or absent, the lock of a run, event files."""
