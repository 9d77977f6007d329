"""Tower-style multi-GPU training: devices, towers, gradients, steps, checkpoints.

`__init__.pyi` lists what is public. A name is imported when it is first used, so that
`towers --help` needs no TensorFlow.
"""

import lazy_loader

from towers.devices import kernels  # noqa: F401  Before TensorFlow is imported.
from towers.ground import backend, failing_calls  # noqa: F401  Before it, too.

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
