"""What one slow tower costs the others, synchronous and asynchronous."""

from __future__ import annotations

import functools
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

import towers
from towers.ground.progress import counted
from towers.scripts.shown import show
from towers.scripts.timing.options import TimingOptions
from towers.scripts.timing.task import Task
from towers.scripts.training.session import carried_state
from towers.scripts.wrong_input import WrongInputError

WARM_UP_STEPS = 10
MODES = ("sync", "async")


class Rates(NamedTuple):
    """The rates of one mode in one repetition.

    Attributes:
        updates: updates per second of each tower; synchronous towers update together.
        examples: examples per second of all towers.
        staleness: mean staleness of the updates.
    """

    updates: list[float]
    examples: float
    staleness: float


def check_slow_tower(factor: float, options: TimingOptions) -> None:
    """Raises ValueError unless there is a slow tower beside another one."""
    if max(options.towers) < 2 or factor <= 1:
        raise ValueError(
            "slow takes a factor above 1, and --towers a number of at least 2. Received "
            f"{factor:g} and {list(options.towers)}."
        )
    if options.gpus_per_tower > 1:
        raise ValueError(
            "slow compares with asynchronous towers, which have one device each. Received "
            f"--gpus-per-tower {options.gpus_per_tower}; leave it out."
        )


def compare_slow_tower(task: Task, factor: float, options: TimingOptions) -> list[dict[str, Any]]:
    """Times both modes, first with equal towers, then with a last tower that sleeps in each step.

    Args:
        task: what is trained, on at least two towers.
        factor: how many times as long as the others' the last tower's update takes.
        options: the number of steps and the number of repetitions.

    Returns:
        One row per mode and speed.
    """
    measure = functools.partial(repeat, options=options, rows=task.rows)
    even = measure({mode: trainer_of(mode, task) for mode in MODES})
    seconds = {mode: slowing(even[mode], factor) for mode in MODES}
    slowed = measure({mode: trainer_of(mode, task, seconds[mode]) for mode in MODES})
    return [
        {"mode": mode, "slow": slow, **summary(rates[mode])}
        for mode in MODES
        for slow, rates in ((1.0, even), (factor, slowed))
    ]


def slowing(rates: Sequence[Rates], factor: float) -> float:
    """Returns the seconds of sleep that make a tower's update take `factor` times as long."""
    period = 1 / statistics.median(min(one.updates) for one in rates)
    return (factor - 1) * period


def trainer_of(mode: str, task: Task, seconds: float = 0.0) -> Callable[..., towers.Trainer]:
    """Returns a function from actions to a trainer whose last tower sleeps in every step."""
    placement = towers.Placement(task.devices, "cpu")
    with placement.scope():
        model = task.make_model()
        check_stateless(task, model)
        optimizer = task.make_optimizer()
    tower_fn = sleeping(task.make_tower_fn(model), task.devices[-1], seconds)
    options = towers.StepOptions(clip_norm=task.recipe.fields.clip_norm or None)
    arguments = (tower_fn, model, optimizer, placement, task.dataset, options)
    batches = towers.batches_from(task.dataset)
    if mode == "async":
        async_step = towers.steps.build_async_step(*arguments)
        return lambda actions: towers.Trainer(async_step, batches, actions)
    step = towers.build_train_step(*arguments)
    return lambda actions: towers.Trainer(step, batches, actions)


def check_stateless(task: Task, model: keras.Model) -> None:
    """Raises WrongInputError for a recipe with a carried state: asynchronous towers have none."""
    if carried_state(task.recipe, model, task.data.train) is not None:
        raise WrongInputError(
            f"slow trains asynchronous towers too, which have no order in which "
            f"{task.recipe.name} could carry its state from batch to batch. Give it batches "
            "without one: a language model takes --set form=sentences."
        )


def sleeping(tower_fn: towers.steps.TowerFn, device: str, seconds: float) -> towers.steps.TowerFn:
    """Returns a tower function that, on `device`, sleeps between its forward and backward pass."""

    def run(batch: Any) -> tuple:
        loss_sum, weight, metrics = tower_fn(batch)
        here = tf.identity(loss_sum)
        if seconds and towers.devices.short_device(here.device) == towers.devices.short_device(
            device
        ):
            with tf.control_dependencies([here]):
                nothing = tf.numpy_function(functools.partial(sleep, seconds), [], tf.float32)
            loss_sum = here + tf.cast(tf.reshape(tf.stop_gradient(nothing), []), here.dtype)
        return loss_sum, weight, metrics

    return run


def sleep(seconds: float) -> Any:
    """Sleeps and returns 0."""
    time.sleep(seconds)
    return tf.float32.as_numpy_dtype(0)


def repeat(
    trainers: dict[str, Callable[..., towers.Trainer]], rows: float, options: TimingOptions
) -> dict[str, list[Rates]]:
    """Returns the rates of each mode in each repetition; the modes take turns."""
    rates: dict[str, list[Rates]] = {mode: [] for mode in trainers}
    for make_trainer in trainers.values():
        timed(make_trainer, WARM_UP_STEPS, rows)
    for repetition in counted(range(options.repetitions), "timing", "repetition"):
        for mode in MODES if repetition % 2 == 0 else MODES[::-1]:
            rates[mode].append(timed(trainers[mode], options.steps, rows))
    return rates


def timed(make_trainer: Callable[..., towers.Trainer], num_steps: int, rows: float) -> Rates:
    """Trains for `num_steps` updates and returns the rates from the first to the last.

    Training continues until each tower has made at least one counted update.
    """
    reports: list[towers.StepReport] = []
    ends: list[float] = []
    idle: set[int] = set()

    def note(report: towers.StepReport) -> None:
        float(report.results.loss)  # Waits for the devices.
        ends.append(time.perf_counter())
        if not reports:
            idle.update(range(len(report.waits)))
        elif report.tower is None:
            idle.clear()
        else:
            idle.discard(report.tower)
        reports.append(report)
        if len(reports) >= num_steps and not idle:
            raise towers.StopTraining("measured")

    make_trainer([note]).train(steps=sys.maxsize)  # `note` ends it.
    counted, span = reports[1:], ends[-1] - ends[0]
    of_tower = Counter(report.tower for report in counted)
    num_towers = len(reports[0].waits)
    together = len(counted) if None in of_tower else 0
    return Rates(
        [(of_tower[tower] + together) / span for tower in range(num_towers)],
        rows * len(counted) / span,
        statistics.fmean(report.staleness or 0 for report in counted),
    )


def summary(rates: Sequence[Rates]) -> dict[str, Any]:
    """Returns the medians over the repetitions."""
    median = statistics.median
    return {
        "updates_per_second": [
            median(each) for each in zip(*(one.updates for one in rates), strict=True)
        ],
        "examples_per_second": median(one.examples for one in rates),
        "staleness": statistics.fmean(one.staleness for one in rates),
    }


def print_table(report: Sequence[dict[str, Any]], task: Task, options: TimingOptions) -> None:
    """Prints the rows as a Markdown table."""
    num_towers = len(report[0]["updates_per_second"])
    show(
        f"{task.recipe.name}, batch {task.recipe.fields.batch_size}, median of "
        f"{options.repetitions} interleaved repetitions of {options.steps} updates"
    )
    titles = "".join(f" updates/s of tower {tower} |" for tower in range(num_towers))
    show(f"| updates | last tower |{titles} examples/s | staleness |")
    show("|---" * (num_towers + 4) + "|")
    for row in report:
        speed = "like the others" if row["slow"] == 1 else f"{row['slow']:g} times slower"
        rates = "".join(f" {rate:.1f} |" for rate in row["updates_per_second"])
        show(
            f"| {row['mode']} | {speed} |{rates} {row['examples_per_second']:.0f} "
            f"| {row['staleness']:.2f} |"
        )
