"""Stages: the layers of a model that run on one of the several devices of their tower."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Container, Sequence
from typing import Any

import keras

from towers.ground.private_apis import flatten_layers

StageOf = Callable[[keras.layers.Layer], "int | None"]
Blocks = Sequence[Sequence[keras.layers.Layer]]


class Stages:
    """The stage of each layer and of each variable of a model, from 0.

    The model is asked for the variables of its own, then its layers are. A layer with a stage takes
    all layers in it along; of one without, those in it are asked.

    Args:
        model: the built model; None if towers have one device each, which has everything.
        count: the number of stages, one for each device of a tower.
        stage_of: returns a layer's stage, or None for a layer without one; by default, the layers
            are cut in their order so that the largest stage is small.

    Attributes:
        count: as given.
        blocks: the model's layers in their order.

    Raises:
        ValueError: a stage has no layer with variables, or there is no such stage.
    """

    def __init__(self, model: Any = None, count: int = 1, stage_of: StageOf | None = None):
        self.count, self.blocks = count, [] if model is None else blocks_of(model)
        self._model = model  # Its layers live as long as their ids are used.
        self._found: dict[int, int] = {}  # By the id of a layer or of a variable.
        if model is not None:
            self._visit(model, stage_of or stages_by_size(self.blocks, count), around=0)
            self._check()

    def _visit(self, layer: keras.layers.Layer, stage_of: StageOf | None, around: int) -> None:
        """Asks for a layer's stage, if it may have one of its own, and visits those in it."""
        asked = None if stage_of is None else stage_of(layer)
        if asked is not None:  # It counts more than that of another layer around.
            if type(asked) is not int or not 0 <= asked < self.count:
                raise ValueError(
                    f"stage_of returns the number of one of the tower's {self.count} devices, 0 to "
                    f"{self.count - 1}, or None. Received {asked!r} for the layer '{layer.name}'."
                )
            self._found[id(layer)] = asked
        own = self._found.setdefault(id(layer), around)
        self._found.update((id(variable), own) for variable in layer.variables)
        for inner in flatten_layers(layer, include_self=False, recursive=False):
            self._visit(inner, stage_of if asked is None or layer is self._model else None, own)

    def _check(self) -> None:
        """Raises ValueError unless every stage has variables."""
        indices = self.indices(self._model.variables)
        empty = [stage for stage, own in enumerate(indices) if not own]
        if empty:
            raise ValueError(
                f"Each of a tower's {self.count} devices needs layers with variables. Received a "
                f"stage_of that gives none to {', '.join(map(str, empty))}; give it some, or give "
                "each tower fewer devices."
            )

    def of(self, one: keras.layers.Layer | keras.Variable) -> int | None:
        """Returns the stage of a layer or a variable; None for what is no part of the model."""
        return self._found.get(id(one))

    def of_each(self, variables: Sequence[keras.Variable]) -> list[int | None]:
        """Returns the stages of variables, in their order."""
        return [self.of(variable) for variable in variables]

    def indices(self, variables: Sequence[keras.Variable]) -> list[list[int]]:
        """Returns the indices of each stage's variables; the first has those of no layer, too."""
        stages = [stage or 0 for stage in self.of_each(variables)]
        return [[index for index, one in enumerate(stages) if one == k] for k in range(self.count)]


def blocks_of(model: keras.Model) -> Blocks:
    """Returns the layers of a model in the order in which they run; blocks belong together.

    A model may tell it itself, by a method `layers_in_order`. Otherwise they are those of
    `model.layers`, which Keras lists in this order, and a network within a network is taken apart.
    """
    if hasattr(model, "layers_in_order"):
        return list(model.layers_in_order())
    blocks: list[Sequence[keras.layers.Layer]] = []
    for layer in model.layers:
        is_network = isinstance(layer, keras.Model) and layer.layers
        blocks += blocks_of(layer) if is_network else [[layer]]
    return blocks


def stages_by_size(blocks: Blocks, count: int) -> StageOf:
    """Returns a function from layers to stages: the blocks in their order, cut into `count` parts.

    The stage with the most parameters has as few as possible; of equal cuts, the one with the
    longer first stages is taken.

    Args:
        blocks: the layers of a built model, in the order in which they run; those of a block stay
            together. The model itself stands for the variables of its own.
        count: the number of stages.

    Raises:
        ValueError: there are fewer blocks with parameters than stages.

    >>> small, large = keras.layers.Dense(2), keras.layers.Dense(9)
    >>> small.build((None, 3))
    >>> large.build((None, 2))
    >>> [stages_by_size([[small], [large]], 2)(layer) for layer in (small, large)]
    [0, 1]
    """
    listed = {id(layer) for block in blocks for layer in block}
    sizes = [sum(num_parameters(layer, listed) for layer in block) for block in blocks]
    stages = {
        id(layer): stage
        for stage, part in enumerate(cut_evenly(sizes, count))
        for block in blocks[part.start : part.stop]
        for layer in block
    }
    return lambda layer: stages.get(id(layer))


def num_parameters(layer: keras.layers.Layer, listed: Container[int]) -> int:
    """Returns how many numbers the layer's variables hold, without those of listed layers in it."""
    inner = [one for one in flatten_layers(layer, include_self=False) if id(one) in listed]
    counted = {id(variable) for one in inner for variable in one.variables}
    return sum(math.prod(one.shape) for one in layer.variables if id(one) not in counted)


def cut_evenly(sizes: Sequence[int], count: int) -> list[range]:
    """Returns `count` ranges of indices, whose largest sum of sizes is the smallest; none is 0.

    >>> cut_evenly([5, 0, 1, 6], 2), cut_evenly([1, 1, 1, 9], 3)
    ([range(0, 3), range(3, 4)], [range(0, 2), range(2, 3), range(3, 4)])
    """
    present = len(sizes) - list(sizes).count(0)
    if present < count:
        raise ValueError(
            f"The model consists of {present} blocks with parameters, which {count} devices a "
            "tower cannot share. Give each tower fewer devices (--gpus-per-tower), or the model "
            "more layers."
        )
    before = [0, *itertools.accumulate(sizes)]  # The sum of the sizes before each index.

    @functools.cache
    def best(first: int, parts: int) -> tuple[float, tuple[int, ...]]:
        """Returns the largest sum of the best cut from an index on, and where its parts end."""
        if parts == 1:
            return before[-1] - before[first] or math.inf, (len(sizes),)

        def largest(end: int) -> float:
            return max(before[end] - before[first] or math.inf, best(end, parts - 1)[0])

        longest_first = range(len(sizes) - 1, first, -1)
        end = min(longest_first, key=largest, default=len(sizes))
        return largest(end), (end, *best(end, parts - 1)[1])

    return [range(*pair) for pair in itertools.pairwise([0, *best(0, count)[1]])]
