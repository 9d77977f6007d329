"""The engine: devices, towers, gradients, steps, checkpoints."""
