"""What a training prints: a line for each report, and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
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

    Given by `with_rates`, they are means since the last line: `Reporting` explains them.

    Args:
        report, rates: as `with_rates` gives them.
        unit: what the tower function's weight counts.
        first_tower: the number of this process's first tower among the towers of all processes;
            None for one process.
        columns: the width that a line must fit. First the norm is left out; then the towers' losses
            lose names and digits and become a range; then the rates, the metrics and at last the
            range are left out. None for the whole line.
        write: writes the line, a string.
    """
    results = report.results
    begin = f"train | step {report.step} | loss {float(results.loss):.4f}"
    losses = tower_losses(report, first_tower)
    parts = [f"{name} {value:.4f}" for name, value in to_floats(results.metrics).items()]
    metrics = len(parts)
    parts += [f"norm {float(results.gradient_norm):.3g}", f"{rates.steps_per_second:.1f} steps/s"]
    parts += [f"{rates.examples_per_second:.0f} {unit}/s", *format_delays(rates)]
    # Metrics stay the longest, the first of them longer than the last.
    leaving = [*range(metrics, len(parts)), *reversed(range(metrics))]
    each = list(format_tower_losses(losses))
    # The norm leaves, the towers' losses become shorter, then the other parts leave.
    short = each[-2 if len(losses) > 2 else min(1, len(each) - 1)]
    shapes = [(each[0], 0), *((one, 1) for one in each if len(one) >= len(short))]
    shapes += [(short, gone) for gone in range(2, len(parts))]
    lines = [
        " | ".join([begin + one, *(parts[i] for i in sorted(leaving[gone:]))])
        for one, gone in [*shapes, *((one, len(parts)) for one in each)]
    ]
    write(next((one for one in lines if columns is None or len(one) <= columns), begin[:columns]))


def format_delays(rates: Rates) -> list[str]:
    """Returns what delays a step: how old the read values are, and the wait for input."""
    parts = []
    if rates.tower_staleness:
        stale = sorted(rates.tower_staleness.items())
        parts.append("stale " + " ".join(f"t{tower} {mean:.1f}" for tower, mean in stale))
    if rates.input_wait >= 0.1:
        parts.append(f"input wait {rates.input_wait:.0%}")
    return parts


def format_tower_losses(losses: Sequence[tuple[int, float]]) -> Iterator[str]:
    """Yields ` (t0 3.192 t1 3.231)` and ever shorter forms, the last an empty string."""
    if losses:
        yield " (" + " ".join(f"t{tower} {format_loss(loss, 4)}" for tower, loss in losses) + ")"
        for digits in (4, 3, 2):
            yield " (" + " ".join(format_loss(loss, digits) for _, loss in losses) + ")"
    if len(losses) > 2:
        ends = [end(losses, key=lambda pair: pair[1]) for end in (min, max)]
        yield " (" + " - ".join(f"t{tower} {format_loss(loss, 4)}" for tower, loss in ends) + ")"
    yield ""


def format_loss(loss: float, digits: int) -> str:
    """Returns a loss with so many digits, or with all those before its point.

    >>> format_loss(3.1921, 3), format_loss(1234.5, 2), format_loss(0.12, 2)
    ('3.19', '1234', '0.12')
    """
    whole = len(str(int(abs(loss)))) if abs(loss) < 1e6 else 0
    return f"{loss:.{max(digits, whole)}g}"


def tower_losses(report: StepReport, first_tower: int | None) -> list[tuple[int, float]]:
    """Returns the number and the loss of each tower; nothing for one tower in one process.

    Towers without an example are left out.
    """
    towers = report.results.towers
    losses = [float(loss) for loss in towers.loss]
    if len(losses) == 1 and first_tower is None:
        return []
    return [
        ((first_tower or 0) + tower, loss)
        for tower, loss in enumerate(losses)
        if towers.weight[tower]
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
