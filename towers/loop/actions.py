"""Actions: plain callables that the trainer calls with the report of each step."""

from __future__ import annotations

import collections
import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tqdm

from towers.loop.rates import Rates, Window
from towers.loop.updates import Action, StepReport
from towers.run.summaries import SummaryWriters


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
    if steps is not None and steps < 1:
        raise ValueError(f"every() needs steps of at least 1. Received {steps}.")
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
    """Returns an action that runs every n steps, on the report and the rates since then."""
    window = Window()

    def periodic(report: StepReport) -> None:
        window.add(report)
        if report.step % steps == 0:
            action(report, window.read())

    return periodic


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


def write_summaries(
    writers: SummaryWriters, *, first_tower: int = 0, average: bool = True
) -> Callable[[StepReport, Rates], None]:
    """Returns an action for `with_rates` that writes curves per tower and their average.

    Args:
        writers: the writers of TensorBoard's event files.
        first_tower: the number of this process's first tower among the towers of all processes.
        average: whether this process writes the average's curve.
    """

    def write(report: StepReport, rates: Rates) -> None:
        results, towers = report.results, report.results.towers
        means = {
            "loss": results.loss,
            **results.metrics,
            "gradient_norm": results.gradient_norm,
            "examples_per_second": rates.examples_per_second,
            "input_wait": rates.input_wait,
            "learning_rate": results.learning_rate,
        }
        if average:
            writers.write("average", report.step, to_floats(means))
        for tower in range(len(rates.tower_input_wait)):
            scalars = {
                "loss": towers.loss[tower],
                **{name: values[tower] for name, values in towers.metrics.items()},
                "gradient_norm": towers.gradient_norm[tower],
                "examples_per_second": rates.tower_examples_per_second[tower],
                "input_wait": rates.tower_input_wait[tower],
            }
            if report.tower is not None:
                if tower not in rates.tower_staleness:  # No update since the last report.
                    continue
                scalars["staleness"] = rates.tower_staleness[tower]
            writers.write(f"tower_{first_tower + tower}", report.step, to_floats(scalars))

    return write


def write_histograms(
    writers: SummaryWriters, variables: Iterable[keras.Variable], *, run: str = "average"
) -> Action:
    """Returns an action that writes how the values of each variable are distributed.

    It reads every variable, so run it seldom: `every(write_histograms(...), steps=1000)`. Towers
    that update asynchronously do not wait for it; enclose it in `Trainer.paused()` if they should.

    Args:
        writers: the writers of TensorBoard's event files.
        variables: such as `model.trainable_variables`; each is named by its path, with a number
            behind it where an earlier one has the same.
        run: the run whose page Histograms shows them.
    """
    by_tag: dict[str, keras.Variable] = {}
    times: collections.Counter[str] = collections.Counter()
    for variable in variables:
        times[variable.path] += 1
        number = f"_{times[variable.path]}" if times[variable.path] > 1 else ""
        by_tag[variable.path + number] = variable

    def write(report: StepReport) -> None:
        arrays = {tag: variable.numpy() for tag, variable in by_tag.items()}
        writers.write_histograms(run, report.step, arrays)

    return write


def profile_steps(folder: str | os.PathLike[str], *, first: int, last: int) -> Action:
    """Returns an action that records what the devices do in some steps, for TensorBoard's profiler.

    Args:
        folder: TensorBoard's log directory.
        first, last: the first and the last of these steps; at least 2, since the action begins
            after a step.

    Raises:
        ValueError: `first` is below 2, or `last` is below `first`.
    """
    if not 2 <= first <= last:
        raise ValueError(f"profile_steps() needs 2 <= first <= last. Received {first}, {last}.")
    is_running = False

    def profile(report: StepReport) -> None:
        nonlocal is_running
        if is_running and report.step >= last:
            float(report.results.loss)  # Waits for the devices, so that the step is whole.
            tf.profiler.experimental.stop()
            is_running = False
        elif not is_running and report.step == first - 1:
            tf.profiler.experimental.start(str(folder))
            is_running = True

    return profile


def to_floats(scalars: Mapping[str, Any]) -> dict[str, float]:
    """Returns the scalars as Python numbers; a metric of another shape is left out."""
    return {name: float(value) for name, value in scalars.items() if np.ndim(value) == 0}


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


@dataclasses.dataclass
class Best:
    """The best evaluation so far, to be saved in checkpoints.

    Args:
        metric: the name of the metric to compare.
        maximize: whether a larger value is better.
        value: the best value, or None before the first evaluation.
        step: the step of the best value.
        stale: the number of evaluations since then.
    """

    metric: str
    maximize: bool
    value: float | None = None
    step: int = 0
    stale: int = 0

    def improves(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Records an evaluation and returns whether it is the best so far."""
        value = metrics[self.metric]
        sign = 1 if self.maximize else -1
        better = not math.isnan(value) and (self.value is None or sign * value > sign * self.value)
        if better:
            self.value, self.step, self.stale = value, step, 0
        else:
            self.stale += 1
        return better
