"""Tensors of a single tower that a layer leaves in a global, a closure or a class.

Towers join what a layer returns and what it and its objects keep. What uses a tensor that was left
elsewhere would compute from the rows of one tower.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from towers.ground.private_apis import get_default_graph

OF_ALL = re.compile("Placeholder|.*PartitionedCall")  # Captures, and functions of a forward mode.
LEFT = "_towers_left"  # The attribute of a graph.


class Left:
    """What the towers of a graph have computed, which only they, and what joins them, may use."""

    def __init__(self) -> None:
        self._names = set[str]()  # Of the ops in towers.
        self._num_seen = 0
        self._is_within = False

    @contextlib.contextmanager
    def within(self, graph: tf.Graph, scopes: Sequence[str]) -> Iterator[None]:
        """The scope of ops that may use it, and compute more of it; arguments as in `of_towers`."""
        if self._is_within:
            yield
            return
        self._check(graph.get_operations()[self._num_seen :])
        self._num_seen, self._is_within = graph.num_operations(), True
        try:
            yield
        finally:
            self._is_within = False
            made: list[Any] = graph.get_operations()[self._num_seen :]
            names = (one.name for one in made if not OF_ALL.fullmatch(one.type))
            self._names.update(one for one in names if one.startswith(tuple(scopes)))
            self._num_seen = graph.num_operations()

    def _check(self, operations: list[Any]) -> None:
        pairs = ((one, tensor) for one in operations for tensor in one.inputs)
        for operation, tensor in pairs:
            is_gradient = operation.name.startswith("gradient_tape/")
            if tensor.op.name in self._names and not is_gradient:
                self._names.clear()
                warnings.warn(
                    "A layer leaves a tensor where towers do not find it, as in a global, a "
                    f"closure or a class, and '{operation.name}' uses it: '{tensor.name}' holds "
                    "the rows of one tower alone. Return it, or keep it in an attribute of the "
                    "layer.",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return


def of_towers(scopes: Sequence[str] = ()) -> contextlib.AbstractContextManager[None]:
    """The scope of ops that may use what single towers compute; warns of others that use it.

    Args:
        scopes: the names of the towers' scopes, which may be added while it is open.
    """
    if tf.executing_eagerly():
        return contextlib.nullcontext()
    graph = get_default_graph()
    left = getattr(graph, LEFT, None) or Left()
    setattr(graph, LEFT, left)
    return left.within(graph, scopes)
