"""Tiny models, their tower functions, and the plain loop that every tower step must equal."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from towers.travel import collectives

NUM_CLASSES = 3
VOCABULARY_SIZE = 11
COLLECTIVE_SECONDS = 240.0  # After which a sum by collective ops that hangs is an error.


def newer_keras(reason: str) -> pytest.MarkDecorator:
    """Returns the mark of a test that Keras 3.12, the last one for Python 3.10, cannot pass."""
    return pytest.mark.skipif(keras.__version__.startswith("3.12."), reason=f"Keras 3.12 {reason}")


class LookupTable(keras.layers.Layer):
    """An embedding that is gathered through its variable's handle."""

    def build(self, input_shape=None):
        self.table = self.add_weight(
            shape=(VOCABULARY_SIZE, 4), initializer="uniform", name="table", autocast=False
        )

    def call(self, token_ids):
        return tf.gather(self.table.value, token_ids)


def dense_model() -> keras.Model:
    inputs = keras.Input((5,))
    hidden = keras.layers.Dense(8, activation="tanh", name="hidden")(inputs)
    return keras.Model(inputs, keras.layers.Dense(NUM_CLASSES, name="logits")(hidden))


def recurrent_model(embedding: keras.layers.Layer) -> keras.Model:
    """Token ids [batch, length] to logits [batch, length, classes].

    With the layer that is traced fastest of those with a loop; LSTMs are in the laws of the models.
    """
    token_ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.SimpleRNN(6, return_sequences=True, name="rnn")(embedding(token_ids))
    return keras.Model(token_ids, keras.layers.Dense(NUM_CLASSES, name="logits")(hidden))


def dense_batches(batch_sizes, *, dtype="float32", seed=0):
    """Batches (inputs float [batch, 5], labels int32 [batch])."""
    random = np.random.default_rng(seed)
    return [
        (random.normal(size=(size, 5)).astype(dtype), random.integers(0, 3, size).astype("int32"))
        for size in batch_sizes
    ]


def token_batches(batch_sizes, *, seed=0):
    """Batches (token ids int32 [batch, length], labels like them); 0 is padding.

    Lengths differ, so that shards of equal size hold different numbers of tokens.
    """
    random = np.random.default_rng(seed)
    batches = []
    for size in batch_sizes:
        token_ids = random.integers(1, VOCABULARY_SIZE, (size, 6)).astype("int32")
        lengths = random.integers(1, 7, size)
        token_ids[np.arange(6) >= lengths[:, None]] = 0
        batches.append((token_ids, random.integers(0, 3, (size, 6)).astype("int32")))
    return batches


def classify(model: keras.Model, *, training: bool = False):
    """The tower function of a classifier: one loss per example."""

    def tower_fn(batch):
        inputs, labels = batch
        logits = model(inputs, training=training)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        weight = tf.cast(tf.size(labels), losses.dtype)
        correct = tf.equal(tf.argmax(logits, -1, tf.int32), labels)
        penalty = weight * sum(model.losses) if model.losses else 0.0
        return tf.reduce_sum(losses) + penalty, weight, {"accuracy": count(correct, losses)}

    return tower_fn


def tag(model: keras.Model):
    """The tower function of a tagger: one loss per token that is not padding."""

    def tower_fn(batch):
        token_ids, labels = batch
        logits = model(token_ids)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        mask = tf.cast(token_ids > 0, losses.dtype)
        correct = tf.equal(tf.argmax(logits, -1, tf.int32), labels) & (token_ids > 0)
        return (
            tf.reduce_sum(losses * mask),
            tf.reduce_sum(mask),
            {"accuracy": count(correct, losses)},
        )

    return tower_fn


def count(flags, like):
    return tf.reduce_sum(tf.cast(flags, like.dtype))


def dataset_of(batches) -> tf.data.Dataset:
    """A data set of the given batches, whose sizes may differ; nothing is traced for it."""
    datasets = map(tf.data.Dataset.from_tensors, batches)
    return functools.reduce(tf.data.Dataset.concatenate, datasets)


def tower_devices(num_towers: int) -> list[str]:
    """Virtual CPUs 1, 2, ...: the parameters' CPU 0 is a device of its own."""
    return [f"/CPU:{index + 1}" for index in range(num_towers)]


def train_on_towers(tower_fn, model, optimizer, batches, num_towers, **options):
    """Trains on towers and returns (weights, the results of every step)."""
    step, shards = build_step(tower_fn, model, optimizer, batches, num_towers, **options)
    results = [step(tuple_of_shards, number) for number, tuple_of_shards in enumerate(shards, 1)]
    return weights_of(model), results


def build_step(tower_fn, variables, optimizer, batches, num_towers, **options):
    """Returns a step on towers and the shards of every batch."""
    first = tf.data.Dataset.from_tensors(batches[0])  # Specs of any number of rows follow from it.
    step = build_step_for(tower_fn, variables, optimizer, first, num_towers, **options)
    tensors = tf.nest.map_structure(tf.convert_to_tensor, list(batches))
    return step, [towers.engine.split_batch(batch, num_towers) for batch in tensors]


def build_step_for(
    tower_fn, variables, optimizer, batches, num_towers, *,
    parameters="auto", processes=None, **options,
):  # fmt: skip
    """Returns a step on towers for a data set of batches.

    Unless it is asked for, without the probe, a trace more: it has tests of its own.
    """
    return towers.build_train_step(
        tower_fn,
        variables,
        optimizer,
        tower_placement(num_towers, parameters),
        batches,
        towers.StepOptions(**{"probe": False, **options}),
        processes,
    )


def tower_placement(num_towers: int, parameters: str = "auto") -> towers.Placement:
    """Towers on virtual CPUs; `nccl` stands for copies that are summed by collective ops."""
    if parameters == "nccl":
        collectives.LIMIT = COLLECTIVE_SECONDS
        return towers.Placement(tower_devices(num_towers), exchange="nccl")
    return towers.Placement(tower_devices(num_towers), parameters)


def make_trainer(step, batches, actions=(), **options) -> towers.Trainer:
    """Returns the trainer of a synchronous step."""
    updates = towers.steps.SynchronousUpdates(step, batches, **options)
    return towers.Trainer.making(updates, actions)


def make_async_trainer(step, batches, actions=(), **options) -> towers.Trainer:
    """Returns the trainer of an asynchronous step."""
    updates = towers.steps.AsynchronousUpdates(step, batches, **options)
    return towers.Trainer.making(updates, actions)


class OneOfTwo(towers.processes.Processes):
    """One of two processes; what the other one adds to a sum, and shares, is up to the test."""

    def __init__(self, add=lambda nest: nest, *, index: int = 0, shares=()):
        super().__init__(count=2, index=index)
        self.add, self._shares = add, list(shares)

    def sum(self, nest):
        return self.add(nest)

    def share(self, data, what=""):
        other = self._shares.pop(0)
        pair = [data, other(data) if callable(other) else other]
        return pair if self.index == 0 else pair[::-1]

    def forget_stop_requests(self):
        """There are none."""

    def stop_requests(self):
        return []


def train_plainly(tower_fn, model, optimizer, batches, *, clip_norm=None):
    """The loop that a textbook has: tape, mean loss, clip, apply. Returns (weights, losses)."""
    losses = []
    for batch in batches:
        with tf.GradientTape() as tape:
            loss_sum, weight, _ = tower_fn(tf.nest.map_structure(tf.constant, batch))
            loss = loss_sum / weight
        found = tape.gradient(loss, [v.value for v in model.trainable_variables])
        gradients = [
            tf.zeros_like(variable.value) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, variable in zip(found, model.trainable_variables, strict=True)
        ]
        if clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, clip_norm)
        optimizer.apply(gradients, model.trainable_variables)
        losses.append(float(loss))
    return weights_of(model), losses


def weights_of(model: keras.Model) -> list[np.ndarray]:
    return [variable.value.numpy() for variable in model.weights]


def assert_same_weights(actual, expected, *, float64=False):
    """Law 1's tolerance: a part of the model's largest weight."""
    largest = max(np.abs(array).max() for array in expected)
    tolerance = (1e-12 if float64 else 1e-6) * largest
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)
