"""The input of a recipe: what its pipeline gives and costs, and whether steps wait for it.

Also the processor time of the input of one process among several, without any training.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import towers
from towers.scripts.shown import show
from towers.scripts.timing.options import BenchmarkOptions
from towers.scripts.timing.steps import build_step
from towers.scripts.timing.task import Task
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.session import data_paths

WARM_UP_STEPS = 3  # The pipeline and the training take them before they are measured.
BOTTLENECK = 0.05  # Share of a step that waits, from which the input is the bottleneck.
FASTER = 2.0  # So many times as fast as the training, the pipeline alone is fast enough.
BUSY = 0.7  # Share of the cores that are at work, from which they are what limits a pipeline.
MEGABYTE = 2**20
FIRST_STEPS = 8  # Of the input of a process, which are not measured.
ROW_FIELDS = ("batch_size", "batch_tokens")  # What of a recipe grows with the processes.


class InputReport(NamedTuple):
    """The measurements of a recipe's input.

    Attributes:
        examples_per_second: of the pipeline alone, shards included.
        cpu_milliseconds: CPU time of an example in the pipeline alone.
        busy_cores: cores at work, on average, while the pipeline ran alone.
        megabytes: the most memory that the process had more than before the pipeline, in MB.
        steps_per_second: of the training.
        input_wait: share of a step in which the slowest tower waits for its shard.
    """

    examples_per_second: float
    cpu_milliseconds: float
    busy_cores: float
    megabytes: float
    steps_per_second: float
    input_wait: float


def measure_input(task: Task, num_steps: int) -> InputReport:
    """Returns the measurements: first the pipeline alone, then a training on all towers."""
    alone = measure_pipeline(task.data.train, len(task.devices), num_steps)
    waits, seconds = measure_waits(task, num_steps)
    return InputReport(*alone, num_steps / seconds, min(1.0, waits / seconds))


def measure_pipeline(
    train: Any, num_towers: int, num_steps: int
) -> tuple[float, float, float, float]:
    """Returns examples/s, CPU milliseconds of an example, busy cores and MB of the pipeline."""
    before = peak = resident_bytes()
    epochs = (towers.engine.split(train(epoch, 0), num_towers) for epoch in itertools.count())
    shards = itertools.chain.from_iterable(epochs)  # As the towers get them, without end.
    for _ in itertools.islice(shards, WARM_UP_STEPS):
        pass
    examples, started, cpu_started = 0, time.perf_counter(), time.process_time()
    for parts in itertools.islice(shards, num_steps):
        examples += sum(int(part.size) for part in parts)
        peak = max(peak, resident_bytes())
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    megabytes = (peak - before) / MEGABYTE
    return examples / seconds, 1000 * cpu / examples, cpu / seconds, megabytes


def resident_bytes(process: int | str = "self") -> int:
    """Returns the memory of a process; without /proc, the most that this one ever had."""
    status = pathlib.Path(f"/proc/{process}/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure_waits(task: Task, num_steps: int) -> tuple[float, float]:
    """Returns for how many seconds the steps of a training waited, and how long they took."""
    train = task.data.train
    step = build_step(task, towers.Placement(task.groups))
    waits, ends = [], []

    def note(report: towers.StepReport) -> None:
        float(report.results.loss)  # Waits for the devices, so the times of steps do not mix.
        waits.append(max(report.waits))
        ends.append(time.perf_counter())

    towers.Trainer(step, train, [note]).train(steps=WARM_UP_STEPS + num_steps)
    return sum(waits[WARM_UP_STEPS:]), ends[-1] - ends[WARM_UP_STEPS - 1]


def print_input(report: InputReport, task: Task, num_steps: int) -> None:
    """Prints the measurements, and a line that says what to do."""
    recipe, count = task.recipe, len(task.devices)
    show(f"{recipe.name}, batch {recipe.fields.batch_size}, {count} towers, {num_steps} steps")
    show("| input | |")
    show("|---|---|")
    for name, value in (
        ("pipeline alone", f"{report.examples_per_second:.0f} examples/s"),
        ("CPU time per example", f"{report.cpu_milliseconds:.3f} ms"),
        ("cores at work", f"{report.busy_cores:.1f} of {towers.devices.num_cores()}"),
        ("memory of the pipeline", f"{report.megabytes:.0f} MB"),
        ("training", f"{report.steps_per_second:.2f} steps/s"),
        ("share of a step spent waiting", f"{report.input_wait:.0%}"),
    ):
        show(f"| {name} | {value} |")
    show(advise_input(report, task))


def advise_input(report: InputReport, task: Task) -> str:
    """Returns the line that says whether the input is the bottleneck, and then what to do."""
    if report.input_wait <= BOTTLENECK:
        return "The input keeps up: the time goes into the steps, not into the data."
    recipe, steps = task.recipe, task.data.train.steps_per_epoch
    speed = report.examples_per_second / (report.steps_per_second * task.rows)
    if speed >= FASTER:
        return (
            f"{report.input_wait:.0%} of a step is spent waiting, although the pipeline alone is "
            f"{speed:.0f} times as fast as the training: it restarts with each epoch (of {steps} "
            "steps), and towers on CPUs compete for its cores."
        )
    line = (
        f"The input is the bottleneck: {report.input_wait:.0%} of a step is spent waiting for it. "
    )
    if report.busy_cores >= BUSY * towers.devices.num_cores():
        line += "It keeps the cores busy: give it less work (smaller examples, "
        line += "a simpler augmentation), or a machine with more cores for each tower."
    else:
        line += "The cores are idle meanwhile, so it waits for files: put the data on a "
        line += "faster disk."
    if recipe.prepare is not None:
        line += f" `towers prepare {recipe.name}` makes files that are faster to read."
    if "CPU" in task.devices[0]:
        line += " Here the towers and the input share the same cores."
    return line


class InputTime(NamedTuple):
    """The input of one process.

    Attributes:
        processes: the number of processes, each with one tower.
        batch_size: the recipe's, of the global batch.
        milliseconds: processor time of a step, all threads of this process together.
        whole_milliseconds: the same if the process read the whole batch.
        opening_milliseconds: processor time until the first batch of an epoch, its order included.
    """

    processes: int
    batch_size: int
    milliseconds: float
    whole_milliseconds: float
    opening_milliseconds: float


def measure_processes(recipe: Recipe, options: BenchmarkOptions) -> list[InputTime]:
    """Returns the times of the last process among each number of processes.

    The batch grows with the processes, so that each has as many rows as one alone.

    Raises:
        ValueError: a number is below 1, or an epoch has too few batches.
        OSError: a file cannot be read.
    """
    numbers = options.input or ()
    if min(numbers) < 1:
        raise ValueError(
            f"--input takes numbers of processes, each at least 1. Received {list(numbers)}."
        )
    return [measure_process(recipe, options, number) for number in numbers]


def measure_process(recipe: Recipe, options: BenchmarkOptions, number: int) -> InputTime:
    """Returns the time of the last one of so many processes."""
    names = [name for name in ROW_FIELDS if hasattr(recipe.fields, name)]
    rows = {name: number * getattr(recipe.fields, name) for name in names}
    fields = dataclasses.replace(recipe.fields, **rows)
    data = recipe.make_data(fields, data_paths(recipe, options.data), options.seed)
    process = towers.processes.Processes(None, number, number - 1)

    own = process.shards(data.train, 1, epoch=0)
    whole = process.split(data.train(0, 0), 1)
    opening = min(first_batch_seconds(process, data.train, epoch) for epoch in range(1, 4))
    seconds = [
        min(step_seconds(iter(one.repeat()), options.steps) for _ in range(options.repetitions))
        for one in (own, whole)
    ]
    return InputTime(number, fields.batch_size, *(1000 * one for one in (*seconds, opening)))


def first_batch_seconds(process: towers.processes.Processes, batches: Any, epoch: int) -> float:
    """Returns the processor time until an epoch's first batch: its order, and that batch."""
    started = time.process_time()
    next(towers.engine.iterator_of(process.shards(batches, 1, epoch)))
    return time.process_time() - started


def step_seconds(steps: Iterator[Any], number: int) -> float:
    """Returns the processor time of a step, a mean over so many after the first ones."""
    for _ in range(FIRST_STEPS):
        next(steps)
    started = time.process_time()
    for _ in range(number):
        next(steps)
    return (time.process_time() - started) / number


def print_processes(rows: list[InputTime], recipe: Recipe, options: BenchmarkOptions) -> None:
    """Prints the rows as a Markdown table."""
    show(
        f"input of {recipe.name} in one of several processes with a tower each, fastest of "
        f"{options.repetitions} repetitions of {options.steps} steps"
    )
    show("| processes | batch size | CPU ms a step | time / first | with whole batches | epoch |")
    show("|---|---|---|---|---|---|")
    for row in rows:
        show(
            f"| {row.processes} | {row.batch_size} | {row.milliseconds:.2f} "
            f"| {row.milliseconds / rows[0].milliseconds:.2f} "
            f"| {row.whole_milliseconds:.2f} | {row.opening_milliseconds:.0f} |"
        )
