"""The engines that train a recipe: the towers or, to compare, MirroredStrategy or Keras's `fit`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from towers import AsyncStep, AsyncTrainer
from towers.loop.trainer import Action, Position, Trainer
from towers.run.processes import read_cluster
from towers.scripts.baselines.fit import FitStep, FitTrainer
from towers.scripts.baselines.mirrored import MirroredStep
from towers.scripts.baselines.rivals import Task
from towers.scripts.training.options import TrainOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.session import (
    Session,
    build_step,
    carried_options,
    make_optimizer,
    total_epochs,
)
from towers.step.parameters import SharedVariables
from towers.step.protocol import Step


class Engine(NamedTuple):
    """An engine that trains a session's model.

    Attributes:
        step: the step that the trainer calls, with the variables for checkpoints and curves.
        make_trainer: as `towers.Trainer`.
        evaluate: the session's `evaluate`, of the values that the training has reached.
        description: a clause for the first line of the output.
    """

    step: Step
    make_trainer: Callable[..., Trainer]
    evaluate: Callable[[], dict[str, float]]
    description: str = ""


def open_engine(session: Session, options: TrainOptions) -> Engine:
    """Returns the engine that `--engine` names; call `check_engine` before."""
    return ENGINES[options.engine.engine](session, options)


def open_towers(session: Session, options: TrainOptions) -> Engine:
    """Returns the towers: one update from all or, with `--updates async`, one from each."""
    make_trainer = asynchronous_trainer if options.engine.updates == "async" else Trainer
    return Engine(build_step(session, options), make_trainer, session.evaluate)


def asynchronous_trainer(
    step: AsyncStep, batches: Any, actions: Sequence[Action], *, position: Position, **_: Any
) -> AsyncTrainer:
    """Returns the trainer of asynchronous towers; it has no use for the other arguments."""
    return AsyncTrainer(step, batches, actions, position=position)


def open_mirrored(session: Session, options: TrainOptions) -> Engine:
    """Returns a hand-written step under `tf.distribute.MirroredStrategy`, in the towers' loop.

    Each replica has its own moving averages of BatchNorm; evaluations and checkpoints take those of
    the first replica, as with `--batch-norm first`.
    """
    check_stateless(session, options)
    step = MirroredStep(make_task(session, options), session.devices.towers, seed=options.seed)
    of_session = SharedVariables(session.model.variables, [])
    step.assign(of_session)

    def evaluate() -> dict[str, float]:
        step.copy_to(of_session)
        return session.evaluate()

    return Engine(step, Trainer, evaluate, ", by tf.distribute.MirroredStrategy")


def open_fit(session: Session, options: TrainOptions) -> Engine:
    """Returns Keras's `model.fit` on one device, with Keras's own optimizer and choice of XLA."""
    check_stateless(session, options)
    devices = session.devices.towers
    if len(devices) > 1:
        raise ValueError(
            f"--engine keras trains on one device. Received {len(devices)}: "
            f"{', '.join(devices)}; give --towers 1, or --engine mirrored."
        )
    step = FitStep(session.model, make_task(session, options), devices[0])
    return Engine(step, FitTrainer, session.evaluate, ", by keras.Model.fit")


ENGINES: dict[str, Callable[[Session, TrainOptions], Engine]] = {
    "towers": open_towers,
    "mirrored": open_mirrored,
    "keras": open_fit,
}


def check_engine(recipe: Recipe, options: TrainOptions) -> None:
    """Raises ValueError for an option or a field with which the chosen engine cannot train."""
    engine = options.engine
    if engine.updates == "async":
        check_asynchronous(options)
    if engine.xla and recipe.unit == "tokens":
        raise ValueError(
            f"--xla cannot compile {recipe.name}: its loss leaves padding out, and XLA needs to "
            "know sizes in advance. Leave --xla out; image networks can be compiled."
        )
    if engine.engine == "towers":
        return
    parameters, num_towers = options.devices.parameters, options.devices.towers
    refused = {
        "--accumulate": engine.accumulate != 1,
        "--xla": engine.xla,
        "--precision float16": engine.precision == "float16",
        f"--parameters {parameters}": parameters != "auto",
        "several processes": is_one_of_several(),
    }
    if engine.engine == "keras":
        refused[f"--towers {num_towers}"] = (num_towers or 1) > 1
        refused["optimizer=lazy_adam"] = recipe.fields.optimizer == "lazy_adam"
        refused["label_smoothing"] = bool(getattr(recipe.fields, "label_smoothing", 0))
    refuse_all(f"--engine {engine.engine}", refused, "train on towers")


def check_asynchronous(options: TrainOptions) -> None:
    """Raises ValueError for an option with which asynchronous towers cannot train.

    They share their variables, add BatchNorm's changes one by one, and run in one process in an
    order that differs from run to run.
    """
    engine = options.engine
    refused = {
        "--deterministic": engine.deterministic,
        f"--engine {engine.engine}": engine.engine != "towers",
        "--parameters replicated": options.devices.parameters == "replicated",
        "--batch-norm first": engine.batch_norm == "first",
        "several processes": is_one_of_several(),
    }
    refuse_all("--updates async", refused, "use --updates sync")


def refuse_all(option: str, refused: dict[str, bool], remedy: str) -> None:
    """Raises ValueError that lists the given options with which another one cannot train."""
    received = [name for name, given in refused.items() if given]
    if received:
        raise ValueError(
            f"{option} cannot train with {', '.join(received)}. Leave that out, or {remedy}."
        )


def is_one_of_several() -> bool:
    """Returns whether TF_CONFIG makes this process one of several that train together."""
    config = os.environ.get("TF_CONFIG", "")
    return bool(config) and read_cluster(config)[0] > 1


def check_stateless(session: Session, options: TrainOptions) -> None:
    """Raises ValueError if the recipe carries a state from step to step."""
    if carried_options(session.recipe, session.model, session.data.train):
        raise ValueError(
            f"--engine {options.engine.engine} carries no state from step to step, as recipe "
            f"{session.recipe.name} does with these fields. Give it batches without one (a "
            "language model takes --set form=sentences), or train on towers."
        )


def make_task(session: Session, options: TrainOptions) -> Task:
    """Returns the session's task, as the rivals of `towers benchmark` take it."""
    fields, data = session.recipe.fields, session.data
    make = functools.partial(make_optimizer, fields, data, total_epochs(options, session))
    return Task(session.recipe, data, data.train(0, 0), make)
