"""The update: average, clip, decide whether it is finite, apply; the float16 loss scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.run.checkpoint_files import Groups
from towers.step.carried import CarriedState
from towers.step.copies import Copies
from towers.step.exchange import Total
from towers.step.gradients import Gradient, clip_factor, global_norm
from towers.step.options import StepOptions
from towers.step.states import mean_states
from towers.step.tower_function import State


class Change(NamedTuple):
    """How a step is to change the variables.

    Attributes:
        gradients: for each copy of the variables, the summed gradients.
        factor: scalar that makes the sums the averaged and clipped gradients; None for gradients
            that are that already.
        states: new values of the non-trainable variables, or None for those that stay.
        carried: for each tower, the state to carry into the next step.
        gradient_norm: scalar, of the averaged gradient before it is clipped.
        finite: bool scalar, whether the gradient is finite, and the change therefore made.
    """

    gradients: list[list[Gradient]]
    factor: tf.Tensor | None
    states: list[tf.Tensor | None]
    carried: list[State]
    gradient_norm: tf.Tensor
    finite: tf.Tensor


class Used(NamedTuple):
    """What an update used.

    Attributes:
        learning_rate: scalar.
        loss_scale: float32 scalar, 1 without a scale.
    """

    learning_rate: tf.Tensor
    loss_scale: tf.Tensor


class Update:
    """Divides once, clips, decides and applies.

    Args:
        copies: of the variables, with their optimizer.
        carried: the state that the towers carry.
        options: of the step.

    Attributes:
        copies, carried: as given.
        loss_scale: the float16 loss scale or None.
    """

    def __init__(self, copies: Copies, carried: CarriedState, options: StepOptions):
        self.copies = copies
        self.carried = carried
        self.loss_scale = options.loss_scale
        self._clip_norm = options.clip_norm
        self._device = copies.devices[0]

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint keeps, by the name of their group."""
        groups = {"variables": self.copies.shared.all, "optimizer": self.copies.optimizer.variables}
        if self.loss_scale is not None:
            groups["loss_scale"] = self.loss_scale.variables
        if self.carried.variables:
            groups["carried"] = self.carried.variables
        return groups

    def change(self, total: Total) -> Change:
        """Returns the change that the sums over all towers ask for."""
        with tf.device(self._device), tf.name_scope("average"):
            return self.average(total, [state.value for state in self.copies.shared.states])

    def average(self, total: Total, states: Sequence[Any]) -> Change:
        """Returns the change, computed on the current device; arguments as in `average`."""
        return average(total, states, self._clip_norm)

    def apply(self, change: Change, *, add_states: bool = False) -> Used:
        """Makes a change if it is finite, and returns what it used.

        Args:
            change: what `change` returned.
            add_states: whether its states are differences, to be added.
        """

        def assign() -> None:
            self.copies.apply(change.gradients, change.factor, change.states, add_states=add_states)
            self.carried.assign(change.carried)

        with tf.device(self._device), tf.name_scope("update"):
            learning_rate = tf.identity(self.copies.optimizer.learning_rate)
            loss_scale = tf.ones([]) if self.loss_scale is None else self.loss_scale.read()
            tf.cond(change.finite, assign, lambda: None)
            if self.loss_scale is not None:
                self.loss_scale.update(change.finite)
            return Used(learning_rate, loss_scale)


def average(total: Total, states: Sequence[Any], clip_norm: float | None) -> Change:
    """Returns the change of a step: the sums divided once, and clipped after that.

    Args:
        total: the sums over all towers.
        states: the values of the non-trainable variables before the step.
        clip_norm: the norm to which the averaged gradient is clipped, or None.
    """
    share = tf.math.reciprocal_no_nan(total.weight)
    norm = global_norm(total.gradients[0], total.weight.dtype) * share
    factor = share * clip_factor(norm, clip_norm)
    means = mean_states(total.states, total.state_weight, states)
    return Change(total.gradients, factor, means, total.carried, norm, tf.math.is_finite(norm))
