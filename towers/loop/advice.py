"""Whether the parameters travel too much, and what to try then; nothing switches by itself."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import tensorflow as tf

from towers.loop.updates import Action, StepReport
from towers.step.builder import TrainStep
from towers.step.gradients import global_norm, sum_gradients

TOO_MUCH = 0.3  # Of a step's time.
FIRST_STEP, LAST_STEP = 5, 20  # The first ones trace and warm up.


def advise_placement(step: TrainStep, write: Callable[[str], None] = print) -> Action:
    """Returns an action that once compares what travels with a step, and may write a line.

    With one tower, or with a copy on each, nothing is shared, and there is nothing to advise.
    """
    seconds: list[float] = []
    steps_seen = 0

    def advise(report: StepReport) -> None:
        nonlocal steps_seen
        steps_seen += 1
        is_shared = len(step.update.copies) < len(step.devices)
        if not is_shared or not FIRST_STEP <= steps_seen <= LAST_STEP:
            return
        float(report.results.loss)  # Waits for the devices, so that the step's time is its own.
        seconds.append(report.seconds - max(report.waits))
        if steps_seen == LAST_STEP:
            line = advice(measure_travel(step) / max(statistics.median(seconds), 1e-9))
            if line:
                write(line)

    return advise


def advice(share: float) -> str | None:
    """Returns what to try if moving parameters and gradients takes this share of a step."""
    if share <= TOO_MUCH:
        return None
    return (
        f"advice: moving parameters and gradients takes {min(share, 1):.0%} of a step. Try a "
        "larger batch, fewer towers, --parameters tower0 or --parameters replicated."
    )


def measure_travel(step: TrainStep, repetitions: int = 5) -> float:
    """Returns the seconds in which all parameters reach the towers and come back to be summed.

    What comes back has the size of the gradients. Tables that are only looked up stay where they
    are, as they do in a step.
    """

    @tf.function(autograph=False)
    def travel() -> tf.Tensor:
        copies = []
        for device in step.devices:
            with tf.device(device):
                values = step.update.copies.shared.read()
                copies.append([tf.identity(value) for value in values.values()])
        with tf.device(step.exchange.device):
            return global_norm(sum_gradients(copies), tf.float32)

    float(travel())
    seconds = []
    for _ in range(repetitions):
        started = time.perf_counter()
        float(travel())
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
