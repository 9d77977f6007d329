"""The shared variables: the role of each in a step, and how a tower reads them."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf


class SharedVariables:
    """The variables that every tower reads, sorted by their role in a step.

    Args:
        variables: Keras variables; the tower function may use all or some of them.
        tables: the variables that are only looked up row by row, through their handle.

    Attributes:
        trainable: the trainable variables in the given order, tables included.
        seeds: states of seed generators, int64 [2].
        states: the other non-trainable variables, such as the moving averages of BatchNorm.
    """

    def __init__(self, variables: Sequence[keras.Variable], tables: Sequence[keras.Variable]):
        self.trainable = [variable for variable in variables if variable.trainable]
        non_trainable = [variable for variable in variables if not variable.trainable]
        self.seeds = [variable for variable in non_trainable if is_seed(variable)]
        self.states = [variable for variable in non_trainable if not is_seed(variable)]
        self._tables = {id(variable) for variable in tables}

    @property
    def all(self) -> list[keras.Variable]:
        """The variables that a checkpoint needs: all but the seeds, which each step derives."""
        return self.trainable + self.states

    def is_table(self, variable: keras.Variable) -> bool:
        """Returns whether the variable is only looked up row by row, never read as a whole."""
        return id(variable) in self._tables

    def read(self, copies: Sequence[keras.Variable] | None = None) -> dict[int, Any]:
        """Returns each variable's value on the current device, by the variable's id, read once.

        Seeds are left out, since each step computes them. Tables are not read: rows travel, not
        tables. For a table with a copy, the value is the copy's variable.

        Args:
            copies: the copies to read, in the order of `all`; None for the variables themselves.
        """
        values: dict[int, Any] = {}
        for variable, copy in zip(self.all, copies or self.all, strict=True):
            if not self.is_table(variable):
                # TensorFlow places a read on the variable's device, and loop inputs without a
                # device anywhere. The identity puts the value on this tower's device.
                values[id(variable)] = tf.identity(copy.value)
            elif copy is not variable:
                values[id(variable)] = copy.value
        return values

    def sources(self, values: dict[int, Any]) -> list[Any]:
        """Returns the sources of the gradient: the values read, and tables themselves."""
        return [values.get(id(variable), variable.value) for variable in self.trainable]


def is_seed(variable: keras.Variable) -> bool:
    """Returns whether the variable is the state of a `keras.random.SeedGenerator`."""
    return variable.name == "seed_generator_state" and tuple(variable.shape) == (2,)


class TowerScope(keras.StatelessScope):
    """The scope in which a tower function uses the values that the tower read, and writes none.

    Args:
        tower: the tower's name in error messages.
        shared: the variables that a tower may use.
        values: each variable's value, by the variable's id; tables have no entry.
        seeds: a state for each seed generator, int64 [2].
    """

    def __init__(
        self,
        tower: str,
        shared: SharedVariables,
        values: dict[int, tf.Tensor],
        seeds: Sequence[tf.Tensor],
    ):
        super().__init__(collect_losses=True, initialize_variables=False)
        self.state_mapping = {**values, **dict(zip(map(id, shared.seeds), seeds, strict=True))}
        self._tower = tower
        self._shared = shared
        self._before = dict(self.state_mapping)

    def get_current_value(self, variable: keras.Variable) -> tf.Tensor | None:
        """Returns the variable's value in this tower, or None for a table."""
        value = super().get_current_value(variable)
        if value is None and not self._shared.is_table(variable):
            raise RuntimeError(
                f"{self._tower} uses the variable '{variable.path}' of shape "
                f"{tuple(variable.shape)}, which is not one of the shared variables. Either "
                "the tower function makes it, or an unseeded random op does (make layers and "
                "seed generators once, outside of the tower function), or it is missing from "
                "the `variables` given to the step."
            )
        return value

    def updated(self, variable: keras.Variable) -> tf.Tensor | None:
        """Returns the value that the tower function assigned, or None if it assigned none."""
        value = self.state_mapping.get(id(variable))
        return None if value is self._before.get(id(variable)) else value


@contextlib.contextmanager
def no_new_variables(tower: str) -> Iterator[None]:
    """The scope in which making a `tf.Variable` is an error that names it and the tower."""

    def refuse(_: Callable[..., Any], **options: Any) -> None:
        raise new_variable_error(tower, options.get("name") or "Variable")

    with tf.variable_creator_scope(refuse):
        yield


def new_variable_error(tower: str, name: str) -> RuntimeError:
    """Returns the error for a tower that makes a variable."""
    return RuntimeError(
        f"{tower} would create the variable '{name}'. Towers share variables and own none: make "
        "layers and variables once, outside of the tower function, under "
        "`placement.scope()`."
    )


def gather_variables(
    tower_fn: Callable[..., Any],
    variables: keras.Model | Sequence[keras.Variable],
    batch_spec: Any,
    *,
    compiled: bool = False,
) -> SharedVariables:
    """Returns the variables of a tower function; an unbuilt model is built on this device.

    Args:
        tower_fn: the tower function, traced once to see how it uses the variables.
        variables: the Keras variables, or the model that owns them.
        batch_spec: the specs of a shard's batch.
        compiled: whether XLA compiles the towers. XLA takes no variable from another device, so
            each tower then reads whole tables.

    Raises:
        ValueError: a variable is listed twice, or used in a nested `tf.function`.
    """
    graph = trace_once(tower_fn, batch_spec)
    found = list(getattr(variables, "variables", variables))
    check_distinct(found)
    consumers = {id(variable): consumers_of(variable, graph) for variable in found}
    for variable in found:
        check_consumers(variable, consumers[id(variable)])
    tables = [variable for variable in found if consumers[id(variable)] == {"ResourceGather"}]
    return SharedVariables(found, [] if compiled else tables)


def trace_once(tower_fn: Callable[..., Any], batch_spec: Any) -> tf.Graph:
    """Returns the graph of one plain call of the tower function, which builds unbuilt layers."""
    calls = itertools.count()

    def call(batch: Any) -> None:
        # TensorFlow calls this again if it made variables. A function that makes variables in
        # the second call too would make them in every tower.
        with no_new_variables("Every tower") if next(calls) else contextlib.nullcontext():
            tower_fn(batch)

    return tf.function(call, autograph=False).get_concrete_function(batch_spec).graph


def check_distinct(variables: Sequence[keras.Variable]) -> None:
    """Raises ValueError for a variable that is listed twice: it would be updated twice."""
    counts = Counter(map(id, variables))
    twice = {variable.path for variable in variables if counts[id(variable)] > 1}
    if twice:
        raise ValueError(
            "Each of the `variables` must be listed once. Received more than once: "
            f"{', '.join(sorted(twice))}. Pass a model that owns them all, whose `variables` list "
            "shared ones once, or remove the duplicates."
        )


def consumers_of(variable: keras.Variable, graph: tf.Graph) -> set[str]:
    """Returns the types of the ops that take the variable's handle."""
    captured = {id(outer): inner for outer, inner in graph.captures}
    placeholder = captured.get(id(variable.value.handle))
    return set() if placeholder is None else {op.type for op in placeholder.consumers()}


def check_consumers(variable: keras.Variable, consumers: set[str]) -> None:
    """Raises ValueError for a variable that a nested `tf.function` uses."""
    if consumers & {"PartitionedCall", "StatefulPartitionedCall"}:
        raise ValueError(
            f"The tower function calls a tf.function that uses the variable '{variable.path}'. "
            "It would keep the variable of its first trace, instead of the value that each "
            "tower has read, and give it no gradient. Leave `@tf.function` out there: the "
            "whole step is one."
        )
