"""The check for non-finite gradients, one update late, so that it does not wait for devices."""

from __future__ import annotations

import tensorflow as tf

from towers.step.results import StepResults


class NonFiniteGradientError(RuntimeError):
    """A gradient is NaN or infinite; the update that it belongs to changed no variable."""


class FiniteCheck:
    """Raises for an update with a non-finite gradient, unless a smaller loss scale may help.

    Args:
        first_tower: the number of this process's first tower among the towers of all processes.
    """

    def __init__(self, first_tower: int = 0):
        self._first_tower = first_tower
        self._unchecked: tuple[int, StepResults, int | None] | None = None

    def add(self, step: int, results: StepResults, tower: int | None = None) -> None:
        """Checks the previous update, which is done by now, and stores this one for the next check.

        Args:
            step: the number of the update.
            results: its results.
            tower: the tower of an asynchronous update, or None.

        Raises:
            NonFiniteGradientError: as `check`.
        """
        self.check()
        self._unchecked = (step, results, tower)

    def check(self) -> None:
        """Checks the last update that was added.

        Raises:
            NonFiniteGradientError: the gradient was not finite, and the loss scale is not above 1.
        """
        if self._unchecked is None:
            return
        (step, results, tower), self._unchecked = self._unchecked, None
        if bool(results.finite) or float(results.loss_scale) > 1:
            return
        raise NonFiniteGradientError(describe(step, results, tower, self._first_tower))


def describe(step: int, results: StepResults, tower: int | None, first_tower: int) -> str:
    """Returns a message that names the step and the towers with a non-finite gradient."""
    norms = results.towers.gradient_norm
    not_finite = [
        f"tower {first_tower + index} (loss {float(results.towers.loss[index]):.4g})"
        for index in (range(norms.shape[0]) if tower is None else [tower])
        if not bool(tf.math.is_finite(norms[index]))
    ]
    where = ", ".join(not_finite) or "in no tower of this process, only in the sum over all"
    return (
        f"The gradient is not finite at step {step}: {where}. Its update changed no "
        "variable. Try a lower learning rate, warm-up or clipping, and look for bad examples "
        "in the data."
    )
