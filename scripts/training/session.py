"""A session: the devices, the data, the model and the steps of a recipe."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import keras

import towers
from towers.ground.progress import progress
from towers.scripts.options.setting import arguments_for
from towers.scripts.shown import show
from towers.scripts.training.catalogue import DATA_SETS
from towers.scripts.training.options import DeviceOptions, TrainOptions
from towers.scripts.training.recipe import AnswerEvaluator, Data, Recipe, Trained

# Takes what is called after each batch, and returns means over the test data.
Measure = Callable[[Callable[[], object]], dict[str, float]]


@dataclasses.dataclass(frozen=True, eq=False)
class Session:
    """A recipe with everything that its training and evaluation need.

    Attributes:
        data: the batches.
        model: the Keras model, its variables on the parameter device.
        devices: the towers' devices, and a line that describes them.
        placement: the towers' devices, and where the variables live.
        processes: all processes of the training, this one among them.
    """

    recipe: Recipe
    data: Data
    model: keras.Model
    devices: towers.devices.Devices
    placement: towers.Placement
    processes: towers.processes.Processes

    @functools.cached_property
    def answer_evaluator(self) -> AnswerEvaluator | None:
        """Judges the model's answers; None if it gives none."""
        make = self.recipe.make_answer_evaluator
        return None if make is None else make(self.recipe.fields, self.model, self.data)

    def evaluate(self, measure: Measure | None = None) -> dict[str, float]:
        """Returns means over the test data, as the towers find them or as `measure` does."""
        with progress(self.data.test.steps_per_epoch, "evaluating", "batch") as bar:
            metrics = (measure or self._measure)(bar.update)
        if self.recipe.derive_metrics is not None:
            metrics.update(self.recipe.derive_metrics(metrics, self.data))
        return metrics

    def _measure(self, after_batch: Callable[[], object]) -> dict[str, float]:
        self._evaluation_step.after_batch = after_batch
        return towers.evaluate_step(self._evaluation_step, self.data.test(0, 0))

    @functools.cached_property
    def _evaluation_step(self) -> towers.engine.EvaluationStep:
        recipe, model, batches = self.recipe, self.model, self.data.test
        carried = carried_state(recipe, model, batches)
        # A tower without a row would idle.
        used = self.placement.first(None if carried is None else carried.num_rows)
        tower_fn = recipe.make_tower_fn(recipe.fields, model, False)
        return towers.build_evaluation_step(tower_fn, model, used, batches, carried)


def open_session(
    recipe: Recipe,
    *,
    data: Sequence[str] | None,
    devices: DeviceOptions,
    seed: int,
    precision: str,
    trained: Trained | None = None,
) -> Session:
    """Returns the session of a recipe, or of a run of it, in this process alone.

    Raises:
        ValueError: the devices or the data cannot be used.
        OSError: a file cannot be read.
    """
    chosen, alone = choose_devices(devices), towers.processes.Processes()
    batches = open_data(recipe, data, seed, precision, alone, trained=trained)
    placement = towers.Placement(chosen.groups, devices.parameters)
    return make_session(recipe, batches, chosen, placement, alone)


def open_data(
    recipe: Recipe,
    data: Sequence[str] | None,
    seed: int,
    precision: str,
    processes: towers.processes.Processes,
    *,
    write: Callable[[str], None] = show,
    trained: Trained | None = None,
) -> Data:
    """Sets the precision and the seed of a session, and returns its data, equal in all processes.

    Errors as in `open_session`; `write` takes lines about the data that is prepared.
    """
    towers.steps.set_precision(precision)
    keras.utils.set_random_seed(seed)
    with processes.chief_first():  # It fills the caches that the others then find.
        takes = inspect.signature(recipe.make_data).parameters
        told = {"write": write, "trained": trained}
        told = {name: one for name, one in told.items() if name in takes}
        batches = recipe.make_data(recipe.fields, data_paths(recipe, data), seed, **told)
    towers.processes.check_settings(processes, {"the data's content": batches.key})
    return batches


def make_session(
    recipe: Recipe,
    data: Data,
    devices: towers.devices.Devices,
    placement: towers.Placement,
    processes: towers.processes.Processes,
) -> Session:
    """Returns the session of a recipe whose data is open, with a new model."""
    towers.processes.check_settings(processes, {"exchange": placement.exchange})
    with placement.scope():
        model = recipe.make_model(recipe.fields, data)
        if recipe.initialize is not None:
            recipe.initialize(recipe.fields, model, data)
    placement.place(model)
    return Session(recipe, data, model, devices, placement, processes)


def choose_devices(options: DeviceOptions) -> towers.devices.Devices:
    """Returns the chosen devices; raises ValueError if they are not there."""
    if options.virtual and options.towers is None:
        raise ValueError("--virtual splits one GPU into towers; give their number with --towers N.")
    return towers.select_devices(options.towers, **arguments_for(towers.select_devices, options))


def data_paths(recipe: Recipe, given: Sequence[str] | None) -> Any:
    """Returns the paths of a recipe's data: the given ones, or its default if it has one.

    A recipe that takes files gets a list of paths, the others get one folder.
    """
    if recipe.takes_files:
        return None if given is None else [pathlib.Path(path) for path in given]
    if given is None:
        return DATA_SETS / recipe.data_set if recipe.data_set else None
    if len(given) > 1:
        raise ValueError(
            f"The data of {recipe.name} must be in one folder. Received {len(given)} with --data: "
            f"{', '.join(given)}."
        )
    return pathlib.Path(given[0])


def carried_state(recipe: Recipe, model: keras.Model, batches: Any) -> towers.Carried | None:
    """Returns the state that a recipe carries from batch to batch, if it has one."""
    specs = None if recipe.make_carried is None else recipe.make_carried(recipe.fields, model)
    return None if specs is None else towers.Carried(specs, batches.num_rows)


def build_step(session: Session, options: TrainOptions) -> towers.engine.TrainStep:
    """Returns a synchronous step, joined with the other processes; errors as in `step_parts`."""
    return towers.build_train_step(*step_parts(session, options), session.processes)


def step_parts(
    session: Session, options: TrainOptions
) -> tuple[Any, Any, Any, Any, Any, towers.StepOptions]:
    """Returns what a step of a session is built of, synchronous or not.

    Raises:
        ValueError: a recipe carries a state, with several processes or asynchronous updates.
    """
    recipe, train = session.recipe, session.data.train
    carried = carried_state(recipe, session.model, train)
    if carried is not None:
        check_carries(recipe, session.processes.count, options.engine.updates)
    tower_fn = recipe.make_tower_fn(recipe.fields, session.model, True)
    epochs = recipe.fields.epochs
    if options.steps is not None:
        epochs = options.steps / train.steps_per_epoch
    with session.placement.scope():
        optimizer = make_optimizer(recipe.fields, session.data, epochs)
        loss_scale = towers.steps.LossScale() if options.engine.precision == "float16" else None
    own = arguments_for(
        towers.StepOptions,
        options.engine,
        clip_norm=recipe.fields.clip_norm or None,
        seed=options.seed,
        loss_scale=loss_scale,
        compiled=options.engine.xla,
        carried=carried,
    )
    return tower_fn, session.model, optimizer, session.placement, train, towers.StepOptions(**own)


def check_carries(recipe: Recipe, num_processes: int, updates: str) -> None:
    """Raises ValueError if a state cannot be carried by so many processes, or by such updates."""
    if updates == "async":
        why = "--updates async takes batches in no fixed order. Use --updates sync"
    elif num_processes > 1:
        why = (
            "only the towers of one process can share its rows. Received "
            f"{num_processes} processes; use one, with --towers"
        )
    else:
        return
    raise ValueError(
        f"{recipe.name} carries a state from batch to batch, and {why} (or, for a language model, "
        "--set form=sentences or form=pieces)."
    )


def make_optimizer(fields: Any, data: Data, epochs: float) -> keras.optimizers.Optimizer:
    """Returns the optimizer of a recipe, with its schedule in steps."""
    steps_per_epoch = data.train.steps_per_epoch
    learning_rate = fields.learning_rate
    if fields.base_batch_size:
        learning_rate = towers.optimizers.scale_learning_rate(
            learning_rate, fields.batch_size, fields.base_batch_size
        )
    schedule = towers.optimizers.build_schedule(
        fields.schedule,
        learning_rate,
        total_steps=max(1, math.ceil(epochs * steps_per_epoch)),
        warmup_steps=fields.warmup_steps,
        warmup_power=fields.warmup_power,
        decay_steps=max(1, round(fields.decay_epochs * steps_per_epoch)),
        decay_rate=fields.decay_rate,
        boundaries=[round(epoch * steps_per_epoch) for epoch in fields.boundaries],
    )
    return towers.optimizers.build_optimizer(
        fields.optimizer,
        schedule,
        momentum=fields.momentum,
        weight_decay=fields.optimizer_weight_decay,
        **average_options(fields),
    )


def average_options(fields: Any) -> dict[str, Any]:
    """Returns an optimizer's options for the average of the weights that fields ask for."""
    frequency = fields.ema_overwrite_frequency
    if frequency and not fields.ema_momentum:
        raise ValueError(
            f"ema_overwrite_frequency={frequency} needs an average of the weights. Received "
            "ema_momentum=0; give it, such as 0.99."
        )
    names = {"ema_momentum": fields.ema_momentum, "ema_overwrite_frequency": frequency or None}
    return {"use_ema": True, **names} if fields.ema_momentum else {}
