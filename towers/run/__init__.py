"""What a run needs around its steps: devices, processes, checkpoints, curves."""
