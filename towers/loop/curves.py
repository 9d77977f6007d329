"""What a training writes for TensorBoard: curves, histograms and profiles."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from towers.loop.rates import Rates
from towers.loop.updates import Action, StepReport
from towers.saving.summaries import SummaryWriters


def write_summaries(
    writers: SummaryWriters, *, first_tower: int = 0, average: bool = True
) -> Callable[[StepReport, Rates], None]:
    """Returns an action for `with_rates` that writes curves per tower and their average.

    Batches differ more than towers do: `loss_spread` shows how far each tower's loss is from the
    average and, as the average's own curve, how far the highest is from the lowest.

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
        losses = losses_of(report)
        spreads = losses - float(results.loss) if len(losses) > 1 else None
        if spreads is not None and np.isfinite(spreads).any():
            means["loss_spread"] = np.nanmax(losses) - np.nanmin(losses)
        if average:
            writers.write("average", report.step, to_floats(means))
        for tower in range(len(rates.tower_input_wait)):
            if not towers.weight[tower]:  # No example since the last report.
                continue
            scalars = tower_scalars(report, rates, tower)
            if spreads is not None:
                scalars["loss_spread"] = spreads[tower]
            if report.tower is not None:
                scalars["staleness"] = rates.tower_staleness[tower]
            writers.write(f"tower_{first_tower + tower}", report.step, to_floats(scalars))

    return write


def losses_of(report: StepReport) -> np.ndarray:
    """Returns the loss of each tower; NaN for one that had no example."""
    towers = report.results.towers
    return np.where(towers.weight, np.asarray(towers.loss, np.float64), np.nan)


def tower_scalars(report: StepReport, rates: Rates, tower: int) -> dict[str, Any]:
    """Returns the numbers of one tower by the names of their curves."""
    towers = report.results.towers
    return {
        "loss": towers.loss[tower],
        **{name: values[tower] for name, values in towers.metrics.items()},
        "gradient_norm": towers.gradient_norm[tower],
        "examples_per_second": rates.tower_examples_per_second[tower],
        "input_wait": rates.tower_input_wait[tower],
    }


def report_values(report: StepReport, rates: Rates) -> dict[str, Any]:
    """Returns the numbers of a report as a line of a `MetricsFile` has them.

    Args:
        report, rates: as `with_rates` gives them.
    """
    results, losses = report.results, losses_of(report)
    return {
        "epoch": report.epoch + 1,
        "loss": float(results.loss),
        **{f"tower_{i}_loss": float(loss) for i, loss in enumerate(losses) if len(losses) > 1},
        **to_floats(results.metrics),
        "gradient_norm": float(results.gradient_norm),
        "learning_rate": float(results.learning_rate),
        "steps_per_second": rates.steps_per_second,
        "examples_per_second": rates.examples_per_second,
    }


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
