"""Checkpoints: saved whole or not at all, and restored; the lock of a run directory."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("towers", __file__)
