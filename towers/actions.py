"""Actions: what a trainer calls with each report. It prints, writes curves, saves or stops."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("towers", __file__)
