"""The options of `towers benchmark`, with their defaults and what is wrong with them; cheap."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from towers.scripts.options.setting import Count, Flag, Names, Numbers, Parts, Paths, Seed
from towers.scripts.training.options import EXCHANGES, BatchedRecipeOptions
from towers.scripts.wrong_input import nearest


@dataclasses.dataclass(frozen=True)
class TimingOptions(BatchedRecipeOptions):
    """What is timed, and for how long.

    Attributes:
        towers: numbers of towers to compare.
        gpus_per_tower: devices that each tower's layers are split between.
        repetitions: repetitions of each measurement.
        steps: steps in each repetition.
        data: the data's folder, or files (default: datasets/...).
        seed: seed of the order of the data.
    """

    towers: Numbers = (1, 2)
    gpus_per_tower: Parts = 1
    repetitions: Annotated[Count, "R"] = 10
    steps: Annotated[Count, "S"] = 20
    data: Paths | None = None
    seed: Seed = 0


@dataclasses.dataclass(frozen=True)
class StepTimingOptions(TimingOptions):
    """Which steps are timed.

    Attributes:
        exchange: packs or nccl: also time several towers with a copy of the parameters each, which
            sum gradients in this way.
    """

    exchange: Names = ()


@dataclasses.dataclass(frozen=True)
class BenchmarkOptions(StepTimingOptions):
    """What is timed: steps, or the input.

    Attributes:
        input: time the input instead: examples/s of the pipeline alone, CPU time per example,
            memory, and the share of a step spent waiting, with the largest number of towers; with
            numbers N, the CPU time of the input in one of N processes, with N times the recipe's
            batch.
        json: print one JSON object as the last line.
    """

    input: Annotated[Numbers | None, "N,N", Flag(nargs="?", const=())] = None
    json: bool = False


def check_options(options: TimingOptions) -> None:
    """Raises ValueError for arguments that cannot be timed."""
    if min(options.towers) < 1 or len(set(options.towers)) != len(options.towers):
        raise ValueError(
            f"--towers takes different numbers, each at least 1. Received {list(options.towers)}."
        )
    if options.steps < 2:
        raise ValueError(
            f"--steps must be at least 2, since the first is not timed. Received {options.steps}."
        )
    exchanges = getattr(options, "exchange", ())
    given = ",".join(exchanges)
    for name in exchanges:
        if name not in EXCHANGES:
            raise ValueError(f"There is no exchange {name!r}.{nearest(name, EXCHANGES)}")
    if len(set(exchanges)) != len(exchanges):
        raise ValueError(f"--exchange takes each name only once. Received {given}.")
    measures_steps = getattr(options, "input", None) is None
    if exchanges and not (measures_steps and max(options.towers) > 1):
        raise ValueError(
            "--exchange times how several towers with copies of the parameters sum gradients. "
            f"Received {given} with --towers {','.join(map(str, options.towers))}; give at least "
            "2 towers, and leave out --input."
        )
