"""A layer's call as a function of its rows, and all that comes out of a part of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from towers.ground.private_apis import (
    arguments_of,
    flatten_layers,
    get_default_graph,
    graphs_within,
    owner_of_loss,
)
from towers.layers.companions import companions_of
from towers.layers.held import TENSORS, Held, attributes_of, is_tensor, leaves_of, taken_back
from towers.layers.known import PLAIN, as_key
from towers.layers.rows import CONCATENATE, Way, is_differentiable
from towers.layers.scope import CallScope

LARGE = 1024.0  # A power of two, by which numbers are scaled without rounding.
ARRAYS = (*TENSORS, np.ndarray)


class Outcome(NamedTuple):
    """What comes out of a layer's call on a part of the rows.

    Attributes:
        outputs: the nest that the layer returned.
        companions: for each tensor that the layer returned, those that go with it.
        losses: what was added with `add_loss`, each with the layer that did.
        stored: the tensors that layers keep.
        scope: holds the values that were assigned to variables.
    """

    outputs: Any
    companions: list[dict[str, tf.Tensor]]
    losses: list[tuple[keras.layers.Layer, tf.Tensor]]
    stored: list[Held]
    scope: CallScope

    def tensors(self) -> list[tf.Tensor]:
        """Returns all tensors in a fixed order, the assigned values excepted."""
        companions = [one for each in self.companions for one in each.values()]
        return [*self.own_tensors(), *companions, *(loss for _, loss in self.losses)]

    def own_tensors(self) -> list[tf.Tensor]:
        """Returns those of them that the layer returned or keeps."""
        nests = (self.outputs, *(one.contents for one in self.stored))
        return list(filter(is_tensor, tf.nest.flatten(nests)))


class Call:
    """A layer's call with its arguments; `run` calls it.

    Attributes:
        leaves: the flat arguments.
        rows: the indices of those that are cut: as many rows as the first that has some.
    """

    def __init__(self, layer: Any, run: Callable[..., Any], args: Any, kwargs: Any):
        self._layer, self._run = weakref.ref(layer), run  # A function may outlive a layer.
        self._structure = (args, kwargs)
        self.leaves = tf.nest.flatten(self._structure)
        sizes = {
            index: leaf.shape[0]
            for index, leaf in enumerate(self.leaves)
            if isinstance(leaf, tf.Tensor) and leaf.shape.rank
        }
        first = next(iter(sizes.values()), None)
        self.rows: Sequence[int] = [index for index, size in sizes.items() if size == first]

    @property
    def layer(self) -> Any:
        """The layer, for as long as it lives."""
        return self._layer()

    def key(self) -> tuple[Any, Any]:
        """Returns of what kind the call is, and which objects it takes besides tensors and arrays.

        Both tell calls of the layer apart that may need another answer.
        """
        kinds: list[Any] = []
        rows = self.rows if self.has_rows() else range(len(self.leaves))
        for index, leaf in enumerate(self.leaves):
            if is_tensor(leaf):
                is_for_all = index not in rows and leaf.shape[:1] == [1]  # Later it may not be.
                kinds.append((leaf.dtype.name, leaf.shape.rank, [*companions_of(leaf)], is_for_all))
            elif isinstance(leaf, np.ndarray):
                kinds.append((leaf.dtype.name, leaf.ndim))
            else:
                kinds.append(leaf if isinstance(leaf, PLAIN) else type(leaf))
        objects = [one for one in self.leaves if not isinstance(one, (*ARRAYS, *PLAIN))]
        names = tf.nest.pack_sequence_as(self._structure, kinds)
        return repr(names), tuple(map(as_key, objects))

    def has_rows(self) -> bool:
        """Returns whether all tensors among the arguments are plain ones, and one has rows."""
        plain = all(isinstance(tensor, tf.Tensor) for tensor in self.tensors())
        return plain and any(tensor.shape.rank for tensor in self.tensors())

    def has_single_rows(self) -> bool:
        """Returns whether several arguments have one row each, of which some may be one for all."""
        return self.has_rows() and len(self.rows) > 1 and self.num_rows == 1

    @property
    def num_rows(self) -> Any:
        """The number of rows; None in a graph that does not know it."""
        return self.leaves[self.rows[0]].shape[0]

    def tensors(self) -> list[tf.Tensor]:
        """Returns the tensors among the arguments."""
        return [leaf for leaf in self.leaves if is_tensor(leaf)]

    def cut(self) -> list[tf.Tensor]:
        """Returns what is cut: the arguments with rows, and after them what goes with these."""
        return [*(self.leaves[index] for index in self.rows), *self.companions().values()]

    def companions(self) -> dict[tuple[int, str], tf.Tensor]:
        """Returns what goes with the arguments with rows, by index and name."""
        found = {index: companions_of(self.leaves[index]) for index in self.rows}
        return {(index, name): one for index, each in found.items() for name, one in each.items()}

    def others(self) -> list[tf.Tensor]:
        """Returns the tensors that each part takes whole: arguments, attributes and constants.

        What an attribute keeps of another graph is none: no op here can take it.
        """
        leaves = [leaf for i, leaf in enumerate(self.leaves) if i not in self.rows]
        parts = [getattr(one, "operations", ()) for one in flatten_layers(self.layer)]
        constants = tf.nest.flatten(list(map(arguments_of, parts)))
        found = list(filter(is_tensor, [*leaves, *constants]))
        for held in attributes_of(self.layer).values():
            found += filter(is_tensor, leaves_of(held.contents))
        graphs = [] if tf.executing_eagerly() else graphs_within(get_default_graph(), None)
        here = [one for one in found if not tf.is_symbolic_tensor(one) or one.graph in graphs]
        return list({id(tensor): tensor for tensor in here}.values())

    def with_gradient(self, ways: Sequence[Way]) -> Call:
        """Returns the call that returns two lists of gradients, of its arguments and its weights.

        They are those of outputs with rows: from large numbers, which whatever clips them clips,
        and from numbers that are smaller by `LARGE`. Those of all weights make one vector, in which
        the rounding of one that is 0 counts nothing; tables are left out, and weights of a layer
        that computes in 16 bits. The ways are those of the tensors that come out.
        """

        def run(layer: Any, /, *args: Any, **kwargs: Any) -> Any:
            given = list(filter(is_differentiable, tf.nest.flatten((args, kwargs))))
            weights = [variable.value for variable in layer.trainable_variables]
            with tf.GradientTape(persistent=True) as tape:
                tape.watch([*given, *weights])
                outputs = self._run(layer, *args, **kwargs)
            tensors = filter(is_tensor, tf.nest.flatten(outputs))
            targets = [
                one for one, way in zip(tensors, ways, strict=False)
                if way.kind == CONCATENATE and is_differentiable(one)
            ]  # fmt: skip
            if any(one.dtype.size < 4 for one in targets):
                weights = []
            numbers = [one + 1.0 for one in map(tf.stop_gradient, targets)]

            def gradients(scale: float) -> list[tf.Tensor]:
                upstream = [scale * one for one in numbers]
                of_given, of_weights = tape.gradient(targets, (given, weights), upstream)
                vector = [
                    tf.cast(tf.reshape(one, [-1]), targets[0].dtype)
                    for one in of_weights
                    if isinstance(one, tf.Tensor)
                ]
                dense = [tf.convert_to_tensor(one) for one in of_given if one is not None]
                return dense + ([tf.concat(vector, 0)] if vector else [])

            return gradients(LARGE), gradients(1.0)

        return self._again(run, self._structure)

    def with_tensors(self, tensors: Sequence[tf.Tensor]) -> Call:
        """Returns the call with other tensors as arguments; those of `companions` may follow."""
        places = [index for index, leaf in enumerate(self.leaves) if is_tensor(leaf)]
        count = len(places)
        return self._with_leaves(dict(zip(places, tensors[:count], strict=True)), tensors[count:])

    def part(
        self, tensors: Sequence[tf.Tensor], others: Mapping[int, tf.Tensor] | None = None
    ) -> Call:
        """Returns the call with a part of the rows.

        Args:
            tensors: in place of those of `cut`.
            others: by index, tensors in place of arguments without rows.
        """
        count = len(self.rows)
        leaves = {**(others or {}), **dict(zip(self.rows, tensors[:count], strict=True))}
        return self._with_leaves(leaves, tensors[count:])

    def _with_leaves(
        self, others: Mapping[int, tf.Tensor], companions: Sequence[tf.Tensor]
    ) -> Call:
        """Returns the call with other arguments, by index, and with all companions or none."""
        leaves = [others.get(index, leaf) for index, leaf in enumerate(self.leaves)]
        places = self.companions() if companions else ()
        for (index, name), one in zip(places, companions, strict=True):
            setattr(leaves[index], name, one)
        return self._again(self._run, tf.nest.pack_sequence_as(self._structure, leaves))

    def _again(self, run: Callable[..., Any], structure: tuple[Any, Any]) -> Call:
        again = Call(self.layer, run, *structure)
        again.rows = self.rows  # Also where a graph does not know their number.
        return again

    def whole(self) -> Any:
        """Returns what the layer returns for all rows."""
        args, kwargs = self._structure
        return self._run(self.layer, *args, **kwargs)

    def outcome(self, scope: CallScope) -> Outcome:
        """Returns all that comes out of the call; in the scope, variables are read and assigned."""
        before = attributes_of(self.layer, others=True)
        try:
            with scope:
                outputs = self.whole()
        finally:
            stored = list(taken_back(self.layer, before))
        companions = [companions_of(one) for one in tf.nest.flatten(outputs) if is_tensor(one)]
        losses = [(owner_of_loss(self.layer, loss), loss) for loss in scope.losses]
        return Outcome(outputs, companions, losses, stored, scope)
