"""`towers.fit`: trains a compiled Keras model as it is, on towers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from towers.compiled.checks import (
    NeedsLayersError,
    check_labels,
    check_model,
    check_own_code,
    has_own,
    is_overridden,
    own_method,
)
from towers.compiled.data import read_samples, sliceable
from towers.compiled.described import described
from towers.compiled.epoch_batches import EpochData, check_generator
from towers.compiled.functions import OnTowers
from towers.compiled.input_errors import in_one_sentence
from towers.compiled.keras_fit import Asked, Run
from towers.compiled.own_code import OnLayers, call_own, check_no_options, layer_calls
from towers.compiled.run_files import FitFiles
from towers.compiled.setting import limited, place
from towers.compiled.together import join
from towers.ground.private_apis import (
    get_random_seed,
    train_validation_split,
    updates_made,
)
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
    repeated_rows: str = "sum",
    data: str = "same",
    alone: bool = False,
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
        run_dir: a run directory as that of `towers train`: checkpoints, saved after each epoch,
            metrics, and TensorBoard's curves of each tower. The same call goes on from the newest
            checkpoint in it; a warning names what else was given before.
        repeated_rows: as in `towers.layers_on`.
        data: whose data it is, if several processes train: `same`, all of it in every process,
            which takes its own rows of each batch; `own`, a part of its own in each, of which it
            takes its share of `batch_size` rows, and a data set's batches as they are.
        alone: trains in this process alone, whatever `towers.processes.join_processes` finds.

    Raises:
        ValueError: an argument is wrong. Nothing is trained then.
        NonFiniteGradientError: a gradient was NaN or infinite.
        LostPeerError: another process has ended, or answers no more.
    """
    asked = Asked(
        x, y, batch_size, epochs, verbose, callbacks, validation_split, validation_data, shuffle,
        class_weight, sample_weight, initial_epoch, steps_per_epoch, validation_steps,
        validation_batch_size, validation_freq,
    )  # fmt: skip
    check_model(model, "fit", **vars(asked), seed=seed_of(seed))
    together = join(data, alone=alone)
    seed, placement = seed_of(seed), place(model, towers, parameters, exchange)
    seed, begun = together.processes.of_chief([seed, updates_made(model)])
    options = StepOptions(clip_norm=clip_norm, accumulate=accumulate, seed=seed, probe=False)
    calls = layer_calls(model, placement.devices, repeated_rows, quiet=verbose == 0, trains=True)
    if has_own(model, "fit"):
        reason = together.check_step(own_method(model, "fit"))
        check_no_options(reason, parameters, exchange, options, run_dir)
        return call_own(model, "fit", calls, **vars(asked))
    own, held_out = read(model, asked, seed_after(seed, 0 if run_dir or initial_epoch else begun))
    files = None if run_dir is None else FitFiles(run_dir, model, own.data, vars(asked), options)
    steps = OnTowers(model, placement, together)
    way: OnTowers | OnLayers = steps
    try:
        check_own_code(model, "fit", repeated_rows)
        own, held_out = on_shards(steps, model, asked, own, held_out, options, told=bool(files))
    except NeedsLayersError as error:
        reason = together.check_step(error)
        check_no_options(reason, parameters, exchange, options)
        calls.told.tell_why(model.name, error)
        way = OnLayers(model, calls)
        held_out = None if is_overridden(model, "evaluate") else held_out
    return Run(model, way, asked, own, files).fit(held_out)


def read(model: keras.Model, asked: Asked, seed: int) -> tuple[EpochData, EpochData | None]:
    """Returns the data, and that of the validation if there is any that is not the model's own.

    The arguments are changed to those within Keras's limits, and their validation data to what was
    split off.
    """
    asked.epochs = limited("epochs", int(asked.epochs))
    asked.steps_per_epoch = limited("steps_per_epoch", asked.steps_per_epoch)
    arrays = (asked.x, asked.y, asked.sample_weight)
    if asked.validation_split and asked.validation_data is None:
        arrays = (sliceable(model, asked.x), *arrays[1:])
        arrays, asked.validation_data = train_validation_split(arrays, asked.validation_split)
    data = read_samples(
        model, *arrays, batch_size=asked.batch_size, steps=asked.steps_per_epoch,
        class_weight=asked.class_weight, shuffle=asked.shuffle, seed=seed,
    )  # fmt: skip
    check_labels(model, data)
    epochs = asked.epochs - asked.initial_epoch
    check_generator(data, asked.steps_per_epoch, epochs, "steps_per_epoch")
    asked.validation_batch_size = asked.validation_batch_size or asked.batch_size
    if asked.validation_data is None or has_own(model, "evaluate"):
        return EpochData(data, asked.steps_per_epoch), None
    steps = limited("steps_per_epoch", asked.validation_steps)
    parts = parts_of(asked.validation_data)
    held_out = read_samples(model, *parts, batch_size=asked.validation_batch_size, steps=steps)
    check_labels(model, held_out, "validation_data=(x, y)")
    check_generator(held_out, steps, epochs, "validation_steps")
    validation = EpochData(held_out, steps, remedy="pass validation_steps")
    return EpochData(data, asked.steps_per_epoch), validation


def parts_of(held_out: Any) -> tuple[Any, Any, Any]:
    """Returns the inputs, labels and weights of validation data; ValueError for another kind."""
    if isinstance(held_out, (str, int, float)) or (
        isinstance(held_out, tuple) and not 1 <= len(held_out) <= 3
    ):
        found = f"a tuple of {len(held_out)}" if isinstance(held_out, tuple) else repr(held_out)
        raise ValueError(
            "validation_data takes (x, y), (x, y, sample_weight) or a data set. Received "
            f"{found}; a part of x and y is split off by validation_split=0.1."
        )
    parts: tuple[Any, Any, Any] = keras.utils.unpack_x_y_sample_weight(held_out)
    return parts


def on_shards(
    way: OnTowers,
    model: keras.Model,
    asked: Asked,
    own: EpochData,
    held_out: EpochData | None,
    options: StepOptions,
    *,
    told: bool,
) -> tuple[EpochData, EpochData | None]:
    """Returns data, and that of the validation, as shards for the towers' own steps.

    The arguments `verbose` and `callbacks` become those of this process.

    Raises:
        NeedsLayersError: they do not serve this model.
    """
    together = way.together
    shards = way.training(own, options, told=told)
    if asked.validation_data is not None:
        check_own_code(model, "evaluate")
    settings = {"step": options, "exchange": way.exchange, "towers=": len(way.devices)}
    together.check(lambda: asked.settings() | settings | described(model))
    asked.verbose = together.tell(asked.verbose)
    asked.callbacks = together.callbacks(asked.callbacks)
    evaluated = None if held_out is None else way.evaluation(held_out)
    way.is_quiet = asked.verbose == 0
    return shards, evaluated


def seed_of(seed: int | None) -> int:
    """Returns a seed; for None that of `keras.utils.set_random_seed`, or 0 without one."""
    seed = (get_random_seed() or 0) if seed is None else seed
    return int(seed) if isinstance(seed, np.integer) else seed


def seed_after(seed: int, updates: int) -> int:
    """Returns the seed of the data's order for a model that was trained before, another one."""
    if not updates:
        return seed
    return int(np.random.SeedSequence([seed, updates]).generate_state(1)[0])
