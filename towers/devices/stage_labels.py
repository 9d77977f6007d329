"""Stage labels: name scopes such as `tower_0/stage_1`, which tell the stage of each op of a tower.

TensorFlow runs the backward pass of an op in the name scope of the op, so that the same label tells
on which device of the tower both belong.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from towers.devices.stages import Stages
from towers.ground.hooks import Hook
from towers.ground.private_apis import get_default_graph, get_keras_mask

LABEL = re.compile(r"(?:^|/)stage_(\d+)(?=/|$)")
CALL = Hook(keras.layers.Layer, "__call__")


def stage_in(name: str) -> int | None:
    """Returns the stage that the name of an op or of a scope tells, or None.

    >>> stage_in("gradient_tape/tower_0/stage_1/dense/MatMul"), stage_in("tower_0/AddN")
    (1, None)
    """
    found = LABEL.findall(name)
    return int(found[-1]) if found else None


def with_labels(function: Callable[..., Any], stages: Stages) -> Callable[..., Any]:
    """Returns a tower function whose ops have labels: each layer's stage.

    What is computed between two layers stays on the stage of the layer before.
    """

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        with StageLabels(stages):
            return function(*args)

    return call


class StageLabels:
    """The scope in which the ops of the layers that are called get labels.

    The body of a loop stays with the stage in which the loop begins.

    Args:
        stages: the stages of the layers.
    """

    def __init__(self, stages: Stages):
        self._stages = stages
        self._stage: int | None = None
        self._scopes = contextlib.ExitStack()

    def __enter__(self) -> StageLabels:
        self._graph = get_default_graph()
        self._scopes.enter_context(CALL.through(self.call))
        return self

    def __exit__(self, *_: object) -> None:
        self._scopes.close()

    def call(
        self, call: Callable[..., Any], layer: keras.layers.Layer, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Returns what the call of a layer returns; its ops have the label of its stage.

        Args:
            call: calls a layer.
            layer: the layer.
            args, kwargs: its arguments.
        """
        if get_default_graph() is self._graph:
            stage = self._stages.of_layer(layer)
            self._stage = self._stage if stage is None else stage
            self._label()
            args, kwargs = keras.tree.map_structure(self._arrive, (args, kwargs))
        try:
            return call(layer, *args, **kwargs)
        finally:
            if get_default_graph() is self._graph:
                self._label()  # The scope around the layer has the label of an earlier stage.

    def _arrive(self, value: Any) -> Any:
        """Returns an activation of another stage as a tensor of this one.

        A loop keeps its state where the state began: elsewhere, it would travel in every iteration.
        """
        is_activation = tf.is_symbolic_tensor(value) and value.dtype.is_floating
        if not is_activation or get_keras_mask(value) is not None:
            return value
        stage = stage_in(value.op.name) or 0
        return value if stage == (self._stage or 0) else tf.identity(value)

    def _label(self) -> None:
        """Enters the scope with the current label; it ends with the scopes around it."""
        scope = tf.get_current_name_scope()
        if self._stage is None or stage_in(scope) == self._stage:
            return
        plain = LABEL.sub("", scope)
        label = "/".join(part for part in (plain, f"stage_{self._stage}") if part)
        self._scopes.enter_context(tf.name_scope(f"{label}/"))
