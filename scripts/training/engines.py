"""The engines that train a recipe: the towers or, to compare, MirroredStrategy or Keras's `fit`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import towers
from towers.scripts.baselines.fit import FitUpdates
from towers.scripts.baselines.mirrored import make_mirrored_step
from towers.scripts.baselines.rivals import Task
from towers.scripts.training.options import TrainOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.session import (
    Session,
    build_async_step,
    build_step,
    carried_state,
    make_optimizer,
    total_epochs,
)


class Engine(NamedTuple):
    """An engine that trains a session's model.

    Attributes:
        updates: for the trainer.
        evaluate: the session's `evaluate`, of the values that the training has reached.
        parameters: where the variables live, for the first line of the output.
        description: a clause for that line.
        step: the towers' synchronous step, or None.
    """

    updates: towers.steps.Updates
    evaluate: Callable[[], dict[str, float]]
    parameters: str
    description: str = ""
    step: towers.engine.TrainStep | None = None


def open_engine(session: Session, options: TrainOptions) -> Engine:
    """Returns the engine that `--engine` names; call `check_engine` before."""
    return ENGINES[options.engine.engine](session, options)


def open_towers(session: Session, options: TrainOptions) -> Engine:
    """Returns the towers: one update from all or, with `--updates async`, one from each."""
    train, evaluate = session.data.train, session.evaluate
    parameters = describe_copies(session.placement.copy_groups)
    if options.engine.updates == "async":
        updates = towers.steps.AsynchronousUpdates(build_async_step(session, options), train)
        return Engine(updates, evaluate, parameters)
    step = build_step(session, options)
    description = describe_exchange(session)
    return Engine(
        towers.steps.SynchronousUpdates(step, train), evaluate, parameters, description, step
    )


def describe_copies(groups: Sequence[Sequence[str]]) -> str:
    """Returns where the copies of the variables are, in a few words."""
    if len(groups) > 1:
        return "each of them"
    return ", ".join(dict.fromkeys(map(towers.devices.short_device, groups[0])))


def describe_exchange(session: Session) -> str:
    """Returns a clause about sums between copies of the variables, if packs do not make them."""
    devices = session.placement.devices
    if session.placement.exchange != "nccl" or len(devices) * session.processes.count == 1:
        return ""
    on_gpus = all("GPU" in device for device in devices)
    return f", summed by {'NCCL' if on_gpus else 'a ring'}"


def open_mirrored(session: Session, options: TrainOptions) -> Engine:
    """Returns the towers under `tf.distribute.MirroredStrategy`, in the same loop.

    Each replica has its own moving averages of BatchNorm; evaluations and checkpoints take those of
    the first replica, as with `--batch-norm first`.
    """
    check_stateless(session, options)
    devices = session.devices.towers
    step = make_mirrored_step(make_task(session, options), devices, seed=options.seed)
    variables = towers.engine.SharedVariables(session.model.variables, []).all
    step.assign(variables)

    def evaluate() -> dict[str, float]:
        step.copy_to(variables)
        return session.evaluate()

    updates = towers.steps.SynchronousUpdates(step, session.data.train)
    description = ", by tf.distribute.MirroredStrategy"
    return Engine(updates, evaluate, describe_copies([[device] for device in devices]), description)


def open_fit(session: Session, options: TrainOptions) -> Engine:
    """Returns Keras's `model.fit` on one device, with Keras's own optimizer and choice of XLA."""
    check_stateless(session, options)
    devices = session.devices.towers
    if len(devices) > 1:
        raise ValueError(
            f"--engine keras trains on one device. Received {len(devices)}: "
            f"{', '.join(devices)}; give --towers 1, or --engine mirrored."
        )
    task, train = make_task(session, options), session.data.train
    updates = FitUpdates(session.model, task, train)
    return Engine(
        updates,
        session.evaluate,
        describe_copies([[device] for device in devices]),
        ", by keras.Model.fit",
    )


ENGINES: dict[str, Callable[[Session, TrainOptions], Engine]] = {
    "towers": open_towers,
    "mirrored": open_mirrored,
    "keras": open_fit,
}


def check_engine(recipe: Recipe, options: TrainOptions) -> None:
    """Raises ValueError for an option or a field with which the chosen engine cannot train."""
    engine = options.engine
    per_tower = options.devices.gpus_per_tower
    if engine.updates == "async":
        check_asynchronous(options)
    if per_tower > 1:
        check_sharing(options)
    if engine.exchange == "nccl":
        check_collective(options)
    if engine.engine == "towers":
        return
    parameters, num_towers = options.devices.parameters, options.devices.towers
    refused = {
        "--accumulate": engine.accumulate != 1,
        "--xla": engine.xla,
        "--precision float16": engine.precision == "float16",
        f"--parameters {parameters}": parameters != "auto",
        f"--gpus-per-tower {per_tower}": per_tower > 1,
        f"--exchange {engine.exchange}": engine.exchange != "auto",
        "several processes": is_one_of_several(),
    }
    if engine.engine == "keras":
        refused[f"--towers {num_towers}"] = (num_towers or 1) > 1
        refused["optimizer=lazy_adam"] = recipe.fields.optimizer == "lazy_adam"
        refused["label_smoothing"] = bool(getattr(recipe.fields, "label_smoothing", 0))
        for name in ("mixup", "multi_label"):
            refused[name] = bool(getattr(recipe.fields, name, False))
    refuse_all(f"--engine {engine.engine}", refused, "train on towers")


def check_sharing(options: TrainOptions) -> None:
    """Raises ValueError for an option with which towers of several devices cannot train."""
    refused = {
        "--xla": options.engine.xla,
        "--exchange nccl": options.engine.exchange == "nccl",
        "several processes": is_one_of_several(),
    }
    option = f"--gpus-per-tower {options.devices.gpus_per_tower}"
    refuse_all(option, refused, "give each tower one GPU")


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
        f"--gpus-per-tower {options.devices.gpus_per_tower}": options.devices.gpus_per_tower > 1,
        "--exchange nccl": engine.exchange == "nccl",
        "--batch-norm first": engine.batch_norm == "first",
        "several processes": is_one_of_several(),
    }
    refuse_all("--updates async", refused, "use --updates sync")


def check_collective(options: TrainOptions) -> None:
    """Raises ValueError for an option with which collective ops cannot sum.

    They sum between copies of the variables, in an order that depends on the number of towers.
    """
    parameters = options.devices.parameters
    refused = {
        "--deterministic": options.engine.deterministic,
        f"--parameters {parameters}": parameters not in ("auto", "replicated"),
        "--virtual": options.devices.virtual,
    }
    refuse_all("--exchange nccl", refused, "use --exchange packs")


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
    return bool(config) and len(towers.processes.read_cluster(config)[0]) > 1


def check_stateless(session: Session, options: TrainOptions) -> None:
    """Raises ValueError if the recipe carries a state from step to step."""
    if carried_state(session.recipe, session.model, session.data.train) is not None:
        raise ValueError(
            f"--engine {options.engine.engine} carries no state from step to step, as recipe "
            f"{session.recipe.name} does with these fields. Give it batches without one (a "
            "language model takes --set form=sentences or form=pieces), or train on towers."
        )


def make_task(session: Session, options: TrainOptions) -> Task:
    """Returns the session's task, as the rivals of `towers benchmark` take it."""
    fields, data = session.recipe.fields, session.data
    make = functools.partial(make_optimizer, fields, data, total_epochs(options, session))
    return Task(session.recipe, data, data.train(0, 0), make)
