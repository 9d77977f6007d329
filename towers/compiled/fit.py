"""`towers.fit`: trains a compiled Keras model as it is, on towers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from towers.compiled.checks import (
    NeedsLayersError,
    check_alone,
    check_counts,
    check_model,
    check_own_code,
)
from towers.compiled.data import read_samples, sliceable
from towers.compiled.epochs import FitUpdates, train
from towers.compiled.evaluation import Evaluation
from towers.compiled.late_step import LateStep
from towers.compiled.logs import callback_list
from towers.compiled.setting import place, prepare
from towers.devices.placement import Placement
from towers.ground.private_apis import train_validation_split
from towers.layers.calls import layers_of
from towers.loop.updates import Position
from towers.step.options import StepOptions


def fit(
    model: keras.Model,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: bool | str = True,
    class_weight: dict[int, float] | None = None,
    sample_weight: Any = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int | list[int] = 1,
    *,
    towers: int | Sequence[str] | None = None,
    parameters: str = "auto",
    exchange: str = "packs",
    clip_norm: float | None = None,
    accumulate: int = 1,
    seed: int = 0,
    run_dir: str | os.PathLike[str] | None = None,
) -> keras.callbacks.History:
    """Trains a compiled Keras model on towers; returns what `keras.Model.fit` returns.

    A batch is the global one: it is cut into a shard for each tower, and what comes out is what
    one device would compute from the whole batch.

    Args:
        model: a compiled model.
        x, y: the data. They and all arguments that are not listed here are as in
            `keras.Model.fit`.
        shuffle: as there, but the order of shuffled arrays follows from `seed` and the epoch.
        towers: the number of towers, or a device name for each. None: one on every GPU, or one on
            the CPU without any. A number without GPUs makes towers on the CPU, to try things out.
        parameters: where the shared variables live, as in `Placement`.
        exchange: how gradients are summed between copies of them, as in `Placement`.
        clip_norm, accumulate: as in `StepOptions`.
        seed: the order of the data and all random numbers of the towers follow from it, and from
            how many updates the model's optimizer has made before.
        run_dir: a folder for checkpoints, saved after each epoch, and for TensorBoard's curves of
            each tower. The same call goes on from the newest checkpoint in it.

    Raises:
        ValueError: an argument is wrong. Nothing is trained then.
        NonFiniteGradientError: a gradient was NaN or infinite.
    """
    check_alone()
    check_model(model, "fit")
    check_counts(seed=seed, steps_per_epoch=steps_per_epoch, validation_steps=validation_steps)
    placement = place(model, towers, parameters, exchange)
    begun = int(getattr(model.optimizer, "iterations", 0))
    arrays, held_out = (x, y, sample_weight), validation_data
    try:
        check_own_code(model, "fit")
        if validation_split and validation_data is None:
            arrays, held_out = train_validation_split(
                (sliceable(model, x), y, sample_weight), validation_split
            )
        data = read_samples(
            model, *arrays, batch_size=batch_size, steps=steps_per_epoch,
            class_weight=class_weight, shuffle=shuffle,
            seed=seed_after(seed, 0 if run_dir or initial_epoch else begun),
        )  # fmt: skip
        prepare(model, placement, data)
        validation = validation_of(
            model, placement, held_out, validation_batch_size or batch_size, validation_steps
        )
    except NeedsLayersError as reason:
        check_layers_can(
            reason, parameters=(parameters, "auto"), exchange=(exchange, "packs"),
            clip_norm=(clip_norm, None), accumulate=(accumulate, 1), run_dir=(run_dir, None),
        )  # fmt: skip
        if verbose != 0 and len(placement.devices) > 1:
            print(f"{model.name}: the towers run layers only, since {reason}.")
        with layers_of(model, placement.devices, quiet=verbose == 0):
            return model.fit(
                x, y, batch_size, epochs, verbose, callbacks, validation_split, validation_data,
                shuffle, class_weight, sample_weight, initial_epoch, steps_per_epoch,
                validation_steps, validation_batch_size, validation_freq,
            )  # fmt: skip
    options = StepOptions(clip_norm=clip_norm, accumulate=accumulate, seed=seed, probe=False)
    step = LateStep(model, placement, data, options)
    num_steps = steps_per_epoch or data.num_batches
    heard = callback_list(model, callbacks, verbose, num_steps, epochs, history=True)
    updates = FitUpdates(step, model, data, steps_per_epoch, heard, validation, validation_freq)
    return train(
        updates, Position(step=begun, epoch=initial_epoch), epochs, run_dir, quiet=verbose == 0
    )


def check_layers_can(reason: Exception, **options: tuple[Any, Any]) -> None:
    """Raises ValueError for options, each with its default, that a step of one's own lacks."""
    for name, (value, default) in options.items():
        if value != default:
            raise ValueError(
                f"{name} needs the towers' own step, and this model is trained by its own code on "
                f"towers: {reason}. Received {name}={value!r}; leave it out."
            )


def validation_of(
    model: keras.Model,
    placement: Placement,
    data: Any,
    batch_size: int | None,
    steps: int | None,
) -> Evaluation | None:
    """Returns the evaluation on validation data after an epoch; None if there is none."""
    if data is None:
        return None
    check_own_code(model, "evaluate")
    parts = keras.utils.unpack_x_y_sample_weight(data)
    held_out = read_samples(model, *parts, batch_size=batch_size, steps=steps)
    if getattr(held_out, "is_generator", False) and steps is None:
        raise ValueError(
            "A generator of validation data is read once, so that later epochs would find it "
            "empty. Received one without validation_steps; pass these, or a tf.data.Dataset or a "
            "keras.utils.PyDataset, which begin anew."
        )
    return Evaluation(model, placement, held_out, steps)


def seed_after(seed: int, updates: int) -> int:
    """Returns the seed of the data's order for a model that was trained before, another one."""
    if not updates:
        return seed
    return int(np.random.SeedSequence([seed, updates]).generate_state(1)[0])
