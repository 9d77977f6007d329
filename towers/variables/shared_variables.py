"""The shared variables: the role of each in a step, and how a tower reads them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.devices.stages import Stages, label


class SharedVariables:
    """The variables that every tower reads, sorted by their role in a step.

    Args:
        variables: Keras variables; the tower function may use all or some of them.
        tables: the variables that are only looked up row by row, through their handle.
        captured: the variables that a function with a custom gradient, such as
            `tf.recompute_grad`, takes from around it. TensorFlow finds them by their handles.
        unused: the variables that the tower function does not use.

    Attributes:
        trainable: the trainable variables in the given order, tables included.
        seeds: states of seed generators, int64 [2].
        states: the other non-trainable variables, such as the moving averages of BatchNorm.
        stages: their stages, where a tower has several devices.
    """

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        tables: Sequence[keras.Variable],
        captured: Sequence[keras.Variable] = (),
        unused: Sequence[keras.Variable] = (),
    ):
        self.trainable = [variable for variable in variables if variable.trainable]
        non_trainable = [variable for variable in variables if not variable.trainable]
        self.seeds = [variable for variable in non_trainable if is_seed(variable)]
        self.states = [variable for variable in non_trainable if not is_seed(variable)]
        self.captured, self.stages = list(captured), Stages()
        self._by_handle = {id(variable) for variable in (*tables, *captured)}
        self._unused = set(map(id, unused))

    @property
    def all(self) -> list[keras.Variable]:
        """The variables that a checkpoint needs: all but the seeds, which each step derives."""
        return self.trainable + self.states

    def is_used_by_handle(self, variable: keras.Variable) -> bool:
        """Returns whether towers use the variable through its handle, without a read at first."""
        return id(variable) in self._by_handle

    @property
    def read_whole(self) -> list[keras.Variable]:
        """The variables whose whole values a tower's first device reads, in the order of `all`."""
        return [
            variable
            for variable, stage in zip(self.all, self.stages.of_each(self.all), strict=True)
            if not (stage or id(variable) in self._unused or self.is_used_by_handle(variable))
        ]

    def read(
        self, copies: Sequence[keras.Variable], arrived: Mapping[int, tf.Tensor]
    ) -> dict[int, Any]:
        """Returns each variable's value on the current device, by the variable's id, read once.

        Seeds are left out, since each step computes them. Tables are not read: rows travel, not
        tables. For a variable that is used by its handle, the value is its copy, if it has one.

        Args:
            copies: the copies to read, in the order of `all`, or the variables themselves.
            arrived: values that are on this device already, by the variable's id.
        """
        values: dict[int, Any] = dict(arrived)
        stages = self.stages.of_each(self.all)
        for variable, copy, stage in zip(self.all, copies, stages, strict=True):
            if id(variable) in values:
                continue
            if not self.is_used_by_handle(variable):
                # TensorFlow places a read on the variable's device, and loop inputs without a
                # device anywhere. The identity puts the value on this tower's device.
                with contextlib.nullcontext() if stage is None else label(stage):
                    values[id(variable)] = tf.identity(copy.value)
            elif copy is not variable:
                values[id(variable)] = copy.value
        return values

    def value(self, values: dict[int, Any], variable: keras.Variable) -> Any:
        """Returns the value that a tower has read, or the variable if its handle is used."""
        return values.get(id(variable), variable.value)


def is_seed(variable: keras.Variable) -> bool:
    """Returns whether the variable is the state of a `keras.random.SeedGenerator`."""
    return variable.name == "seed_generator_state" and tuple(variable.shape) == (2,)
