"""Several training processes, started and ended together."""
