"""Calls of TensorFlow that fail in several threads at once, which must not hang the process.

TensorFlow makes the exception of a failed call under a lock of its own. Since Python 3.12 that runs
the exception's `__init__` at once, in which the interpreter may turn to another thread. If a call
of that thread has failed as well, it waits for TensorFlow's lock while nothing else can run, for
ever. So TensorFlow is given an exception that is made without Python code, as soon as it is there.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

CORE = "tensorflow.python.eager.core"  # It gives TensorFlow its class of exceptions.


class Watch:
    """The finder by which Python imports that module, so that it is mended right afterwards."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Returns how to import the module; None for any other one, which others find."""
        spec = PathFinder.find_spec(name, path, target) if name == CORE else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_mend(module: ModuleType) -> None:
            execute(module)
            mend(module)

        spec.loader.exec_module = execute_and_mend  # type: ignore[method-assign]
        return spec


def mend(core: ModuleType) -> None:
    """Gives TensorFlow an exception that is made without Python code."""
    from towers.ground.private_apis import register_failures

    register_failures(core)


if CORE in sys.modules:
    mend(sys.modules[CORE])
else:
    sys.meta_path.insert(0, Watch)
