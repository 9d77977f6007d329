"""A recipe put together: devices, data, model and steps, as train and evaluate need them."""

from __future__ import annotations

import argparse
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras

import towers
from towers.optimize.optimizers import build_optimizer
from towers.optimize.schedules import build_schedule, scale_learning_rate
from towers.run.processes import Processes, join_processes
from towers.scripts.training.recipe import DATA_SETS, Data, Examiner, Recipe
from towers.step.precision import LossScale, set_precision


class Session(NamedTuple):
    """What a command works with.

    Attributes:
        recipe: the recipe.
        data: its batches.
        model: its Keras model, the variables on the parameter device.
        devices: the towers' devices, and a line about them.
        parameters: where the variables live.
        processes: those that train together, of which this is one.
        evaluate: `evaluate() -> dict` of means over the test data.
        examiner: who looks at what the model says, or None.
    """

    recipe: Recipe
    data: Data
    model: keras.Model
    devices: towers.Devices
    parameters: str
    processes: Processes
    evaluate: Callable[[], dict[str, float]]
    examiner: Examiner | None


def open_session(
    recipe: Recipe,
    options: argparse.Namespace,
    *,
    seed: int,
    precision: str,
    join: bool = False,
) -> Session:
    """Returns the session of a recipe on the devices that the options choose.

    Args:
        recipe: the recipe.
        options: the command line.
        seed: of the initial values and of the data's order.
        precision: as `set_precision` takes it.
        join: whether to join the other processes that TF_CONFIG names.
    """
    devices = choose_devices(options)
    processes = join_processes() if join else Processes()
    set_precision(precision)
    keras.utils.set_random_seed(seed)
    with processes.chief_first():  # It fills the caches that the others then find.
        data = recipe.make_data(recipe.fields, data_paths(recipe, options.data), seed)
    parameters = towers.working_placement(options.parameters, devices.towers)
    with towers.shared_variables(towers.parameter_device(parameters, devices.towers)):
        model = recipe.make_model(recipe.fields, data)
    evaluate = make_evaluate(recipe, model, data, devices.towers, parameters)
    examiner = None
    if recipe.make_examiner is not None:
        examiner = recipe.make_examiner(recipe.fields, model, data)
    return Session(recipe, data, model, devices, parameters, processes, evaluate, examiner)


def choose_devices(options: argparse.Namespace) -> towers.Devices:
    """Returns the devices that the command line asks for."""
    if options.virtual and options.towers is None:
        raise ValueError("--virtual splits one GPU into towers: say into how many with --towers N.")
    return towers.select_devices(
        options.towers,
        gpus=options.gpus,
        virtual=options.virtual,
        gpu_memory=options.gpu_memory,
        cpu_towers=options.cpu_towers,
    )


def data_paths(recipe: Recipe, given: Sequence[str] | None) -> Any:
    """Returns where a recipe's data is: what is given, or its default if it has one.

    A recipe that takes files gets a list of paths, the others get one folder.
    """
    if recipe.takes_files:
        return None if given is None else [pathlib.Path(path) for path in given]
    if given is None:
        return DATA_SETS / recipe.data_set if recipe.data_set else None
    if len(given) > 1:
        raise ValueError(
            f"The data of {recipe.name} is in one folder. Received {len(given)} with --data: "
            f"{', '.join(given)}."
        )
    return pathlib.Path(given[0])


def make_evaluate(
    recipe: Recipe, model: keras.Model, data: Data, devices: Sequence[str], parameters: str
) -> Callable[[], dict[str, float]]:
    """Returns a function that evaluates the model as it is; its graph is built when first used."""
    built: list[Callable] = []
    carried = carried_options(recipe, model, data.test)
    used = devices[: carried.get("carried_rows")]  # A tower without a row would help nobody.

    def evaluate() -> dict[str, float]:
        if not built:
            tower_fn = recipe.make_tower_fn(recipe.fields, model, False)
            specs = towers.shard_specs(data.test, len(used))
            built.append(
                towers.build_evaluation_step(
                    tower_fn, model, used, specs, parameters=parameters, **carried
                )
            )
        metrics = towers.evaluate(built[0], data.test(0, 0), used)
        if recipe.derive_metrics is not None:
            metrics.update(recipe.derive_metrics(metrics, data))
        return metrics

    return evaluate


def carried_options(recipe: Recipe, model: keras.Model, batches: Any) -> dict[str, Any]:
    """Returns what a step is built with so that it carries a recipe's state, if it has one."""
    carried = None if recipe.make_carried is None else recipe.make_carried(recipe.fields, model)
    return {} if carried is None else {"carried": carried, "carried_rows": batches.num_rows}


def build_step(session: Session, options: argparse.Namespace) -> Any:
    """Returns the training step of a session.

    Args:
        session: an open session.
        options: the command line, for accumulate, xla, batch_norm, precision, updates and seed.
    """
    recipe, devices = session.recipe, session.devices.towers
    device = towers.parameter_device(session.parameters, devices)
    with towers.shared_variables(device):
        optimizer = make_optimizer(recipe.fields, session.data, total_epochs(options, session))
        loss_scale = LossScale() if options.precision == "float16" else None
    build = build_async_step if options.updates == "async" else build_sync_step
    return build(
        session,
        options,
        tower_fn=recipe.make_tower_fn(recipe.fields, session.model, True),
        variables=session.model,
        optimizer=optimizer,
        devices=devices,
        parameters=session.parameters,
        clip_norm=recipe.fields.clip_norm or None,
        accumulate=options.accumulate,
        seed=options.seed,
        loss_scale=loss_scale,
        compiled=options.xla,
    )


def build_sync_step(
    session: Session, options: argparse.Namespace, **choices: Any
) -> towers.TrainStep:
    """Returns a synchronous step, joined with the other processes if there are any.

    Raises:
        ValueError: several processes, and a recipe that carries a state.
    """
    train, processes = session.data.train, session.processes
    num_towers = len(session.devices.towers)
    carried = carried_options(session.recipe, session.model, train)
    if processes.count > 1:
        if carried:
            raise ValueError(
                f"{session.recipe.name} carries a state from batch to batch, whose rows only the "
                f"towers of one process share. Received {processes.count} processes; use one, with "
                "--towers (a language model may also be given --set form=sentences)."
            )
        choices["reduce_across"] = processes.sum
        choices["first_tower"] = processes.first_tower(num_towers)
    return towers.build_train_step(
        shard_specs=towers.shard_specs(train, num_towers),
        batch_norm=options.batch_norm,
        **carried,
        **choices,
    )


def build_async_step(
    session: Session, options: argparse.Namespace, **choices: Any
) -> towers.AsyncStep:
    """Returns an asynchronous step; raises ValueError for a recipe that carries a state."""
    if carried_options(session.recipe, session.model, session.data.train):
        raise ValueError(
            f"--updates async has no order in which {session.recipe.name} could carry its state "
            "from batch to batch. Give it batches without one (a language model takes --set "
            "form=sentences), or use --updates sync."
        )
    specs = towers.shard_specs(session.data.train, 1)
    return towers.build_async_step(shard_specs=specs, **choices)


def total_epochs(options: argparse.Namespace, session: Session) -> float:
    """Returns how many epochs the run is going to take."""
    if getattr(options, "steps", None):
        return options.steps / session.data.train.steps_per_epoch
    return session.recipe.fields.epochs


def make_optimizer(fields: Any, data: Data, epochs: float) -> keras.optimizers.Optimizer:
    """Returns the optimizer of a recipe, with its schedule in steps."""
    steps_per_epoch = data.train.steps_per_epoch
    learning_rate = fields.learning_rate
    if fields.base_batch_size:
        learning_rate = scale_learning_rate(
            learning_rate, fields.batch_size, fields.base_batch_size
        )
    schedule = build_schedule(
        fields.schedule,
        learning_rate,
        total_steps=max(1, math.ceil(epochs * steps_per_epoch)),
        warmup_steps=fields.warmup_steps,
        warmup_power=fields.warmup_power,
        decay_steps=max(1, round(fields.decay_epochs * steps_per_epoch)),
        decay_rate=fields.decay_rate,
        boundaries=[round(epoch * steps_per_epoch) for epoch in fields.boundaries],
    )
    return build_optimizer(
        fields.optimizer,
        schedule,
        momentum=fields.momentum,
        weight_decay=fields.optimizer_weight_decay,
    )
