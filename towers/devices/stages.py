"""Stages: the layers of a model that run on one of the several devices of their tower."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Container, Iterable, Sequence

import keras
import tensorflow as tf

from towers.ground.private_apis import flatten_layers

StageOf = Callable[[keras.layers.Layer], "int | None"]


class Stages:
    """The stage of each layer and of each variable of a model, from 0.

    `stage_of` is asked about the model, for the variables of its own, and about its layers. A layer
    with a stage takes all layers in it along; of one without, those in it are asked. A variable has
    the stage of its layer.

    Args:
        model: the built model.
        stage_of: returns a layer's stage, or None for a layer without one.
        count: the number of stages, one for each device of a tower.

    Attributes:
        count: as given.

    Raises:
        ValueError: a stage has no layer with variables, or there is no such stage.
    """

    def __init__(self, model: keras.layers.Layer, stage_of: StageOf, count: int):
        self.count = count
        self._model = model  # Its layers live as long as their ids are used.
        self._layers: dict[int, int] = {}
        own = self._assign(model, stage_of) or 0
        self._layers[id(model)] = own
        for layer in inner_layers(model):
            self._ask(layer, stage_of, own)
        self._variables = {
            id(variable): self._layers[id(layer)]
            for layer in flatten_layers(model)
            for variable in own_variables(layer)
        }
        check_stages(self._variables.values(), count)

    def _ask(self, layer: keras.layers.Layer, stage_of: StageOf, outer: int) -> None:
        """Asks about a layer and, if it has no stage of its own, about those in it."""
        own = self._assign(layer, stage_of)
        if own is None:
            self._layers.setdefault(id(layer), outer)
        for inner in inner_layers(layer):
            if own is None:
                self._ask(inner, stage_of, outer)
            else:
                self._take_along(inner, own)

    def _assign(self, layer: keras.layers.Layer, stage_of: StageOf) -> int | None:
        """Returns the stage that a layer is given; it counts more than that of a layer around."""
        stage = stage_of(layer)
        if stage is not None:
            self._layers[id(layer)] = check_stage(stage, layer, self.count)
        return stage

    def _take_along(self, layer: keras.layers.Layer, stage: int) -> None:
        """Gives a stage to a layer and to those in it, unless they have one."""
        self._layers.setdefault(id(layer), stage)
        for inner in inner_layers(layer):
            self._take_along(inner, stage)

    def of_layer(self, layer: keras.layers.Layer) -> int | None:
        """Returns the layer's stage; None for a layer that is no part of the model."""
        return self._layers.get(id(layer))

    def of_variable(self, variable: keras.Variable) -> int:
        """Returns the variable's stage; 0 for one that no layer of the model owns."""
        return self._variables.get(id(variable), 0)

    def indices(self, variables: Sequence[keras.Variable]) -> list[list[int]]:
        """Returns, for each stage, the indices of its variables."""
        stages = list(map(self.of_variable, variables))
        return [[index for index, one in enumerate(stages) if one == k] for k in range(self.count)]


def inner_layers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns the layers that a layer consists of, without those in them."""
    return flatten_layers(layer, include_self=False, recursive=False)


def own_variables(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Returns the variables of a layer without those of the layers in it."""
    inner = {id(variable) for one in inner_layers(layer) for variable in one.variables}
    return [variable for variable in layer.variables if id(variable) not in inner]


def check_stage(stage: object, layer: keras.layers.Layer, count: int) -> int:
    """Returns a layer's stage; raises ValueError unless it is one of `count`."""
    if type(stage) is not int or not 0 <= stage < count:
        raise ValueError(
            f"stage_of returns the number of one of the tower's {count} devices, 0 to {count - 1}, "
            f"or None. Received {stage!r} for the layer '{layer.name}'."
        )
    return stage


def check_stages(used: Iterable[int], count: int) -> None:
    """Raises ValueError unless every stage has variables."""
    empty = sorted(set(range(count)) - set(used))
    if empty:
        raise ValueError(
            f"Each of a tower's {count} devices needs layers with variables. Received a stage_of "
            f"that gives none to {', '.join(map(str, empty))}; give it some, or give each tower "
            "fewer devices."
        )


def stages_by_size(blocks: Sequence[Sequence[keras.layers.Layer]], count: int) -> StageOf:
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
    kept = [list(block) for block in blocks]  # As long as their ids are used.
    listed = {id(layer) for block in kept for layer in block}
    sizes = [sum(num_parameters(layer, listed) for layer in block) for block in kept]
    parts = cut_evenly(sizes, count)
    stages = {
        id(layer): stage
        for stage, part in enumerate(parts)
        for block in kept[part.start : part.stop]
        for layer in block
    }

    def stage_of(layer: keras.layers.Layer) -> int | None:
        return stages.get(id(layer)) if kept else None

    return stage_of


def num_parameters(layer: keras.layers.Layer, listed: Container[int]) -> int:
    """Returns how many numbers the layer's variables hold, without those of listed layers in it."""
    inner = [one for one in flatten_layers(layer, include_self=False) if id(one) in listed]
    counted = {id(variable) for one in inner for variable in one.variables}
    return sum(math.prod(one.shape) for one in layer.variables if id(one) not in counted)


def cut_evenly(sizes: Sequence[int], count: int) -> list[range]:
    """Returns `count` ranges of indices, whose largest sum of sizes is the smallest.

    >>> cut_evenly([5, 0, 1, 6], 2), cut_evenly([1, 1, 1, 9], 3)
    ([range(0, 3), range(3, 4)], [range(0, 2), range(2, 3), range(3, 4)])
    """
    present = [index for index, size in enumerate(sizes) if size]
    if len(present) < count:
        raise ValueError(
            f"The model consists of {len(present)} blocks with parameters, which {count} devices a "
            "tower cannot share. Give each tower fewer devices, or the model more layers."
        )

    before = [0, *itertools.accumulate(sizes)]  # The sum of the sizes before each index.

    @functools.cache
    def best(first: int, parts: int) -> tuple[int, tuple[int, ...]]:
        """Returns the largest sum of the best cut from a present block on, and its last cuts."""
        if parts == 1:
            return before[-1] - before[present[first]], ()
        choices = []
        for cut in range(len(present) - parts + 1, first, -1):  # The longest first.
            rest, cuts = best(cut, parts - 1)
            own = before[present[cut]] - before[present[first]]
            choices.append((max(own, rest), (present[cut], *cuts)))
        return min(choices, key=lambda choice: choice[0])

    _, cuts = best(0, count)
    return [range(*pair) for pair in itertools.pairwise([0, *cuts, len(sizes)])]


def device_name(name: str) -> str:
    """Returns the short name of a device as TensorFlow writes it into ops.

    >>> device_name("/GPU:1"), device_name("/job:localhost/replica:0/task:0/device:CPU:0")
    ('/device:GPU:1', '/device:CPU:0')
    """
    spec = tf.DeviceSpec.from_string(name)
    return tf.DeviceSpec(
        device_type=spec.device_type, device_index=spec.device_index or 0
    ).to_string()
