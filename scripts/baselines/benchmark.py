"""The time of a step on towers and in other ways, measured by interleaved repetitions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

import towers
from towers.scripts.baselines import rivals
from towers.scripts.baselines.apart import TimedApart
from towers.scripts.baselines.options import BenchmarkOptions
from towers.scripts.progress import progress
from towers.scripts.shown import show
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.session import carried_state, data_paths, make_optimizer
from towers.scripts.training.stages import share_layers
from towers.scripts.wrong_input import nearest

WARM_UP_STEPS = 10  # More than NUM_BATCHES, for ways that compile for each shape.
EXCHANGES = ("packs", "nccl")
NUM_BATCHES = 8  # So many batches of the recipe's data are kept in memory and repeated.


class Contender(NamedTuple):
    """One way to train.

    Attributes:
        name: as the table shows it.
        run: `run(num_steps) -> seconds` of all steps but the first.
    """

    name: str
    run: rivals.TimedRun


class Benchmark(NamedTuple):
    """A task that is ready to be timed.

    Attributes:
        task: the model, the data and the optimizer.
        groups: the devices of each tower; rivals have one each.
        rows: examples of a batch, on average.
    """

    task: rivals.Task
    groups: tuple[tuple[str, ...], ...]
    rows: float

    @property
    def devices(self) -> tuple[str, ...]:
        """The first device of each tower."""
        return tuple(group[0] for group in self.groups)


def open_benchmark(recipe: Recipe, options: BenchmarkOptions) -> Benchmark:
    """Returns the task, the first batches of its data in memory.

    Raises:
        ValueError: the options or the data cannot be used.
        OSError: a file cannot be read.
    """
    check_options(options)
    return open_task(recipe, options)


def open_task(recipe: Recipe, options: BenchmarkOptions) -> Benchmark:
    """As `open_benchmark`, of options that were checked."""
    devices = towers.select_devices(
        max([*options.towers, needed_replicas(options)]), gpus_per_tower=options.gpus_per_tower
    )
    data = recipe.make_data(recipe.fields, data_paths(recipe, options.data), options.seed)
    batches = first_batches(data.train(0, 0))
    rows = statistics.fmean(len(tf.nest.flatten(batch)[0]) for batch in batches)

    def optimizer() -> Any:
        return make_optimizer(recipe.fields, data, recipe.fields.epochs)

    task = rivals.Task(recipe, data, endless(batches), optimizer)
    return Benchmark(task, devices.groups, rows)


def check_options(options: BenchmarkOptions) -> None:
    """Raises ValueError for arguments that cannot be timed."""
    if min(options.towers) < 1 or len(set(options.towers)) != len(options.towers):
        raise ValueError(
            f"--towers takes different numbers of at least 1. Received {list(options.towers)}."
        )
    if options.steps < 2:
        raise ValueError(
            f"--steps must be at least 2, since the first is not timed. Received {options.steps}."
        )
    check_exchange(options)
    for name in () if options.input is not None else options.against:
        rivals.check_rival(name)
    if options.input is not None and options.slow:
        raise ValueError("--input measures the input alone: leave out --slow.")
    if options.slow and options.against:
        raise ValueError(
            "--slow compares synchronous with asynchronous towers only. Received also --against "
            f"{','.join(options.against)}."
        )
    if options.slow and options.gpus_per_tower > 1:
        raise ValueError(
            "--slow compares with asynchronous towers, which have one device each. Received also "
            f"--gpus-per-tower {options.gpus_per_tower}; leave one of them out."
        )
    if options.slow and (max(options.towers) < 2 or options.slow <= 1):
        raise ValueError(
            "--slow takes a factor above 1, and --towers a number of at least 2. Received "
            f"{options.slow:g} and {list(options.towers)}."
        )


def check_exchange(options: BenchmarkOptions) -> None:
    """Raises ValueError for an exchange that is not there, or without several towers to time."""
    given = ",".join(options.exchange)
    for name in options.exchange:
        if name not in EXCHANGES:
            raise ValueError(f"There is no exchange {name!r}.{nearest(name, EXCHANGES)}")
    if len(set(options.exchange)) != len(options.exchange):
        raise ValueError(f"--exchange takes each name once. Received {given}.")
    if options.exchange and (options.slow or options.input is not None or max(options.towers) < 2):
        raise ValueError(
            "--exchange times sums between copies of the parameters on several towers. Received "
            f"{given} with --towers {','.join(map(str, options.towers))}; "
            "give at least 2 towers, and leave out --slow and --input."
        )


def needed_replicas(options: BenchmarkOptions) -> int:
    """Returns the number of replicas of the mirrored rivals: the most towers, at least 2."""
    rivals_of_steps = options.against if options.input is None else ()
    if not any(map(is_mirrored, rivals_of_steps)):
        return 1
    return max([options.replicas, *options.towers])


def is_mirrored(name: str) -> bool:
    """Returns whether a rival has replicas."""
    return name.startswith("mirrored")


@contextlib.contextmanager
def open_contenders(
    recipe: Recipe, options: BenchmarkOptions
) -> Iterator[tuple[list[Contender], float]]:
    """Yields every way to train, ready to be timed, and the examples of a batch on average.

    Errors as in `open_benchmark`.
    """
    check_options(options)
    own, *others = in_processes(options)
    with contextlib.ExitStack() as stack:
        apart = [stack.enter_context(TimedApart(recipe, part)) for part in others]
        opened = open_task(recipe, own)
        ways = list(make_contenders(opened, own))
        for process in apart:
            for name in process.names():
                ways.append(Contender(name, functools.partial(process.run, name)))
        yield sorted(ways, key=lambda way: place_in_table(way, options)), opened.rows


def in_processes(options: BenchmarkOptions) -> list[BenchmarkOptions]:
    """Returns the options of each process; the first one is this.

    Without GPUs each number of towers has one, with the threads that towers of this number choose,
    and so has each mirrored rival, with those of as many towers; the others are beside one tower.
    GPUs cannot be shared by processes.
    """
    if tf.config.list_physical_devices("GPU"):
        return [options]
    alone = tuple(name for name in options.against if not is_mirrored(name))
    numbers = [*options.towers, *((1,) if alone and 1 not in options.towers else ())]
    parts = [
        dataclasses.replace(
            options,
            towers=(number,) if number in options.towers else (),
            against=alone if number == 1 else (),
            exchange=options.exchange if number > 1 else (),
        )
        for number in numbers
    ]
    replicas = needed_replicas(options)
    for name in filter(is_mirrored, options.against):
        parts.append(
            dataclasses.replace(options, towers=(), against=(name,), exchange=(), replicas=replicas)
        )
    return parts


def place_in_table(way: Contender, options: BenchmarkOptions) -> int:
    """Returns where a way stands: towers first, then the rivals as they were given."""
    name = way.name.split()[0]
    return options.against.index(name) + 1 if name in options.against else 0


def make_contenders(opened: Benchmark, options: BenchmarkOptions) -> Iterator[Contender]:
    """Yields every way to train, each with its own model."""
    task, devices = opened.task, opened.devices
    for number in options.towers:
        alone = number == options.gpus_per_tower == 1 and "CPU" in devices[0]
        chosen = (("/CPU:0",),) if alone else opened.groups[:number]
        label = f" of {options.gpus_per_tower}" if options.gpus_per_tower > 1 else ""
        yield Contender(f"towers {number}{label}", towers_run(task, towers.Placement(chosen)))
        for exchange in options.exchange if number > 1 else ():
            placement = towers.Placement(chosen, "replicated", exchange)
            yield Contender(f"{exchange} {number}{label}", towers_run(task, placement))
    for name in options.against:
        replicas = devices[: needed_replicas(options)]
        label = f"{name} {len(replicas)}" if is_mirrored(name) else name
        timed = rivals.make_rival(name, task, replicas)
        yield Contender(label, timed)


def first_batches(dataset: tf.data.Dataset) -> list[Any]:
    """Returns the first batches, in memory.

    Of an epoch that is shorter than `NUM_BATCHES`, the smaller last batch is left out.
    """
    batches = list(dataset.take(NUM_BATCHES))
    if NUM_BATCHES > len(batches) > 1:
        batches.pop()
    return batches


def endless(batches: Sequence[Any]) -> tf.data.Dataset:
    """Returns a data set that repeats the same batches, of any shapes, without end."""
    parts = [tf.data.Dataset.from_tensors(batch) for batch in batches]
    return functools.reduce(tf.data.Dataset.concatenate, parts).cache().repeat()


def towers_run(task: rivals.Task, placement: towers.Placement) -> rivals.TimedRun:
    """Returns training on towers by the `Trainer`, its input feed included."""
    step = build_step(task, placement)

    def timed(num_steps: int) -> float:
        ends: list[float] = []
        results: list[Any] = []

        def note(report: towers.StepReport) -> None:
            results[:] = [report.results]
            if not ends or report.step == num_steps:
                float(report.results.loss)  # Waits for the devices.
            ends.append(time.perf_counter())

        updates = towers.SynchronousUpdates(step, towers.batches_from(task.dataset))
        towers.Trainer(updates, [note]).train(steps=num_steps)
        return ends[-1] - ends[0]

    return timed


def build_step(task: rivals.Task, placement: towers.Placement) -> towers.TrainStep:
    """Returns the step of a task on towers, with a model of its own."""
    with placement.scope():
        model = task.make_model()
        optimizer = task.make_optimizer()
    placement = share_layers(task.recipe, model, placement)
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
    contenders: Sequence[Contender], repetitions: int, num_steps: int
) -> dict[str, list[float]]:
    """Returns the seconds of a step of each contender, one number per repetition.

    The repetitions are interleaved, since a machine's speed drifts: times that are compared were
    measured within seconds of each other. Every second round has the opposite order.
    """
    seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    with progress(len(contenders) * (repetitions + 1), "timing", "run") as bar:
        for contender in contenders:
            contender.run(WARM_UP_STEPS)
            bar.update()
        for repetition in range(repetitions):
            for contender in contenders if repetition % 2 == 0 else reversed(contenders):
                seconds[contender.name].append(contender.run(num_steps) / (num_steps - 1))
                bar.update()
    return seconds


def summarise(seconds: dict[str, list[float]], batch_size: float) -> list[dict[str, Any]]:
    """Returns a row for each contender; ratios are medians over the repetitions."""
    reference = seconds[next(iter(seconds))]
    rows = []
    for name, times in seconds.items():
        ratios = [own / other for own, other in zip(times, reference, strict=True)]
        median = statistics.median(times)
        rows.append(
            {
                "name": name,
                "milliseconds": 1000 * median,
                "fastest": 1000 * min(times),
                "slowest": 1000 * max(times),
                "examples_per_second": batch_size / median,
                "time_ratio": statistics.median(ratios),
                "speed_up": 1 / statistics.median(ratios),
            }
        )
    return rows


def print_table(rows: list[dict[str, Any]], recipe: Recipe, options: BenchmarkOptions) -> None:
    """Prints the rows as a Markdown table."""
    first = rows[0]["name"]
    show(
        f"{recipe.name}, batch {recipe.fields.batch_size}, median of {options.repetitions} "
        f"interleaved repetitions of {options.steps} steps"
    )
    show(f"| way | ms a step (min - max) | examples/s | time / {first} |")
    show("|---|---|---|---|")
    for row in rows:
        show(
            f"| {row['name']} | {row['milliseconds']:.1f} "
            f"({row['fastest']:.1f} - {row['slowest']:.1f}) "
            f"| {row['examples_per_second']:.0f} | {row['time_ratio']:.3f} |"
        )
