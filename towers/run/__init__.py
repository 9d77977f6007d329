"""The surroundings of a run's steps: devices, processes, checkpoints, curves."""
