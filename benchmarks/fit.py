"""A recipe trained to its end by `keras.Model.fit`, on several devices under MirroredStrategy."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import keras
import tensorflow as tf

import towers
from benchmarks.rivals import compile_model, keras_batches
from towers.scripts.shown import show
from towers.scripts.training.recipe import Data, Recipe
from towers.scripts.training.session import carried_state, data_paths, make_optimizer
from towers.scripts.wrong_input import wrong_input


def train(
    recipe: Recipe, num_replicas: int, data: Sequence[str] | None, seed: int
) -> list[dict[str, dict[str, float]]]:
    """Trains a recipe for its epochs, prints the metrics after each, and returns them.

    The batches, the initial values and the schedule are those of the towers; optimizer, loop and
    choice of XLA are Keras's own. Nothing is saved.

    Args:
        recipe: the recipe.
        num_replicas: of the model; several are MirroredStrategy's.
        data: the folder or the files, None for the recipe's default.
        seed: of the initial values and of the data's order.

    Raises:
        WrongInputError: `fit` cannot train the recipe, or the devices or the data cannot be used.
    """
    with wrong_input():
        model, batches = open_model(recipe, num_replicas, data, seed)
    rows = []
    for epoch in range(recipe.fields.epochs):
        history = model.fit(
            keras_batches(recipe, batches.train(epoch, 0)), shuffle=False, verbose=0
        )
        tested = model.evaluate(
            keras_batches(recipe, batches.test(0, 0)), verbose=0, return_dict=True
        )
        trained = {name: values[0] for name, values in history.history.items()}
        rows.append({"train": trained, "test": tested})
        show(
            f"epoch {epoch + 1} | train {describe(trained)} | {batches.evaluated} "
            f"{describe(tested)}",
            flush=True,
        )
    return rows


def open_model(
    recipe: Recipe, num_replicas: int, data: Sequence[str] | None, seed: int
) -> tuple[keras.Model, Data]:
    """Returns the compiled model and the data; the arguments are those of `train`.

    Raises:
        ValueError: `fit` cannot train the recipe, or the devices or the data cannot be used.
        OSError: a file cannot be read.
    """
    check_recipe(recipe)
    devices = towers.select_devices(num_replicas)
    keras.utils.set_random_seed(seed)
    batches = recipe.make_data(recipe.fields, data_paths(recipe, data), seed)
    with mirrored(devices.towers):
        model = recipe.make_model(recipe.fields, batches)
        if recipe.initialize is not None:
            recipe.initialize(recipe.fields, model, batches)
        optimizer = make_optimizer(recipe.fields, batches, recipe.fields.epochs)
        compile_model(model, recipe, optimizer)
    if carried_state(recipe, model, batches.train) is not None:
        raise ValueError(
            f"fit carries no state from step to step, as {recipe.name} does with these fields. "
            "Give it batches without one: a language model takes --set form=sentences."
        )
    show(f"{recipe.name}: {devices.description}, by keras.Model.fit", flush=True)
    return model, batches


def describe(metrics: dict[str, float]) -> str:
    """Returns the metrics in a few words."""
    return " | ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def check_recipe(recipe: Recipe) -> None:
    """Raises ValueError for a field with another loss or optimizer than Keras's fit would have."""
    names = ("label_smoothing", "mixup", "multi_label")
    received = [name for name in names if getattr(recipe.fields, name, 0)]
    if recipe.fields.optimizer == "lazy_adam":
        received.append("optimizer=lazy_adam")
    if received:
        raise ValueError(
            f"fit cannot train with {', '.join(received)}. Leave that out, or train on towers."
        )


def mirrored(devices: Sequence[str]) -> contextlib.AbstractContextManager:
    """Returns the scope of a strategy for several devices; nothing for one."""
    if len(devices) == 1:
        return contextlib.nullcontext()
    return tf.distribute.MirroredStrategy(list(devices)).scope()
