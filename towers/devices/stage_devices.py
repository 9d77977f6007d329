"""Where the ops of a tower of several devices run: by the label of their stage, or their inputs.

A label is a part of a name scope, such as `tower_0/stage_1`. TensorFlow runs the backward pass of
an op in the name scope of the op, so that the label tells on which device of the tower both belong.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.devices.op_devices import device_name
from towers.devices.stages import Stages
from towers.ground.hooks import Hook
from towers.ground.private_apis import get_default_graph

LABEL = re.compile(r"(?:^|/)stage_(\d+)(?=/|$)")
CALL = Hook(keras.layers.Layer, "__call__")
LEAVE = Hook(tf.name_scope, "__exit__")
UNKNOWN = 1024  # Stands for an unknown dimension where sizes are compared.


def stage_in(name: str) -> int | None:
    """Returns the stage that the name of an op or of a scope tells, or None.

    >>> stage_in("gradient_tape/tower_0/stage_1/dense/MatMul"), stage_in("tower_0/AddN")
    (1, None)
    """
    found = LABEL.findall(name)
    return int(found[-1]) if found else None


def label(stage: int | None) -> contextlib.AbstractContextManager[object]:
    """Returns the current name scope with the label of a stage; None: as it is."""
    scope = tf.get_current_name_scope()
    if stage is None or stage == stage_in(scope):
        return contextlib.nullcontext()
    return tf.name_scope(f"{LABEL.sub('', scope)}/stage_{stage}/".lstrip("/"))


@contextlib.contextmanager
def labels(stages: Stages) -> Iterator[None]:
    """The scope of a tower function in which the ops of each layer have the label of its stage.

    What is computed between two layers stays on the stage of the layer before, also behind the end
    of a name scope, and the body of a loop on that in which the loop begins.
    """
    graph, current = get_default_graph(), None
    with contextlib.ExitStack() as scopes:

        def call(original: Callable[..., Any], layer: Any, /, *args: Any, **kwargs: Any) -> Any:
            nonlocal current
            if get_default_graph() is graph:
                stage = stages.of(layer)
                current = current if stage is None else stage
                scopes.enter_context(label(current))
            return original(layer, *args, **kwargs)

        def leave(original: Callable[..., Any], /, *args: Any) -> Any:
            result = original(*args)
            if get_default_graph() is graph:  # What is around has the label of an earlier stage.
                scopes.enter_context(label(current))
            return result

        if stages.count > 1:
            scopes.enter_context(CALL.through(call))
            scopes.enter_context(LEAVE.through(leave))
        try:
            yield
        finally:
            current = None  # No scope that ends now has a label.


def choose_device(devices: Sequence[str]) -> Callable[[tf.Operation], str]:
    """Returns the function from the ops of a tower to their devices, for the current graph.

    An op without a device of its own runs on that of the stage that its name tells. Ops of loops
    and branches run where these are made. What has no label, such as the sum of gradients that
    arrive from several places, or an optimizer's arithmetic, runs beside its variable or its
    largest input.

    Args:
        devices: the tower's devices, one for each stage.
    """
    graph, names = get_default_graph(), list(map(device_name, devices))

    def choose(op: tf.Operation) -> str:
        if op.device or len(names) == 1:
            return op.device or names[0]
        inside = op.graph is graph
        stage = stage_in(op.name if inside else graph.get_name_scope())
        if stage is not None and stage < len(names):
            return names[stage]
        there = [one for one in op.inputs if inside and device_of(one) in names]
        return device_of(max(there, key=size_of)) if there else names[0]

    return choose


@contextlib.contextmanager
def on_devices(devices: Sequence[str]) -> Iterator[None]:
    """The scope in which ops run on these devices of a tower, as `choose_device` says."""
    alone = len(set(devices)) == 1
    with tf.device(devices[0]) if alone else get_default_graph().device(choose_device(devices)):
        yield


def device_of(tensor: tf.Tensor) -> str:
    """Returns the device of a tensor; that of what a function takes from around it."""
    if not tf.is_symbolic_tensor(tensor):
        return device_name(tensor.device)
    if tensor.op.type == "Placeholder":  # Its own device means nothing.
        for outer, inner in getattr(tensor.graph, "captures", ()):
            if inner is tensor:
                return device_of(outer)
    if tensor.op.type == "ReadVariableOp":  # TensorFlow leaves its place to the variable.
        return device_of(tensor.op.inputs[0])
    return device_name(tensor.op.device)


def size_of(tensor: tf.Tensor) -> float:
    """Returns the number of a tensor's elements, as far as it is known; a variable is largest."""
    if tensor.dtype == tf.resource:
        return math.inf
    shape = tensor.shape if tensor.shape.rank is not None else [None]
    return math.prod(UNKNOWN if length is None else length for length in shape)
