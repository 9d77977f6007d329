"""Whether rows of a batch meet in a layer, as a trace shows it: also where the values do not."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from towers.ground.concrete_function import concrete_function
from towers.ground.hooks import Hook
from towers.ground.private_apis import cond
from towers.layers.draws import draws_by_row
from towers.layers.moved import moved_from, moved_weights, near
from towers.layers.part import Call, Outcome
from towers.layers.reductions import (
    HANDLES,
    ROWS,
    SHAPES,
    TELLS,
    counted_in,
    idle_in,
    may_have_rows,
    reductions_in,
)
from towers.layers.rows import is_differentiable
from towers.layers.scope import CallScope
from towers.layers.traced import TRACED, trace_of
from towers.variables.tower_scope import depends_on

FEW = 4  # Rows with which a trace is run.
MARKS = (1, 2, 3, 4), (6, 7, 3, 4), (1, 2, 8, 9)  # Of the rows; a half has others, even or odd.
# Ops that move numbers, add them, or both.
MOVES = re.compile(
    "Reverse.*|Roll|Gather.*|(Strided)?Slice|Concat.*|Pack|(MirrorPad|Pad).*|Transpose|Reshape|"
    "Tile|ScatterNd.*|TensorScatter.*|.*Segment.*|(Batch)?MatMul.*|Einsum|(Depthwise)?Conv.*|"
    "(Max|Avg)Pool.*|Dilation.*|ExtractImagePatches"
)
# Of what kind numbers are that follow from rows: each from its own; sums or means of them; others.
EACH, SUMS, OTHER = "each", "sums", "other"
ADDS = re.compile("Sum|Mean|MatMul|BatchMatMul(V2|V3)?|Einsum")
LINEAR = re.compile(
    "Sum|Mean|Add(V2|N)?|Sub|Neg|Identity(N)?|StopGradient|Cast|Reshape|Squeeze|ExpandDims|"
    "Transpose|Pack|ConcatV2|(Strided)?Slice|Unpack|PreventGradient|CheckNumerics"
)
SCALES, DIVIDES = re.compile("Mul|MatMul"), re.compile("RealDiv|DivNoNan")
CONDITION = Hook(cond, "cond")


def mixes_rows(call: Call) -> bool:
    """Returns whether a trace shows that all rows enter in what comes out, but not as a sum.

    Their values may not tell, as where a number is far below the one at which it is clipped.
    """
    inputs, outcome = trace_of_many(call)
    graph, out = inputs[0].graph, rows_of(outcome)
    kinds = sums_in(graph, inputs)
    others = [one for one in numbers_of(outcome) if not may_have_rows(one)]
    if follows_from_all(out, inputs) or OTHER in {kinds.get(id(x)) for x in others}:
        return True
    met = meetings_in(call, graph, inputs)
    return any(depends_on(one, met) for one in out)


def trace_of_many(call: Call) -> tuple[list[tf.Tensor], Outcome]:
    """Returns what is cut, and what comes out, in a trace of a call with `ROWS` rows.

    In it, what has an axis of so many, or of a multiple, has rows.
    """
    cut = set(map(id, call.cut()))
    specs = [
        tf.TensorSpec([ROWS, *one.shape[1:]] if id(one) in cut else one.shape, one.dtype)
        for one in (*call.tensors(), *call.companions().values())
    ]
    with draws_by_row(0, ROWS), branches_merged():  # BatchNorm is in inference mode.
        again, outcome = trace_of(call, specs)
    return again.cut(), outcome


def follows_from_all(out: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]) -> bool:
    """Returns whether one of some tensors follows from what is computed from all rows at once."""
    mixed = [one for one in reductions_in(inputs[0].graph) if depends_on(one, inputs)]
    return any(depends_on(one, mixed) for one in out)


def rows_of(outcome: Outcome) -> list[tf.Tensor]:
    """Returns the tensors that have rows and that a call returns or keeps."""
    return list(filter(may_have_rows, outcome.own_tensors()))


def numbers_of(outcome: Outcome) -> list[tf.Tensor]:
    """Returns the tensors of floats that come out of a trace, the assigned values among them."""
    values = [outcome.scope.state_mapping[id(one)] for one in outcome.scope.assigned]
    losses = [loss for _, loss in outcome.losses]
    return [one for one in (*outcome.own_tensors(), *losses, *values)
            if is_differentiable(one) and tf.is_symbolic_tensor(one)]  # fmt: skip


def meetings_in(call: Call, graph: tf.Graph, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns what a trace with `ROWS` rows computes for some rows from others.

    Another trace, with a few rows, is run: with the same rows, and with each half of them moved.
    In no tensor the other half may move with it, however little of that comes out. An operation
    that moves numbers is also asked with others than 0. Rows meet, too, where a table of rows by
    rows becomes one value for each row, even if all in it is 0. They are taken to meet in what the
    other trace does not have.

    Args:
        graph: the trace with `ROWS` rows.
        inputs: the rows in it.
    """
    found = {one.name: one for one in following_from(inputs, graph) if one.shape.is_fully_defined()}
    names: list[str] = []
    scope = CallScope(0)
    scope.state_mapping.update(moved_weights(call.layer, with_states=True))

    def trace(values: list[tf.Tensor], marks: tf.Tensor) -> list[tf.Tensor]:
        part = call.part(list(map(tf.identity, values)))
        with tf.name_scope(TRACED):
            part.outcome(scope)
        operations: list[Any] = values[0].graph.get_operations()
        made = [one for operation in operations for one in operation.outputs]
        made = [one for one in made if one.name in found and one.dtype == found[one.name].dtype]
        asked = [one for one in made if MOVES.fullmatch(one.op.type)]
        names.extend(one.name for one in (*made, *asked))
        return [*made, *(with_marks(one, found, marks) for one in asked)]

    whole = list(map(few_of, call.cut()))
    others = [moved_from(one, FEW // 2) for one in whole]
    moved = [tf.reverse(moved_from(tf.reverse(one, [0]), FEW // 2), [0]) for one in whole]
    marks = [tf.constant(one, tf.float64) for one in MARKS]
    with draws_by_row(0, FEW), branches_merged():
        run = concrete_function(trace, whole, marks[0])
    runs = map(run, (whole, moved, others), marks)
    columns = list(zip(names, *runs, strict=True))
    axes = {name: axes_of_rows(found[name], few) for name, few, *_ in columns}
    met = {name for name, *three in columns if meets(axes[name], *three)}
    met |= {name for name in names if is_of_pairs(found[name].op, axes)}
    return [found[name] for name in met | (found.keys() - set(names))]


def following_from(tensors: Sequence[tf.Tensor], graph: tf.Graph) -> list[tf.Tensor]:
    """Returns the numbers that a trace computes from some tensors."""
    operations: list[Any] = graph.get_operations()
    known, found, idle = set(map(id, tensors)), [], idle_in(graph)
    for operation in operations:
        if operation not in idle and any(id(one) in known for one in operation.inputs):
            known.update(map(id, operation.outputs))
            found += [one for one in operation.outputs if one.dtype not in (*HANDLES, tf.string)]
    return found


def few_of(rows: tf.Tensor) -> tf.Tensor:
    """Returns the first few rows; where there are fewer, some of them again."""
    return tf.gather(rows, np.arange(FEW) % rows.shape[0])


def axes_of_rows(known: tf.Tensor, few: tf.Tensor) -> list[int]:
    """Returns the axes of rows of a tensor in a trace with `ROWS` rows; `few` has `FEW` of them."""
    sizes = enumerate(zip(known.shape, few.shape, strict=True))
    return [axis for axis, (many, size) in sizes if many and many * FEW == size * ROWS]


def with_marks(made: tf.Tensor, found: Mapping[str, tf.Tensor], marks: tf.Tensor) -> tf.Tensor:
    """Returns what an operation makes of numbers, or flags, that follow from the row alone.

    Args:
        made: what it makes of its own, of which all may be 0.
        found: as in `meetings_in`.
        marks: of the rows.
    """

    def marked(given: tf.Tensor) -> tf.Tensor:
        known = given.name in found and given.shape.is_fully_defined()
        axes = axes_of_rows(found[given.name], given) if known else []
        if len(axes) != 1 or not (is_differentiable(given) or given.dtype.is_bool):
            return given
        places = [1] * given.shape.rank
        places[axes[0]] = given.shape[axes[0]]
        own = tf.reshape(tf.repeat(marks, places[axes[0]] // FEW), places)
        own = own % 2 > 0 if given.dtype.is_bool else tf.cast(own, given.dtype)
        return tf.broadcast_to(own, given.shape)

    operation: Any = made.op
    dtypes = [one.dtype for one in operation.outputs]
    attributes = dict(operation.node_def.attr)
    given = list(map(marked, operation.inputs))
    again = made.graph.create_op(operation.type, given, dtypes, attrs=attributes)
    return again.outputs[made.value_index]


def is_of_pairs(operation: tf.Operation, axes: Mapping[str, Sequence[int]]) -> bool:
    """Returns whether an operation takes rows by rows, and has fewer axes of rows itself."""
    given, made = (
        max((len(axes.get(one.name, ())) for one in tensors), default=0)
        for tensors in (operation.inputs, operation.outputs)
    )
    return given > max(1, made) and not TELLS.fullmatch(operation.type)


def meets(
    axes: Sequence[int], whole: tf.Tensor, with_first: tf.Tensor, with_second: tf.Tensor
) -> bool:
    """Returns whether rows meet in a tensor: one half of it moves with the other half of the rows.

    What moves and has no rows is of some of them, and rows meet where it is used for others.

    Args:
        axes: those of rows.
        whole, with_first, with_second: its value as it is, and where a half of the rows is moved.
    """
    before, first, second = whole.numpy(), with_first.numpy(), with_second.numpy()
    if not axes:
        return not near(before, first) or not near(before, second)

    def are_apart(axis: int, halves: Callable[[np.ndarray, int], list[np.ndarray]]) -> bool:
        three = (halves(one, axis) for one in (before, first, second))
        (upper, lower), (_, lower_then), (upper_then, _) = three
        return near(upper, upper_then) and near(lower, lower_then)

    return not all(are_apart(axis, in_blocks) or are_apart(axis, in_turn) for axis in axes)


def in_blocks(values: np.ndarray, axis: int) -> list[np.ndarray]:
    """Returns both halves of the rows, where all that is of one row stands together."""
    return np.array_split(values, 2, axis)


def in_turn(values: np.ndarray, axis: int) -> list[np.ndarray]:
    """Returns both halves of the rows, where these take turns, as in a dilated convolution."""
    first = np.moveaxis(values, axis, 0)
    return np.array_split(first.reshape(-1, FEW, first[0].size), 2, 1)


@contextlib.contextmanager
def branches_merged() -> Iterator[None]:
    """The scope in which both branches of a condition are computed, where their results are alike.

    In a trace they are seen, whichever is taken.
    """

    def merge(
        original: Any, pred: Any, true_fn: Any = None, false_fn: Any = None, **rest: Any
    ) -> Any:
        if tf.executing_eagerly() or not callable(true_fn) or not callable(false_fn):
            return original(pred, true_fn, false_fn, **rest)
        try:
            return tf.nest.map_structure(lambda *two: tf.where(pred, *two), true_fn(), false_fn())
        except (TypeError, ValueError):
            return original(pred, true_fn, false_fn, **rest)

    with CONDITION.through(merge):
        yield


def sums_in(graph: tf.Graph, inputs: Sequence[tf.Tensor]) -> dict[int, str]:
    """Returns by its id, of each number that a trace computes from all rows, whether it is a sum.

    A sum or mean of rows stays one where it is added to others, and where it is multiplied with or
    divided by what does not follow from the rows. Anything else may be one of the first batch only.
    """
    operations: list[Any] = graph.get_operations()
    kinds, counted = dict.fromkeys(map(id, inputs), EACH), counted_in(graph)
    for operation in operations:
        given = [kinds.get(id(one), "") for one in operation.inputs]
        counts = any(id(one) in counted for one in operation.inputs)
        if any(given) and (counts or operation.type not in SHAPES):
            kind = kind_of(operation, given)
            kinds.update((id(one), kind) for one in operation.outputs)
    return kinds


def kind_of(operation: tf.Operation, given: Sequence[str]) -> str:
    """Returns of what kind the numbers are that an operation makes of numbers of some kinds."""
    if OTHER in given:
        return OTHER
    if SUMS not in given:
        if any(map(may_have_rows, operation.outputs)):
            return EACH
        counts = operation.type != "Mean" or operation.inputs[0].shape.is_fully_defined()
        return SUMS if counts and ADDS.fullmatch(operation.type) else OTHER
    is_linear = EACH not in given and LINEAR.fullmatch(operation.type)
    is_scaled = given.count(SUMS) == 1 and SCALES.fullmatch(operation.type)
    is_divided = given[0] == SUMS and given[1:] == [""] and DIVIDES.fullmatch(operation.type)
    return SUMS if EACH not in given and (is_linear or is_scaled or is_divided) else OTHER
