"""What trains a recipe: the towers or, to compare with them, MirroredStrategy or Keras's `fit`."""

from __future__ import annotations

import argparse
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

import towers
from scripts.recipe import Recipe
from scripts.rivals import Task, compile_model, keras_batches, mirror
from scripts.session import Session, build_step, carried_options, make_optimizer, total_epochs
from towers.carried import CarriedState
from towers.gradients import clip_factor, global_norm, scale_gradients, sum_repeated_rows
from towers.inputs import Shard
from towers.parameters import SharedVariables
from towers.processes import read_cluster
from towers.results import StepResults, TowerResults, mean_results, tower_results
from towers.tower import TowerSums, fold_in, metric_sums, seed_states, step_seed
from towers.trainer import NonFiniteGradientError, Position, StepReport, Trainer


class Engine(NamedTuple):
    """What trains a session's model.

    Attributes:
        step: what `towers.build_train_step` returns, or what stands in for it.
        make_trainer: as `towers.Trainer`.
        evaluate: the session's `evaluate`, of the values that the training has reached.
        description: a clause for the line that says what trains.
    """

    step: Any
    make_trainer: Callable[..., Trainer]
    evaluate: Callable[[], dict[str, float]]
    description: str = ""


def open_engine(session: Session, options: argparse.Namespace) -> Engine:
    """Returns what `--engine` names; call `check_engine` before."""
    return ENGINES[options.engine](session, options)


def on_towers(session: Session, options: argparse.Namespace) -> Engine:
    """The towers."""
    return Engine(build_step(session, options), Trainer, session.evaluate)


def by_strategy(session: Session, options: argparse.Namespace) -> Engine:
    """A hand-written step under `tf.distribute.MirroredStrategy`, in the loop of the towers.

    BatchNorm's moving averages are each replica's own; evaluations and checkpoints have those of
    the first, as with `--batch-norm first`.
    """
    check_stateless(session, options)
    step = MirroredStep(make_task(session, options), session.devices.towers, seed=options.seed)
    of_session = SharedVariables(session.model.variables, [])
    step.assign(of_session)

    def evaluate() -> dict[str, float]:
        step.copy_to(of_session)
        return session.evaluate()

    return Engine(step, Trainer, evaluate, ", by tf.distribute.MirroredStrategy")


def by_fit(session: Session, options: argparse.Namespace) -> Engine:
    """Keras's `model.fit` on one device, with Keras's own optimizer and its choice of XLA."""
    check_stateless(session, options)
    devices = session.devices.towers
    if len(devices) > 1:
        raise ValueError(
            f"--engine keras trains on one device. Received {len(devices)}: "
            f"{', '.join(devices)}; give --towers 1, or --engine mirrored."
        )
    step = FitStep(session.model, make_task(session, options), devices[0])
    return Engine(step, FitTrainer, session.evaluate, ", by keras.Model.fit")


ENGINES: dict[str, Callable[[Session, argparse.Namespace], Engine]] = {
    "towers": on_towers,
    "mirrored": by_strategy,
    "keras": by_fit,
}


def check_engine(recipe: Recipe, options: argparse.Namespace) -> None:
    """Raises ValueError for an option or a field with which the chosen engine cannot train."""
    if options.updates == "async":
        refuse_all(
            "--updates async is for one process, and its order is never the same twice: it",
            {"--deterministic": options.deterministic, "several processes": is_one_of_several()},
            "use --updates sync",
        )
    if options.engine == "towers":
        return
    refused = {
        "--accumulate": options.accumulate != 1,
        "--xla": options.xla,
        "--precision float16": options.precision == "float16",
        f"--parameters {options.parameters}": options.parameters != "auto",
        "--updates async": options.updates == "async",
        "several processes": is_one_of_several(),
    }
    if options.engine == "keras":
        refused[f"--towers {options.towers}"] = (options.towers or 1) > 1
        refused["optimizer=lazy_adam"] = recipe.fields.optimizer == "lazy_adam"
        refused["label_smoothing"] = bool(getattr(recipe.fields, "label_smoothing", 0))
    refuse_all(f"--engine {options.engine}", refused, "train on towers")


def refuse_all(what: str, refused: dict[str, bool], remedy: str) -> None:
    """Raises ValueError that lists what was given of what cannot be trained with."""
    received = [name for name, given in refused.items() if given]
    if received:
        raise ValueError(
            f"{what} cannot train with {', '.join(received)}. Leave that out, or {remedy}."
        )


def is_one_of_several() -> bool:
    """Returns whether TF_CONFIG makes this process one of several that train together."""
    config = os.environ.get("TF_CONFIG", "")
    return bool(config) and read_cluster(config)[0] > 1


def check_stateless(session: Session, options: argparse.Namespace) -> None:
    """Raises ValueError if the recipe carries a state from step to step."""
    if carried_options(session.recipe, session.model, session.data.train):
        raise ValueError(
            f"--engine {options.engine} carries no state from step to step, as recipe "
            f"{session.recipe.name} does with these fields. Give it batches without one (a "
            "language model takes --set form=sentences), or train on towers."
        )


def make_task(session: Session, options: argparse.Namespace) -> Task:
    """Returns what is trained, as the rivals of `towers benchmark` take it."""
    fields, data = session.recipe.fields, session.data
    make = functools.partial(make_optimizer, fields, data, total_epochs(options, session))
    return Task(session.recipe, data, data.train(0, 0), make)


class MirroredStep:
    """A step under MirroredStrategy, called as a `TrainStep` is, with one replica for a tower.

    The towers' optimizer, data and random numbers are used. The variables are mirrored: what is
    assigned to one is assigned on every device.

    Args:
        task: what is trained.
        devices: one for each replica.
        seed: what all random numbers are derived from.

    Attributes:
        devices, parameter_device, shared, optimizer, loss_scale, carried: as in `TrainStep`.
        num_copies: how many copies of the variables there are.
    """

    def __init__(self, task: Task, devices: Sequence[str], *, seed: int):
        self._strategy, model, self.optimizer = mirror(task, devices, task.make_optimizer)
        apply_as_given(self.optimizer)
        self._tower_fn = task.make_tower_fn(model)
        self._clip_norm = task.recipe.fields.clip_norm or None
        self._seed = seed
        self.devices = tuple(devices)
        self.parameter_device = devices[0]
        self.num_copies = len(devices)
        self.shared = SharedVariables(model.variables, [])
        self.loss_scale = None
        self.carried = CarriedState(None, None, devices)
        specs = towers.shard_specs(task.dataset, len(devices))
        signature = [specs, tf.TensorSpec([], tf.int64)]
        self._function = tf.function(self._step, input_signature=signature, autograph=False)

    def __call__(self, shards: tuple[Shard, ...], step: int) -> StepResults:
        """Runs the step of this number (the first is 1) and returns its results."""
        return self._traced(shards, tf.convert_to_tensor(step, tf.int64))

    @property
    def graph(self) -> tf.Graph:
        """The graph that runs."""
        return self._traced.graph

    @functools.cached_property
    def _traced(self) -> Any:
        return self._function.get_concrete_function()

    def check_parameters(self) -> None:
        """Does nothing: the strategy's own copies are not compared."""

    def assign(self, variables: SharedVariables) -> None:
        """Gives the variables of every replica the values of a model of the same kind."""
        for variable, source in zip(self.shared.all, variables.all, strict=True):
            variable.assign(source.value)

    def copy_to(self, variables: SharedVariables) -> None:
        """Gives a model of the same kind the values of the first replica."""
        for variable, target in zip(self.shared.all, variables.all, strict=True):
            target.assign(self._of_replicas(variable.value)[0])

    def _step(self, shards: tuple[Shard, ...], step: tf.Tensor) -> StepResults:
        learning_rate = tf.convert_to_tensor(self.optimizer.learning_rate)
        sums, gradients, norms = self._strategy.run(self._differentiate, args=(shards, step))
        towers = self._towers(sums)
        norm = self._of_replicas(norms)[0]
        finite = tf.math.is_finite(norm)
        tf.cond(finite, lambda: self._strategy.run(self._apply, args=(gradients,)), lambda: None)
        return StepResults(
            **mean_results(towers),
            gradient_norm=norm,
            learning_rate=learning_rate,
            finite=finite,
            loss_scale=tf.ones([]),
            towers=tower_results(towers, self.devices, norm if len(towers) == 1 else None),
        )

    def _differentiate(self, shards: tuple[Shard, ...], step: tf.Tensor) -> tuple:
        """Returns a replica's own sums, the averaged and clipped gradients, and their norm."""
        replicas: Any = tf.distribute.get_replica_context()
        index = int(tf.get_static_value(replicas.replica_id_in_sync_group))
        self._set_seeds(step, index)
        shard = shards[index]
        with tf.GradientTape() as tape:
            loss, weight, metrics = self._tower_fn(shard.batch)
            counts = tf.cast(shard.size > 0, loss.dtype)
            loss *= counts
        weight = tf.cast(weight, loss.dtype) * counts
        gradients = tape.gradient(loss, [v.value for v in self.shared.trainable])
        gradients = [sum_repeated_rows(gradient) for gradient in gradients]
        metrics = {key: metric_sums(value, weight, counts) for key, value in metrics.items()}
        sums = TowerSums(loss, weight, metrics, gradients, states=[], carried=())
        *totals, total = sum_over(replicas, [*gradients, weight])
        share = tf.math.reciprocal_no_nan(total)
        totals = [sum_repeated_rows(gradient) for gradient in totals]
        norm = global_norm(totals, weight.dtype) * share
        averaged = scale_gradients(totals, share * clip_factor(norm, self._clip_norm))
        return sums, averaged, norm

    def _apply(self, gradients: list[Any]) -> None:
        self.optimizer.apply(gradients, self.shared.trainable)

    def _set_seeds(self, step: tf.Tensor, tower: int) -> None:
        """Gives a replica's seed generators the states that its tower would give them."""
        seed = fold_in(step_seed(self._seed, step, tower), 0)
        generators = self.shared.seeds
        for generator, state in zip(generators, seed_states(seed, len(generators)), strict=True):
            generator.assign(state)

    def _towers(self, sums: TowerSums) -> list[TowerSums]:
        """Returns the sums of each replica."""
        rows = zip(*map(self._of_replicas, tf.nest.flatten(sums)), strict=True)
        return [tf.nest.pack_sequence_as(sums, row) for row in rows]

    def _of_replicas(self, value: Any) -> tuple:
        """Returns the value on each replica."""
        if value is None:
            return (None,) * len(self.devices)
        return self._strategy.experimental_local_results(value)


def sum_over(replicas: Any, values: Sequence[Any]) -> list[Any]:
    """Returns the sums over the replicas, within one of them; None stays None."""
    present = [value for value in values if value is not None]
    sums = iter(replicas.all_reduce(tf.distribute.ReduceOp.SUM, present))
    return [None if value is None else next(sums) for value in values]


def apply_as_given(optimizer: Any) -> None:
    """Makes an optimizer apply gradients as they are: they are summed over the replicas before.

    By default it would sum them, but only after they were clipped and after their norm could have
    been taken.
    """
    optimizer._all_reduce_sum_gradients = lambda gradients_and_variables: gradients_and_variables


class FitStep:
    """A model compiled for `fit`, with what `FitTrainer` and a checkpoint need of a step.

    Args:
        model: the session's model.
        task: what is trained.
        device: where.

    Attributes:
        devices, parameter_device, shared, optimizer, loss_scale, carried: as in `TrainStep`;
            what is carried are the states of Keras's seed generators.
        num_copies: 1.
        graph: None, since `fit` builds its own when it runs.
        model: the model.
        notes: the norm of the latest gradient and the learning rate that was used, [2].
        accuracy: the metric, whose count is the weight.
    """

    def __init__(self, model: keras.Model, task: Task, device: str):
        self.accuracy = compile_model(model, task)
        model.optimizer.build(model.trainable_variables)
        self.notes = note_gradients(model.optimizer)
        self.model = model
        self.devices = (device,)
        self.parameter_device = device
        self.num_copies = 1
        self.graph = None
        self.shared = SharedVariables(model.variables, [])
        self.optimizer = model.optimizer
        self.loss_scale = None
        self.carried = argparse.Namespace(variables=self.shared.seeds)
        self._task = task

    def check_parameters(self) -> None:
        """Does nothing: there is one copy."""

    def batches(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns batches as `fit` takes them."""
        return keras_batches(self._task._replace(dataset=dataset))

    def results(self, logs: dict[str, Any]) -> StepResults:
        """Returns the results of the step that `fit` has done, given what it logs of it alone."""
        norm, learning_rate = tf.unstack(self.notes.value)
        loss, accuracy = (tf.convert_to_tensor(logs[name]) for name in ("loss", "accuracy"))
        weight = tf.identity(self.accuracy.count.value)
        metrics = {"accuracy": accuracy}
        return StepResults(
            loss=loss,
            weight=weight,
            metrics=metrics,
            gradient_norm=norm,
            learning_rate=learning_rate,
            finite=tf.math.is_finite(norm),
            loss_scale=tf.ones([]),
            towers=TowerResults(loss[None], weight[None], {"accuracy": accuracy[None]}, norm[None]),
        )


def note_gradients(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """Returns a variable in which an optimizer's `apply` notes the norm and the learning rate.

    `fit` itself tells neither. The norm is that of the gradient before it is clipped.
    """
    notes = keras.Variable("zeros", shape=(2,), dtype="float32", trainable=False, name="notes")
    apply = optimizer.apply

    def noting(gradients: Sequence[Any], variables: Any = None) -> None:
        dense = [None if part is None else tf.convert_to_tensor(part) for part in gradients]
        rate = tf.cast(optimizer.learning_rate, tf.float32)
        notes.assign(tf.stack([global_norm(dense), rate]))
        apply(gradients, variables)

    optimizer.apply = noting
    return notes


class FitTrainer(Trainer):
    """The training loop by `model.fit`, epoch after epoch, with the same data and actions.

    How long a batch was waited for is a part of its step's time that `fit` does not tell.
    """

    _train_step: Any  # A FitStep in place of a TrainStep.
    _started = 0.0

    def _train_epoch(self, steps: int | None) -> None:
        begin = self.position
        dataset = self._batches(begin.epoch, begin.epoch_step)
        if steps is not None:
            dataset = dataset.take(steps - begin.step)
        callback = keras.callbacks.LambdaCallback(
            on_train_batch_begin=self._begin_step, on_train_batch_end=self._end_step
        )
        self._train_step.model.fit(
            self._train_step.batches(dataset), shuffle=False, verbose=0, callbacks=[callback]
        )

    def _begin_step(self, batch: int, logs: Any = None) -> None:
        self._train_step.model.reset_metrics()  # Else they are means over the epoch so far.
        self._started = time.perf_counter()

    def _end_step(self, batch: int, logs: dict[str, Any]) -> None:
        results = self._train_step.results(logs)
        seconds = time.perf_counter() - self._started
        before, batches = self.position, self._batches
        step, epoch_step = before.step + 1, before.epoch_step + 1
        epoch_end = epoch_step == getattr(batches, "steps_per_epoch")  # noqa: B009
        next_epoch = Position(step, before.epoch + 1, 0)
        same_epoch = Position(step, before.epoch, epoch_step)
        self.position = next_epoch if epoch_end else same_epoch
        self._check_finite()
        self._unchecked = (step, results)
        self._act(StepReport(step, before.epoch, epoch_end, self.position, results, seconds, [0.0]))

    def _check_finite(self) -> None:
        if self._unchecked is None:
            return
        (step, results), self._unchecked = self._unchecked, None
        if not bool(results.finite):
            raise NonFiniteGradientError(
                f"The gradient is not finite at step {step}, and fit has applied it. Go on from "
                "the checkpoint before with the same command; try a lower learning rate, warm-up "
                "or clipping."
            )
