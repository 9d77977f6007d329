"""Networks for tables, time series, points and graphs, and generative ones."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.laws.zoo.members import Batch, Member, classified, pictures, regressed, series


class Autoencoder(keras.Model):
    """Kingma and Welling 2014; its noise is part of the batch."""

    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([layers.Flatten(), layers.Dense(6, activation="tanh")])
        self.mean, self.log_variance = layers.Dense(2), layers.Dense(2)
        self.decoder = keras.Sequential([layers.Dense(6, activation="tanh"), layers.Dense(16)])

    def call(self, inputs):
        hidden = self.encoder(inputs["x"])
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        code = mean + ops.exp(0.5 * log_variance) * inputs["noise"]
        return self.decoder(code), mean, log_variance


def noisy(random: np.random.Generator, rows: int) -> Batch:
    """Data: pictures and the noise of their codes."""
    return {"x": random.random((rows, 4, 4)), "noise": random.normal(size=(rows, 2))}


def evidence(model: keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """The negative evidence lower bound."""
    logits, mean, log_variance = model(batch)
    pixels = tf.reshape(batch["x"], [-1, 16])
    errors = tf.nn.sigmoid_cross_entropy_with_logits(pixels, logits)
    divergence = tf.square(mean) + tf.exp(log_variance) - 1 - log_variance
    return tf.reduce_sum(errors, -1) + 0.5 * tf.reduce_sum(divergence, -1)


class Quantized(keras.Model):
    """Van den Oord et al. 2017: codes of a table, straight-through gradients."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = layers.Dense(3), layers.Dense(5)

    def build(self, shape):
        self.encoder.build(shape)
        self.decoder.build((None, 3))
        self.codes = self.add_weight(shape=(4, 3), initializer="uniform", name="codes")

    def call(self, inputs):
        hidden = self.encoder(inputs)
        distances = ops.sum(ops.square(hidden[:, None] - self.codes), -1)
        chosen = ops.take(self.codes, ops.argmin(distances, -1), axis=0)
        return self.decoder(hidden + ops.stop_gradient(chosen - hidden)), hidden, chosen


def rows_of_five(random: np.random.Generator, rows: int) -> Batch:
    """Data: five numbers."""
    return {"x": random.normal(size=(rows, 5))}


def quantized(model: keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """Reconstruction, codes to inputs, inputs to codes."""
    restored, hidden, chosen = model(batch["x"])
    to_codes = tf.square(tf.stop_gradient(hidden) - chosen)
    to_inputs = tf.square(hidden - tf.stop_gradient(chosen))
    errors = tf.square(batch["x"] - restored)
    return tf.reduce_mean(errors, -1) + tf.reduce_sum(to_codes + 0.25 * to_inputs, -1)


def table(random: np.random.Generator, rows: int) -> Batch:
    """Data: categories, numbers and a binary label."""
    return {
        "categories": random.integers(0, 5, (rows, 3)).astype("int32"),
        "numbers": random.normal(size=(rows, 4)),
        "y": random.integers(0, 2, (rows, 1)).astype("float64"),
    }


def bought(model: keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """Binary cross-entropy of `y`, by logits."""
    logits = model({"categories": batch["categories"], "numbers": batch["numbers"]})
    return keras.losses.binary_crossentropy(batch["y"], logits, from_logits=True)


def table_inputs() -> dict[str, keras.KerasTensor]:
    return {
        "categories": keras.Input((3,), dtype="int32", name="categories"),
        "numbers": keras.Input((4,), name="numbers"),
    }


def tab_transformer() -> keras.Model:
    """Huang et al. 2020."""
    inputs = table_inputs()
    hidden = layers.Embedding(5, 4)(inputs["categories"])
    hidden = layers.LayerNormalization()(hidden + layers.MultiHeadAttention(2, 2)(hidden, hidden))
    joined = layers.Concatenate()(
        [layers.Flatten()(hidden), layers.LayerNormalization()(inputs["numbers"])]
    )
    return keras.Model(inputs, layers.Dense(1)(layers.Dense(8, activation="selu")(joined)))


def wide_and_deep() -> keras.Model:
    """Cheng et al. 2016, with crosses (Wang et al. 2017)."""
    inputs = table_inputs()
    encoded = layers.CategoryEncoding(5, output_mode="multi_hot")(inputs["categories"])
    first = crossed = layers.Concatenate()([encoded, inputs["numbers"]])
    for _ in range(2):
        crossed = first * layers.Dense(9)(crossed) + crossed
    deep = layers.Dense(6, activation="relu")(first)
    return keras.Model(inputs, layers.Dense(1)(layers.Concatenate()([crossed, deep])))


class Recommender(keras.Model):
    """Users and items as vectors with biases (Koren et al. 2009)."""

    def __init__(self):
        super().__init__()
        self.users = layers.Embedding(6, 3, embeddings_regularizer="l2")
        self.items = layers.Embedding(7, 3, embeddings_regularizer="l2")
        self.biases = layers.Embedding(7, 1)

    def call(self, pairs):
        users, items = self.users(pairs[:, 0]), self.items(pairs[:, 1])
        return ops.sum(users * items, -1, keepdims=True) + self.biases(pairs[:, 1])


def ratings(random: np.random.Generator, rows: int) -> Batch:
    """Data: users, items and what the one thinks of the other."""
    return {
        "x": random.integers(0, 6, (rows, 2)).astype("int32"),
        "y": random.integers(1, 6, (rows, 1)).astype("float64"),
    }


def forecaster() -> keras.Model:
    """A Transformer's encoder over a time series."""
    inputs = keras.Input((6, 3))
    normed = layers.LayerNormalization()(inputs)
    hidden = inputs + layers.MultiHeadAttention(2, 4)(normed, normed)
    hidden = hidden + layers.Conv1D(3, 1)(layers.Conv1D(4, 1, activation="relu")(hidden))
    return keras.Model(inputs, layers.Dense(1)(layers.Flatten()(hidden)))


def dilated() -> keras.Model:
    """Van den Oord et al. 2016: dilated causal convolutions with gates."""
    inputs = keras.Input((8, 2))
    hidden, skipped = layers.Conv1D(4, 1)(inputs), []
    for rate in (1, 2, 4):
        options = {"padding": "causal", "dilation_rate": rate}
        kept = layers.Conv1D(4, 2, activation="tanh", **options)(hidden)
        gate = layers.Conv1D(4, 2, activation="sigmoid", **options)(hidden)
        skipped.append(layers.Conv1D(4, 1)(kept * gate))
        hidden = hidden + skipped[-1]
    return keras.Model(inputs, layers.Conv1D(1, 1)(layers.Add()(skipped)))


def next_frame() -> keras.Model:
    """Shi et al. 2015: an LSTM whose products are convolutions."""
    inputs = keras.Input((3, 5, 5, 1))
    hidden = layers.ConvLSTM2D(3, 3, padding="same", return_sequences=True)(inputs)
    hidden = layers.LayerNormalization()(hidden)
    return keras.Model(inputs, layers.Conv3D(1, 3, padding="same")(hidden))


def frames(random: np.random.Generator, rows: int) -> Batch:
    """Data: short films, and the frames that come next."""
    film = random.normal(size=(rows, 4, 5, 5, 1))
    return {"x": film[:, :-1], "y": film[:, 1:]}


def point_net() -> keras.Model:
    """Qi et al. 2017, with its learned transform and the penalty of it."""
    points = keras.Input((6, 3))
    found = layers.GlobalMaxPooling1D()(layers.Conv1D(6, 1, activation="relu")(points))
    transform = layers.Dense(9, bias_initializer=keras.initializers.Constant(np.eye(3).ravel()))
    turned = layers.Dot(axes=(2, 1))([points, layers.Reshape((3, 3))(transform(found))])
    hidden = layers.BatchNormalization()(layers.Conv1D(8, 1, activation="relu")(turned))
    return keras.Model(points, layers.Dense(4)(layers.GlobalMaxPooling1D()(hidden)))


def points(random: np.random.Generator, rows: int) -> Batch:
    """Data: clouds of points and their labels."""
    return {"x": random.normal(size=(rows, 6, 3)), "y": random.integers(0, 4, rows)}


def graph_network() -> keras.Model:
    """Kipf and Welling 2017: nodes hear of their neighbours."""
    nodes, edges = keras.Input((5, 3), name="nodes"), keras.Input((5, 5), name="edges")
    hidden = nodes
    for _ in range(2):
        hidden = layers.Dot(axes=(2, 1))([edges, layers.Dense(6, activation="relu")(hidden)])
    inputs = {"nodes": nodes, "edges": edges}
    return keras.Model(inputs, layers.Dense(4)(layers.GlobalAveragePooling1D()(hidden)))


def graphs(random: np.random.Generator, rows: int) -> Batch:
    """Data: the nodes and edges of graphs, and their labels."""
    edges = random.integers(0, 2, (rows, 5, 5)) + np.eye(5)
    return {
        "nodes": random.normal(size=(rows, 5, 3)),
        "edges": edges / edges.sum(-1, keepdims=True),
        "y": random.integers(0, 4, rows),
    }


def graphs_classified(model: keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """Cross-entropy with the graph's label."""
    logits = model({"nodes": batch["nodes"], "edges": batch["edges"]})
    return keras.losses.sparse_categorical_crossentropy(batch["y"], logits, from_logits=True)


def density() -> keras.Model:
    """Bishop 1994: a mixture of densities."""
    inputs = keras.Input((2,))
    hidden = layers.Dense(6, activation="tanh")(inputs)
    outputs = [layers.Dense(3)(hidden) for _ in range(3)]
    return keras.Model(inputs, outputs)


def likelihood(model: keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """The negative log-likelihood of `y`."""
    logits, means, log_scales = model(batch["x"])
    distances = (batch["y"] - means) * tf.exp(-log_scales)
    parts = tf.nn.log_softmax(logits) - log_scales - 0.5 * tf.square(distances)
    return -tf.reduce_logsumexp(parts, -1)


def pairs(random: np.random.Generator, rows: int) -> Batch:
    """Data: two numbers and one."""
    return {"x": random.normal(size=(rows, 2)), "y": random.normal(size=(rows, 1))}


def radiance_field() -> keras.Model:
    """Mildenhall et al. 2020: a place, in waves of many lengths, to a colour and a density."""
    inputs = keras.Input((3,))
    waves = layers.Lambda(
        lambda x: ops.concatenate([f(2.0**i * x) for i in range(3) for f in (ops.sin, ops.cos)], -1)
    )(inputs)
    hidden = layers.Dense(8, activation="relu")(waves)
    hidden = layers.Dense(8, activation="relu")(layers.Concatenate()([hidden, waves]))
    return keras.Model(inputs, layers.Dense(4)(hidden))


def places(random: np.random.Generator, rows: int) -> Batch:
    """Data: places, and their colours and densities."""
    return {"x": random.normal(size=(rows, 3)), "y": random.random((rows, 4))}


class Latents(layers.Layer):
    """Jaegle et al. 2021: a few learned vectors attend to many inputs."""

    def build(self, shape):
        self.vectors = self.add_weight(shape=(2, shape[-1]), initializer="uniform", name="vectors")
        self.attend = layers.MultiHeadAttention(1, 4)
        self.attend.build((None, 2, shape[-1]), shape)

    def call(self, inputs):
        rows = ops.shape(inputs)[0]
        queries = ops.broadcast_to(self.vectors, (rows, *self.vectors.shape))
        return self.attend(queries, inputs)


def perceiver() -> keras.Model:
    """Latent vectors over the pixels of a picture."""
    inputs = keras.Input((4, 4, 3))
    hidden = Latents()(layers.Reshape((16, 3))(inputs))
    return keras.Model(inputs, layers.Dense(4)(layers.Flatten()(hidden)))


MEMBERS = {
    "variational_autoencoder": Member(Autoencoder, noisy, evidence),
    "vector_quantized": Member(Quantized, rows_of_five, quantized),
    "tab_transformer": Member(tab_transformer, table, bought),
    "wide_and_deep": Member(wide_and_deep, table, bought),
    "recommender": Member(Recommender, ratings, regressed),
    "forecaster": Member(forecaster, series(6, 3), regressed),
    "dilated_convolutions": Member(dilated, series(8, 2, (8, 1)), regressed),
    "conv_lstm": Member(next_frame, frames, regressed),
    "point_net": Member(point_net, points, classified),
    "graph_network": Member(graph_network, graphs, graphs_classified),
    "mixture_density": Member(density, pairs, likelihood),
    "radiance_field": Member(radiance_field, places, regressed),
    "perceiver": Member(perceiver, pictures(4), classified),
}
