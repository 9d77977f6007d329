"""The towers of a call: what each computes from its rows, joined, with gradients by the towers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.ground.host import HOST
from towers.ground.private_apis import (
    could_possibly_record,
    record_operation,
    recording_again,
    stop_recording,
    stored_value,
    variable_accessed,
)
from towers.layers.left import of_towers
from towers.layers.reads import PUSH_TAPE, reads_of, sum_on
from towers.layers.rows import (
    CONCATENATE,
    FIRST,
    MEAN,
    OWN,
    SUM,
    TABLE,
    VARIABLE,
    Cut,
    Source,
    Way,
    checks_of,
    cut_inputs,
    cut_rows,
    is_differentiable,
    join_rows,
    same_parts,
    sources_read,
    value_of,
)
from towers.layers.scope import CallScope, assign_once
from towers.step.sums import times_or_zero, widen
from towers.step.synchronized import Rendezvous
from towers.travel.gradients import Gradient
from towers.variables.shared_variables import is_seed


class Towers:
    """The towers of one call, each with a scope, and a tape that records what it computes.

    Args:
        cut: how the rows are cut.
        home: the device on which outputs are joined.
        sums_rows: whether the repeated rows of a table's gradient are summed.
        for_function: whether a whole function is differentiated, which has no tape within.
    """

    def __init__(self, cut: Cut, home: str, *, sums_rows: bool, for_function: bool = False):
        self._cut, self._home, self._sums_rows = cut, home, sums_rows
        self._for_function = for_function
        self._tapes = [tf.GradientTape(persistent=True) for _ in cut.devices]
        self._scopes = [CallScope(tower) for tower in range(len(cut.devices))]
        self._meeting = Rendezvous(len(cut.devices), home)
        self._sources: list[Source] = []
        self._reads = reads_of(cut.devices)

    def run(
        self,
        function: Callable[[list[tf.Tensor], CallScope], Any],
        rows: Sequence[tf.Tensor],
        variables: Sequence[keras.Variable] = (),
        others: Sequence[tf.Tensor] = (),
        tables: Container[int] = (),
    ) -> list[Any]:
        """Returns what `function(rows, scope)` returns on each tower, whose tape records it.

        Args:
            function: takes a tower's rows, and the scope in which it reads and assigns variables.
            rows: tensors of which each tower gets its rows.
            variables: those that each tower reads once; all others are read at each use.
            others: tensors that all towers take as they are.
            tables: the ids of variables of which all towers look up the same rows.
        """
        variables, results = [one for one in variables if not is_seed(one)], []
        scopes: list[str] = []
        with of_towers(scopes), self._meeting as meeting, PUSH_TAPE.through(None):
            checks = checks_of(rows, self._cut)
            parts = [cut_inputs(one, self._cut) for one in rows]
            copies = self._reads.copies(variables)
            for tower, scope in enumerate(self._scopes):
                with meeting.join() as replica, self._on(tower) as name:
                    scopes.append(name)
                    if replica is not None:
                        replica.begin(self._cut.sizes[tower])
                    with tf.control_dependencies(checks):
                        for each in parts:  # A tower's own, whatever else uses them.
                            each[tower] = tf.identity(each[tower])
                    values = [each[tower] for each in copies]
                    scope.state_mapping.update(zip(map(id, variables), values, strict=True))
                    own = [each[tower] for each in parts]
                    with self._tapes[tower] as tape:
                        tape.watch(list(filter(is_differentiable, [*own, *values, *others])))
                        results.append(function(own, scope))
        self._for_function |= meeting.has_met  # A gradient of its ops would not meet.
        pairs = zip(rows, parts, strict=True)
        self._sources += [
            Source(one, Way(CONCATENATE), each) for one, each in pairs if is_differentiable(one)
        ]
        for variable, each in zip(variables, copies, strict=True):
            self._sources += self._sources_of(variable, each, is_table=id(variable) in tables)
        self._sources += [Source(one, Way(VARIABLE), [one] * len(results)) for one in others]
        self._sources += sources_read(self._tapes)
        return results

    def join(self, values: Sequence[Sequence[Any]], ways: Sequence[Way]) -> list[Any]:
        """Returns what the towers computed as one tensor each; assigns what they assigned.

        Its gradient with respect to all they computed from is computed by each tower on its device.

        Args:
            values: for each output, the value of each tower.
            ways: for each output, how they become one.
        """
        with of_towers():
            joined = self._join_all(self._sources, values, ways)
            with tf.device(HOST):
                assign_once(self._scopes, self._cut.sizes)
        return joined

    def _sources_of(
        self, variable: keras.Variable, copies: Sequence[tf.Tensor], *, is_table: bool
    ) -> list[Source]:
        """Returns what the towers compute from a variable that each reads once."""
        if not (variable.trainable and is_differentiable(copies[0])):
            return []
        if could_possibly_record() and not (is_table or self._for_function):
            watched = self._reads.watched(variable, copies, sums_rows=self._sums_rows)
            if watched:  # The tapes around know each tower's value: its gradient stays there.
                numbers = range(len(watched))
                return [
                    Source(one, Way(OWN), [copies[k] if k == tower else None for k in numbers])
                    for tower, one in enumerate(watched)
                ]
        stored = stored_value(variable)
        variable_accessed(stored)
        way = Way(TABLE if is_table else VARIABLE, 1, stored.device)
        return [Source(stored.handle, way, copies)]

    @contextlib.contextmanager
    def _on(self, tower: int) -> Iterator[str]:
        """The scope of a tower's ops; yields its name."""
        with tf.device(self._cut.devices[tower]), tf.name_scope(f"tower_{tower}") as name:
            yield name

    def _join_all(
        self, sources: Sequence[Source], values: Sequence[Sequence[Any]], ways: Sequence[Way]
    ) -> list[Any]:
        """Returns the values of all towers as one tensor each, with a gradient of their own.

        So is the gradient of that, since the backward pass is made of such values, too.
        """
        joined = [self._join(column, way) for column, way in zip(values, ways, strict=True)]
        recorded = [index for index, one in enumerate(joined) if is_differentiable(one)]
        if recorded and sources and (self._for_function or could_possibly_record()):
            columns = [values[index] for index in recorded]
            backward = self._backward(sources, columns, [ways[index] for index in recorded])
            own = self._record([joined[index] for index in recorded], sources, backward)
            for index, output in zip(recorded, own, strict=True):
                joined[index] = output
        return joined

    def _record(
        self, outputs: list[Any], sources: Sequence[Source], backward: Callable[..., list[Any]]
    ) -> Sequence[Any]:
        """Returns the outputs with a gradient of their own, None for one that is not used.

        A tape is told of it. What differentiates a whole function asks its ops, and no tape.
        """
        used: dict[int, Any] = {}

        def of_used(*upstream: Any) -> list[Any]:
            """TensorFlow gives 0 for an output that is not used; a forward mode uses all."""
            own = [one if one is used.get(i) else None for i, one in enumerate(upstream)]
            return backward(*(upstream if all(one is None for one in own) else own))

        outer = [value_of(one) if self._for_function else one.outer for one in sources]
        own = self._with_gradient(outputs, outer, of_used)
        if len(own) == 1:
            return own

        def note(index: int, gradient: Any) -> list[Any]:
            used[index] = gradient
            return [gradient]

        noted: list[Any] = []
        for index, one in enumerate(own):
            with stop_recording(), tf.device(one.device):
                same = same_parts(one)
            noted += self._with_gradient([same], [one], functools.partial(note, index))
        return noted

    def _with_gradient(
        self, outputs: Sequence[Any], sources: Sequence[Any], backward: Callable[..., list[Any]]
    ) -> Sequence[Any]:
        """Returns outputs of which the tape, or the op that is asked, has this gradient."""
        if not self._for_function:
            record_operation("LayerCall", outputs, sources, backward)
            return outputs

        @tf.custom_gradient
        def attached(*_: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[Any]]]:
            return list(map(tf.identity, outputs)), lambda *upstream: backward(*upstream)

        found: Sequence[tf.Tensor] = attached(*sources)
        return found

    def _join(self, values: Sequence[Any], way: Way) -> Any:
        """Returns the towers' values of one tensor as one; None if they have none."""
        if way.kind == CONCATENATE:
            values = list(map(tf.convert_to_tensor, values))
            return join_rows(values, self._cut.of(values, way.multiple), self._home)
        if way.kind == OWN:
            return next(value for value in values if value is not None)
        is_sparse = all(isinstance(value, tf.IndexedSlices) for value in values)
        if way.kind == TABLE and is_sparse and not self._sums_rows:
            with tf.device(way.device):
                total = tf.add_n([value.values for value in values])
            return tf.IndexedSlices(total, values[0].indices, values[0].dense_shape)
        if way.kind in (VARIABLE, TABLE):
            return sum_on(way.device, values, sums_rows=self._sums_rows)
        with tf.device(self._home):
            if way.kind == FIRST:
                return tf.identity(values[0])
            pairs = zip(map(widen, values), self._factors(way.kind), strict=True)
            return tf.cast(tf.add_n([times_or_zero(*pair) for pair in pairs]), values[0].dtype)

    def _factors(self, kind: str) -> list[tf.Tensor]:
        """Returns by what the value of each tower is multiplied in a mean or a sum, float64."""
        sizes = [tf.cast(size, tf.float64) for size in self._cut.sizes]
        if kind == MEAN:
            total = tf.add_n(sizes)
            return [size / total for size in sizes]
        return [tf.cast(size > 0, tf.float64) for size in sizes]

    def _backward(
        self, sources: Sequence[Source], values: Sequence[Sequence[tf.Tensor]], ways: Sequence[Way]
    ) -> Callable[..., list[Any]]:
        """Returns the function from the outputs' gradients to those of the sources."""

        def backward(*upstream: tf.Tensor) -> list[Any]:
            with of_towers():
                grown, used = [*sources], []
                for gradient, way, column in zip(upstream, ways, values, strict=True):
                    if gradient is not None:  # As where tangents go forward.
                        grown.append(Source(gradient, way, self._spread(gradient, way, column)))
                        used.append(column)
                if not used:
                    return [None] * len(sources)
                with self._meeting:
                    gradients = [
                        self._gradients(tower, sources, used, grown[len(sources) :])
                        for tower in range(len(self._tapes))
                    ]
                columns = list(zip(*gradients, strict=True))
                present = [
                    i for i, column in enumerate(columns) if any(g is not None for g in column)
                ]
                joined = self._join_all(
                    [one for one in grown if is_differentiable(one.outer)],
                    [columns[i] for i in present],
                    [sources[i].way for i in present],
                )
                results: list[Any] = [None] * len(sources)
                for index, gradient in zip(present, joined, strict=True):
                    results[index] = gradient
                return results

        return backward

    def _spread(self, gradient: Any, way: Way, values: Sequence[Any]) -> list[Any]:
        """Returns the gradient of each tower's value, on its device; 0 where it counts nothing."""
        devices, gradient = self._cut.devices, tf.convert_to_tensor(gradient)
        if way.kind == OWN:
            return [None if value is None else gradient for value in values]
        if way.kind == CONCATENATE:
            wanted = self._cut.of(values, way.multiple)
            parts = cut_rows(gradient, wanted)
            if wanted.is_that_of(gradient):
                return parts  # These are 0 there already.
        else:
            parts = [gradient] * len(devices)
        factors = self._factors(MEAN if way.kind == MEAN else SUM)
        spread = []
        for device, part, factor in zip(devices, parts, factors, strict=True):
            with tf.device(device):
                spread.append(times_or_zero(part, factor))
        return spread

    def _gradients(
        self,
        tower: int,
        sources: Sequence[Source],
        values: Sequence[Sequence[tf.Tensor]],
        upstream: Sequence[Source],
    ) -> list[Gradient]:
        """Returns the gradient of each source on one tower, computed on its device."""
        tape, columns = self._tapes[tower], [column[tower] for column in values]
        pairs = [(one, given.inner[tower]) for one, given in zip(columns, upstream, strict=True)]
        targets, own = zip(*(pair for pair in pairs if pair[0] is not None), strict=True)
        places = [i for i, source in enumerate(sources) if source.inner[tower] is not None]
        with self._on(tower), recording_again(tape) as records:
            if records:
                tape.watch([one for one in own if is_differentiable(one)])
            inner = [sources[place].inner[tower] for place in places]
            found = dict(zip(places, tape.gradient(targets, inner, own), strict=True))
        return [found.get(index) for index in range(len(sources))]
