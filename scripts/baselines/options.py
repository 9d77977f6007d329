"""The options of `towers benchmark`, with their defaults; importing them is cheap."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class BenchmarkOptions:
    """The subjects and the length of a benchmark.

    Attributes:
        towers: numbers of towers to compare.
        gpus_per_tower: devices that share the layers of each tower.
        against: names of the rivals.
        exchange: how towers with a copy of the variables each sum gradients, packs or nccl; each
            is timed beside towers as they are by default.
        slow: factor by which the last tower is slower, for a comparison of synchronous and
            asynchronous towers; None for a comparison with rivals.
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
    against: tuple[str, ...] = ()
    exchange: tuple[str, ...] = ()
    slow: float | None = None
    input: tuple[int, ...] | None = None
    repetitions: int = 10
    steps: int = 20
    data: tuple[str, ...] | None = None
    seed: int = 0
    json: bool = False
