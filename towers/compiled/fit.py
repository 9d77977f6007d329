"""`towers.fit`: trains a compiled Keras model as it is, on towers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from towers.compiled.checks import (
    NeedsLayersError,
    check_counts,
    check_model,
    check_own_code,
)
from towers.compiled.data import Data, read_samples, sliceable, twice
from towers.compiled.epochs import FitUpdates, train
from towers.compiled.evaluation import Evaluation
from towers.compiled.input_errors import in_one_sentence
from towers.compiled.late_step import LateStep
from towers.compiled.limits import limited_epochs, limited_steps, seed_of
from towers.compiled.logs import callback_list
from towers.compiled.own_code import call_own, check_no_options
from towers.compiled.setting import place, prepare
from towers.compiled.together import Together, join
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
        run_dir: a folder for checkpoints, saved after each epoch, and for TensorBoard's curves of
            each tower. The same call goes on from the newest checkpoint in it.
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
    check_model(model, "fit")
    together = join(data, alone=alone)
    seed, placement = seed_of(seed), place(model, towers, parameters, exchange)
    check_counts(seed=seed, steps_per_epoch=steps_per_epoch, validation_steps=validation_steps)
    (x, whole), (held_out, again) = twice(x), twice(validation_data)
    reading = {
        "batch_size": batch_size, "class_weight": class_weight, "shuffle": shuffle,
        "validation_split": validation_split, "validation_steps": validation_steps,
        "validation_batch_size": validation_batch_size, "steps_per_epoch": steps_per_epoch,
    }  # fmt: skip
    hearing = {"callbacks": callbacks, "verbose": verbose, "validation_freq": validation_freq}
    seed, begun = together.chiefs(seed, int(getattr(model.optimizer, "iterations", 0)))
    order_seed = seed_after(seed, 0 if run_dir or initial_epoch else begun)
    options = StepOptions(clip_norm=clip_norm, accumulate=accumulate, seed=seed, probe=False)
    try:
        check_own_code(model, "fit", repeated_rows)
        given = reading | hearing | {"validation_data": held_out, "epochs": limited_epochs(epochs)}
        setting, arrays = (model, together, placement), (x, y, sample_weight)
        updates = open_updates(setting, arrays, order_seed, options, given)
    except NeedsLayersError as error:
        reason = together.check_step(error)
    else:
        begin, quiet = Position(step=begun, epoch=initial_epoch), given["verbose"] == 0
        return train(updates, begin, given["epochs"], run_dir, quiet=quiet)
    check_no_options(reason, parameters, exchange, clip_norm, accumulate, run_dir)
    return call_own(
        model, "fit", placement.devices, reason, repeated_rows, x=whole(), y=y, epochs=epochs,
        sample_weight=sample_weight, initial_epoch=initial_epoch, validation_data=again(),
        **hearing, **reading,
    )  # fmt: skip


def open_updates(
    setting: tuple[keras.Model, Together, Placement],
    arrays: tuple[Any, Any, Any],
    seed: int,
    options: StepOptions,
    given: dict[str, Any],
) -> FitUpdates:
    """Returns the updates by the towers' own step, with the evaluation after an epoch.

    Args:
        setting: the model, the processes that train it, and the towers' devices.
        arrays: `x`, `y` and `sample_weight`.
        seed: the order of the data follows from it.
        options: those of the step.
        given: the other arguments of `towers.fit`, by name. `verbose` becomes that of this process.

    Raises:
        NeedsLayersError: the towers' own step does not serve this model.
    """
    (model, together, placement), num_towers = setting, len(setting[2].devices)
    steps = given["steps_per_epoch"] = limited_steps(given["steps_per_epoch"])
    data, held_out = read(model, placement, arrays, seed, given)
    own: dict[str, Any] = {"validation_data": held_out is not None}
    own |= {"callbacks": None, "verbose": None}
    own |= {"step": options, "towers": num_towers, "exchange": placement.exchange}
    together.check(given | own)
    given["verbose"] = together.tell(given["verbose"])
    shards = together.shards(data, num_towers, steps)
    size = given["validation_batch_size"] or given["batch_size"]
    validation = validation_of(setting, held_out, size, given["validation_steps"])
    callbacks, count = together.callbacks(given["callbacks"]), steps or shards.num_batches
    heard = callback_list(model, callbacks, given["verbose"], count, given["epochs"], history=True)
    step = LateStep(model, placement, data, options, together.processes)
    return FitUpdates(
        step, model, together, shards, steps, heard, validation, given["validation_freq"]
    )


def read(
    model: keras.Model,
    placement: Placement,
    arrays: tuple[Any, Any, Any],
    seed: int,
    given: dict[str, Any],
) -> tuple[Data, Any]:
    """Returns the data as the towers' own step takes it, and the validation data; see above."""
    held_out = given["validation_data"]
    if given["validation_split"] and held_out is None:
        arrays = (sliceable(model, arrays[0]), *arrays[1:])
        arrays, held_out = train_validation_split(arrays, given["validation_split"])
    data = read_samples(
        model, *arrays, batch_size=given["batch_size"], steps=given["steps_per_epoch"],
        class_weight=given["class_weight"], shuffle=given["shuffle"], seed=seed,
    )  # fmt: skip
    prepare(model, placement, data)
    return data, held_out


def validation_of(
    setting: tuple[keras.Model, Together, Placement],
    data: Any,
    batch_size: int | None,
    steps: int | None,
) -> Evaluation | None:
    """Returns the evaluation on validation data after an epoch; None if there is none."""
    if data is None:
        return None
    model, together, placement = setting
    check_own_code(model, "evaluate")
    parts = keras.utils.unpack_x_y_sample_weight(data)
    steps = limited_steps(steps)
    held_out = read_samples(model, *parts, batch_size=batch_size, steps=steps)
    if getattr(held_out, "is_generator", False) and steps is None:
        raise ValueError(
            "A generator of validation data is read once, so that later epochs would find it "
            "empty. Received one without validation_steps; pass these, or a tf.data.Dataset or a "
            "keras.utils.PyDataset, which begin anew."
        )
    return Evaluation(model, placement, together, held_out, steps)


def seed_after(seed: int, updates: int) -> int:
    """Returns the seed of the data's order for a model that was trained before, another one."""
    if not updates:
        return seed
    return int(np.random.SeedSequence([seed, updates]).generate_state(1)[0])
