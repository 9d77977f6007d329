"""Copies of the variables: one that all towers share, or one on every tower, kept the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf
from keras.optimizers.schedules import LearningRateSchedule

from towers.step.arguments import report_unconnected
from towers.step.gradients import Gradient, scale_gradients
from towers.step.parameters import SharedVariables


class Copy(NamedTuple):
    """One copy of everything that an update changes.

    Attributes:
        device: where it is.
        variables: in the order of `SharedVariables.all`.
        optimizer: with slots of its own.
    """

    device: str
    variables: Sequence[keras.Variable]
    optimizer: keras.optimizers.Optimizer


class Copies:
    """The copies of the variables; the first is the model's own.

    With one copy the towers' gradients meet where it is. With one on every tower they travel
    between the towers, and each copy is updated from the same sums by the same operations.

    Args:
        shared: the model's variables.
        optimizer: theirs; it is built here.
        devices: of the copies; the first is where the model's variables are.

    Attributes:
        shared, optimizer, devices: as given.
    """

    def __init__(
        self,
        shared: SharedVariables,
        optimizer: keras.optimizers.Optimizer,
        devices: Sequence[str],
    ):
        with tf.device(devices[0]):
            optimizer.build(shared.trainable)
        self.shared = shared
        self.optimizer = optimizer
        self.devices = tuple(devices)
        self._copies = [Copy(devices[0], shared.all, optimizer)]
        self._copies += [make_copy(shared, optimizer, device) for device in devices[1:]]
        self._stale = True  # The copies have no values yet.

    def __len__(self) -> int:
        return len(self._copies)

    def variables_of(self, tower: int) -> Sequence[keras.Variable]:
        """Returns the copy that a tower reads, in the order of `SharedVariables.all`."""
        return self._copies[tower % len(self._copies)].variables

    def apply(
        self,
        gradients: Sequence[Sequence[Gradient]],
        factor: tf.Tensor | None,
        states: Sequence[tf.Tensor | None],
        *,
        add_states: bool = False,
    ) -> None:
        """Updates every copy alike.

        Args:
            gradients: for each copy, one for each trainable variable, or None.
            factor: scalar that makes these the gradients to apply, or None if they are that.
            states: new values of the other variables, or None.
            add_states: whether `states` are differences, to be added instead.
        """
        report_unconnected(self.shared.trainable, gradients[0])
        num_trainable = len(self.shared.trainable)
        for copy, own in zip(self._copies, gradients, strict=True):
            with tf.device(copy.device):
                scaled = own if factor is None else scale_gradients(own, factor)
                pairs = zip(scaled, copy.variables[:num_trainable], strict=True)
                connected = [pair for pair in pairs if pair[0] is not None]
                copy.optimizer.apply(*zip(*connected, strict=True))
                assign_states(copy.variables[num_trainable:], states, add=add_states)

    def prepare(self) -> None:
        """Gives the copies the model's values, once, before the first step."""
        if self._stale:
            self.copy_first()

    def copy_first(self) -> None:
        """Gives every copy the values of the model's own variables and of their optimizer.

        RuntimeError unless the copies are then the same to the last bit.
        """
        first = all_variables(self._copies[0])
        for copy in self._copies[1:]:
            with tf.device(copy.device):
                for variable, source in zip(all_variables(copy), first, strict=True):
                    variable.assign(tf.convert_to_tensor(source.value))
        self._stale = False
        self.check()

    def check(self) -> None:
        """Raises RuntimeError unless all copies are the same to the last bit."""
        if self._stale:
            return
        first = all_variables(self._copies[0])
        for copy in self._copies[1:]:
            for variable, source in zip(all_variables(copy), first, strict=True):
                if variable.value.numpy().tobytes() != source.value.numpy().tobytes():
                    raise RuntimeError(
                        f"The copy of '{source.path}' on {copy.device} differs from that on "
                        f"{self.devices[0]}. If it was assigned during the training, call "
                        "copy_parameters() on the step after it; else a device or the way "
                        "between two is broken: train with --parameters cpu."
                    )


def make_copy(shared: SharedVariables, optimizer: keras.optimizers.Optimizer, device: str) -> Copy:
    """Returns a copy on a device, whose values are still to be copied."""
    with tf.device(device):
        variables = list(map(make_variable_like, shared.all))
        optimizer = make_optimizer_like(optimizer)
        optimizer.build(variables[: len(shared.trainable)])
    return Copy(device, variables, optimizer)


def make_variable_like(variable: keras.Variable) -> keras.Variable:
    """Returns a variable of zeros that an optimizer treats as it does the given one."""
    copy = keras.Variable(
        "zeros",
        shape=variable.shape,
        dtype=variable.dtype,
        trainable=variable.trainable,
        autocast=False,  # The model's variable does that with what stands in for it.
        name=variable.name,
    )
    copy.constraint = variable.constraint
    return copy


def make_optimizer_like(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Returns an optimizer with the same settings and no variables."""
    config = optimizer.get_config()
    if isinstance(optimizer._learning_rate, LearningRateSchedule):
        config["learning_rate"] = optimizer._learning_rate
    return type(optimizer).from_config(config)


def all_variables(copy: Copy) -> list[keras.Variable]:
    """Returns the variables of a copy and those of its optimizer."""
    return [*copy.variables, *copy.optimizer.variables]


def assign_states(
    states: Sequence[keras.Variable], values: Sequence[tf.Tensor | None], *, add: bool
) -> None:
    """Assigns each state its new value, or adds it; None leaves the state as it is."""
    for state, value in zip(states, values, strict=True):
        if value is not None:
            state.assign_add(value) if add else state.assign(value)
