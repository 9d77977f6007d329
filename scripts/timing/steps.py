"""The time of a step of several contenders, interleaved, each in the process that built it."""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

import towers
from towers.ground.progress import count_of, progress, waiting
from towers.scripts.shown import show
from towers.scripts.timing.apart import Apart, TimedRun
from towers.scripts.timing.options import StepTimingOptions, TimingOptions
from towers.scripts.timing.task import NUM_BATCHES, Task, open_task
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.session import carried_state
from towers.scripts.wrong_input import wrong_input

WARM_UP_STEPS = NUM_BATCHES + 2  # For ways that compile for each shape.


class Contender(NamedTuple):
    """One way to train.

    Attributes:
        name: as the table shows it.
        number: of towers or replicas.
        build: `build(task) -> run`, with a model of its own; a function of a module, which another
            process imports.
        alone: whether it must not share a process with other ways.
    """

    name: str
    number: int
    build: Callable[[Task], TimedRun]
    alone: bool = False


def time_steps(
    recipe: Recipe, options: TimingOptions, contenders: Sequence[Contender]
) -> list[dict[str, Any]]:
    """Prints the time of a step of each contender, and returns the rows.

    Raises:
        WrongInputError: the devices or the data cannot be used.
    """
    own, *others = in_processes(contenders)
    with contextlib.ExitStack() as stack:
        with wrong_input(), waiting(f"building {count_of(len(contenders), 'step')}"):
            apart = [stack.enter_context(Apart(open_runs, recipe, options, one)) for one in others]
            task = open_task(recipe, options, most_towers(own))
            runs = {one.name: one.build(task) for one in own}
            for process in apart:
                runs.update(process.runs())
        runs = {one.name: runs[one.name] for one in contenders}
        seconds = measure(runs, options.repetitions, options.steps)
    rows = summarise(seconds, task.rows)
    print_table(rows, recipe, options)
    return rows


def towers_of(options: StepTimingOptions) -> list[Contender]:
    """Returns the numbers of towers, each by default and with each exchange."""
    label = f" of {options.gpus_per_tower}" if options.gpus_per_tower > 1 else ""
    return [
        Contender(
            f"{exchange or 'towers'} {number}{label}",
            number,
            functools.partial(build_towers, number=number, exchange=exchange),
        )
        for number in options.towers
        for exchange in (None, *(options.exchange if number > 1 else ()))
    ]


def in_processes(contenders: Sequence[Contender]) -> list[list[Contender]]:
    """Returns the contenders of each process; the first one is this.

    TensorFlow is told once how many devices there are and on how many threads an operation runs,
    which towers on the CPU choose by their number. So without GPUs each number has a process, and
    so has each rival with replicas: beside one, towers took a sixth longer. GPUs are not shared by
    processes.
    """
    if tf.config.list_physical_devices("GPU"):
        return [list(contenders)]
    groups: dict[tuple[int, str], list[Contender]] = {}
    for one in contenders:
        groups.setdefault((one.number, one.name if one.alone else ""), []).append(one)
    return list(groups.values())


def most_towers(contenders: Sequence[Contender]) -> int:
    """Returns the most towers or replicas that a contender has."""
    return max(contender.number for contender in contenders)


def open_runs(
    recipe: Recipe, options: TimingOptions, contenders: Sequence[Contender]
) -> dict[str, TimedRun]:
    """Returns what runs each contender; errors as in `open_task`."""
    task = open_task(recipe, options, most_towers(contenders))
    return {one.name: one.build(task) for one in contenders}


def build_towers(task: Task, number: int, exchange: str | None) -> TimedRun:
    """Returns training on so many towers by the `Trainer`, its input feed included.

    An exchange is that of copies of the variables on each of them; None is the default placement.
    """
    groups = task.groups[:number]
    if number == 1 and len(groups[0]) == 1 and "CPU" in groups[0][0]:
        groups = (("/CPU:0",),)
    placement = towers.Placement(groups)
    if exchange is not None:
        placement = towers.Placement(groups, "replicated", exchange)
    step = build_step(task, placement)

    def timed(num_steps: int) -> float:
        ends: list[float] = []

        def note(report: towers.StepReport) -> None:
            if not ends or report.step == num_steps:
                float(report.results.loss)  # Waits for the devices.
            ends.append(time.perf_counter())

        towers.Trainer(step, towers.batches_from(task.dataset), [note]).train(steps=num_steps)
        return ends[-1] - ends[0]

    return timed


def build_step(task: Task, placement: towers.Placement) -> towers.engine.TrainStep:
    """Returns the step of a task on towers, with a model of its own."""
    with placement.scope():
        model = task.make_model()
        optimizer = task.make_optimizer()
    return towers.build_train_step(
        task.make_tower_fn(model),
        model,
        optimizer,
        placement,
        task.dataset,
        towers.StepOptions(
            clip_norm=task.recipe.fields.clip_norm or None,
            carried=carried_state(task.recipe, model, task.data.train),
        ),
    )


def measure(
    runs: Mapping[str, TimedRun], repetitions: int, num_steps: int
) -> dict[str, list[float]]:
    """Returns the seconds of a step of each contender by name, one number per repetition.

    The repetitions are interleaved, since a machine's speed drifts: times that are compared were
    measured within seconds of each other. Every second round has the opposite order.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    with progress(len(runs) * (repetitions + 1), "timing", "run") as bar:
        for run in runs.values():
            run(WARM_UP_STEPS)
            bar.update()
        for repetition in range(repetitions):
            for name in runs if repetition % 2 == 0 else reversed(list(runs)):
                seconds[name].append(runs[name](num_steps) / (num_steps - 1))
                bar.update()
    return seconds


def summarise(seconds: dict[str, list[float]], batch_size: float) -> list[dict[str, Any]]:
    """Returns a row for each contender; ratios are medians over the repetitions."""
    reference = seconds[next(iter(seconds))]
    rows = []
    for name, times in seconds.items():
        ratios = [own / other for own, other in zip(times, reference, strict=True)]
        median, order = statistics.median(times), sorted(ratios)
        rows.append(
            {
                "name": name,
                "milliseconds": 1000 * median,
                "fastest": 1000 * min(times),
                "slowest": 1000 * max(times),
                "examples_per_second": batch_size / median,
                "time_ratio": statistics.median(ratios),
                "ratio_range": [order[len(order) // 4], order[-1 - len(order) // 4]],
                "speed_up": 1 / statistics.median(ratios),
            }
        )
    return rows


def print_table(rows: list[dict[str, Any]], recipe: Recipe, options: TimingOptions) -> None:
    """Prints the rows as a Markdown table."""
    first = rows[0]["name"]
    show(
        f"{recipe.name}, batch {recipe.fields.batch_size}, median of {options.repetitions} "
        f"interleaved repetitions of {options.steps} steps"
    )
    show(f"| way | ms a step (min - max) | examples/s | time / {first} (middle half) |")
    show("|---|---|---|---|")
    for row in rows:
        show(
            f"| {row['name']} | {row['milliseconds']:.1f} "
            f"({row['fastest']:.1f} - {row['slowest']:.1f}) "
            f"| {row['examples_per_second']:.0f} | {row['time_ratio']:.3f} "
            f"({row['ratio_range'][0]:.2f} - {row['ratio_range'][1]:.2f}) |"
        )
