"""How long a user waits for the first step: towers beside a loop under `MirroredStrategy`.

    python -m benchmarks.first_step --towers 1,2,4 --tasks made_resnet50,chatbot

Each measurement has a process of its own. All ways have the same model, whose making is left out.
"""

from __future__ import annotations

import dataclasses
import functools
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from towers.ground.child_process import ChildProcess
from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.options.flags import Parser, reader
from towers.scripts.options.setting import Count, Numbers, setting_of

COLUMNS = ("s", "CPU s", "MB", "ms of a later step")
LATER_STEPS = 8


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints a table a task, and returns 0."""
    parser = Parser(prog="python -m benchmarks.first_step", description=__doc__)
    numbers, count = reader(setting_of(Numbers)), reader(setting_of(Count))
    parser.add_argument("--towers", type=numbers, default="1,2,4", help="numbers of towers")
    parser.add_argument("--tasks", default="made_resnet50,chatbot", help="recipes")
    parser.add_argument("--ways", default="towers,mirrored", help="towers, or rivals")
    parser.add_argument("--repeat", type=count, default=1, help="medians of so many are printed")
    options = parser.parse_args(arguments)
    with parser.refusing():  # The errors of the other processes are about what was given.
        for task in options.tasks.split(","):
            print(f"| {task} | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}", flush=True)
            for number in options.towers:
                print_rows(task, options.ways.split(","), number, options.repeat)
    return 0


def print_rows(task: str, ways: Sequence[str], number: int, repeat: int) -> None:
    """Measures a task on so many towers in all ways, and prints a row for each."""
    rounds = [[apart(task, way, number) for way in ways] for _ in range(repeat)]
    for way, rows in zip(ways, zip(*rounds, strict=True), strict=True):
        values = map(statistics.median, zip(*rows, strict=True))
        numbers = " | ".join(f"{value:.1f}" for value in values)
        print(f"| {way} {number} | {numbers} |", flush=True)


def apart(task: str, way: str, number: int) -> Sequence[float]:
    """Returns what `measure` returns, from a process of its own."""
    with ChildProcess(make_measure, "times a first step") as process:
        row: Sequence[float] = process.ask((task, way, number))
    return row


def make_measure() -> Callable[[Any], Sequence[float]]:
    """Returns `answer((task, way, number of towers))`."""
    import_tensorflow_quietly()
    return lambda request: measure(*request)


def measure(name: str, way: str, number: int) -> Sequence[float]:
    """Returns a number for each of the columns."""
    from benchmarks.made import recipe_of
    from benchmarks.rivals import rivals_of
    from towers.scripts.timing.options import TimingOptions
    from towers.scripts.timing.steps import build_towers
    from towers.scripts.timing.task import open_task

    options = TimingOptions(name)
    recipe = recipe_of(options)
    making = Clock()
    recipe = dataclasses.replace(recipe, make_model=making.around(recipe.make_model))
    task = open_task(recipe, options, number)
    whole = Clock()
    with whole:
        build = functools.partial(build_towers, number=number, exchange=None)
        run = build(task) if way == "towers" else rivals_of([way], number)[-1].build(task)
        run(1)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    later = run(1 + LATER_STEPS) / LATER_STEPS
    return (whole.wall - making.wall, whole.cpu - making.cpu, most, 1000 * later)


class Clock:
    """Seconds by the wall and of this process's processors, summed over all entries."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def __enter__(self) -> None:
        self.wall -= time.perf_counter()
        self.cpu -= time.process_time()

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter()
        self.cpu += time.process_time()

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function whose calls are timed."""

        def timed(*arguments: Any) -> Any:
            with self:
                return function(*arguments)

        return timed


if __name__ == "__main__":
    from benchmarks import first_step  # Another process finds no function of `__main__`.

    first_step.main()
