"""A recipe that is ready to be timed: its devices, and the first batches of its data in memory."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

import towers
from towers.scripts.baselines import rivals
from towers.scripts.baselines.options import BenchmarkOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.session import data_paths, make_optimizer

NUM_BATCHES = 8  # So many batches of the recipe's data are kept in memory and repeated.


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


def open_benchmark(recipe: Recipe, options: BenchmarkOptions, num_towers: int) -> Benchmark:
    """Returns the task, the first batches of its data in memory.

    Args:
        recipe, options: as given.
        num_towers: the most towers, or replicas, that are timed in this process.

    Raises:
        ValueError: the devices or the data cannot be used.
        OSError: a file cannot be read.
    """
    devices = towers.select_devices(num_towers, gpus_per_tower=options.gpus_per_tower)
    data = recipe.make_data(recipe.fields, data_paths(recipe, options.data), options.seed)
    batches = first_batches(data.train(0, 0))
    rows = statistics.fmean(len(tf.nest.flatten(batch)[0]) for batch in batches)

    def optimizer() -> Any:
        return make_optimizer(recipe.fields, data, recipe.fields.epochs)

    task = rivals.Task(recipe, data, endless(batches), optimizer)
    return Benchmark(task, devices.groups, rows)


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
