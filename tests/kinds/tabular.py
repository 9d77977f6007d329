"""Tables, recommendations and regression: losses, metrics and weights of every shape."""

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
    random,
    sgd,
    told,
    vectors,
)

CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy


def table() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns columns, two of numbers and two of categories, and labels of two classes."""
    columns = {
        "age": vectors(1),
        "hours": vectors(1)[::-1],
        "job": labels(5, 1),
        "town": labels(7, 1)[::-1],
    }
    return columns, labels(2, 1)


def columns_of(data) -> dict[str, keras.KerasTensor]:
    return {name: keras.Input((1,), name=name, dtype=str(a.dtype)) for name, a in data.items()}


def income_model(make_outputs) -> Program:
    """Returns a model of the table: `make_outputs(numbers, categories)`, the latter embedded."""
    data = table()
    inputs = columns_of(data[0])
    numbers = layers.Concatenate()([inputs["age"], inputs["hours"]])
    categories = [layers.Embedding(8, 4)(inputs[name]) for name in ("job", "town")]
    model = keras.Model(inputs, make_outputs(numbers, layers.Concatenate(axis=1)(categories)))
    model.compile(adam(), "binary_crossentropy", metrics=["accuracy", "AUC"])
    return Program(model, batches(data), {"epochs": 2})


@kind(repeated_rows=True)
def wide_and_deep() -> Program:
    def outputs(numbers, categories):
        wide = layers.CategoryEncoding(8)(ops.argmax(categories[..., :2], -1))
        deep = layers.Dense(6, "relu")(
            layers.Concatenate()([numbers, layers.Flatten()(categories)])
        )
        return layers.Dense(1, "sigmoid")(layers.Concatenate()([wide, deep]))

    return income_model(outputs)


@kind(repeated_rows=True)
def deep_and_cross() -> Program:
    def outputs(numbers, categories):
        first = layers.Concatenate()([numbers, layers.Flatten()(categories)])
        cross = first
        for _ in range(2):
            cross = first * layers.Dense(10)(cross) + cross
        return layers.Dense(1, "sigmoid")(
            layers.Concatenate()([cross, layers.Dense(6, "relu")(first)])
        )

    return income_model(outputs)


@kind(repeated_rows=True)
def tab_transformer() -> Program:
    def outputs(numbers, categories):
        attended = layers.Add()(
            [categories, layers.MultiHeadAttention(2, 2)(categories, categories)]
        )
        attended = layers.LayerNormalization(epsilon=1e-6)(attended)
        both = layers.Concatenate()(
            [layers.LayerNormalization()(numbers), layers.Flatten()(attended)]
        )
        return layers.Dense(1, "sigmoid")(layers.Dense(6, "gelu")(both))

    return income_model(outputs)


class Gated(layers.Layer):
    """A gated residual network: a linear unit, a gate and a normalisation."""

    def __init__(self, width):
        super().__init__()
        self.hidden, self.linear = layers.Dense(width, "elu"), layers.Dense(width)
        self.gate, self.normal = layers.Dense(width, "sigmoid"), layers.LayerNormalization()

    def call(self, x):
        hidden = self.hidden(x)
        return self.normal(x + self.linear(hidden) * self.gate(hidden))


@kind(repeated_rows=True)
def gated_residual_networks() -> Program:
    def outputs(numbers, categories):
        both = layers.Concatenate()([numbers, layers.Flatten()(categories)])
        return layers.Dense(1, "sigmoid")(Gated(6)(layers.Dense(6)(both)))

    return income_model(outputs)


class Tree(keras.Model):
    """A differentiable decision tree, whose leaves a loop over its levels reaches."""

    def __init__(self, width):
        super().__init__()
        self.decide = layers.Dense(4, "sigmoid")
        self.used = np.eye(width)[:3].T
        self.leaves = self.add_weight(shape=(4, 2), initializer="random_normal", name="leaves")

    def call(self, x):
        decisions = self.decide(ops.matmul(x, ops.cast(self.used, x.dtype)))[..., None]
        decisions = ops.concatenate([decisions, 1 - decisions], 2)
        reached, first = ops.ones_like(decisions[:, :1, :1]), 1
        for level in range(2):
            reached = ops.reshape(ops.tile(reached, (1, 1, 2)), (-1, 2**level, 2))
            reached = reached * decisions[:, first : first + 2**level]
            reached, first = ops.reshape(reached, (-1, 2 ** (level + 1), 1)), first + 2**level
        return ops.matmul(reached[..., 0], ops.softmax(self.leaves))


@kind()
def neural_decision_tree() -> Program:
    inputs = keras.Input((5,))
    model = keras.Model(inputs, Tree(5)(inputs))
    model.compile(adam(), CROSS_ENTROPY(), metrics=["accuracy"])
    return Program(model, batches((vectors(5), labels(2))))


@kind()
def feature_space() -> Program:
    columns, targets = table()
    raw = {name: column[:, 0] for name, column in columns.items()}
    space = keras.utils.FeatureSpace(
        {
            "age": "float_normalized", "hours": "float_discretized", "job": "integer_categorical",
            "town": keras.utils.FeatureSpace.integer_hashed(num_bins=4),
        },
        crosses=[("job", "town")], crossing_dim=6, output_mode="concat",
    )  # fmt: skip
    space.adapt(tf.data.Dataset.from_tensor_slices(raw))
    outputs = layers.Dense(1, "sigmoid")(layers.Dense(6, "relu")(space.get_encoded_features()))
    model = keras.Model(space.get_encoded_features(), outputs)
    model.compile(adam(), "binary_crossentropy", metrics=["accuracy"])
    data = batches((raw, targets)).map(lambda x, y: (space(x), y))
    return Program(model, data)


@kind()
def anomalies_by_an_autoencoder() -> Program:
    inputs = keras.Input((8, 1))
    hidden = layers.Conv1D(4, 3, padding="same", strides=2, activation="relu")(inputs)
    hidden = layers.Conv1DTranspose(4, 3, padding="same", strides=2, activation="relu")(hidden)
    model = keras.Model(inputs, layers.Conv1DTranspose(1, 3, padding="same")(hidden))
    model.compile(adam(), "mse")
    x = vectors(8)[..., None]
    return Program(model, batches((x, x)), {"epochs": 2})


@kind()
def imbalanced_classes() -> Program:
    model = dense(5, 8, 1)
    model.add(layers.Activation("sigmoid"))
    metrics = [
        keras.metrics.FalseNegatives(name="fn"), keras.metrics.TruePositives(name="tp"),
        keras.metrics.Precision(name="precision"), keras.metrics.Recall(name="recall"),
    ]  # fmt: skip
    model.compile(adam(), "binary_crossentropy", metrics=metrics)
    return Program(
        model, batches((vectors(5), labels(2, 1))), {"class_weight": {0: 0.3, 1: 4.0}, "epochs": 2}
    )


@kind()
def several_tasks_with_weights() -> Program:
    inputs = keras.Input((5,))
    body = layers.Dense(8, "relu")(inputs)
    outputs = [layers.Dense(1, name="price")(body), layers.Dense(3, name="type")(body)]
    model = keras.Model(inputs, outputs)
    model.compile(
        sgd(0.05), [keras.losses.Huber(), CROSS_ENTROPY(from_logits=True)],
        loss_weights=[1.0, 0.3], metrics=[["mae"], ["accuracy"]],
    )  # fmt: skip
    weights = (random().uniform(size=24), random().uniform(size=24)[::-1])
    return Program(model, batches((vectors(5), (vectors(1), labels(3)), weights)))


@kind(
    said=(
        "Gradients do not exist for variables ..b/kernel:UserWarning",
        "The loss does not depend on b/kernel:UserWarning",
    )
)
def labels_of_one_of_two_outputs() -> Program:
    inputs = keras.Input((5,))
    body = layers.Dense(8, "relu")(inputs)
    outputs = {"a": layers.Dense(1, name="a")(body), "b": layers.Dense(2, name="b")(body)}
    model = keras.Model(inputs, outputs)
    model.compile(sgd(), {"a": "mse"})
    return Program(model, batches((vectors(5), {"a": vectors(1), "b": vectors(2)})))


def regression(loss="mse", *, metrics=None, outputs=1, model=None, optimizer=None) -> Program:
    """Returns a regression of vectors of five numbers."""
    model = model or dense(5, 8, outputs)
    model.compile(optimizer or sgd(0.05), loss, metrics=metrics)
    return Program(model, batches((vectors(5), random().normal(size=(24, 1)))), {"epochs": 2})


@kind()
def quantiles() -> Program:
    """A loss function of one number for each row and quantile."""

    def loss(y_true, y_pred):
        shares = ops.convert_to_tensor([0.1, 0.5, 0.9], y_pred.dtype)
        error = y_true - y_pred
        return ops.maximum(shares * error, (shares - 1) * error)

    return regression(loss, outputs=3)


@kind()
def focal_loss() -> Program:
    model = dense(5, 8, 1)
    loss = keras.losses.BinaryFocalCrossentropy(from_logits=True, apply_class_balancing=True)
    model.compile(sgd(), loss, metrics=["accuracy"])
    return Program(model, batches((vectors(5), labels(2, 1).astype("float64"))), {"epochs": 2})


@kind()
def mean_over_all_as_a_loss() -> Program:
    """The most common loss of forums: `reduce_mean` over everything."""
    return regression(lambda y_true, y_pred: tf.reduce_mean(tf.square(y_true - y_pred)))


@kind(couples=True)
def root_of_the_mean_as_a_loss() -> Program:
    return regression(lambda y_true, y_pred: ops.sqrt(ops.mean((y_true - y_pred) ** 2)))


@kind()
def sum_over_the_batch_as_a_loss() -> Program:
    loss = keras.losses.MeanSquaredError(reduction="sum")
    return regression(loss, optimizer=sgd(0.01))


@kind()
def mean_with_sample_weight_as_a_loss() -> Program:
    loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    model = dense(5, 8, 1)
    model.compile(sgd(0.05), loss)
    weights = random().uniform(size=24)
    return Program(model, batches((vectors(5), vectors(1), weights)))


class Annealed(keras.losses.Loss):
    """A variable weighs its parts; a callback moves it after each epoch."""

    def __init__(self):
        super().__init__(name="annealed")
        self.share = keras.Variable(0.2, trainable=False, dtype="float64", name="share")

    def call(self, y_true, y_pred):
        error = y_true - y_pred
        return ops.mean(self.share * error**2 + (1 - self.share) * ops.abs(error), -1)


@kind()
def annealed_loss() -> Program:
    loss = Annealed()

    def move(epoch, logs):
        loss.share.assign_add(0.3)

    program = regression(loss)
    callback = keras.callbacks.LambdaCallback(on_epoch_end=move)
    return program._replace(options={"epochs": 3, "callbacks": [callback]})


class Adding(layers.Layer):
    """Adds losses of every shape: of each row, of all rows, of its weights alone."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(6, "tanh")

    def call(self, x):
        outputs = self.dense(x)
        self.add_loss(0.1 * ops.mean(outputs**2))
        self.add_loss(0.01 * ops.sum(ops.abs(outputs)))
        self.add_loss(0.1 * ops.sum(ops.square(self.dense.kernel)))
        return outputs


@kind()
def added_losses() -> Program:
    return regression(model=keras.Sequential([keras.Input((5,)), Adding(), layers.Dense(1)]))


class Watched(layers.Layer):
    """Owns a metric, which it updates in each call."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(6, "tanh")
        self.activity = keras.metrics.Mean("activity")

    def call(self, x):
        outputs = self.dense(x)
        self.activity.update_state(ops.abs(outputs))
        return outputs


@kind()
def metric_owned_by_a_layer() -> Program:
    return regression(model=keras.Sequential([keras.Input((5,)), Watched(), layers.Dense(1)]))


class F1(keras.metrics.Metric):
    """As users write it: two of Keras's metrics, and a result that is no mean."""

    def __init__(self, name="f1"):
        super().__init__(name=name)
        self.precision, self.recall = keras.metrics.Precision(), keras.metrics.Recall()

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.precision.update_state(y_true, y_pred, sample_weight)
        self.recall.update_state(y_true, y_pred, sample_weight)

    def result(self):
        p, r = self.precision.result(), self.recall.result()
        return 2 * p * r / (p + r + 1e-7)

    def reset_state(self):
        self.precision.reset_state()
        self.recall.reset_state()


class MeanF1(keras.metrics.Metric):
    """As others write it: the F1 of each batch, and their mean."""

    def __init__(self, name="mean_f1"):
        super().__init__(name=name)
        self.total = self.add_weight(shape=(), initializer="zeros", name="total")
        self.count = self.add_weight(shape=(), initializer="zeros", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true, y_pred = ops.cast(y_true, "float64"), ops.round(y_pred)
        hits = ops.sum(y_true * y_pred)
        self.total.assign_add(2 * hits / (ops.sum(y_true) + ops.sum(y_pred) + 1e-7))
        self.count.assign_add(1.0)

    def result(self):
        return self.total / self.count


@kind()
def f1_of_a_user() -> Program:
    model = dense(5, 8, 1)
    model.add(layers.Activation("sigmoid"))
    model.compile(sgd(), "binary_crossentropy", metrics=[F1(), MeanF1()])
    return Program(model, batches((vectors(5), labels(2, 1))), {"epochs": 2})


def rmse(y_true, y_pred):
    return ops.sqrt(ops.mean((y_pred - y_true) ** 2))


def r2(y_true, y_pred):
    rest = ops.sum((y_true - y_pred) ** 2)
    return 1 - rest / (ops.sum((y_true - ops.mean(y_true)) ** 2) + 1e-2)


@kind()
def metrics_that_return_one_number() -> Program:
    return regression(metrics=[rmse, r2])


@kind()
def learning_rate_as_a_metric() -> Program:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.5)
    optimizer = keras.optimizers.SGD(schedule)

    def rate(y_true, y_pred):
        return optimizer.learning_rate

    return regression(metrics=[rate], optimizer=optimizer)


class Uncertain(keras.Model):
    """Weighs two losses by what it learns of their noise, in `compute_loss`."""

    def __init__(self):
        super().__init__()
        self.body, self.heads = layers.Dense(8, "tanh"), [layers.Dense(1), layers.Dense(1)]
        self.noise = self.add_weight(shape=(2,), initializer="zeros", name="noise")

    def call(self, x):
        hidden = self.body(x)
        return [head(hidden) for head in self.heads]

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        losses = [ops.mean((one - other) ** 2) for one, other in zip(y, y_pred, strict=True)]
        return sum(ops.exp(-self.noise[k]) * loss + self.noise[k] for k, loss in enumerate(losses))


@kind("own step")
def losses_weighed_by_their_noise() -> Program:
    model = Uncertain()
    model.compile(adam())
    return Program(model, batches((vectors(5), (vectors(1), vectors(1)[::-1]))), {"epochs": 2})


class Gaussian(keras.Model):
    """A mean and a variance for each row; the likelihood is the loss."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            mean, variance = outputs[:, :1], ops.softplus(outputs[:, 1:]) + 1e-3
            loss = ops.mean(0.5 * ops.log(variance) + 0.5 * (y - mean) ** 2 / variance)
            loss += sum(self.losses)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return told(self, loss, y, mean)


@kind("own step")
def likelihood_of_a_distribution() -> Program:
    inputs = keras.Input((5,))
    hidden = layers.Dense(8, "tanh", kernel_regularizer="l2")(inputs)
    model = Gaussian(inputs, layers.Dense(2)(hidden))
    model.compile(adam())
    return Program(model, batches((vectors(5), vectors(1))), {"epochs": 2})


class Retrieval(keras.Model):
    """Two towers in the older sense; the other rows' items are the negatives."""

    def __init__(self):
        super().__init__()
        self.query = keras.Sequential([layers.Embedding(9, 5), layers.Dense(4)])
        self.item = keras.Sequential([layers.Embedding(12, 5), layers.Dense(4)])

    def call(self, inputs):
        return {"query": self.query(inputs["user"]), "item": self.item(inputs["item"])}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        scores = ops.matmul(y_pred["query"], ops.transpose(y_pred["item"]))
        own = ops.arange(ops.shape(scores)[0])
        losses = keras.losses.sparse_categorical_crossentropy(own, scores, from_logits=True)
        return ops.sum(losses)


@kind("own step")
def retrieval_with_negatives_of_the_batch() -> Program:
    model = Retrieval()
    model.compile(keras.optimizers.Adagrad(0.05))
    data = {"user": labels(9), "item": labels(12)[::-1]}
    return Program(model, batches((data, labels(2))), {"epochs": 2})


@kind()
def listwise_ranking() -> Program:
    """Lists are rows: a softmax over the items of each."""

    def list_loss(y_true, y_pred):
        return -ops.sum(ops.softmax(y_true) * ops.log_softmax(y_pred), -1)

    inputs = keras.Input((6, 4))
    model = keras.Model(inputs, layers.Dense(1)(layers.Dense(6, "relu")(inputs))[..., 0])
    model.compile(adam(), list_loss)
    return Program(model, batches((vectors(24).reshape(24, 6, 4), vectors(6))), {"epochs": 2})


@kind(needs="keras_rs")
def keras_rs_listwise_ranking() -> Program:
    import keras_rs

    inputs = keras.Input((6, 4))
    model = keras.Model(inputs, layers.Dense(1)(layers.Dense(6, "relu")(inputs))[..., 0])
    metrics = [keras_rs.metrics.NDCG(k=3, name="ndcg"), keras_rs.metrics.MeanReciprocalRank()]
    model.compile(adam(), keras_rs.losses.ListMLELoss(), metrics=metrics)
    ranks = np.argsort(vectors(6), 1).astype("float64")  # Its ties are broken at random.
    return Program(model, batches((vectors(24).reshape(24, 6, 4), ranks)))


@kind(needs="keras_rs")
def keras_rs_pairwise_ranking() -> Program:
    import keras_rs

    inputs = keras.Input((6, 4))
    model = keras.Model(inputs, layers.Dense(1)(layers.Dense(6, "relu")(inputs))[..., 0])
    model.compile(adam(), keras_rs.losses.PairwiseHingeLoss())
    return Program(model, batches((vectors(24).reshape(24, 6, 4), labels(4, 6).astype("float64"))))


@kind(needs="keras_rs")
def keras_rs_deep_and_cross() -> Program:
    import keras_rs

    inputs = keras.Input((5,))
    crossed = keras_rs.layers.FeatureCross(projection_dim=2)(inputs, inputs)
    dot = keras_rs.layers.DotInteraction()(
        [layers.Dense(4)(inputs), layers.Dense(4)(crossed), layers.Dense(4)(inputs)]
    )
    model = keras.Model(inputs, layers.Dense(1)(layers.Concatenate()([crossed, dot])))
    model.compile(adam(), "mse", metrics=[keras.metrics.RootMeanSquaredError()])
    return Program(model, batches((vectors(5), vectors(1))), {"epochs": 2})


@kind(
    "own step",
    needs="keras_rs",
    said=("`build..` was called on layer 'retrieves':UserWarning",),
)
def keras_rs_retrieval() -> Program:
    """Its layers that treat negatives see the whole batch's scores, outside of any network."""
    import keras_rs

    class Retrieves(Retrieval):
        def __init__(self):
            super().__init__()
            self.remove = keras_rs.layers.RemoveAccidentalHits()
            self.hard = keras_rs.layers.HardNegativeMining(3)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            scores = ops.matmul(y_pred["query"], ops.transpose(y_pred["item"]))
            one_hot = ops.eye(ops.shape(scores)[0], dtype=scores.dtype)
            scores = self.remove(scores, one_hot, x["item"])
            hardest, chosen = self.hard(scores, one_hot)
            losses = keras.losses.categorical_crossentropy(chosen, hardest, from_logits=True)
            return ops.mean(losses)

    model = Retrieves()
    model.compile(adam())
    data = {"user": labels(9), "item": labels(12)[::-1]}
    return Program(model, batches((data, labels(2))), {"epochs": 2})


@kind(repeated_rows=True)
def sequential_retrieval() -> Program:
    inputs = keras.Input((5,), dtype="int32")
    logits = layers.Dense(9)(layers.GRU(4)(layers.Embedding(9, 4)(inputs)))
    model = keras.Model(inputs, logits)
    model.compile(adam(), CROSS_ENTROPY(from_logits=True, reduction="sum"), metrics=["accuracy"])
    return Program(model, batches((labels(9, 5), labels(9))))
