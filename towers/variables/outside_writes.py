"""Writes outside of a step: which of its variables were assigned since its copies were equal."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.ground.private_apis import RESTORE_METHOD
from towers.saving.checkpoint_files import tensorflow_variable

# How the methods of a `tf.Variable` begin that write it; Keras's own writes end in one of these.
WRITE = ("assign", "scatter_", "batch_scatter_", RESTORE_METHOD)


class StepWrites:
    """Which variables of a step were written by anything but the step itself.

    A write by Python code is seen when it happens. A write in the graph of a `tf.function` is seen
    when that graph is traced: from then on the variable counts as written before every step. Steps
    that share variables tell each other. What is left are raw ops, and graphs of others that were
    traced before.

    Args:
        variables: the variables that the step reads and writes.
        watched: whether to look for writes; without it, the step only tells others of its own.

    Attributes:
        pending: the indices of the variables written since the last `take`.
    """

    def __init__(self, variables: Sequence[keras.Variable], *, watched: bool):
        self.pending: set[int] = set()
        self._in_graphs: set[int] = set()
        self._variables = list(variables)  # They live as long as their ids are used.
        self._indices = {key_of(variable): index for index, variable in enumerate(variables)}
        self._written = set(self._indices)  # By the step itself.
        if watched:
            for variable in variables:
                observe(tensorflow_variable(variable))
            WATCHING.add(self)

    def take(self) -> list[int]:
        """Returns the indices of the variables written since the last call, in order."""
        taken = sorted(self.pending)
        self.pending = set(self._in_graphs)
        return taken

    def note(self, key: int) -> None:
        """Notes that a variable is written: now, or by the graph that is being traced."""
        index = self._indices.get(key)
        if index is None:
            return
        self.pending.add(index)
        if not tf.inside_function() or index in self._in_graphs:
            return
        self._in_graphs.add(index)
        warnings.warn(
            f"'{self._variables[index].path}' is assigned in a tf.function outside of the training "
            "step, which cannot see when that runs: it is copied to every tower before each step. "
            "Assign it outside of a tf.function, or train with parameters='cpu'.",
            stacklevel=4,
        )

    def leaves(self, variables: Iterable[keras.Variable]) -> None:
        """Notes that the step itself never writes these variables."""
        self._written -= set(map(key_of, variables))

    def tell_others(self) -> None:
        """Notes in every other step that reads what this one writes that it is written now."""
        for other in WATCHING:
            if other is not self:
                shared = self._written & other._indices.keys()
                other.pending |= {other._indices[key] for key in shared}


WATCHING: weakref.WeakSet[StepWrites] = weakref.WeakSet()  # Those of this process that live.
OBSERVED = contextvars.ContextVar("OBSERVED", default=True)
OF_TOWERS = "_is_observed_by_towers"  # An attribute of variables whose methods are replaced.


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """The scope in which writes are those of a step, so that they are not noted."""
    token = OBSERVED.set(False)
    try:
        yield
    finally:
        OBSERVED.reset(token)


def key_of(variable: keras.Variable) -> int:
    """Returns by what a variable is known here."""
    return id(tensorflow_variable(variable))


def observe(variable: tf.Variable) -> None:
    """Has the steps that watch note the writes of a variable: replaces its methods, once."""
    if getattr(variable, OF_TOWERS, False):
        return
    setattr(variable, OF_TOWERS, True)
    for name in dir(variable):
        if name.startswith(WRITE):
            setattr(variable, name, noting(getattr(variable, name), id(variable)))


def noting(write: Callable[..., Any], key: int) -> Callable[..., Any]:
    """Returns a method that writes the variable of this key, and has it noted."""

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(write)
    def write_and_note(*args: Any, **options: Any) -> Any:
        result = write(*args, **options)
        for step in WATCHING if OBSERVED.get() else ():
            step.note(key)
        return result

    return write_and_note
