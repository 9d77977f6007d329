"""Copies of the variables: one that all towers share, or identical copies on every tower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf
from keras.optimizers.schedules import LearningRateSchedule

from towers.step.arguments import warn_of_unconnected
from towers.step.gradients import Gradient, scale_gradients
from towers.step.parameters import SharedVariables


class Copy(NamedTuple):
    """One copy of the variables and of the optimizer.

    Attributes:
        device: the copy's device.
        variables: its variables, in the order of `SharedVariables.all`.
        optimizer: its optimizer, with its own slots.
    """

    device: str
    variables: Sequence[keras.Variable]
    optimizer: keras.optimizers.Optimizer


class Copies:
    """The copies of the variables; the first consists of the model's own variables.

    With one copy, the towers' gradients are added on its device. With a copy on every tower,
    gradients travel between the towers, and the same operations update each copy from the same
    sums.

    Args:
        shared: the model's variables.
        optimizer: the model's optimizer; it is built here.
        devices: the device of each copy; the first is the device of the model's variables.

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
        self._stale = True  # The other copies hold zeros so far.

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
        """Applies the same update to every copy.

        Args:
            gradients: for each copy, one gradient per trainable variable; None without connection.
            factor: scalar by which the gradients are multiplied first, or None.
            states: new values of the non-trainable variables; None for a variable that stays.
            add_states: whether `states` are differences to add.
        """
        warn_of_unconnected(self.shared.trainable, gradients[0])
        num_trainable = len(self.shared.trainable)
        for copy, summed in zip(self._copies, gradients, strict=True):
            with tf.device(copy.device):
                scaled = summed if factor is None else scale_gradients(summed, factor)
                pairs = zip(scaled, copy.variables[:num_trainable], strict=True)
                connected = [pair for pair in pairs if pair[0] is not None]
                copy.optimizer.apply(*zip(*connected, strict=True))
                assign_states(copy.variables[num_trainable:], states, add=add_states)

    def copy_once(self) -> None:
        """Copies the model's values to the other copies, before the first step only."""
        if self._stale:
            self.copy_from_model()

    def copy_from_model(self) -> None:
        """Copies the values of the model's variables and optimizer to the other copies.

        Raises:
            RuntimeError: the copies are not bit-identical afterwards.
        """
        first = all_variables(self._copies[0])
        for copy in self._copies[1:]:
            with tf.device(copy.device):
                for variable, source in zip(all_variables(copy), first, strict=True):
                    variable.assign(tf.convert_to_tensor(source.value))
        self._stale = False
        self.check()

    def check(self) -> None:
        """Raises RuntimeError unless all copies are bit-identical."""
        if self._stale:
            return
        first = all_variables(self._copies[0])
        for copy in self._copies[1:]:
            for variable, source in zip(all_variables(copy), first, strict=True):
                if variable.value.numpy().tobytes() != source.value.numpy().tobytes():
                    raise RuntimeError(
                        f"The copy of '{source.path}' on {copy.device} differs from that on "
                        f"{self.devices[0]}. If your code assigned it during the training, call "
                        "the step's copy_parameters() afterwards; otherwise a device or the link "
                        "between two devices is broken: train with --parameters cpu."
                    )


def make_copy(shared: SharedVariables, optimizer: keras.optimizers.Optimizer, device: str) -> Copy:
    """Returns a copy on a device, with zeros as its values."""
    with tf.device(device):
        variables = list(map(make_variable_like, shared.all))
        optimizer = make_optimizer_like(optimizer)
        optimizer.build(variables[: len(shared.trainable)])
    return Copy(device, variables, optimizer)


def make_variable_like(variable: keras.Variable) -> keras.Variable:
    """Returns a variable of zeros that an optimizer treats in the same way as the given one."""
    copy = keras.Variable(
        "zeros",
        shape=variable.shape,
        dtype=variable.dtype,
        trainable=variable.trainable,
        autocast=False,  # The model's variable casts the value that is read from its copy.
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


def assign_states(
    states: Sequence[keras.Variable], values: Sequence[tf.Tensor | None], *, add: bool
) -> None:
    """Assigns or adds a value to each state; None leaves a state unchanged."""
    for state, value in zip(states, values, strict=True):
        if value is not None:
            state.assign_add(value) if add else state.assign(value)


def all_variables(copy: Copy) -> list[keras.Variable]:
    """Returns the variables of a copy and of its optimizer."""
    return [*copy.variables, *copy.optimizer.variables]
