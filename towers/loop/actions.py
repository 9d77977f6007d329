"""Actions: plain callables that the trainer calls with the report of each step, and when."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from towers.loop.rates import Rates, Window
from towers.loop.updates import Action, StepReport


def every(
    action: Action,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    epochs: bool = False,
) -> Action:
    """Returns an action that runs every n steps, every n seconds or at the end of each epoch.

    With several conditions, it runs when one of them holds.

    Args:
        action: the action to run.
        steps: run it every so many steps of the run.
        seconds: run it when so many seconds have passed since it last ran.
        epochs: whether to run it at the end of each epoch.

    Raises:
        ValueError: no condition is given, or steps is below 1.
    """
    if steps is None and seconds is None and not epochs:
        raise ValueError("every() needs steps, seconds or epochs=True. Received none of them.")
    if steps is not None:
        check_steps("every", steps)
    last_time = time.monotonic()

    def periodic(report: StepReport) -> None:
        nonlocal last_time
        due = steps is not None and report.step % steps == 0
        due = due or (epochs and report.epoch_end)
        due = due or (seconds is not None and time.monotonic() - last_time >= seconds)
        if due:
            last_time = time.monotonic()
            action(report)

    return periodic


def with_rates(action: Callable[[StepReport, Rates], Any], *, steps: int) -> Action:
    """Returns an action that runs every n steps, on the report and the rates since then.

    Raises:
        ValueError: steps is below 1.
    """
    check_steps("with_rates", steps)
    window = Window()

    def periodic(report: StepReport) -> None:
        window.add(report)
        if report.step % steps == 0:
            action(report, window.read())

    return periodic


def check_steps(function: str, steps: int) -> None:
    """Raises ValueError for a period below 1."""
    if steps < 1:
        raise ValueError(f"{function}() needs steps of at least 1. Received {steps}.")
