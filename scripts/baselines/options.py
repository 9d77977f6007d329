"""The options of `towers benchmark`, with their defaults; importing them is cheap."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from towers.scripts.options.setting import Amount, Count, Flag, Names, Numbers, Parts, Paths, Seed
from towers.scripts.training.options import BatchedRecipeOptions


@dataclasses.dataclass(frozen=True)
class BenchmarkOptions(BatchedRecipeOptions):
    """The subjects and the length of a benchmark.

    Attributes:
        towers: numbers of towers to compare.
        gpus_per_tower: devices that share the layers of each tower.
        against: plain, fit, mirrored, mirrored_fit; with --input, of recipe images: tf_data,
            keras_directory.
        exchange: packs, nccl: also time several towers with a copy of the parameters each that sum
            gradients in this way.
        slow: instead, compare synchronous with asynchronous towers while the last one takes FACTOR
            times as long.
        input: instead, measure the input: examples/s of the pipeline alone, CPU of an example,
            memory, and the share of a step that waits, on as many towers as the largest number
            says; with numbers, the processor time of the input of one of N processes, whose batch
            is N times the recipe's.
        repetitions: of each measurement.
        steps: in a repetition.
        data: the data's folder, or files (default: datasets/...).
        seed: of the data's order.
        json: print one JSON object as the last line.
    """

    towers: Numbers = (1, 2)
    gpus_per_tower: Parts = 1
    against: Names = ()
    exchange: Names = ()
    slow: Annotated[Amount | None, "FACTOR"] = None
    input: Annotated[Numbers | None, "N,N", Flag(nargs="?", const=())] = None
    repetitions: Annotated[Count, "R"] = 10
    steps: Annotated[Count, "S"] = 20
    data: Paths | None = None
    seed: Seed = 0
    json: bool = False
