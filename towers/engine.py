"""The engine's parts, for steps of your own. They may change from one version to the next."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("towers", __file__)
