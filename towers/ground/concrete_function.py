"""Functions that are traced as they are written."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from towers.ground.hooks import Hook

if TYPE_CHECKING:
    from tensorflow.types.experimental import ConcreteFunction


def concrete_function(function: Callable[..., Any], *specs: Any) -> ConcreteFunction:
    """Returns a function as a graph for arguments of such specs, without AutoGraph.

    Python collects no garbage meanwhile: what a trace makes stays, and each collection walks
    through all of it again, for a sixth of the time that eight towers take.
    """
    import tensorflow as tf

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with find_resources().through(resources_of):
            return tf.function(function, autograph=False).get_concrete_function(*specs)
    finally:
        if was_enabled:
            gc.enable()


@functools.cache
def find_resources() -> Hook:
    """Returns the hook around what tells TensorFlow which resources an op reads and writes.

    It is asked about every op at the end of a trace, for the order of reads and writes. Most ops
    take no resource, but of each an attribute is asked that is not there, and the exception takes
    a tenth of the time to the first step.
    """
    from towers.ground.private_apis import auto_control_deps_utils

    return Hook(auto_control_deps_utils, "get_read_write_resource_inputs")


def resources_of(original: Callable[[Any], Any], op: Any) -> tuple[Any, Any]:
    """Returns the sets of resources that an op reads, and writes."""
    import tensorflow as tf

    from towers.ground.private_apis import ObjectIdentitySet

    if any(one.dtype == tf.resource for one in op.inputs):
        return original(op)
    return ObjectIdentitySet(), ObjectIdentitySet()
