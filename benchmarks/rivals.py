"""Other ways to train the same recipe, written as their own users would write them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

import towers
from benchmarks.foreign import compile_for_fit, foreign_run, keras_run, timed_arrays
from benchmarks.made import RECIPES
from towers.ground.special_ids import PAD, UNKNOWN
from towers.models import answering
from towers.scripts.timing.apart import TimedRun
from towers.scripts.timing.steps import Contender
from towers.scripts.timing.task import Task
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.session import carried_state
from towers.scripts.wrong_input import nearest


def rivals_of(names: Sequence[str], num_replicas: int) -> list[Contender]:
    """Returns the rivals of these names, each to be timed in a process of its own.

    Raises:
        ValueError: a name is not in `RIVALS`.
    """
    found = []
    for name in names:
        if name not in RIVALS:
            raise ValueError(f"There is no rival {name!r}.{nearest(name, RIVALS)}")
        numbers = {"towers_fit": (1, num_replicas)}.get(name, (1,))
        if name.startswith("mirrored"):
            numbers = (num_replicas,)
        for number in numbers:
            label = name if numbers == (1,) else f"{name} {number}"
            build = functools.partial(build_rival, name=name, num_replicas=number)
            found.append(Contender(label, number, build, alone=True))
    return found


def build_rival(task: Task, name: str, num_replicas: int) -> TimedRun:
    """Returns one of the other ways, ready to be timed."""
    return RIVALS[name](task, task.devices[:num_replicas])


def plain(task: Task, devices: Sequence[str]) -> TimedRun:
    """A hand-written tf.function: tape, mean loss, metrics, apply."""
    with towers.Placement(devices[:1]).scope():
        model = task.make_model()
        optimizer = task.make_optimizer()
        optimizer.build(model.trainable_variables)
    tower_fn = stateless_fn(task, model)

    (any_batch_size,) = towers.engine.shard_specs(task.dataset, 1)

    @tf.function(input_signature=[any_batch_size.batch], autograph=False)
    def step(batch: Any) -> tuple[tf.Tensor, Any]:
        with tf.GradientTape() as tape:
            loss_sum, weight, metrics = tower_fn(batch)
            loss = loss_sum / weight
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        optimizer.apply(clip(gradients, task.recipe), model.trainable_variables)
        return loss, metrics

    return timed_loop(step, task.dataset)


def mirrored(task: Task, devices: Sequence[str]) -> TimedRun:
    """A hand-written step under `tf.distribute.MirroredStrategy`; Keras's own optimizer."""
    strategy = tf.distribute.MirroredStrategy(list(devices))
    with strategy.scope():  # Which mirrors the variables.
        model = task.make_model()
        optimizer = stock_optimizer(task.make_optimizer())
        optimizer.build(model.trainable_variables)
    tower_fn = stateless_fn(task, model)

    def replica_step(batch: Any) -> tuple[tf.Tensor, Any]:
        replicas: Any = tf.distribute.get_replica_context()
        with tf.GradientTape() as tape:
            loss_sum, weight, metrics = tower_fn(batch)
            loss = loss_sum / replicas.all_reduce(tf.distribute.ReduceOp.SUM, weight)
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        optimizer.apply(clip(gradients, task.recipe), model.trainable_variables)
        return loss, metrics

    @tf.function(autograph=False)
    def step(batch: Any) -> tuple[tf.Tensor, Any]:
        def total(parts: Any) -> tf.Tensor:
            return strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None)

        return tf.nest.map_structure(total, strategy.run(replica_step, args=(batch,)))

    return timed_loop(step, strategy.experimental_distribute_dataset(task.dataset))


def fit(task: Task, devices: Sequence[str]) -> TimedRun:
    """Keras's `model.fit` on the default device, with Keras's own optimizer and defaults.

    A made-up task has arrays, as most users of `fit` do.
    """
    if task.recipe.name in RECIPES:
        return keras_run(*made_up(task))
    return timed_fit(compiled_model(task), keras_batches(task.recipe, task.dataset))


def mirrored_fit(task: Task, devices: Sequence[str]) -> TimedRun:
    """Keras's `model.fit` under `tf.distribute.MirroredStrategy`."""
    with tf.distribute.MirroredStrategy(list(devices)).scope():
        model = compiled_model(task)
    return timed_fit(model, keras_batches(task.recipe, task.dataset))


def towers_fit(task: Task, devices: Sequence[str]) -> TimedRun:
    """`towers.fit` on the arrays of a made-up task."""
    name, batch_size, steps_per_call = made_up(task)
    model = task.make_model()
    compile_for_fit(model, steps_per_call)
    train = functools.partial(towers.fit, model, towers=devices)
    return timed_arrays(train, name, batch_size, steps_per_call)


def torch(task: Task, devices: Sequence[str]) -> TimedRun:
    """A hand-written loop in PyTorch."""
    return foreign_run("torch", *made_up(task))


def jax(task: Task, devices: Sequence[str]) -> TimedRun:
    """Keras's `model.fit` on JAX."""
    return foreign_run("jax", *made_up(task))


def made_up(task: Task) -> tuple[str, int, int]:
    """Returns name, batch size and steps in a call; raises ValueError for any other recipe."""
    name, fields = task.recipe.name, task.recipe.fields
    if name not in RECIPES:
        raise ValueError(f"This way takes {', '.join(RECIPES)}. Received {name}.")
    return name, fields.batch_size, fields.steps_per_call


RIVALS = {one.__name__: one for one in (plain, fit, mirrored, mirrored_fit, towers_fit, torch, jax)}
LIBRARIES = ("torch", "jax")


def stateless_fn(task: Task, model: keras.Model) -> Callable:
    """Returns the tower function without carried states: each batch begins with zeros."""
    tower_fn = task.make_tower_fn(model)
    carried = carried_state(task.recipe, model, task.data.train)
    if carried is None:
        return tower_fn

    def run(batch: Any) -> tuple:
        rows = tf.shape(tf.nest.flatten(batch)[0])[0]
        state = tf.nest.map_structure(
            lambda spec: tf.zeros(tf.stack([rows, *spec.shape]), spec.dtype), carried.specs
        )
        return tower_fn(batch, state)[:3]

    return run


def keras_batches(recipe: Recipe, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns batches as `fit` takes them: of text with a weight of 1 for each label that counts.

    No state is carried from batch to batch.
    """
    if not recipe.command:
        return dataset

    def continued(inputs: Any, targets: Any, *_: Any) -> tuple[Any, Any, Any]:
        return inputs, targets, tf.cast(targets != PAD, tf.float32)

    def answered(question: Any, answer: Any) -> tuple[Any, Any, Any]:
        counted = (answer != PAD) & (answer != UNKNOWN)
        inputs = (question, answering.decoder_inputs(answer))
        return inputs, answer, tf.cast(counted, tf.float32)

    return dataset.map(continued if recipe.command == "generate" else answered)


def compiled_model(task: Task) -> keras.Model:
    """Returns the recipe's model, ready for `fit`."""
    model = task.make_model()
    compile_model(model, task.recipe, task.make_optimizer())
    return model


def compile_model(
    model: keras.Model, recipe: Recipe, optimizer: keras.optimizers.Optimizer
) -> None:
    """Makes a model ready for `fit`: the loss is the mean over the labels that count, as on towers.

    Keras's own optimizer of the same algorithm trains it.
    """
    norm = recipe.fields.clip_norm or None
    model.compile(
        optimizer=stock_optimizer(optimizer, global_clipnorm=norm),
        loss=keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        ),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    )


def stock_optimizer(
    optimizer: keras.optimizers.Optimizer, **options: Any
) -> keras.optimizers.Optimizer:
    """Returns Keras's own optimizer of the same algorithm and settings."""
    stock: Any = next(c for c in type(optimizer).__mro__ if c.__module__.startswith("keras."))
    config = {**optimizer.get_config(), **options}
    config.pop("lazy", None)
    return stock.from_config(config)


def clip(gradients: list[Any], recipe: Recipe) -> list[Any]:
    """Returns the gradients clipped to the recipe's norm, if it has one."""
    norm = recipe.fields.clip_norm
    return tf.clip_by_global_norm(gradients, norm)[0] if norm else gradients


def timed_loop(step: Callable[[Any], tuple[tf.Tensor, Any]], dataset: Iterable[Any]) -> TimedRun:
    """Returns a run with an iterator of its own, as the towers and `fit` have one an epoch.

    Args:
        step: takes a batch and returns its loss and its metrics, which all ways compute.
        dataset: the batches, endless.
    """

    def run(num_steps: int) -> float:
        batches = iter(dataset)
        loss, _ = step(next(batches))
        float(loss)
        started = time.perf_counter()
        for _ in range(num_steps - 1):
            loss, _ = step(next(batches))
        float(loss)  # Waits for the devices.
        return time.perf_counter() - started

    return run


def timed_fit(model: keras.Model, dataset: tf.data.Dataset) -> TimedRun:
    """Returns a run by `fit`, timed from the end of its first step to the end of its last."""

    def run(num_steps: int) -> float:
        ends: list[float] = []
        note = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter())
        )
        model.fit(dataset, steps_per_epoch=num_steps, shuffle=False, verbose=0, callbacks=[note])
        return ends[-1] - ends[0]

    return run
