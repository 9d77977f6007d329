"""Processes: several of them train as one."""
