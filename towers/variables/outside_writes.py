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

# The methods of a `tf.Variable` that write it; Keras's own writes end in one of these.
METHODS = (
    "assign", "assign_add", "assign_sub", "batch_scatter_update", "scatter_add", "scatter_div",
    "scatter_max", "scatter_min", "scatter_mul", "scatter_sub", "scatter_update",
    "scatter_nd_add", "scatter_nd_max", "scatter_nd_min", "scatter_nd_sub", "scatter_nd_update",
    RESTORE_METHOD,
)  # fmt: skip


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
        num_watched: how many of this process ever looked for writes.
    """

    num_watched = 0

    def __init__(self, variables: Sequence[keras.Variable], *, watched: bool):
        self.pending: set[int] = set()
        self._in_graphs: set[int] = set()
        self._variables = list(variables)
        self._indices = {id(variable): index for index, variable in enumerate(variables)}
        self._written = set(self._indices)  # By the step itself.
        self._others: list[tuple[weakref.ref[StepWrites], set[int]]] = []
        self._num_known = 0
        if watched:
            for index, variable in enumerate(variables):
                listen(tensorflow_variable(variable), self, index)
            WATCHING.add(self)
            StepWrites.num_watched += 1

    def take(self) -> list[int]:
        """Returns the indices of the variables written since the last call, in order."""
        taken = sorted(self.pending)
        self.pending = set(self._in_graphs)
        return taken

    def note(self, index: int) -> None:
        """Notes that a variable is written: now, or by the graph that is being traced."""
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
        self._written -= set(map(id, variables))

    def tell_others(self) -> None:
        """Notes in every other step that reads what this one writes that it is written now."""
        if self._num_known != StepWrites.num_watched:
            self._others = list(self._find_others())
            self._num_known = StepWrites.num_watched
        for reference, indices in self._others:
            other = reference()
            if other is not None:
                other.pending |= indices

    def _find_others(self) -> Iterator[tuple[weakref.ref[StepWrites], set[int]]]:
        for other in WATCHING - {self}:
            shared = {other._indices[key] for key in self._written if key in other._indices}
            if shared:
                yield weakref.ref(other), shared


WATCHING: weakref.WeakSet[StepWrites] = weakref.WeakSet()  # Those of this process that live.
OBSERVED = contextvars.ContextVar("OBSERVED", default=True)


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """The scope in which writes are those of a step, so that they are not noted."""
    token = OBSERVED.set(False)
    try:
        yield
    finally:
        OBSERVED.reset(token)


class Listeners:
    """Those that note the writes of one variable.

    Args:
        variable: the variable; its methods that write are replaced by ones that note the write.
    """

    def __init__(self, variable: tf.Variable):
        self._found: list[tuple[weakref.ref[StepWrites], int]] = []
        for name in METHODS:
            if hasattr(variable, name):
                setattr(variable, name, self._noting(getattr(variable, name)))

    def add(self, writes: StepWrites, index: int) -> None:
        """Adds one that notes the variable by this index."""
        self._found = [pair for pair in self._found if pair[0]() is not None]
        self._found.append((weakref.ref(writes), index))

    def _noting(self, write: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a method that writes, and tells the listeners."""

        @tf.autograph.experimental.do_not_convert
        @functools.wraps(write)
        def write_and_note(*args: Any, **options: Any) -> Any:
            result = write(*args, **options)
            if OBSERVED.get():
                for reference, index in self._found:
                    writes = reference()
                    if writes is not None:
                        writes.note(index)
            return result

        return write_and_note


def listen(variable: tf.Variable, writes: StepWrites, index: int) -> None:
    """Lets `writes` note every write of the variable, by this index."""
    listeners = getattr(variable, "_towers_listeners", None)
    if listeners is None:
        listeners = Listeners(variable)
        variable._towers_listeners = listeners
    listeners.add(writes, index)
