"""The update: average, clip, check for non-finite gradients, apply, adapt the loss scale."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.ground.host import HOST, device_type
from towers.saving.checkpoint_files import Groups
from towers.step.carried import CarriedValues
from towers.step.exchange import Total
from towers.step.options import FixedLossScale
from towers.step.sums import merge_state
from towers.step.tower_function import TowerProgram
from towers.travel.gradients import Gradient, clip_factor, norm_of_sums
from towers.variables.copies import Copies
from towers.variables.optimizers import Averaged


class Change(NamedTuple):
    """The change that one step makes to the variables.

    Attributes:
        gradients: for each copy of the variables, the summed gradients.
        factor: scalar that turns the sums into averaged and clipped gradients; None if they are
            averaged and clipped already.
        states: new values of the non-trainable variables; None for a variable that stays.
        carried: as in `Total`.
        assigned: as in `TowerSums`.
        gradient_norm: scalar, the norm of the averaged gradient before clipping.
        finite: bool scalar, whether the gradient is finite; only then the change is applied.
    """

    gradients: Sequence[Sequence[Gradient]]
    factor: tf.Tensor | None
    states: Sequence[tf.Tensor | None]
    carried: Sequence[CarriedValues]
    assigned: Sequence[tf.Tensor | None]
    gradient_norm: tf.Tensor
    finite: tf.Tensor


class Update:
    """Divides the sums once, clips, and applies the change if it is finite.

    Attributes:
        carried: the carried state.
        loss_scale: the float16 loss scale that changes, or None.
        sums_rows: whether it summed repeated rows of tables, once it is traced.
    """

    def __init__(self, copies: Copies, program: TowerProgram):
        self.copies = copies
        self.carried = program.carried
        scale = program.options.loss_scale
        self.loss_scale = None if isinstance(scale, FixedLossScale) else scale
        self.sums_rows = False
        self._clip_norm = program.options.clip_norm
        self._device = copies.devices[0]
        on_gpu = device_type(self._device) == "GPU"
        self._host = HOST if on_gpu else self._device

    def change(self, total: Total) -> Change:
        """Returns the change that follows from the sums over all towers."""
        kinds = {type(gradient) for gradients in total.gradients for gradient in gradients}
        self.sums_rows = tf.IndexedSlices in kinds
        with tf.device(self._device), tf.name_scope("average"):
            return self.average(total, [state.value for state in self.copies.shared.states])

    def average(self, total: Total, states: Sequence[Any]) -> Change:
        """Returns the change, computed on the current device, from the states before the step."""
        rows = zip(self.copies.shared.states, total.sums.states, states, strict=True)
        merged = [
            None if summed is None else merge_state(variable, summed, total.state_weight, before)
            for variable, summed, before in rows
        ]
        inverse_weight = tf.math.reciprocal_no_nan(total.sums.weight)
        norm, finite, inverse_weight = norm_of_sums(total.entries, inverse_weight, HOST)
        with tf.device(norm.device or None):  # That of the host, if the gradients are on a GPU.
            factor = inverse_weight * clip_factor(norm, self._clip_norm)
        own = (total.gradients, factor, merged, total.carried, total.sums.assigned)
        return Change(*own, norm, finite)

    def apply(self, change: Change, *, add_states: bool = False) -> dict[str, tf.Tensor]:
        """Applies a change if it is finite; returns its scalars `learning_rate` and `loss_scale`.

        Args:
            add_states: whether its states are differences to add.
        """

        def assign() -> None:
            with tf.device(self._device):
                self.copies.apply(gradients, change.states, change.assigned, add_states=add_states)
                self.carried.assign(change.carried)

        with tf.device(self._device), tf.name_scope("update"):
            learning_rate = self.copies.learning_rate()
            loss_scale = tf.ones([]) if self.loss_scale is None else self.loss_scale.read()
            # Outside of the decision, so that it need not wait for the norm.
            gradients = self.copies.scale(change.gradients, change.factor)
            with tf.device(self._host):  # A GPU would get the decision first, and be waited for.
                tf.cond(change.finite, assign, lambda: None)
            if self.loss_scale is not None:
                self.loss_scale.update(change.finite)
            return {"learning_rate": learning_rate, "loss_scale": loss_scale}

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint saves, by group name."""
        groups = {"variables": self.copies.shared.all, "optimizer": self.copies.optimizer.variables}
        if self.loss_scale is not None:
            groups["loss_scale"] = self.loss_scale.variables
        if self.carried.variables:
            groups["carried"] = self.carried.variables
        return groups

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Returns the scope in which the variables hold the optimizer's averages, if it has any."""
        return Averaged(self.copies.optimizer, self.copies.shared.trainable)
