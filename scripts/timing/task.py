"""A recipe that is ready to be timed: its devices, and the first batches of its data in memory."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

import towers
from towers.scripts.timing.options import TimingOptions
from towers.scripts.training.recipe import Data, Recipe
from towers.scripts.training.session import data_paths, make_optimizer

NUM_BATCHES = 8  # So many batches of the recipe's data are kept in memory and repeated.


class Task(NamedTuple):
    """What is trained, and on which devices.

    Attributes:
        data: the recipe's, which gives the model its sizes.
        dataset: an endless dataset of global batches.
        groups: the devices of each tower.
        rows: examples of a batch, on average.
    """

    recipe: Recipe
    data: Data
    dataset: tf.data.Dataset
    groups: tuple[tuple[str, ...], ...] = ()
    rows: float = 0.0

    @property
    def devices(self) -> tuple[str, ...]:
        """The first device of each tower."""
        return tuple(group[0] for group in self.groups)

    def make_model(self) -> keras.Model:
        """Returns a model with its own variables."""
        return self.recipe.make_model(self.recipe.fields, self.data)

    def make_optimizer(self) -> keras.optimizers.Optimizer:
        """Returns the optimizer that the towers use."""
        return make_optimizer(self.recipe.fields, self.data, self.recipe.fields.epochs)

    def make_tower_fn(self, model: keras.Model) -> Callable:
        """Returns the tower function for training."""
        return self.recipe.make_tower_fn(self.recipe.fields, model, True)


def open_task(recipe: Recipe, options: TimingOptions, num_towers: int) -> Task:
    """Returns the task for this many towers or replicas, the first batches of its data in memory.

    Raises:
        ValueError: the devices or the data cannot be used.
        OSError: a file cannot be read.
    """
    devices = towers.select_devices(num_towers, gpus_per_tower=options.gpus_per_tower)
    data = recipe.make_data(recipe.fields, data_paths(recipe, options.data), options.seed)
    batches = list(data.train(0, 0).take(NUM_BATCHES))
    if NUM_BATCHES > len(batches) > 1:  # The last one of a shorter epoch is smaller.
        batches.pop()
    rows = statistics.fmean(len(tf.nest.flatten(batch)[0]) for batch in batches)
    return Task(recipe, data, endless(batches), devices.groups, rows)


def endless(batches: Sequence[Any]) -> tf.data.Dataset:
    """Returns a data set that repeats the same batches, of any shapes, without end."""
    parts = [tf.data.Dataset.from_tensors(batch) for batch in batches]
    return functools.reduce(tf.data.Dataset.concatenate, parts).cache().repeat()
