"""The alarm of a training that goes wrong early: its losses stay above that of its first step."""

from __future__ import annotations

import math
import warnings
from typing import Any

import towers

PATIENCE = 5  # Reports in a row.
MARGIN = 0.1  # Above the first loss, as a fraction of it: batches differ.


class LossAlarm:
    """Warns once in a run. A run that goes on, whose first step was before, is not watched."""

    def __init__(self) -> None:
        self._first: Any = None
        self._above = 0

    def keep_first(self, report: towers.StepReport) -> None:
        """Keeps the loss of a run's first step; an action, which does not wait for the devices."""
        if report.step == 1:
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
        warnings.warn(
            f"The loss is {loss:.4g}, and was {first:.4g} in the first step: the training goes "
            "wrong. A smaller --set learning_rate or --set clip_norm=1 may help.",
            RuntimeWarning,
            stacklevel=2,
        )
