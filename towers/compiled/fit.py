"""`towers.fit`: trains a compiled Keras model as it is, on towers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from towers.compiled.checks import check_alone, check_counts, check_model
from towers.compiled.data import Data, read_samples, sliceable
from towers.compiled.epochs import FitUpdates, train
from towers.compiled.evaluation import Evaluation
from towers.compiled.input_errors import in_one_sentence
from towers.compiled.late_step import LateStep
from towers.compiled.limits import configured, limited_steps
from towers.compiled.logs import callback_list
from towers.compiled.setting import place, prepare
from towers.devices.placement import Placement
from towers.ground.private_apis import train_validation_split
from towers.loop.updates import Position
from towers.step.options import StepOptions


@in_one_sentence()
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
    seed: int | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    added_losses: str | None = None,
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
            how many updates the model's optimizer has made before. None: that of
            `keras.utils.set_random_seed`, or 0.
        run_dir: a folder for checkpoints, saved after each epoch, and for TensorBoard's curves of
            each tower. The same call goes on from the newest checkpoint in it.
        added_losses: what layers add with `add_loss`: `mean` or `sum` over the examples of a
            batch. None refuses layers that do; Keras's regularisers are known.

    Raises:
        ValueError: the model holds something that towers cannot add, or an argument is wrong.
            Nothing is trained then.
        NonFiniteGradientError: a gradient was NaN or infinite.
    """
    check_alone()
    check_model(model, "fit", added_losses)
    seed, epochs, steps_per_epoch = configured(seed, epochs, steps_per_epoch)
    check_counts(seed=seed, steps_per_epoch=steps_per_epoch, validation_steps=validation_steps)
    placement = place(model, towers, parameters, exchange)
    if validation_split and validation_data is None:
        x = sliceable(model, x)
        (x, y, sample_weight), validation_data = train_validation_split(
            (x, y, sample_weight), validation_split
        )
    begun = int(model.optimizer.iterations)
    data = read_samples(
        model, x, y, sample_weight, batch_size=batch_size, steps=steps_per_epoch,
        class_weight=class_weight, shuffle=shuffle,
        seed=seed_after(seed, 0 if run_dir or initial_epoch else begun),
    )  # fmt: skip
    prepare(model, placement, data, accumulate)
    validation = validation_of(
        model, placement, validation_data, validation_batch_size or batch_size, validation_steps,
        added_losses,
    )  # fmt: skip
    options = StepOptions(clip_norm=clip_norm, accumulate=accumulate, seed=seed)
    step = LateStep(model, placement, data, options, added_losses)
    num_steps = steps_per_epoch or data.num_batches
    heard = callback_list(model, callbacks, verbose, num_steps, epochs, history=True)
    check_generator(data, steps_per_epoch, epochs - initial_epoch)
    updates = FitUpdates(step, model, data, steps_per_epoch, heard, validation, validation_freq)
    return train(
        updates, Position(step=begun, epoch=initial_epoch), epochs, run_dir, quiet=verbose == 0
    )


def validation_of(
    model: keras.Model,
    placement: Placement,
    data: Any,
    batch_size: int | None,
    steps: int | None,
    added_losses: str | None,
) -> Evaluation | None:
    """Returns the evaluation on validation data after an epoch; None if there is none."""
    if data is None:
        return None
    check_model(model, "evaluate", added_losses)
    parts = keras.utils.unpack_x_y_sample_weight(data)
    steps = limited_steps(steps)
    held_out = read_samples(model, *parts, batch_size=batch_size, steps=steps)
    if getattr(held_out, "is_generator", False) and steps is None:
        raise ValueError(
            "A generator of validation data is read once, so that later epochs would find it "
            "empty. Received one without validation_steps; pass these, or a tf.data.Dataset or a "
            "keras.utils.PyDataset, which begin anew."
        )
    return Evaluation(model, placement, held_out, steps, added_losses)


def check_generator(data: Data, steps: int | None, epochs: int) -> None:
    """Raises ValueError for a generator that would be read as several epochs without an end."""
    if getattr(data, "is_generator", False) and steps is None and epochs > 1:
        raise ValueError(
            "A generator can be read only once, so towers.fit needs to know where an epoch ends. "
            f"Received {epochs} epochs without steps_per_epoch; pass it, or train one epoch."
        )


def seed_after(seed: int, updates: int) -> int:
    """Returns the seed of the data's order for a model that was trained before, another one."""
    if not updates:
        return seed
    return int(np.random.SeedSequence([seed, updates]).generate_state(1)[0])
