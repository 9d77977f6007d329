"""What the towers of a call compute from, and how their values of one tensor become one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

# How the values of the towers become one tensor.
KINDS = CONCATENATE, MEAN, SUM, FIRST = "concatenate", "mean", "sum", "first"
VARIABLE, TABLE, OWN = "variable", "table", "own"


class Way(NamedTuple):
    """How the towers' values of one tensor become one.

    Attributes:
        kind: `CONCATENATE`; `MEAN`, weighted by rows; `SUM`; `FIRST`, where all have the same;
            `VARIABLE`, a sum where a variable is; `TABLE`, that of a table in which all towers look
            up the same rows; `OWN`, of one tower alone.
        multiple: how many rows there are for each row of the call; None if that is not known.
        device: of the variable.
    """

    kind: str
    multiple: int | None = 1
    device: str = ""


class Source(NamedTuple):
    """A tensor from which the towers compute.

    Attributes:
        outer: the tensor, or the handle of a variable.
        way: how its gradients become one.
        inner: on each tower, its rows or its value there; None where it has none.
    """

    outer: tf.Tensor
    way: Way
    inner: Sequence[Any]


def sources_read(tapes: Sequence[tf.GradientTape]) -> Iterator[Source]:
    """Yields the variables that towers read themselves, such as a `tf.Variable` of a layer."""
    for variable in dict.fromkeys(v.ref() for tape in tapes for v in tape.watched_variables()):
        one = variable.deref()
        yield Source(one.handle, Way(VARIABLE, 1, one.device), [one] * len(tapes))


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
