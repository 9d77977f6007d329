"""A report of a step, and its rates, as actions are given them."""

import numpy as np
import tensorflow as tf

from towers import StepReport
from towers.loop.printing import print_report
from towers.loop.rates import Rates
from towers.step.results import StepResults, TowerResults
from towers.steps import Position


def report_of(step, *, epoch_end=False, num_towers=2, **changes):
    """A report whose towers have the losses 3, 4, ... and 2, 3, ... examples."""
    losses = np.arange(3.0, 3.0 + num_towers, dtype="float32")
    results = {
        "loss": tf.constant(3.2104),
        "weight": tf.constant(5.0),
        "metrics": {"accuracy": tf.constant(0.25)},
        "metric_weights": {"accuracy": tf.constant(5.0)},
        "gradient_norm": tf.constant(1.8),
        "learning_rate": tf.constant(0.125),
        "finite": tf.constant(True),
        "loss_scale": tf.constant(1.0),
        "towers": TowerResults(
            loss=tf.constant(losses),
            weight=tf.constant(losses - 1),
            metrics={"accuracy": tf.constant(losses / 8)},
            metric_weights={"accuracy": tf.constant(losses - 1)},
            gradient_norm=tf.constant(losses * 2),
        ),
        **changes,
    }
    position = Position(step, 0, step)
    return StepReport(
        step, 0, epoch_end, position, StepResults(**results), 0.5, [0.0, 0.25][:num_towers]
    )


def line_of(report, rates, **options):
    """Returns the line that `print_report` writes."""
    lines: list[str] = []
    print_report(report, rates, write=lines.append, **options)
    return lines[0]


def rates_of(waits=(0.0, 0.0), steps=142, seconds=10.0, examples=18140):
    """The rates of so many steps, in each of which a tower waits, with examples for each tower."""
    each = np.full(len(waits), examples / seconds)
    return Rates(steps / seconds, each.sum(), each, np.array(waits) / seconds, {})
