"""The question whether a layer treats rows apart: parts of a batch against the whole.

All rows of a first batch are asked, one tower's share at a time, each on its tower; of a layer that
users wrote also all together, and its trace is read. Every random number follows from its row,
BatchNorm is in inference mode, and weights and half of the rows are moved, so that no branch is
closed by a weight of 0, and halves have no maximum or longest row in common. What is left to differ
is rounding.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from towers.ground.private_apis import (
    compute_output_spec,
    could_possibly_record,
    flatten_layers,
    stop_recording,
)
from towers.layers.draws import draws_by_row, numbers_kept
from towers.layers.mixing import mixes_rows
from towers.layers.moved import (
    alike_until,
    doubled,
    moved_arguments,
    moved_from,
    moved_in_place,
    moved_weights,
    near,
)
from towers.layers.part import LARGE, Call, Outcome
from towers.layers.rows import CONCATENATE, FIRST, KINDS, MEAN, SUM, Way
from towers.layers.scope import CallScope
from towers.layers.traced import Surroundings, is_chained, surroundings_of
from towers.step.sums import way_to_merge
from towers.travel.pairs import part_sizes
from towers.variables.shared_variables import is_seed

CUT, INSIDE, WHOLE = "cut", "inside", "whole"
# What a call may return: tensors, which are joined, and what is the same on all towers.
KNOWN = (tf.Tensor, keras.Variable, tf.Variable, bool, int, float, str, type(None))
PLACE = re.compile(r"\{\{.*?\}\} ?")  # Where TensorFlow says that an error came up.
# TensorFlow may raise what fails in a data set, read ahead meanwhile, in any op on another device.
IN_A_DATA_SET = "transformation with iterator"
COUPLES = "couples the rows of a batch"
CHAINED = "returns or keeps a tensor and another one that follows from it"
NOT_LINEAR = "has a gradient of its own that is no multiple of the one that it is given"
NOT_CLOSED = "reads variables that it does not list, or past the values that it is given"
IS_ZERO = "returns or adds a 0, in which a mean over the rows cannot be told from a sum"


class Answer(NamedTuple):
    """How a layer is called.

    Attributes:
        way: `CUT` over towers; `INSIDE`, where the layers in it are asked; or `WHOLE`.
        rows: the indices of the arguments that are cut.
        ways: how each of the tensors that come out of it becomes one.
        reason: why it is not cut.
        fixed: the indices of the layer's variables of which all towers look up the same rows.
        is_synchronized: whether its towers may add in the middle, for which they need a graph.
        has_gradient: whether it has custom gradients, which find variables by their handles alone.
        not_in_step: why the towers' own step cannot have it, the end of a sentence.
        looks_up: whether it looks up rows of a variable by the batch, beside Keras's own layers.
    """

    way: str
    rows: Sequence[int] = ()
    ways: Sequence[Way] = ()
    reason: str = ""
    fixed: frozenset[int] = frozenset()
    is_synchronized: bool = False
    has_gradient: bool = False
    not_in_step: str = ""
    looks_up: bool = False


def ask(call: Call, devices: Sequence[str], *, traces: bool = True, trains: bool = False) -> Answer:
    """Returns how a layer is called, found with the values of its arguments.

    It leaves all as it was.

    Args:
        traces: whether a trace is to tell where the layer's numbers come from.
        trains: whether a gradient may be asked by one tensor that comes out through another.
    """
    if not call.has_rows():
        return not_cut(call, "takes no dense tensor with rows")
    if call.num_rows == 0:
        return not_cut(call, "takes no rows")
    with_all = traces and len(devices) > 1
    try:
        with unnoticed(call):
            around = surroundings_of(call) if traces else Surroundings()
            if around.refused:
                return not_cut(call, around.refused)
            ways = chosen(fitting_ways(call, devices, with_all=with_all, read=around.read))
            if traces and not isinstance(ways, str) and mixes_rows(call):
                ways = COUPLES
            if trains and len(ways) > 1 and not isinstance(ways, str) and is_chained(call):
                ways = CHAINED
        couples, is_linear = False, True
        if around.sways_gradient and not isinstance(ways, str):  # A tape records again.
            gradient = call.with_gradient(ways)
            couples, is_linear = ask_gradient(gradient, devices, with_all=with_all)
    except Exception as error:  # Of any kind: it is the user's code.
        return not_called(call, error)
    if isinstance(ways, str) or couples:
        return not_cut(call, f"{COUPLES} in its gradient" if couples else str(ways))
    layers = flatten_layers(call.layer)
    is_synchronized = any(getattr(one, "synchronized", False) for one in layers)
    not_in_step = ("" if around.is_closed else NOT_CLOSED) if is_linear else NOT_LINEAR
    return Answer(
        CUT, call.rows, ways, "", around.fixed, is_synchronized, around.has_gradient, not_in_step,
        around.looks_up,
    )  # fmt: skip


@contextlib.contextmanager
def unnoticed(call: Call) -> Iterator[None]:
    """The scope in which a layer, now built, is called unseen by tapes, generators and warnings."""
    # A layer may have a tape of its own.
    quiet = stop_recording() if could_possibly_record() else contextlib.nullcontext()
    with quiet, numbers_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # What a layer says of so few rows is no user's.
        if not all(one.built for one in flatten_layers(call.layer)):
            compute_output_spec(call.whole)  # A `build` from outside may leave them unbuilt.
        yield


def ask_gradient(call: Call, devices: Sequence[str], *, with_all: bool) -> tuple[bool, bool]:
    """Returns whether a gradient couples rows, and whether it is linear; see `with_gradient`."""
    _, count = next(shares(call.num_rows, len(devices)))
    part = call.part([one[:count] for one in call.cut()])
    with numbers_kept(), warnings.catch_warnings(), tf.device(devices[0]):
        warnings.simplefilter("ignore")
        large, small = part.outcome(CallScope(0)).outputs
        found = fitting_ways(call, devices, with_all=with_all)
    couples = isinstance(found, str) or not all(map(is_of_rows, found[: 2 * len(large)]))
    return couples, all(map(is_multiple, large, small))


def is_multiple(large: tf.Tensor, small: tf.Tensor) -> bool:
    """Returns whether a gradient is `LARGE` times another one, as far as both are finite."""
    one, other = large.numpy(), LARGE * small.numpy()
    finite = np.isfinite(one) & np.isfinite(other)
    return near(one[finite], other[finite])


def not_cut(call: Call, reason: str) -> Answer:
    """Returns the answer for a layer that is not cut: the layers in it are asked, if there are."""
    inner = flatten_layers(call.layer, include_self=False, recursive=False)
    return Answer(INSIDE if inner else WHOLE, reason=reason)


def not_called(call: Call, error: Exception) -> Answer:
    """Returns the answer for a layer that raised an error; raises one of a data set again."""
    if IN_A_DATA_SET in str(error):
        raise error
    return not_cut(call, f"cannot be called with a part of its rows ({summary(error)})")


def summary(error: BaseException) -> str:
    """Returns the first line of an error, shortened, without what the libraries say around it."""
    quotes = isinstance(error, KeyError) and error.args  # It says what it is given in quotes.
    text = str(error.args[0] if quotes else error)
    _, _, inner = text.partition("\x1b[1m")
    lines = PLACE.sub("", (inner or text).replace("\x1b[0m", "")).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0].split('. ')[0][:80]}"


def chosen(found: list[set[Way]] | str) -> list[Way] | str:
    """Returns how each tensor that comes out becomes one, or why towers cannot know that."""
    if isinstance(found, str):
        return found
    if any({Way(MEAN), Way(SUM)} <= fitting for fitting in found):
        return IS_ZERO
    return [min(fitting, key=lambda way: KINDS.index(way.kind)) for fitting in found]


def fitting_ways(
    call: Call,
    devices: Sequence[str],
    *,
    with_all: bool,
    read: Sequence[tf.Variable] = (),
) -> list[set[Way]] | str:
    """Returns all ways in which each tensor that comes out may become one, or why there is none.

    Args:
        with_all: whether all rows are asked together, too, if they fit a device. What follows from
            their number, such as a tenth of them, shows in no share.
        read: variables that the layer reads and that are not Keras's.
    """
    size = call.num_rows
    spans = list(zip(devices, shares(size, len(devices)), strict=True))
    found: list[list[set[Way]]] = []
    for device, (start, count) in [*spans, *([(devices[0], (0, size))] if with_all else [])]:
        if count == 0:
            continue
        try:
            is_moved = bool(found)  # First as they are.
            with tf.device(device), moved_in_place(read if is_moved else ()):
                weights = moved_weights(call.layer, with_states=is_moved)
                others = moved_arguments(call) if is_moved else {}
                is_alike = is_moved and count == size
                columns = compare(call, start, count, weights, others, is_alike=is_alike)
        except tf.errors.ResourceExhaustedError:
            if count < size or not found:
                raise
            continue
        if isinstance(columns, str):
            return columns
        found.append(columns)
    if any(not fitting for columns in found for fitting in columns):
        return COUPLES
    common = [set.intersection(*column) for column in zip(*found, strict=True)]
    return common if all(common) else COUPLES


def is_of_rows(fitting: set[Way]) -> bool:
    """Returns whether these are ways of a gradient: each row has its own, or adds to it."""
    return any(way.kind in (CONCATENATE, SUM) for way in fitting)


def shares(size: int, num_towers: int) -> Iterator[tuple[int, int]]:
    """Yields the first row and the number of rows of each tower: at least two, if there are."""
    start = 0
    for count in part_sizes(size, num_towers):
        if count == 1 and size > 1:
            yield min(start, size - 2), 2
        else:
            yield start, count
        start += count


def compare(
    call: Call,
    start: int,
    count: int,
    weights: Mapping[int, tf.Tensor],
    others: dict[int, tf.Tensor],
    *,
    is_alike: bool,
) -> list[set[Way]] | str:
    """Returns for each tensor the ways in which two parts of some rows make the whole.

    Args:
        start, count: the first of the rows, and how many there are.
        weights: by the variable's id, a value in place of its own.
        others: by index, a value in place of an argument without rows.
        is_alike: whether the rows of one part become much the same.
    """
    rows = [one[start : start + count] for one in call.cut()]
    if count == 1:
        rows, count = list(map(doubled, rows)), 2
    middle = count // 2 + (count > 2)  # Parts of different sizes tell more.
    for change in (alike_until, moved_from) if is_alike else (moved_from,):
        rows = [change(one, middle) for one in rows]
    cuts = [(0, count), (0, middle), (middle, count)]
    outcomes = []
    for first, stop in cuts:
        scope = CallScope(0)
        scope.state_mapping.update(weights)
        part = call.part([one[first:stop] for one in rows], others)
        with draws_by_row(first, stop - first):
            outcomes.append(part.outcome(scope))
    for leaf in (*tf.nest.flatten(outcomes[0].outputs), *outcomes[0].tensors()):
        if not isinstance(leaf, KNOWN):
            return f"returns or keeps a {type(leaf).__name__}, which towers do not join"
    return list(matches(outcomes, [stop - first for first, stop in cuts], weights))


def matches(
    outcomes: Sequence[Outcome], counts: Sequence[int], before: Mapping[int, tf.Tensor]
) -> Iterator[set[Way]]:
    """Yields for each tensor, and for the states together, the ways that fit.

    Args:
        outcomes: of the whole and of its parts.
        counts: the rows of each.
        before: by the variable's id, its value before, if it is another than its own.
    """
    whole, *parts = outcomes
    columns = [outcome.tensors() for outcome in (whole, *parts)]
    if len({len(column) for column in columns}) > 1:
        yield set()
        return
    for column in zip(*columns, strict=True):
        all_rows, *halves = (one.numpy() for one in column)
        yield ways_that_fit(all_rows, halves, counts)
    if not all(state_fits(one, outcomes, counts, before) for one in whole.scope.assigned):
        yield set()


def ways_that_fit(
    whole: np.ndarray, parts: Sequence[np.ndarray], counts: Sequence[int]
) -> set[Way]:
    """Returns the ways in which the parts of a tensor make the whole."""
    count, *shares_of_parts = counts
    found = set()
    if whole.ndim and whole.shape[0] % count == 0 and whole.shape[0]:
        multiple = whole.shape[0] // count
        expected = [size * multiple for size in shares_of_parts]
        shapes = [part.shape[0] for part in parts if part.ndim]
        if shapes == expected and near(whole, np.concatenate(parts)):
            found.add(Way(CONCATENATE, multiple))
    if all(part.shape == whole.shape for part in parts):
        if whole.dtype.kind not in "fcV":  # Numbers that do not depend on the rows.
            same = all(np.array_equal(part, whole) for part in parts)
            return found | ({Way(FIRST)} if same else set())
        first, second = parts
        one, other = shares_of_parts
        if near(whole, (first * one + second * other) / count):
            found.add(Way(MEAN))
        if near(whole, first + second):
            found.add(Way(SUM))
    return found


def state_fits(
    variable: keras.Variable,
    outcomes: Sequence[Outcome],
    counts: Sequence[int],
    moved: Mapping[int, tf.Tensor],
) -> bool:
    """Returns whether the values that parts assign to a state merge into that of the whole."""
    if is_seed(variable):
        return True
    values = [outcome.scope.state_mapping.get(id(variable)) for outcome in outcomes]
    if any(value is None for value in values):
        return False
    whole, first, second = (np.asarray(value) for value in values)
    before, way = np.asarray(moved.get(id(variable), variable.value)), way_to_merge(variable)
    if way == "sum":
        return near(whole, first + second - before)
    if way == "first":
        return near(whole, first)
    return near(whole, (first * counts[1] + second * counts[2]) / counts[0])
