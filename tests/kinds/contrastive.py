"""Representations without labels: their losses mix the rows of a batch, their layers do not."""

from __future__ import annotations

import keras
import tensorflow as tf
from keras import layers, ops

from tests.kinds.registry import (
    Program,
    adam,
    batches,
    dense,
    kind,
    labels,
    pictures,
    sgd,
    tokens,
    told,
    vectors,
)


def noisy(data, seeds, scale=0.1):
    """Returns a view of the data, drawn for the whole batch."""
    return data + scale * keras.random.normal(ops.shape(data), seed=seeds)


def unit(vectors):
    return ops.normalize(vectors, axis=-1)


class Contrastive(keras.Model):
    """An encoder and a head; what `loss_of` returns for two views is the loss."""

    def __init__(self, encoder=None, head=None):
        super().__init__()
        self.encoder = encoder or dense(5, 8, 6)
        self.head = head or dense(6, 6, 4)
        self.seeds = keras.random.SeedGenerator(13)
        self.tracker = keras.metrics.Mean("loss")

    @property
    def metrics(self):
        return [self.tracker]

    def views(self, data):
        return [noisy(data, self.seeds), noisy(data, self.seeds)]

    def train_step(self, data):
        views = self.views(data)
        with tf.GradientTape() as tape:
            loss = self.loss_of(*(self.head(self.encoder(view)) for view in views))
        weights = self.encoder.trainable_weights + self.head.trainable_weights
        gradients = tape.gradient(loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


def contrastive_loss(one, other, temperature=0.3):
    similarities = ops.matmul(unit(one), ops.transpose(unit(other))) / temperature
    own = ops.arange(ops.shape(one)[0])
    return ops.mean(
        keras.losses.sparse_categorical_crossentropy(own, similarities, from_logits=True)
        + keras.losses.sparse_categorical_crossentropy(
            own, ops.transpose(similarities), from_logits=True
        )
    )


class SimClr(Contrastive):
    """Besides the contrast, a linear probe with labels, an optimizer and an accuracy of its own."""

    def __init__(self):
        super().__init__()
        self.probe = dense(6, 3)
        self.accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")

    def compile(self, contrastive_optimizer, probe_optimizer):
        super().compile()
        self.contrastive_optimizer = contrastive_optimizer
        self.probe_optimizer = probe_optimizer

    @property
    def metrics(self):
        return [self.tracker, self.accuracy]

    def train_step(self, data):
        unlabelled, (labelled, targets) = data
        images = ops.concatenate([unlabelled, labelled], 0)
        one, other = self.views(images)
        with tf.GradientTape() as tape:
            loss = contrastive_loss(
                self.head(self.encoder(one, training=True)),
                self.head(self.encoder(other, training=True)),
            )
        weights = self.encoder.trainable_weights + self.head.trainable_weights
        self.contrastive_optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        features = self.encoder(noisy(labelled, self.seeds), training=False)
        with tf.GradientTape() as tape:
            logits = self.probe(features, training=True)
            probe_loss = ops.mean(
                keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True)
            )
        weights = self.probe.trainable_weights
        self.probe_optimizer.apply_gradients(
            zip(tape.gradient(probe_loss, weights), weights, strict=True)
        )
        self.tracker.update_state(loss)
        self.accuracy.update_state(targets, logits)
        return {metric.name: metric.result() for metric in self.metrics}


@kind("own step")
def sim_clr() -> Program:
    model = SimClr()
    model.compile(adam(), adam())
    labelled = batches((vectors(5)[::-1], labels(3)))
    return Program(model, tf.data.Dataset.zip((batches(vectors(5)), labelled)))


class BarlowTwins(Contrastive):
    """The correlations of two views' features over the batch are to be the identity."""

    def loss_of(self, one, other):
        rows = ops.cast(ops.shape(one)[0], one.dtype)
        one, other = self.normal(one), self.normal(other)
        correlations = ops.matmul(ops.transpose(one), other) / rows
        identity = ops.eye(4, dtype=one.dtype)
        weight = identity + 0.05 * (1 - identity)
        return ops.sum(weight * (identity - correlations) ** 2)

    def normal(self, features):
        mean, variance = ops.moments(features, 0)
        return (features - mean) / ops.sqrt(variance + 1e-2)


@kind("own step")
def barlow_twins() -> Program:
    model = BarlowTwins()
    model.compile(adam())
    return Program(model, batches(vectors(5)), {"epochs": 2})


class Nnclr(Contrastive):
    """The positive is the nearest of a queue, in which the newest features replace the oldest."""

    def __init__(self):
        super().__init__()
        draw = keras.random.normal((12, 4), seed=3)
        self.queue = tf.Variable(unit(draw), trainable=False)

    def nearest(self, features):
        similarities = ops.matmul(unit(features), ops.transpose(self.queue))
        found = ops.take(self.queue, ops.argmax(similarities, axis=1), axis=0)
        return features + ops.stop_gradient(found - features)

    def loss_of(self, one, other):
        loss = contrastive_loss(self.nearest(one), other)
        loss += contrastive_loss(self.nearest(other), one)
        rows = ops.shape(one)[0]
        self.queue.assign(ops.concatenate([unit(one), self.queue[: 12 - rows]], 0))
        return loss


@kind("own step")
def nnclr_with_a_queue() -> Program:
    model = Nnclr()
    model.compile(adam())
    return Program(model, batches(vectors(5)), {"epochs": 2})


class SimSiam(Contrastive):
    """A predictor on one view, a stopped gradient on the other."""

    def __init__(self):
        super().__init__(head=dense(6, 6))
        self.predictor = dense(6, 4, 6)

    def train_step(self, data):
        one, other = self.views(data)
        with tf.GradientTape() as tape:
            z1, z2 = (self.head(self.encoder(view)) for view in (one, other))
            p1, p2 = self.predictor(z1), self.predictor(z2)
            loss = -0.5 * (self.agreement(p1, z2) + self.agreement(p2, z1))
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    def agreement(self, predicted, target):
        return ops.mean(ops.sum(unit(predicted) * unit(ops.stop_gradient(target)), 1))


@kind("own step")
def sim_siam() -> Program:
    model = SimSiam()
    model.compile(sgd())
    return Program(model, batches(vectors(5)), {"epochs": 2})


class Moco(Contrastive):
    """A momentum encoder makes the keys; a queue of earlier keys is the negatives."""

    def __init__(self):
        super().__init__(head=dense(6, 4))
        self.key_encoder = keras.models.clone_model(self.encoder)
        self.key_head = keras.models.clone_model(self.head)
        self.key_encoder.trainable = self.key_head.trainable = False
        self.queue = self.add_weight(shape=(10, 4), initializer="glorot_normal", trainable=False)

    def train_step(self, data):
        one, other = self.views(data)
        keys = unit(self.key_head(self.key_encoder(other)))
        with tf.GradientTape() as tape:
            queries = unit(self.head(self.encoder(one)))
            positive = ops.sum(queries * keys, -1, keepdims=True)
            negative = ops.matmul(queries, ops.transpose(unit(self.queue.value)))
            logits = ops.concatenate([positive, negative], 1) / 0.2
            own = ops.zeros((ops.shape(logits)[0],), "int32")
            loss = ops.mean(
                keras.losses.sparse_categorical_crossentropy(own, logits, from_logits=True)
            )
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        for slow, fast in ((self.key_encoder, self.encoder), (self.key_head, self.head)):
            for mean, now in zip(slow.weights, fast.weights, strict=True):
                mean.assign(0.9 * mean + 0.1 * now)
        self.queue.assign(ops.concatenate([keys, self.queue], 0)[:10])
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


@kind("own step")
def moco() -> Program:
    model = Moco()
    model.compile(adam())
    return Program(model, batches(vectors(5)), {"epochs": 2})


class MaskedAutoencoder(keras.Model):
    """Random patches of each picture are hidden in the step; only they count in the loss."""

    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([layers.Dense(6), layers.LayerNormalization()])
        self.attention = layers.MultiHeadAttention(2, 3)
        self.decoder = layers.Dense(4)
        self.token = self.add_weight(shape=(1, 1, 6), initializer="random_normal", name="token")
        self.places = layers.Embedding(9, 6)
        self.seeds = keras.random.SeedGenerator(8)

    def train_step(self, images):
        rows = ops.shape(images)[0]
        patches = ops.image.extract_patches(images, (2, 2))
        patches = ops.reshape(patches, (rows, 9, 4))
        order = ops.argsort(keras.random.uniform((rows, 9), seed=self.seeds), axis=-1)
        hidden, shown = order[:, :6], order[:, 6:]
        with tf.GradientTape() as tape:
            seen = tf.gather(patches, shown, batch_dims=1)
            encoded = self.encoder(seen) + self.places(shown)
            encoded = encoded + self.attention(encoded, encoded)
            asked = self.token + self.places(hidden)
            decoded = self.decoder(ops.concatenate([encoded, asked], 1))[:, 3:]
            loss = self.compiled_loss(tf.gather(patches, hidden, batch_dims=1), decoded)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return told(self, loss)

    def compile(self, optimizer, loss):
        super().compile(optimizer=optimizer)
        self.compiled_loss = loss


@kind("own step")
def masked_autoencoder() -> Program:
    model = MaskedAutoencoder()
    model.compile(adam(), keras.losses.MeanSquaredError())
    return Program(model, batches(pictures(6)))


class DualEncoder(keras.Model):
    """Pictures and captions meet in a matrix of similarities; its soft targets are their own."""

    def __init__(self):
        super().__init__()
        self.picture = keras.Sequential([layers.Flatten(), layers.Dense(5)])
        self.caption = keras.Sequential(
            [layers.Embedding(9, 4, mask_zero=True), layers.LSTM(5), layers.LayerNormalization()]
        )
        self.temperature = self.add_weight(shape=(), initializer="ones", name="temperature")
        self.tracker = keras.metrics.Mean("loss")

    @property
    def metrics(self):
        return [self.tracker]

    def call(self, inputs, training=False):
        return self.caption(inputs["caption"]), self.picture(inputs["picture"])

    def compute_own_loss(self, captions, images):
        logits = ops.matmul(captions, ops.transpose(images)) / self.temperature
        alike = ops.matmul(images, ops.transpose(images))
        alike += ops.matmul(captions, ops.transpose(captions))
        targets = ops.softmax(alike / (2 * self.temperature))
        by_caption = keras.losses.categorical_crossentropy(targets, logits, from_logits=True)
        by_image = keras.losses.categorical_crossentropy(
            ops.transpose(targets), ops.transpose(logits), from_logits=True
        )
        return ops.mean(by_caption + by_image) / 2

    def train_step(self, features):
        with tf.GradientTape() as tape:
            loss = self.compute_own_loss(*self(features, training=True))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    def test_step(self, features):
        self.tracker.update_state(self.compute_own_loss(*self(features)))
        return {"loss": self.tracker.result()}


@kind("own step")
def clip_like_dual_encoder() -> Program:
    model = DualEncoder()
    model.compile(adam())
    data = batches({"picture": pictures(3), "caption": tokens(5, 9)})
    return Program(model, data, {"validation_data": data})


class SupervisedContrast(keras.losses.Loss):
    """All rows of the batch with the same label are positives."""

    def __call__(self, targets, features, sample_weight=None):
        targets = ops.reshape(targets, (-1, 1))
        features = unit(features)
        logits = ops.matmul(features, ops.transpose(features)) / 0.5
        same = ops.cast(ops.equal(targets, ops.transpose(targets)), logits.dtype)
        same = same / ops.sum(same, 1, keepdims=True)
        return ops.mean(keras.losses.categorical_crossentropy(same, logits, from_logits=True))


@kind(couples=True)
def supervised_contrast() -> Program:
    model = dense(5, 8, 4)
    model.compile(adam(), SupervisedContrast())
    return Program(model, batches((vectors(5), labels(3))), {"epochs": 2})


class Metric(keras.Model):
    """Metric learning: anchors and positives of the same batch, judged by `compute_loss`."""

    def train_step(self, data):
        anchors, positives = data[:, 0], data[:, 1]
        with tf.GradientTape() as tape:
            one, other = self(anchors, training=True), self(positives, training=True)
            similarities = ops.einsum("ae,pe->ap", one, other) / 0.2
            own = ops.arange(ops.shape(one)[0])
            loss = self.compute_loss(y=own, y_pred=similarities)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return told(self, loss, own, similarities)


@kind("own step")
def metric_learning() -> Program:
    inputs = keras.Input((5,))
    outputs = layers.UnitNormalization()(dense(5, 8, 4)(inputs))
    model = Metric(inputs, outputs)
    model.compile(adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return Program(model, batches(vectors(10).reshape(24, 2, 5)), {"epochs": 2})


class Scan(keras.Model):
    """Clusters a row as its neighbours: consistency, and the entropy of the batch's clusters."""

    def __init__(self):
        super().__init__()
        self.encoder, self.clusters = dense(5, 6, 4), layers.Dense(3, "softmax")

    def train_step(self, data):
        anchors, neighbours = data
        with tf.GradientTape() as tape:
            one, other = (
                self.clusters(self.encoder(anchors)),
                self.clusters(self.encoder(neighbours)),
            )
            consistency = -ops.mean(ops.log(ops.sum(one * other, 1)))
            shares = ops.mean(one, 0)
            loss = consistency + 2.0 * ops.sum(shares * ops.log(shares))
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss, "consistency": consistency}


@kind("own step")
def clustering_by_neighbours() -> Program:
    model = Scan()
    model.compile(adam())
    x = vectors(5)
    return Program(model, batches((x, x[::-1])))
