"""Stages: the layers of a model that run on one of the several devices of their tower.

While a tower is traced, the ops of a layer have the label of its stage, a part of a name scope such
as `tower_0/stage_1`. TensorFlow runs the backward pass of an op in the name scope of the op: the
label tells on which device of the tower both belong.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.devices.op_devices import device_name
from towers.ground.hooks import Hook
from towers.ground.private_apis import flatten_layers, get_default_graph

StageOf = Callable[[keras.layers.Layer], "int | None"]
Blocks = Sequence[Sequence[keras.layers.Layer]]
LABEL = re.compile(r"(?:^|/)stage_(\d+)(?=/|$)")
CALL = Hook(keras.layers.Layer, "__call__")
LEAVE = Hook(tf.name_scope, "__exit__")
UNKNOWN = 1024  # Stands for an unknown dimension where sizes are compared.


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
