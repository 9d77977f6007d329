"""The processor time of the input of one process among several, without any training."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import towers
from towers.scripts.shown import show
from towers.scripts.timing.options import BenchmarkOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.session import data_paths

WARM_UP_STEPS = 8
ROW_FIELDS = ("batch_size", "batch_tokens")  # What of a recipe grows with the processes.


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


def measure_input(recipe: Recipe, options: BenchmarkOptions) -> list[InputTime]:
    """Returns the times of the last process among each number of processes.

    The batch grows with the processes, so that each has as many rows as one alone.

    Raises:
        ValueError: a number is below 1, or an epoch has too few batches.
        OSError: a file cannot be read.
    """
    numbers = options.input or ()
    if not numbers or min(numbers) < 1:
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
    for _ in range(WARM_UP_STEPS):
        next(steps)
    started = time.process_time()
    for _ in range(number):
        next(steps)
    return (time.process_time() - started) / number


def print_input(rows: list[InputTime], recipe: Recipe, options: BenchmarkOptions) -> None:
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
