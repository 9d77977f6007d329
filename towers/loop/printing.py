"""What a training prints: a line for each report, and a progress bar."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import tqdm

from towers.loop.curves import to_floats
from towers.loop.rates import Rates
from towers.loop.updates import StepReport


def print_report(
    report: StepReport,
    rates: Rates,
    *,
    unit: str = "examples",
    first_tower: int | None = None,
    columns: int | None = None,
    write: Callable[[str], Any] = print,
) -> None:
    """Writes one line: loss (of each tower), metrics, gradient norm and speed.

    Args:
        report, rates: as `with_rates` gives them.
        unit: what the tower function's weight counts.
        first_tower: the number of this process's first tower among the towers of all processes;
            None for one process.
        columns: a longer line is shortened: the losses of the towers to their range, then the norm
            and the steps per second are left out. None for the whole line.
        write: writes the line, a string.
    """
    write(format_report(report, rates, unit, first_tower, columns))


def format_report(
    report: StepReport,
    rates: Rates,
    unit: str = "examples",
    first_tower: int | None = None,
    columns: int | None = None,
) -> str:
    """Returns the line of a report; arguments as in `print_report`."""
    results = report.results
    loss = f"loss {float(results.loss):.4f}"
    metrics = [f"{name} {value:.4f}" for name, value in to_floats(results.metrics).items()]
    norm = f"norm {float(results.gradient_norm):.3g}"
    rate = f"{rates.steps_per_second:.1f} steps/s"
    rest = [f"{rates.examples_per_second:.0f} {unit}/s", *format_delays(rates)]
    each, span = format_tower_losses(report, first_tower), format_loss_range(report, first_tower)
    begin = ["train", f"step {report.step}"]
    lines = [
        " | ".join([*begin, *parts, *rest])
        for parts in (
            [loss + each, *metrics, norm, rate],
            [loss + span, *metrics, norm, rate],
            [loss + span, *metrics, rate],
            [loss + span, *metrics],
            [loss, *metrics],
        )
    ]
    return next((line for line in lines if columns is None or len(line) <= columns), lines[-1])


def format_delays(rates: Rates) -> list[str]:
    """Returns what delays a step: how old the read values are, and the wait for input."""
    parts = []
    if rates.tower_staleness:
        stale = sorted(rates.tower_staleness.items())
        parts.append("stale " + " ".join(f"t{tower} {mean:.1f}" for tower, mean in stale))
    if rates.input_wait >= 0.1:
        parts.append(f"input wait {rates.input_wait:.0%}")
    return parts


def format_tower_losses(report: StepReport, first_tower: int | None = None) -> str:
    """Returns ` (t0 3.19 t1 3.23)`, or an empty string for one tower in one process.

    Asynchronous towers are left out until their first update.
    """
    shown = [f"t{tower} {loss:.4g}" for tower, loss in tower_losses(report, first_tower)]
    return f" ({' '.join(shown)})" if shown else ""


def format_loss_range(report: StepReport, first_tower: int | None = None) -> str:
    """Returns ` (t0 3.19 - t1 3.23)`, the towers of the lowest and of the highest loss."""
    losses = tower_losses(report, first_tower)
    if len(losses) < 3:
        return format_tower_losses(report, first_tower)
    by_loss = sorted(losses, key=lambda pair: pair[1])
    low, high = (f"t{tower} {loss:.4g}" for tower, loss in (by_loss[0], by_loss[-1]))
    return f" ({low} - {high})"


def tower_losses(report: StepReport, first_tower: int | None) -> list[tuple[int, float]]:
    """Returns the number and the loss of each tower; nothing for one tower in one process."""
    losses = [float(loss) for loss in report.results.towers.loss]
    if len(losses) == 1 and first_tower is None:
        return []
    return [
        ((first_tower or 0) + tower, loss)
        for tower, loss in enumerate(losses)
        if report.tower in (None, tower) or not math.isnan(loss)
    ]


class ProgressBar:
    """A progress bar over the steps of the run; it shows nothing unless stderr is a terminal.

    Args:
        total_steps: the number of steps in the whole run, or None if unknown.
        initial_step: the number of steps done before this process began.
        steps_per_epoch: to show the number of the epoch, or None.
        quiet: whether to show nothing on a terminal either.
    """

    def __init__(
        self,
        total_steps: int | None,
        initial_step: int = 0,
        *,
        steps_per_epoch: int | None = None,
        quiet: bool = False,
    ):
        self._num_epochs = None
        if total_steps is not None and steps_per_epoch:
            self._num_epochs = -(-total_steps // steps_per_epoch)
        self._bar = tqdm.tqdm(
            total=total_steps,
            initial=initial_step,
            unit="step",
            disable=quiet or not sys.stderr.isatty(),
            dynamic_ncols=True,
        )

    def __call__(self, report: StepReport) -> None:
        """Moves the bar one step."""
        if self._num_epochs is not None:
            epoch = f"epoch {report.epoch + 1}/{self._num_epochs}"
            self._bar.set_description_str(epoch, refresh=False)
        self._bar.update(1)

    def write(self, line: str) -> None:
        """Prints a line above the bar."""
        if self._bar.disable:
            print(line, flush=True)
        else:
            self._bar.write(line)

    def close(self) -> None:
        """Ends the bar; its last state stays visible."""
        self._bar.close()
