"""Optimizers: those of Keras with fused kernels where they are equal, and schedules."""
