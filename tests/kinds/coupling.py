"""Layers and losses that mix the rows of a batch, or look as if they did or did not."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.kinds.registry import Program, adam, batches, dense, kind, labels, sgd, told, vectors

CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy


def classified(loss, rate: float = 0.1) -> Program:
    """Returns a classifier of three classes by a loss of the user's."""
    model = dense(5, 8, 3)
    model.compile(sgd(rate), loss, metrics=["accuracy"])
    return Program(model, batches((vectors(5), labels(3))), {"epochs": 2})


def regressed(loss, model=None) -> Program:
    model = model or dense(5, 8, 1)
    model.compile(sgd(0.05), loss)
    return Program(model, batches((vectors(5), vectors(1))), {"epochs": 2})


def through(layer: keras.layers.Layer, how_loss="mse") -> Program:
    """Returns a regression with a layer between dense ones."""
    parts = [keras.Input((5,)), layers.Dense(6, "tanh"), layer, layers.Dense(1)]
    return regressed(how_loss, keras.Sequential(parts))


def entropy(y_true, y_pred):
    return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


@kind(couples=True)
def class_weights_of_the_batch() -> Program:
    def loss(y_true, y_pred):
        one_hot = ops.one_hot(ops.reshape(y_true, (-1,)), 3)
        shares = ops.mean(one_hot, 0)
        weights = ops.sum(one_hot / (shares + 0.1), -1)
        return entropy(y_true, y_pred) * weights

    return classified(loss)


@kind(couples=True)
def hard_examples() -> Program:
    """The mean of the worst half of the batch's losses."""

    def loss(y_true, y_pred):
        losses = entropy(y_true, y_pred)
        worst, _ = tf.math.top_k(losses, (ops.shape(losses)[0] + 1) // 2)
        return ops.mean(worst)

    return classified(loss)


@kind(couples=True)
def hard_examples_by_a_threshold() -> Program:
    """One loss for each row, but zero below the batch's mean."""

    def loss(y_true, y_pred):
        losses = entropy(y_true, y_pred)
        return ops.where(losses >= ops.stop_gradient(ops.mean(losses)), losses, 0.0)

    return classified(loss)


@kind(couples=True)
def pairwise_ranking() -> Program:
    def loss(y_true, y_pred):
        truth = y_true - ops.transpose(y_true)
        found = y_pred - ops.transpose(y_pred)
        return ops.mean(ops.relu(1.0 - ops.sign(truth) * found), -1)

    return regressed(loss)


@kind(couples=True)
def pearson_loss() -> Program:
    def loss(y_true, y_pred):
        truth, found = y_true - ops.mean(y_true), y_pred - ops.mean(y_pred)
        norms = ops.sum(truth**2) * ops.sum(found**2)
        return 1 - ops.sum(truth * found) / ops.sqrt(norms + 1e-2)

    return regressed(loss)


@kind(couples=True)
def decorrelation() -> Program:
    """Mean squared error, and what outputs other than the first vary together."""

    def loss(y_true, y_pred):
        centred = y_pred - ops.mean(y_pred, 0)
        rows = ops.cast(ops.shape(centred)[0], centred.dtype)
        covariance = ops.matmul(ops.transpose(centred), centred) / rows
        rest = covariance - ops.diag(ops.diag(covariance))
        return ops.mean((y_true - y_pred[:, :1]) ** 2, -1) + ops.sum(rest**2)

    return regressed(loss, dense(5, 8, 3))


@kind(couples=True)
def triplets_of_the_batch() -> Program:
    def loss(y_true, y_pred):
        y_true = ops.reshape(y_true, (-1, 1))
        distances = ops.sum((y_pred[:, None] - y_pred[None]) ** 2, -1)
        same = ops.cast(ops.equal(y_true, ops.transpose(y_true)), distances.dtype)
        farthest = ops.max(distances * same, 1)
        nearest = ops.min(distances + 100.0 * same, 1)
        return ops.mean(ops.relu(farthest - nearest + 1.0))

    return classified(loss, rate=0.02)


class MinibatchDeviation(layers.Layer):
    """The deviation over the batch as one more feature (of progressive and StyleGANs)."""

    def call(self, x):
        deviation = ops.sqrt(ops.var(x, axis=0, keepdims=True) + 1e-3)
        mean = ops.mean(deviation)
        return ops.concatenate([x, ops.broadcast_to(mean, (ops.shape(x)[0], 1))], -1)


@kind(couples=True)
def minibatch_standard_deviation() -> Program:
    return through(MinibatchDeviation())


class OwnBatchNorm(layers.Layer):
    """Batch normalisation by hand, with moving averages."""

    def build(self, input_shape):
        self.mean = self.add_weight(shape=input_shape[-1:], initializer="zeros", trainable=False)
        self.scale = self.add_weight(shape=input_shape[-1:], initializer="ones")

    def call(self, x, training=False):
        if not training:
            return (x - self.mean) * self.scale
        mean, variance = ops.moments(x, 0)
        self.mean.assign(0.9 * self.mean + 0.1 * mean)
        return (x - mean) / ops.sqrt(variance + 0.1) * self.scale


@kind(couples=True)
def own_batch_norm() -> Program:
    return through(OwnBatchNorm())


class OverTheBatch(layers.Layer):
    """Attention whose keys are the other rows."""

    def __init__(self):
        super().__init__()
        self.query, self.key = layers.Dense(4), layers.Dense(4)

    def call(self, x):
        scores = ops.matmul(self.query(x), ops.transpose(self.key(x)))
        return x + ops.matmul(ops.softmax(scores), x)


@kind(couples=True)
def attention_over_the_batch() -> Program:
    return through(OverTheBatch())


class ByTheMaximum(layers.Layer):
    """Divides by the largest number of the batch."""

    def call(self, x):
        return x / ops.max(ops.abs(x))


@kind(couples=True)
def scaling_by_the_maximum_of_the_batch() -> Program:
    return through(ByTheMaximum())


class Balanced(layers.Layer):
    """A gate between experts whose load over the batch is an added loss."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = layers.Dense(3, "softmax"), layers.Dense(18, "relu")

    def call(self, x):
        shares = self.gate(x)
        load = ops.mean(shares, 0)
        chosen = ops.mean(ops.one_hot(ops.argmax(shares, -1), 3, dtype=x.dtype), 0)
        self.add_loss(0.5 * 3 * ops.sum(load * chosen))
        outputs = ops.reshape(self.experts(x), (-1, 3, 6))
        return ops.sum(outputs * shares[..., None], 1)


@kind(couples=True)
def load_balancing_added_loss() -> Program:
    return through(Balanced())


class AveragedBook(layers.Layer):
    """A codebook without gradients: averages of sums over the batch's vectors (VQ-VAE-2)."""

    def build(self, input_shape):
        width = input_shape[-1]
        self.book = self.add_weight(shape=(4, width), initializer="uniform", trainable=False)
        self.counts = self.add_weight(shape=(4,), initializer="ones", trainable=False)
        self.sums = self.add_weight(shape=(4, width), initializer="uniform", trainable=False)

    def call(self, x, training=False):
        distances = ops.sum((x[:, None] - self.book.value[None]) ** 2, -1)
        one_hot = ops.one_hot(ops.argmin(distances, 1), 4, dtype=x.dtype)
        chosen = ops.matmul(one_hot, self.book.value)
        if training:
            self.counts.assign(0.8 * self.counts + 0.2 * ops.sum(one_hot, 0))
            self.sums.assign(0.8 * self.sums + 0.2 * ops.matmul(ops.transpose(one_hot), x))
            self.book.assign(self.sums / (self.counts[:, None] + 1e-2))
        self.add_loss(0.25 * ops.mean((x - ops.stop_gradient(chosen)) ** 2))
        return x + ops.stop_gradient(chosen - x)


@kind(couples=True)
def codebook_of_averages() -> Program:
    return through(AveragedBook())


class Prototypes(layers.Layer):
    """As many prototypes as a batch has rows: equal sizes that mean different things."""

    def build(self, input_shape):
        self.prototypes = self.add_weight(shape=(8, input_shape[-1]), initializer="glorot_normal")

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.prototypes))


@kind()
def prototypes_as_many_as_rows() -> Program:
    return through(Prototypes())


class Matched(keras.Model):
    """Rows of the batch and prototypes are both handed to a layer, which takes each as it is."""

    def __init__(self):
        super().__init__()
        self.body, self.meet = dense(5, 6, 4), Meet()
        self.prototypes = self.add_weight(shape=(8, 4), initializer="glorot_normal", name="p")

    def call(self, x):
        return self.meet(self.body(x), ops.convert_to_tensor(self.prototypes))


class Meet(layers.Layer):
    """Distances of each row to each prototype."""

    def __init__(self):
        super().__init__()
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, x, prototypes):
        return -self.scale * ops.sum((x[:, None] - prototypes[None]) ** 2, -1)


@kind()
def prototypes_handed_to_a_layer() -> Program:
    model = Matched()
    model.compile(sgd(0.02), CROSS_ENTROPY(from_logits=True), metrics=["accuracy"])
    return Program(model, batches((vectors(5), labels(8))), {"epochs": 2})


class Storing(layers.Layer):
    """Keeps what it computed as an attribute, for the step to read."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(4, "tanh")

    def call(self, x):
        self.z = self.dense(x)
        return ops.sum(self.z, -1, keepdims=True)


class ReadsStored(keras.Model):
    """Its loss takes what the layer stored."""

    def __init__(self):
        super().__init__()
        self.part = Storing()

    def call(self, x):
        return self.part(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = ops.mean((y - self(x, training=True)) ** 2) + ops.mean(self.part.z**2)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return told(self, loss)


@kind("own step")
def layer_that_stores_what_it_computed() -> Program:
    model = ReadsStored()
    model.compile(sgd(0.05))
    return Program(model, batches((vectors(5), vectors(1))), {"epochs": 2})


class MixUpLayer(layers.Layer):
    """Mixes each row with another of the batch, by a random permutation."""

    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, x, training=False):
        if not training:
            return x
        order = keras.random.shuffle(ops.arange(ops.shape(x)[0]), seed=self.seeds)
        return 0.7 * x + 0.3 * ops.take(x, order, 0)


@kind(random_inside=True, couples=True)
def mixup_as_a_layer() -> Program:
    return through(MixUpLayer())


@kind(random_inside=True, couples=True)
def mixup_layer_of_keras() -> Program:
    data = batches({"images": vectors(48).reshape(24, 4, 4, 3), "labels": np.eye(3)[labels(3)]})
    mix = layers.MixUp(seed=3)
    network = keras.Sequential([layers.Flatten(), layers.Dense(3)])

    class Mixed(keras.Model):
        def __init__(self):
            super().__init__()
            self.mix, self.network = mix, network

        def train_step(self, data):
            mixed = self.mix(data, training=True)
            with tf.GradientTape() as tape:
                logits = self.network(mixed["images"])
                losses = keras.losses.categorical_crossentropy(
                    mixed["labels"], logits, from_logits=True
                )
                loss = ops.mean(losses)
            weights = self.network.trainable_variables
            self.optimizer.apply(tape.gradient(loss, weights), weights)
            return told(self, loss)

    model = Mixed()
    model.compile(sgd())
    return Program(model, data)


@kind(couples=True)
def batch_hardness_as_a_weight() -> Program:
    """A step that weighs rows by a softmax of their losses."""

    class Weighs(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            losses = entropy(y, y_pred)
            return ops.sum(losses * ops.stop_gradient(ops.softmax(losses)))

    body = dense(5, 8, 3)
    model = Weighs(body.inputs, body.outputs)
    model.compile(adam(), metrics=["accuracy"])
    return Program(model, batches((vectors(5), labels(3))), {"epochs": 2})


@kind(couples=True)
def mean_of_the_batch_within_a_deep_model() -> Program:
    """One layer of a nested model couples; the others around it do not."""

    class Centred(layers.Layer):
        def call(self, x):
            return x - ops.mean(x, 0, keepdims=True)

    inputs = keras.Input((5,))
    inner = keras.Sequential(
        [keras.Input((6,)), layers.Dense(6, "tanh"), Centred(), layers.Dense(4)]
    )
    model = keras.Model(inputs, layers.Dense(1)(inner(layers.Dense(6, "tanh")(inputs))))
    return regressed("mse", model)
