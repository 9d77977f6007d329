"""Copies of the variables: one that all towers share, or one on every tower, kept the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.optimizers.schedules import LearningRateSchedule

from towers.step.gradients import Gradient, scale_gradients, sum_gradients
from towers.step.packs import sum_in_packs
from towers.step.parameters import SharedVariables


class Replica(NamedTuple):
    """One copy of everything that an update changes.

    Attributes:
        device: where it is.
        variables: in the order of `SharedVariables.all`.
        optimizer: with slots of its own.
    """

    device: str
    variables: Sequence[keras.Variable]
    optimizer: keras.optimizers.Optimizer


class Replicas:
    """The copies of the variables; the first is the model's own.

    With one copy the towers' gradients meet where it is. With one on every tower they travel
    between the towers, and each copy is updated from the same sums by the same operations.

    Args:
        shared: the model's variables.
        optimizer: theirs, built.
        devices: of the copies; the first is where the model's variables are.
    """

    def __init__(
        self,
        shared: SharedVariables,
        optimizer: keras.optimizers.Optimizer,
        devices: Sequence[str],
    ):
        self._shared = shared
        self._devices = list(devices)
        self._replicas = [Replica(devices[0], shared.all, optimizer)]
        self._replicas += [make_replica(shared, optimizer, device) for device in devices[1:]]

    def __len__(self) -> int:
        return len(self._replicas)

    def read(self, tower: int) -> dict[int, Any]:
        """Returns what a tower computes with: its copy's values, read once, here."""
        return self._shared.read(self._replicas[tower % len(self._replicas)].variables)

    def sum(self, tower_gradients: Sequence[Sequence[Gradient]]) -> list[list[Gradient]]:
        """Returns, for each copy, the gradients summed over the towers, on its device."""
        if len(self._replicas) == 1:
            return [sum_gradients(tower_gradients)]
        return sum_in_packs(tower_gradients, self._devices)

    def apply(
        self,
        summed: Sequence[Sequence[Gradient]],
        factor: tf.Tensor,
        states: Sequence[tf.Tensor | None],
    ) -> None:
        """Updates every copy alike.

        Args:
            summed: for each copy, a gradient for each trainable variable, or None.
            factor: scalar that makes the sums the gradient to apply.
            states: new values of the other variables, or None.
        """
        num_trainable = len(self._shared.trainable)
        for replica, sums in zip(self._replicas, summed, strict=True):
            with tf.device(replica.device):
                gradients = scale_gradients(sums, factor)
                pairs = zip(gradients, replica.variables[:num_trainable], strict=True)
                connected = [pair for pair in pairs if pair[0] is not None]
                replica.optimizer.apply(*zip(*connected, strict=True))
                for state, value in zip(replica.variables[num_trainable:], states, strict=True):
                    if value is not None:
                        state.assign(value)

    def copy_first(self) -> None:
        """Gives every copy the values of the model's own variables and of their optimizer."""
        first = everything(self._replicas[0])
        for replica in self._replicas[1:]:
            with tf.device(replica.device):
                for variable, source in zip(everything(replica), first, strict=True):
                    variable.assign(tf.convert_to_tensor(source.value))

    def check(self) -> None:
        """Raises RuntimeError unless all copies are the same to the last bit."""
        first = everything(self._replicas[0])
        for replica in self._replicas[1:]:
            for variable, source in zip(everything(replica), first, strict=True):
                if variable.value.numpy().tobytes() != source.value.numpy().tobytes():
                    raise RuntimeError(
                        f"The copy of '{source.path}' on {replica.device} differs from that on "
                        f"{self._devices[0]}. If it was assigned during the training, call "
                        "copy_parameters() on the step after it; else a device or the way "
                        "between two is broken: train with --parameters cpu."
                    )


def make_replica(
    shared: SharedVariables, optimizer: keras.optimizers.Optimizer, device: str
) -> Replica:
    """Returns a copy on a device, whose values are still to be copied."""
    with tf.device(device):
        variables = list(map(like, shared.all))
        optimizer = same_optimizer(optimizer)
        optimizer.build(variables[: len(shared.trainable)])
    return Replica(device, variables, optimizer)


def like(variable: keras.Variable) -> keras.Variable:
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


def same_optimizer(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Returns an optimizer with the same settings and no variables."""
    config = optimizer.get_config()
    if isinstance(optimizer._learning_rate, LearningRateSchedule):
        config["learning_rate"] = optimizer._learning_rate
    return type(optimizer).from_config(config)


def everything(replica: Replica) -> list[keras.Variable]:
    """Returns the variables of a copy and those of its optimizer."""
    return [*replica.variables, *replica.optimizer.variables]
