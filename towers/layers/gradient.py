"""What towers compute from the same sources, joined, with gradients that they compute again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.ground.private_apis import could_possibly_record, record_operation, recording_again
from towers.layers.rows import Cut, cut_rows, join_rows, parts_of
from towers.step.sums import times_or_zero
from towers.travel.gradients import Gradient, concat_rows, sum_gradients, sum_repeated_rows

# How the values of the towers become one tensor.
KINDS = CONCATENATE, MEAN, SUM, FIRST = "concatenate", "mean", "sum", "first"
VARIABLE, TABLE = "variable", "table"


class Way(NamedTuple):
    """How the towers' values of one tensor become one.

    Attributes:
        kind: `CONCATENATE`; `MEAN`, weighted by rows; `SUM`; `FIRST`, where all
            have the same; `VARIABLE`, a sum where a variable is;
            `TABLE`, that of a table in which all towers look up the same rows.
        multiple: of the rows, as in `Cut`.
        device: of the variable.
    """

    kind: str
    multiple: int = 1
    device: str = ""


class Source(NamedTuple):
    """A tensor from which the towers compute.

    Attributes:
        outer: the tensor, or the handle of a variable.
        way: how its gradients become one.
        inner: on each tower, its rows or its value there.
    """

    outer: tf.Tensor
    way: Way
    inner: Sequence[tf.Tensor]


class Towers:
    """The towers of one call, each with a tape that records what it computes.

    Args:
        cut: how the rows are cut.
        home: the device on which outputs are joined.
        sums_rows: whether the repeated rows of a table's gradient are summed.
        for_function: whether a whole function is differentiated, which has no tape within.
    """

    def __init__(self, cut: Cut, home: str, *, sums_rows: bool, for_function: bool = False):
        self.cut, self._home, self._sums_rows = cut, home, sums_rows
        self._for_function = for_function
        self.tapes = [tf.GradientTape(persistent=True) for _ in cut.devices]

    def join(
        self, sources: Sequence[Source], values: Sequence[Sequence[Any]], ways: Sequence[Way]
    ) -> list[Any]:
        """Returns the values of all towers as one tensor each.

        Their gradient with respect to the sources is computed by each tower on its device. So is
        the gradient of that, since the backward pass is made of such values, too.

        Args:
            sources: what the towers' tapes watched.
            values: for each output, the value of each tower.
            ways: for each output, how they become one.
        """
        joined = [self._join(column, way) for column, way in zip(values, ways, strict=True)]
        recorded = [index for index, one in enumerate(joined) if is_differentiable(one)]
        if recorded and sources and could_possibly_record():
            columns = [values[index] for index in recorded]
            backward = self._backward(sources, columns, [ways[index] for index in recorded])
            own = self._record([joined[index] for index in recorded], sources, backward)
            for index, output in zip(recorded, own, strict=True):
                joined[index] = output
        return joined

    def _record(
        self, outputs: list[Any], sources: Sequence[Source], backward: Callable[..., list[Any]]
    ) -> Sequence[Any]:
        """Returns the outputs with a gradient of their own.

        A tape is told of it. What differentiates a whole function asks its ops, and no tape.
        """
        if not self._for_function:
            outer = [source.outer for source in sources]
            record_operation("LayerCall", outputs, outer, backward)
            return outputs

        @tf.custom_gradient
        def attached(*_: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[Any]]]:
            return list(map(tf.identity, outputs)), lambda *upstream: backward(*upstream)

        found: Sequence[tf.Tensor] = attached(*map(value_of, sources))
        return found

    def _join(self, values: Sequence[Any], way: Way) -> Any:
        """Returns the towers' values of one tensor as one; None if they have none."""
        if any(value is None for value in values):
            return None
        if way.kind == CONCATENATE:
            values = list(map(tf.convert_to_tensor, values))
            return join_rows(values, self.cut.times(way.multiple), self._home)
        if way.kind in (VARIABLE, TABLE):
            with tf.device(way.device):
                if all(isinstance(value, tf.IndexedSlices) for value in values):
                    return self._join_slices(values, way.kind)
                return sum_gradients([[value] for value in values])[0]
        with tf.device(self._home):
            if way.kind == FIRST:
                return tf.identity(values[0])
            factors = self._factors(way.kind, values[0].dtype)
            return tf.add_n([times_or_zero(*pair) for pair in zip(values, factors, strict=True)])

    def _join_slices(self, values: Sequence[tf.IndexedSlices], kind: str) -> tf.IndexedSlices:
        """Returns the looked up rows of a table's gradient on all towers."""
        if self._sums_rows:
            return sum_repeated_rows(concat_rows(values))
        if kind == VARIABLE:
            return concat_rows(values)
        total = tf.add_n([value.values for value in values])
        return tf.IndexedSlices(total, values[0].indices, values[0].dense_shape)

    def _factors(self, kind: str, dtype: tf.DType) -> list[tf.Tensor]:
        """Returns by what the value of each tower is multiplied in a mean or a sum."""
        sizes = [tf.cast(size, tf.float64) for size in self.cut.sizes]
        if kind == MEAN:
            total = tf.add_n(sizes)
            return [tf.cast(size / total, dtype) for size in sizes]
        return [tf.cast(size > 0, dtype) for size in sizes]

    def _backward(
        self, sources: Sequence[Source], values: Sequence[Sequence[tf.Tensor]], ways: Sequence[Way]
    ) -> Callable[..., list[Any]]:
        """Returns the function from the outputs' gradients to those of the sources."""

        def backward(*upstream: tf.Tensor) -> list[Any]:
            grown = [*sources]
            for gradient, way in zip(upstream, ways, strict=True):
                grown.append(Source(gradient, way, self._spread(gradient, way)))
            gradients = [
                self._gradients(tower, sources, values, grown[len(sources) :])
                for tower in range(len(self.tapes))
            ]
            columns = list(zip(*gradients, strict=True))
            present = [i for i, column in enumerate(columns) if any(g is not None for g in column)]
            joined = self.join(
                [one for one in grown if is_differentiable(one.outer)],
                [columns[i] for i in present],
                [sources[i].way for i in present],
            )
            results: list[Any] = [None] * len(sources)
            for index, gradient in zip(present, joined, strict=True):
                results[index] = gradient
            return results

        return backward

    def _spread(self, gradient: Any, way: Way) -> list[tf.Tensor]:
        """Returns the gradient of each tower's value, on its device; 0 where it counts nothing."""
        cut, gradient = self.cut, tf.convert_to_tensor(gradient)
        if way.kind == CONCATENATE:
            wanted, known = cut.times(way.multiple), parts_of(gradient, cut.devices)
            values = cut_rows(gradient, wanted)
            if known is not None and known.cut.multiple == wanted.multiple:
                return values  # These are 0 there already.
        else:
            values = [gradient] * len(cut.devices)
        factors = self._factors(MEAN if way.kind == MEAN else SUM, gradient.dtype)
        spread = []
        for device, value, factor in zip(cut.devices, values, factors, strict=True):
            with tf.device(device):
                spread.append(times_or_zero(value, factor))
        return spread

    def _gradients(
        self,
        tower: int,
        sources: Sequence[Source],
        values: Sequence[Sequence[tf.Tensor]],
        upstream: Sequence[Source],
    ) -> list[Gradient]:
        """Returns the gradient of each source on one tower, computed on its device."""
        tape, own = self.tapes[tower], [one.inner[tower] for one in upstream]
        with (
            tf.device(self.cut.devices[tower]),
            tf.name_scope(f"tower_{tower}"),
            recording_again(tape) as records,
        ):
            if records:
                tape.watch([one for one in own if is_differentiable(one)])
            found: list[Gradient] = tape.gradient(
                [column[tower] for column in values],
                [source.inner[tower] for source in sources],
                output_gradients=own,
            )
        return found


def value_of(source: Source) -> tf.Tensor:
    """Returns the tensor of a source, or the value of its variable."""
    if source.outer.dtype != tf.resource:
        return source.outer
    return tf.raw_ops.ReadVariableOp(resource=source.outer, dtype=source.inner[0].dtype)


def is_differentiable(value: Any) -> bool:
    """Returns whether a value is a tensor, or the handle of a variable, that has a gradient."""
    return isinstance(value, tf.Tensor) and (
        value.dtype.is_floating or value.dtype.is_complex or value.dtype == tf.resource
    )
