"""The alarm of a training that goes wrong: its rate, its length, or its losses are unusual."""

from __future__ import annotations

import math
import warnings
from typing import Any

import towers
from towers.scripts.training.catalogue import find_recipe
from towers.scripts.training.recipe import Recipe

LARGEST_RATE = 10.0  # The usual one of every optimizer is below 0.1.
FEW_UPDATES, MORE_UPDATES = 100, "--steps 600 --evaluate-every 100."
PATIENCE = 5  # Reports in a row.
MARGIN = 0.1  # Above the first loss, as a fraction of it: batches differ.


class Alarm:
    """Warns once of losses that stay above that of the first step, or of the rate before.

    A continued run, which made its first step before, is not watched.
    """

    def __init__(self, recipe: Recipe):
        self._recipe, self._own = recipe, find_recipe(recipe.name).fields
        self._first: Any = None
        self._above, self._is_told = 0, False

    def begin(self, num_updates: int | None) -> None:
        """Warns of a rate far above the usual ones and the recipe's own, and of few updates.

        Their number is None if another one than the recipe's own was asked for.
        """
        fields, own = self._recipe.fields, self._own
        if fields.learning_rate > max(LARGEST_RATE, own.learning_rate):
            self._is_told = True
            warn(
                f"A learning rate of {fields.learning_rate:g} is far above what works with "
                f"{fields.optimizer}; {self._recipe.name} uses {own.learning_rate:g}. Check --set "
                "learning_rate."
            )
        if num_updates is not None and num_updates < FEW_UPDATES and fields.epochs == own.epochs:
            warn(
                f"{fields.epochs} epochs of this data are {num_updates} updates, which may not be "
                f"enough to learn much. For more: {MORE_UPDATES}"
            )

    def keep_first(self, report: towers.StepReport) -> None:
        """Keeps the loss of a run's first step; an action, which does not wait for the devices."""
        if report.step == 1 and not self._is_told:
            self._first = report.results.loss

    def check(self, loss: float) -> None:
        """Warns if a reported loss is not finite, or the last few are above the first step's."""
        if self._first is None:
            return
        first = float(self._first)
        self._above = self._above + 1 if loss > first + MARGIN * abs(first) else 0
        if math.isfinite(loss) and self._above < PATIENCE:
            return
        self._first = None
        warn(
            f"The training diverges: the loss is {loss:.4g}, up from {first:.4g} in the first "
            "step. A smaller --set learning_rate or --set clip_norm=1 may help."
        )


def warn(text: str) -> None:
    """Warns of a training."""
    warnings.warn(text, RuntimeWarning, stacklevel=3)
