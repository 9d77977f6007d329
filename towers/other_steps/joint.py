"""A step with several updates over parts of the variables on each batch."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.batches.shards import Batches, Shard, shard_specs
from towers.devices.placement import Placement
from towers.ground.arguments import check_choice
from towers.processes.processes import Processes
from towers.saving.checkpoint_files import Groups
from towers.step.builder import TrainStep, build_train_step
from towers.step.options import StepOptions
from towers.step.results import StepResults, TowerResults
from towers.step.tower_function import TowerFn, check_kinds
from towers.variables.find_variables import trace_once
from towers.variables.outside_writes import unobserved

SEEDS_PER_UPDATE = 2**32
ORDERS = ALTERNATING, SIMULTANEOUS = "alternating", "simultaneous"


@dataclasses.dataclass(frozen=True)
class JointUpdate:
    """One update of a joint step.

    Args:
        tower_fn: the tower function of this update; it may use the models of all updates.
        trains: the model, or the variables, that this update trains.
        optimizer: their optimizer.
    """

    tower_fn: TowerFn
    trains: keras.Model | Sequence[keras.Variable]
    optimizer: keras.optimizers.Optimizer


def build_joint_step(
    updates: Mapping[str, JointUpdate],
    placement: Placement,
    batches: Batches | tf.data.Dataset,
    options: StepOptions = StepOptions(),
    processes: Processes | None = None,
    *,
    others: Sequence[keras.Variable] = (),
    order: str = ALTERNATING,
) -> JointStep:
    """Returns `step(shards, step_number) -> StepResults`, several updates from one global batch.

    This is what a discriminator and a generator need, or an actor and a critic. `Trainer` takes it
    like any other step.

    Args:
        updates: the updates by name, in their order, such as
            `{"discriminator": JointUpdate(...), "generator": JointUpdate(...)}`.
        placement, batches, options, processes: as in `build_train_step`; without a carried state,
            a loss scale and `steps_per_call`.
        others: other variables that the tower functions use without training them, such as the
            state of a `keras.random.SeedGenerator`.
        order: `alternating`, where each update sees the weights that those before it have changed;
            or `simultaneous`, where all see the weights before the step, as in CycleGAN.

    Raises:
        ValueError: an argument is wrong, or two updates train one variable.
    """
    check_choice("order", order, ORDERS)
    check_kinds(placement, options, processes)
    check_updates(updates, options)
    specs = shard_specs(batches, len(placement.devices))
    with placement.scope(), unobserved():  # The traces are not run: they write no variable.
        for update in updates.values():  # Builds models that are not built yet.
            trace_once(update.tower_fn, specs[0].batch)
    trained = {name: variables_of(update.trains) for name, update in updates.items()}
    check_trained(trained)
    listed = itertools.chain(*trained.values(), others)
    everything = list({id(variable): variable for variable in listed}.values())
    steps = {}
    for index, (name, update) in enumerate(updates.items()):
        seeded = dataclasses.replace(options, seed=options.seed + index * SEEDS_PER_UPDATE)
        with only(trained[name], everything):
            steps[name] = build_train_step(
                update.tower_fn, everything, update.optimizer, placement, batches, seeded, processes
            )
    return JointStep(steps, order)


def check_updates(updates: Mapping[str, JointUpdate], options: StepOptions) -> None:
    """Raises ValueError without updates, or for options that several updates cannot share."""
    if not updates:
        raise ValueError("A joint step needs at least one update. Received none.")
    own = (options.carried, options.loss_scale, options.steps_per_call)
    if own != (None, None, 1):
        raise ValueError(
            "A joint step takes no carried state, no loss scale and no steps_per_call. Received "
            f"carried={own[0]}, loss_scale={own[1]}, steps_per_call={own[2]}."
        )


def check_trained(trained: Mapping[str, Sequence[keras.Variable]]) -> None:
    """Raises ValueError for a variable that two updates train."""
    owners: dict[int, str] = {}
    for name, variables in trained.items():
        for variable in variables:
            owner = owners.setdefault(id(variable), name)
            if owner != name and variable.trainable:
                raise ValueError(
                    f"Only one update may train a variable. Received '{variable.path}' in "
                    f"{owner!r} and in {name!r}."
                )


def variables_of(trains: keras.Model | Sequence[keras.Variable]) -> list[keras.Variable]:
    """Returns the variables of a model, or those given."""
    return list(getattr(trains, "variables", trains))


@contextlib.contextmanager
def only(trained: Sequence[keras.Variable], everything: Sequence[keras.Variable]) -> Iterator[None]:
    """The scope in which no other variables are trainable.

    Layers stay as they are, so that a BatchNorm of another update runs in training mode.
    """
    chosen = {id(variable) for variable in trained}
    frozen = [one for one in everything if one.trainable and id(one) not in chosen]
    for variable in frozen:
        variable.trainable = False
    try:
        yield
    finally:
        for variable in frozen:
            variable.trainable = True


class JointStep:
    """Several updates from one batch as a callable, made by `build_joint_step`.

    Args:
        steps: the step of each update, by name, in their order.
        order: as in `build_joint_step`.

    Attributes:
        steps: as given.
        devices: the towers' devices.
        specs: the specs of the shards that it takes.
        processes: the processes that train.
    """

    def __init__(self, steps: Mapping[str, TrainStep], order: str = ALTERNATING):
        self.steps, self._is_simultaneous = dict(steps), order == SIMULTANEOUS
        first = next(iter(self.steps.values()))
        self.devices, self.specs = first.devices, first.specs
        self.processes = first.processes

    def __call__(self, shards: tuple[Shard, ...], step: int | tf.Tensor) -> StepResults:
        """Runs all updates of the step with this number (the first is 1).

        The loss is the sum of the updates' losses; `gradient_norm` is that of all their gradients.
        The metrics are those of the updates, as `update/metric`, and each update's `update/loss`.
        """
        results, changed = {}, []
        for name, update in self.steps.items():
            before = values_of(update) if self._is_simultaneous else []
            results[name] = update(shards, step)
            if self._is_simultaneous:  # The others see the weights of before.
                changed += values_of(update)
                assign(before)
        assign(changed)
        return join(results)

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint saves, by group name."""
        groups = {name: step.groups() for name, step in self.steps.items()}
        variables = next(iter(groups.values()))["variables"]
        optimizers = {f"{name}_optimizer": one["optimizer"] for name, one in groups.items()}
        return {"variables": variables, **optimizers}

    def settings(self) -> dict[str, Any]:
        """Returns the options that must be equal in several processes, by name."""
        first = next(iter(self.steps.values()))
        own = {"updates": ", ".join(self.steps), "simultaneous": self._is_simultaneous}
        return own | first.settings()

    def averaged(self) -> contextlib.AbstractContextManager[Any]:
        """The scope in which the variables hold their optimizers' averages (`use_ema=True`).

        They hold them from this call on.
        """
        scopes = contextlib.ExitStack()  # One that is never left leaves none.
        for step in self.steps.values():
            scopes.enter_context(step.averaged())
        return scopes

    def check_copies(self) -> None:
        """Raises RuntimeError unless all copies of the variables are bit-identical."""
        for step in self.steps.values():
            step.check_copies()

    @property
    def graph(self) -> tf.Graph:
        """The graph of the first update."""
        return next(iter(self.steps.values())).graph


def values_of(update: TrainStep) -> list[tuple[keras.Variable, tf.Tensor]]:
    """Returns the variables that an update trains, each with its value."""
    trained = update.update.copies.shared.trainable
    return [(variable, tf.convert_to_tensor(variable.value)) for variable in trained]


def assign(values: Iterable[tuple[keras.Variable, tf.Tensor]]) -> None:
    """Gives variables their values."""
    for variable, value in values:
        variable.assign(value)


def join(results: Mapping[str, StepResults]) -> StepResults:
    """Returns the results of several updates from one batch as those of one step."""
    each = list(results.values())
    towers = {name: one.towers for name, one in results.items()}
    return StepResults(
        loss=tf.add_n([one.loss for one in each]),
        weight=each[0].weight,
        metrics=by_update(results, "loss", "metrics"),
        metric_weights=by_update(results, "weight", "metric_weights"),
        gradient_norm=tf.norm(tf.stack([one.gradient_norm for one in each])),
        learning_rate=each[0].learning_rate,
        finite=tf.reduce_all([one.finite for one in each]),
        loss_scale=each[0].loss_scale,
        towers=TowerResults(
            loss=tf.add_n([one.loss for one in towers.values()]),
            weight=each[0].towers.weight,
            metrics=by_update(towers, "loss", "metrics"),
            metric_weights=by_update(towers, "weight", "metric_weights"),
            gradient_norm=tf.norm(tf.stack([o.gradient_norm for o in towers.values()]), axis=0),
        ),
    )


def by_update(results: Mapping[str, Any], loss: str, metrics: str) -> dict[str, tf.Tensor]:
    """Returns the losses and metrics of the updates, or their weights, by `update/name`."""
    return {
        f"{update}/{name}": value
        for update, one in results.items()
        for name, value in {"loss": getattr(one, loss), **getattr(one, metrics)}.items()
    }
