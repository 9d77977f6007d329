"""The input of a recipe: what its pipeline gives and costs, and whether steps wait for it."""

from __future__ import annotations

import itertools
import os
import pathlib
import resource
import sys
import time
from typing import Any, NamedTuple

import towers
from towers.scripts.shown import show
from towers.scripts.timing.steps import build_step
from towers.scripts.timing.task import Task

WARM_UP_STEPS = 3  # The pipeline and the training take them before they are measured.
BOTTLENECK = 0.05  # Share of a step that waits, from which the input is the bottleneck.
FASTER = 2.0  # So many times as fast as the training, the pipeline alone is fast enough.
BUSY = 0.7  # Share of the cores that are at work, from which they are what limits a pipeline.
MEGABYTE = 2**20


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
