"""A benchmark: its options checked, its contenders timed by interleaved repetitions, its table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from towers.scripts.baselines import rivals
from towers.scripts.baselines.apart import TimedRun
from towers.scripts.baselines.opened import NUM_BATCHES
from towers.scripts.baselines.options import BenchmarkOptions
from towers.scripts.progress import progress
from towers.scripts.shown import show
from towers.scripts.training.recipe import Recipe
from towers.scripts.wrong_input import nearest

WARM_UP_STEPS = NUM_BATCHES + 2  # For ways that compile for each shape.
EXCHANGES = ("packs", "nccl")


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
