"""Actions: plain callables that the trainer calls with the report of each step, and when."""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from towers.ground.arguments import check_at_least, check_not_negative
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

    With several conditions, it runs when any of them holds. Its report covers only the last step;
    `with_rates` gives the means over all steps since the last report.

    Args:
        action: the action to run.
        steps: run it every so many steps of the run.
        seconds: run it when so many seconds have passed since it last ran, after the last update of
            a call (`StepOptions.steps_per_call`): then the variables are those of its report.
        epochs: whether to run it at the end of each epoch.

    Raises:
        ValueError: no condition is given, steps is below 1, seconds below 0, or the action takes
            more than a report.
    """
    if steps is None and seconds is None and not epochs:
        raise ValueError("every() needs steps, seconds or epochs=True. Received none of them.")
    if steps is not None:
        check_at_least(1, steps=steps)
    if seconds is not None:
        check_not_negative(seconds=seconds)
    check_action(action)
    last_time = time.monotonic()

    def periodic(report: StepReport) -> None:
        nonlocal last_time
        due = steps is not None and report.step % steps == 0
        due = due or (epochs and report.epoch_end)
        if seconds is not None and report.call_end:
            due = due or time.monotonic() - last_time >= seconds
        if due:
            last_time = time.monotonic()
            action(report)

    return periodic


def with_rates(action: Callable[[StepReport, Rates], Any], *, steps: int) -> Reporting:
    """Returns an action that runs every n steps, on what happened since it last ran.

    A `Trainer` whose training ends before the first n runs it at the end. Its report holds the
    means since then, as `Reporting` says.

    Raises:
        ValueError: steps is below 1, or the action does not take a report and rates.
    """
    check_at_least(1, steps=steps)
    if not takes(action, 2):
        raise ValueError(
            f"with_rates calls action(report, rates). Received {action!r}, which does not take "
            "both; towers.actions.every(action, steps=...) gives the report alone."
        )
    return Reporting(action, steps)


def check_action(action: object) -> None:
    """Raises ValueError for an action that cannot be called with a report alone."""
    if not takes(action, 1):
        raise ValueError(
            f"An action is called with a StepReport. Received {action!r}, which does not take this "
            "alone; towers.actions.with_rates(action, steps=...) gives a report and its rates."
        )


def takes(function: Any, count: int) -> bool:
    """Returns whether a function can be called with so many values, as far as Python knows."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # A function of C code that does not say.
        return True
    return True


class Reporting:
    """The action that `with_rates` returns.

    The `results` of its reports are NumPy numbers over all updates since it last ran, each action
    by its own period: loss and metrics are means by their weights, `weight` and `metric_weights`
    are sums. A metric without a weight is the mean of the updates' sums; an array is
    left out. A gradient norm is the root mean square over the updates that were applied. Learning
    rate, loss scale and `finite` are those of the last update, as is the rest of the report. A
    tower without an update is NaN.

    A `Trainer` with a `run_dir` saves what is not reported yet, so a resumed run reports the same
    numbers. If its period has changed, it still reports what was saved; keep several such actions
    in the same order. Asynchronous towers are a few updates ahead of their reports; a resumed run
    leaves these out.

    Args:
        action: called with a `StepReport` and `Rates`.
        steps: the number of steps between two reports.

    Attributes:
        steps: as given.
        window: the updates since the last report.
    """

    def __init__(self, action: Callable[[StepReport, Rates], Any], steps: int):
        self.steps = steps
        self.window = Window()
        self._action = action
        self._last: StepReport | None = None

    def __call__(self, report: StepReport) -> None:
        """Adds an update, and reports if it is time."""
        self.window.add(report)
        self._last = report
        if report.step % self.steps == 0:
            self._report(report)

    def end(self) -> None:
        """Reports a training that ended before it was time; it can go on as if this were not."""
        if self._last is not None and self._last.step < self.steps:
            state = self.window.state()
            self._report(self._last)
            self.window.restore(state)

    def _report(self, report: StepReport) -> None:
        self._last = None
        results, rates = self.window.read()
        self._action(dataclasses.replace(report, results=results), rates)


def unreported(actions: Iterable[Action]) -> dict[str, Any]:
    """Returns what a checkpoint holds of the updates that `Reporting` actions did not report yet.

    It is of JSON types, by the number of the action among those that report.
    """
    return {str(number): action.window.state() for number, action in reporting(actions)}


def restore_unreported(
    actions: Iterable[Action], state: Mapping[str, Any], *, same_towers: bool = True
) -> None:
    """Gives each action what `unreported` returned for it; its period may be another one now.

    Args:
        actions: as for `unreported`, in the same order.
        state: what it returned; an action that is not in it begins anew.
        same_towers: as in `Window.restore`.
    """
    for number, action in reporting(actions):
        action.window.restore(state.get(str(number), {}), same_towers=same_towers)


def reporting(actions: Iterable[Action]) -> Iterable[tuple[int, Reporting]]:
    """Returns the actions that report, numbered from 0."""
    return enumerate(action for action in actions if isinstance(action, Reporting))
