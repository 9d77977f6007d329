"""The options of `towers benchmark`, with their defaults and what is wrong with them; cheap."""

from __future__ import annotations

import dataclasses

from towers.scripts.wrong_input import nearest

EXCHANGES = ("packs", "nccl")


@dataclasses.dataclass(frozen=True)
class BenchmarkOptions:
    """The subjects and the length of a benchmark.

    Attributes:
        towers: numbers of towers to compare.
        gpus_per_tower: devices that share the layers of each tower.
        exchange: how towers with a copy of the variables each sum gradients, packs or nccl; each
            is timed beside towers as they are by default.
        input: to measure the input instead of steps: nothing for a report about it, or numbers of
            processes for what that of one of them takes; None for neither.
        repetitions: number of repetitions of each measurement.
        steps: number of steps in a repetition.
        data: the folder or the files, None for the recipe's default.
        seed: seed of the data's order.
        json: whether to print a JSON object as the last line.
    """

    towers: tuple[int, ...] = (1, 2)
    gpus_per_tower: int = 1
    exchange: tuple[str, ...] = ()
    input: tuple[int, ...] | None = None
    repetitions: int = 10
    steps: int = 20
    data: tuple[str, ...] | None = None
    seed: int = 0
    json: bool = False


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
    given = ",".join(options.exchange)
    for name in options.exchange:
        if name not in EXCHANGES:
            raise ValueError(f"There is no exchange {name!r}.{nearest(name, EXCHANGES)}")
    if len(set(options.exchange)) != len(options.exchange):
        raise ValueError(f"--exchange takes each name once. Received {given}.")
    if options.exchange and (options.input is not None or max(options.towers) < 2):
        raise ValueError(
            "--exchange times sums between copies of the parameters on several towers. Received "
            f"{given} with --towers {','.join(map(str, options.towers))}; "
            "give at least 2 towers, and leave out --input."
        )
