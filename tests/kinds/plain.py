"""Keras's own train step: one loss per example, and all that `compile` and `fit` offer beside."""

from __future__ import annotations

import keras
import numpy as np
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
    random,
    sgd,
    tokens,
    vectors,
)

CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy


def classifier(model, optimizer=None, data=None, **options) -> Program:
    """Returns a classifier of three classes of vectors of five numbers, or of other data."""
    model.compile(optimizer or sgd(), CROSS_ENTROPY(from_logits=True), metrics=["accuracy"])
    data = (vectors(5), labels(3)) if data is None else data
    return Program(model, batches(data), {"epochs": 2, **options})


@kind()
def mnist_mlp() -> Program:
    return classifier(dense(5, 8, 6, 3))


@kind()
def mnist_convnet() -> Program:
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)), layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D(),
            layers.Conv2D(4, 2, activation="relu"), layers.Flatten(), layers.Dense(3),
        ]
    )  # fmt: skip
    return classifier(model, adam(), (pictures(8), labels(3)))


class Subclassed(keras.Model):
    """Its layers learn their inputs' sizes from the first batch."""

    def __init__(self):
        super().__init__()
        self.hidden = [layers.Dense(6, "tanh") for _ in range(2)]
        self.logits = layers.Dense(3)

    def call(self, inputs, training=False):
        for layer in self.hidden:
            inputs = layer(inputs)
        return self.logits(inputs)


@kind()
def subclassed_and_not_built() -> Program:
    return classifier(Subclassed())


@kind()
def run_eagerly() -> Program:
    program = classifier(dense(5, 6, 3))
    program.model.run_eagerly = True
    return program


@kind()
def several_inputs_and_outputs() -> Program:
    title, tags = keras.Input((6,), name="title"), keras.Input((4,), name="tags")
    joined = layers.Concatenate()([layers.Dense(5, "tanh")(title), layers.Dense(3)(tags)])
    outputs = {
        "priority": layers.Dense(1, "sigmoid", name="priority")(joined),
        "department": layers.Dense(3, "softmax", name="department")(joined),
    }
    model = keras.Model({"title": title, "tags": tags}, outputs)
    model.compile(
        adam(),
        {"priority": "binary_crossentropy", "department": "categorical_crossentropy"},
        loss_weights={"priority": 1.0, "department": 0.2},
        metrics={"priority": ["accuracy", "AUC"], "department": ["accuracy"]},
    )
    inputs = {"title": vectors(6), "tags": vectors(4)}
    targets = {"priority": labels(2, 1), "department": np.eye(3)[labels(3)]}
    return Program(model, batches((inputs, targets)))


@kind()
def clipped_by_the_global_norm() -> Program:
    return classifier(dense(5, 8, 3), keras.optimizers.SGD(0.5, global_clipnorm=0.1))


@kind()
def clipped_by_each_norm() -> Program:
    return classifier(dense(5, 8, 3), keras.optimizers.Adam(0.01, epsilon=1e-3, clipnorm=0.05))


@kind()
def weights_averaged_by_the_optimizer() -> Program:
    optimizer = keras.optimizers.SGD(0.2, use_ema=True, ema_momentum=0.8)
    return classifier(dense(5, 8, 3), optimizer)


@kind()
def gradients_accumulated_by_the_optimizer() -> Program:
    return classifier(dense(5, 8, 3), keras.optimizers.SGD(0.2, gradient_accumulation_steps=2))


@kind()
def rate_by_a_schedule() -> Program:
    schedule = keras.optimizers.schedules.CosineDecay(0.3, 6, warmup_target=0.5, warmup_steps=2)
    return classifier(dense(5, 8, 3), keras.optimizers.SGD(schedule, nesterov=True))


@kind()
def regularised() -> Program:
    model = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(8, "tanh", kernel_regularizer="l2", bias_regularizer="l1"),
            layers.Dense(6, "tanh", activity_regularizer=keras.regularizers.L2(0.01)),
            layers.Dense(3, kernel_constraint=keras.constraints.UnitNorm()),
        ]
    )
    return classifier(model)


@kind()
def weights_decay() -> Program:
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.1, epsilon=1e-3)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return classifier(dense(5, 8, 3), optimizer)


@kind(said=("__array__ implementation:DeprecationWarning",))  # Of Keras's variables.
def callbacks_of_keras() -> Program:
    watches = [
        keras.callbacks.ReduceLROnPlateau("loss", patience=0, min_delta=10.0),
        keras.callbacks.EarlyStopping("loss", patience=5, restore_best_weights=True),
        keras.callbacks.TerminateOnNaN(),
    ]
    return classifier(dense(5, 8, 3), callbacks=watches, epochs=3)


@kind()
def validated_after_each_epoch() -> Program:
    return classifier(dense(5, 8, 3), validation_data=(vectors(5)[:9], labels(3)[:9]))


@kind()
def several_steps_per_execution() -> Program:
    program = classifier(dense(5, 8, 3))
    program.model.steps_per_execution = 2
    return program


@kind()
def frozen_base_for_transfer() -> Program:
    base = dense(5, 8, 6)
    base.trainable = False
    model = keras.Sequential([keras.Input((5,)), base, layers.Dense(3)])
    return classifier(model)


class Antirectifier(layers.Layer):
    """The positive and the negative part of normalised inputs, weighted."""

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(2 * input_shape[-1], 6), initializer="he_normal")

    def call(self, inputs):
        inputs = inputs - ops.mean(inputs, axis=-1, keepdims=True)
        positive, negative = ops.relu(inputs), ops.relu(-inputs)
        return ops.matmul(ops.concatenate([positive, negative], -1), self.kernel)


@kind()
def antirectifier() -> Program:
    model = keras.Sequential([keras.Input((5,)), Antirectifier(), layers.Dense(3)])
    return classifier(model, keras.optimizers.RMSprop(0.01, epsilon=1e-3))


@kind()
def memory_efficient_embeddings() -> Program:
    ids = keras.Input((1,), dtype="int64")
    remainder = layers.Embedding(4, 5)(ops.mod(ids, 4))
    quotient = layers.Embedding(4, 5)(ops.floor_divide(ids, 4))
    outputs = layers.Dense(3)(layers.Flatten()(remainder * quotient))
    data = (labels(16, 1).astype("int64"), labels(3))
    return classifier(keras.Model(ids, outputs), data=data)


class Ratings(keras.Model):
    """The rating of an item by a user: a product of embeddings and two biases."""

    def __init__(self):
        super().__init__()
        options = {"embeddings_initializer": "he_normal"}
        self.user, self.user_bias = layers.Embedding(7, 4, **options), layers.Embedding(7, 1)
        self.item, self.item_bias = layers.Embedding(9, 4, **options), layers.Embedding(9, 1)

    def call(self, pairs):
        users, items = pairs[:, 0], pairs[:, 1]
        product = ops.sum(self.user(users) * self.item(items), -1, keepdims=True)
        return ops.sigmoid(product + self.user_bias(users) + self.item_bias(items))


@kind()
def collaborative_filtering() -> Program:
    model = Ratings()
    model.compile(sgd(), "binary_crossentropy", metrics=["mean_absolute_error"])
    return Program(model, batches((labels(7, 2), random().uniform(size=(24, 1)))))


class Experts(layers.Layer):
    """Several dense layers, of which a gate takes a weighted mean for each row."""

    def __init__(self, count, width):
        super().__init__()
        self.gate = layers.Dense(count, "softmax")
        self.experts = [layers.Dense(width, "relu") for _ in range(count)]

    def call(self, inputs):
        weights = self.gate(inputs)
        outputs = ops.stack([expert(inputs) for expert in self.experts], 1)
        return ops.sum(outputs * weights[..., None], 1)


@kind()
def mixture_of_experts() -> Program:
    return classifier(keras.Sequential([Experts(3, 6), layers.Dense(3)]))


class Endpoint(layers.Layer):
    """Logits that bring their own loss and metric, as labels are one of its inputs."""

    def __init__(self):
        super().__init__()
        self.loss = CROSS_ENTROPY(from_logits=True)
        self.accuracy = keras.metrics.SparseCategoricalAccuracy(name="own_accuracy")

    def call(self, logits, targets=None):
        if targets is not None:
            self.add_loss(self.loss(targets, logits))
            self.accuracy.update_state(targets, logits)
        return ops.softmax(logits)


@kind()
def endpoint_layer() -> Program:
    inputs, targets = keras.Input((5,), name="x"), keras.Input((), name="y", dtype="int32")
    outputs = Endpoint()(layers.Dense(3)(inputs), targets)
    model = keras.Model({"x": inputs, "y": targets}, outputs)
    model.compile(sgd())
    return Program(model, batches({"x": vectors(5), "y": labels(3)}), {"epochs": 2})


@kind()
def timeseries_convnet() -> Program:
    model = keras.Sequential(
        [
            keras.Input((8, 2)), layers.Conv1D(4, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling1D(), layers.Dense(3),
        ]
    )  # fmt: skip
    return classifier(model, data=(vectors(16).reshape(24, 8, 2), labels(3)))


@kind()
def weather_forecast_by_lstm() -> Program:
    model = keras.Sequential([keras.Input((6, 3)), layers.LSTM(5), layers.Dense(1)])
    model.compile(adam(), "mse", metrics=["mae"])
    return Program(model, batches((vectors(18).reshape(24, 6, 3), vectors(1))))


@kind()
def video_by_conv_lstm() -> Program:
    model = keras.Sequential(
        [
            keras.Input((3, 5, 5, 1)),
            layers.ConvLSTM2D(2, 3, padding="same", return_sequences=True),
            layers.Conv3D(1, 3, activation="sigmoid", padding="same"),
        ]
    )
    model.compile(adam(), "binary_crossentropy")
    frames = random().uniform(size=(24, 4, 5, 5, 1))
    return Program(model, batches((frames[:, :-1], frames[:, 1:])))


class Convolution(layers.Layer):
    """Graph convolution: a mean over neighbours in a fixed graph of six nodes, then a product."""

    def __init__(self, width):
        super().__init__()
        ring = np.eye(6) + np.roll(np.eye(6), 1, 0) + np.roll(np.eye(6), -1, 0)
        self.adjacency, self.product = ring / 3, layers.Dense(width, "relu")

    def call(self, nodes):
        return self.product(ops.einsum("nm,bmf->bnf", ops.cast(self.adjacency, nodes.dtype), nodes))


@kind()
def traffic_by_graph_and_lstm() -> Program:
    model = keras.Sequential([Convolution(4), layers.LSTM(5), layers.Dense(3)])
    return classifier(model, data=(vectors(12).reshape(24, 6, 2), labels(3)))


@kind()
def classified_with_weights_of_classes_and_rows() -> Program:
    model = dense(5, 8, 3)
    model.compile(sgd(), CROSS_ENTROPY(from_logits=True), weighted_metrics=["accuracy"])
    arrays = (vectors(5, rows=17), labels(3, rows=17))
    return Program(model, arrays, {"class_weight": {0: 0.5, 1: 1.0, 2: 3.0}, "batch_size": 8})


@kind()
def weights_of_rows_in_the_data() -> Program:
    model = dense(5, 8, 3)
    model.compile(
        sgd(), CROSS_ENTROPY(from_logits=True), metrics=["accuracy"], weighted_metrics=["accuracy"]
    )
    return Program(model, batches((vectors(5), labels(3), random().uniform(0, 2, 24))))


@kind()
def numbers_of_no_rows_in_the_inputs() -> Program:
    """Ragged token ids: the layers that consume them know their rows."""
    model = keras.Sequential([layers.Embedding(9, 4), layers.GlobalAveragePooling1D()])
    model.add(layers.Dense(3))
    rows = tf.data.Dataset.from_tensor_slices((tokens(6, 9), labels(3)))
    model.compile(sgd(), CROSS_ENTROPY(from_logits=True), metrics=["accuracy"])
    return Program(model, rows.padded_batch(8), {"epochs": 2})


@kind()
def reused_layer() -> Program:
    """Two towers in the older sense: one network of two inputs, and the distance of its outputs."""
    left, right = keras.Input((5,)), keras.Input((5,))
    body = dense(5, 6, 4)
    distance = ops.sum(ops.square(body(left) - body(right)), -1, keepdims=True)
    model = keras.Model([left, right], layers.Dense(1, "sigmoid")(distance))
    model.compile(sgd(), "binary_crossentropy", metrics=["accuracy"])
    x = vectors(10)
    return Program(model, batches(((x[:, :5], x[:, 5:]), labels(2, 1))))
