"""Advice when transfers of parameters and gradients take too much time; it changes nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import tensorflow as tf

from towers.loop.updates import Action, StepReport
from towers.step.builder import TrainStep
from towers.travel.gradients import global_norm, sum_gradients

ADVICE_THRESHOLD = 0.3  # Fraction of a step's time.
FIRST_STEP, LAST_STEP = 5, 20  # Earlier steps trace and warm up.


def advise_placement(step: TrainStep, write: Callable[[str], None] = print) -> Action:
    """Returns an action that compares transfer time with step time once, and may write a line.

    With one tower, or with a copy of the parameters on each tower, it does nothing.

    Args:
        step: the step that trains.
        write: writes the line, a string.
    """
    seconds: list[float] = []
    steps_seen = 0

    def advise(report: StepReport) -> None:
        nonlocal steps_seen
        steps_seen += 1
        is_shared = len(step.update.copies) < len(step.devices)
        if not is_shared or not FIRST_STEP <= steps_seen <= LAST_STEP:
            return
        float(report.results.loss)  # Waits for the devices, so the times of steps do not mix.
        seconds.append(report.seconds - max(report.waits))
        if steps_seen == LAST_STEP:
            line = format_advice(measure_transfers(step) / max(statistics.median(seconds), 1e-9))
            if line:
                write(line)

    return advise


def format_advice(fraction: float) -> str | None:
    """Returns the advice if transfers take more than the threshold, a fraction of a step's time."""
    if fraction <= ADVICE_THRESHOLD:
        return None
    return (
        f"advice: moving parameters and gradients takes {min(fraction, 1):.0%} of a step. Try a "
        "larger batch, fewer towers, --parameters tower0 or --parameters replicated."
    )


def measure_transfers(step: TrainStep, repetitions: int = 5) -> float:
    """Returns the time in seconds to send all parameters to the towers and sum them again.

    The parameters stand in for gradients, which have the same size. Tables that are only looked
    up do not travel, as in a step.

    Args:
        step: the step whose parameters and devices to measure.
        repetitions: the number of measurements; the result is their median.
    """

    @tf.function(autograph=False)
    def transfer() -> tf.Tensor:
        copies = []
        for device in step.devices:
            with tf.device(device):
                values = step.update.copies.shared.read()
                copies.append([tf.identity(value) for value in values.values()])
        with tf.device(step.exchange.device):
            return global_norm(sum_gradients(copies), tf.float32)

    float(transfer())
    seconds = []
    for _ in range(repetitions):
        started = time.perf_counter()
        float(transfer())
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
