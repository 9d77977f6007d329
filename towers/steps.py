"""Steps of other kinds, and what they are made with."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("towers", __file__)
