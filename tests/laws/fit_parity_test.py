"""`towers.fit` against `model.fit` on one device: the same history and the same weights."""

import keras
import numpy as np
import pytest

import towers
from tests.helpers import tower_devices

pytestmark = pytest.mark.usefixtures("float64")
ROWS = 23  # Batches of 8, 8 and 7 rows.
# Losses that are a mean over rows, over fewer, and one number.
QUICK = {"classes", "ignored_labels", "flat_outputs"}


RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, 5))
LABELS = RANDOM.integers(0, 3, ROWS)
ONE_HOT = np.eye(3)[LABELS]
VALUES = RANDOM.normal(size=(ROWS, 3))
WEIGHTS = RANDOM.uniform(0, 2, ROWS)
TOKENS = RANDOM.integers(1, 9, (ROWS, 4))
TOKENS[np.arange(4) >= RANDOM.integers(0, 5, ROWS)[:, None]] = 0
TAGS = RANDOM.integers(0, 3, (ROWS, 4))


def network(units=3, activation=None, **options):
    inputs = keras.Input((5,))
    hidden = keras.layers.Dense(6, "tanh", **options)(inputs)
    return keras.Model(inputs, keras.layers.Dense(units, activation)(hidden))


def compiled(model, loss, **options):
    options = {"optimizer": keras.optimizers.Adam(0.05), **options}
    model.compile(loss=loss, **options)
    return model


def sgd():
    """Keras's Adam squares the repeated rows of a sparse gradient before it sums them."""
    return {"optimizer": keras.optimizers.SGD(0.5)}


def tagger(loss, **options):
    inputs = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(9, 4, mask_zero=True)(inputs)
    hidden = keras.layers.Dense(5, "tanh")(hidden)
    outputs = keras.layers.Dense(3, "softmax")(hidden)
    return compiled(keras.Model(inputs, outputs), loss, **{**sgd(), **options})


def classes():
    model = network(activation="softmax", kernel_regularizer="l2", activity_regularizer="l1")
    return compiled(model, "sparse_categorical_crossentropy", metrics=["accuracy"]), (X, LABELS)


def summed():
    loss = keras.losses.MeanSquaredError(reduction="sum")
    return compiled(network(bias_regularizer="l1"), loss, metrics=["mae", "mse"]), (X, VALUES)


def weighted():
    loss = keras.losses.MeanAbsoluteError(reduction="mean_with_sample_weight")
    model = compiled(
        network(kernel_regularizer="l2"), loss, weighted_metrics=["mse"], metrics=["mse"]
    )
    return model, (X, VALUES, WEIGHTS)


def weighted_over_batch():
    model = compiled(
        network(), keras.losses.Huber(), weighted_metrics=["mae", keras.metrics.R2Score()]
    )
    return model, (X, VALUES, WEIGHTS)


def unweighted_mean():
    loss = keras.losses.LogCosh(reduction="mean_with_sample_weight")
    return compiled(network(), loss), (X, VALUES)


def class_weights():
    model = compiled(
        network(activation="softmax"), "sparse_categorical_crossentropy", weighted_metrics=["acc"]
    )
    return model, (X, LABELS), {"class_weight": {0: 0.5, 1: 2.0, 2: 1.5}}


def masked():
    loss = keras.losses.SparseCategoricalCrossentropy()
    return tagger(loss, metrics=["accuracy"], weighted_metrics=["accuracy"]), (TOKENS, TAGS)


def masked_sum():
    return tagger(keras.losses.SparseCategoricalCrossentropy(reduction="sum")), (TOKENS, TAGS)


def masked_mean():
    loss = keras.losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight")
    return tagger(loss), (TOKENS, TAGS, RANDOM_WEIGHTS)


def masked_weighted():
    model = tagger("sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
    return model, (TOKENS, TAGS, RANDOM_WEIGHTS)


RANDOM_WEIGHTS = RANDOM.uniform(0, 2, (ROWS, 4))


def two_heads():
    one, other = keras.Input((5,), name="numbers"), keras.Input((4,), dtype="int32", name="tokens")
    embedded = keras.layers.Embedding(9, 4, mask_zero=True)(other)
    state = keras.layers.Dense(4, "tanh")(embedded)
    hidden = keras.layers.Dense(6, "tanh", kernel_regularizer="l2")(one)
    outputs = {
        "tags": keras.layers.Dense(3, "softmax", name="tags")(state),
        "values": keras.layers.Dense(3, name="values")(hidden),
    }
    return keras.Model({"numbers": one, "tokens": other}, outputs)


def two_outputs():
    """Dicts of inputs, losses and weights; one output is masked, the other is not."""
    model = compiled(
        two_heads(),
        {
            "tags": "sparse_categorical_crossentropy",
            "values": keras.losses.MeanSquaredError(reduction="sum"),
        },
        loss_weights={"tags": 0.7, "values": 0.1},
        metrics={"tags": ["accuracy"], "values": ["mae", "mse"]},
        **sgd(),
    )
    return model, ({"numbers": X, "tokens": TOKENS}, {"tags": TAGS, "values": VALUES})


def weights_for_each_output():
    model = compiled(
        two_heads(),
        {"tags": "sparse_categorical_crossentropy", "values": "mse"},
        weighted_metrics={"values": ["mae"]},
        **sgd(),
    )
    weights = {"tags": RANDOM_WEIGHTS, "values": WEIGHTS}
    return model, ({"numbers": X, "tokens": TOKENS}, {"tags": TAGS, "values": VALUES}, weights)


def list_of_outputs():
    inputs = keras.Input((5,))
    outputs = [
        keras.layers.Dense(3, name="a")(inputs),
        keras.layers.Dense(3, "softmax", name="b")(inputs),
    ]
    model = compiled(
        keras.Model(inputs, outputs),
        ["mse", "categorical_crossentropy"],
        loss_weights=[0.3, 2.0],
        metrics=[["mae"], ["accuracy"]],
    )
    return model, (X, [VALUES, ONE_HOT])


def own_loss():
    def loss(y_true, y_pred):
        return keras.ops.mean(keras.ops.square(y_true - y_pred) ** 1.5, axis=-1)

    def error(y_true, y_pred):
        return keras.ops.max(keras.ops.abs(y_true - y_pred), axis=-1)

    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.2)
    return compiled(network(), loss, metrics=[error], optimizer=optimizer), (X, VALUES)


def ignored_labels():
    """A loss of fewer values than rows; of some batches a whole shard is ignored."""

    def of_known(y_true, y_pred):
        known = y_true >= 0
        return keras.losses.sparse_categorical_crossentropy(y_true[known], y_pred[known])

    labels = np.where((np.arange(ROWS) % 3 == 1) | (np.arange(ROWS) // 4 == 1), -1, LABELS)
    return compiled(network(activation="softmax"), of_known, **sgd()), (X, labels), {}


def curves():
    metrics = [keras.metrics.AUC(), keras.metrics.Precision(), keras.metrics.FalseNegatives()]
    model = compiled(network(1, "sigmoid"), "binary_crossentropy", metrics=metrics)
    return model, (X, (LABELS > 0).astype("float64")[:, None])


def scores():
    metrics = [
        keras.metrics.F1Score(average="macro"),
        keras.metrics.OneHotMeanIoU(3),
        "categorical_accuracy",
    ]
    loss = keras.losses.CategoricalCrossentropy(label_smoothing=0.1)
    return compiled(network(activation="softmax"), loss, metrics=metrics), (X, ONE_HOT)


def average_of_weights():
    optimizer = keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.5, weight_decay=0.1)
    return compiled(network(), "mse", optimizer=optimizer), (X, VALUES)


def accumulated_by_the_optimizer():
    optimizer = keras.optimizers.Adam(0.1, gradient_accumulation_steps=2)
    return compiled(network(), "mse", optimizer=optimizer), (X, VALUES)


def one_of_two_losses():
    inputs = keras.Input((5,))
    one = keras.layers.Dense(3, name="one")(inputs)
    model = keras.Model(inputs, [one, keras.layers.Rescaling(2.0, name="other")(one)])
    return compiled(model, ["mse", None], metrics=[None, ["mae"]]), (X, [VALUES, VALUES])


def subclassed():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(4, "tanh", activity_regularizer="l2")
            self.last = keras.layers.Dense(3)

        def call(self, inputs, training=False):
            return self.last(self.hidden(inputs))

    return compiled(Own(), "mse", metrics=["cosine_similarity"]), (X, VALUES)


def added_loss():
    class Penalty(keras.layers.Layer):
        def call(self, inputs):
            self.add_loss(0.1 * keras.ops.mean(keras.ops.square(inputs)))
            return inputs

    inputs = keras.Input((5,))
    outputs = keras.layers.Dense(3)(Penalty()(keras.layers.Dense(4)(inputs)))
    return compiled(keras.Model(inputs, outputs), "mse"), (X, VALUES)


def split_off():
    return compiled(network(), "mse", metrics=["mae"]), (X, VALUES), {"validation_split": 0.3}


def weights_in_a_column():
    return compiled(network(), "mse", weighted_metrics=["mae"]), (X, VALUES, WEIGHTS[:, None])


def poisson():
    return compiled(network(activation="softplus"), keras.losses.Poisson()), (X, VALUES**2)


def flat(loss, **options):
    inputs = keras.Input((5,))
    outputs = keras.layers.Reshape(())(keras.layers.Dense(1, "sigmoid")(inputs))
    return compiled(keras.Model(inputs, outputs), loss, **options)


def flat_outputs():
    """Keras's losses and metrics of [rows] are one number."""
    model = flat("binary_crossentropy", metrics=["accuracy", "mae", "auc"])
    return model, (X, (LABELS > 0).astype("float64"))


def flat_outputs_beside_columns():
    return flat("mse", metrics=["hinge", "kl_divergence"]), (X, VALUES[:, :1])


def flat_outputs_with_a_loss_by_rows():
    return flat(lambda y_true, y_pred: keras.ops.square(y_true - y_pred)), (X, VALUES[:, 0])


def mean_over_the_rows():
    return compiled(network(), keras.losses.CosineSimilarity(axis=0)), (X, VALUES)


def several_losses_of_one_output():
    """Keras trains the first, and the others' means stay 0."""
    return compiled(network(), ["mse", "mae"]), (X, VALUES)


def metric_used_twice():
    metric = keras.metrics.TruePositives(name="found")
    model = compiled(network(activation="softmax"), "mse", metrics=[metric],
                     weighted_metrics=[metric])  # fmt: skip
    return model, (X, ONE_HOT, WEIGHTS)


def rows_read_by_the_loss():
    def loss(y_true, y_pred):
        return keras.ops.sum(keras.ops.square(y_true - y_pred)) / y_true.shape[0]

    return compiled(network(), loss), (X[:16], VALUES[:16]), {"validation_data": None}


def rows_read_by_the_model():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, inputs):
            return self.dense(inputs / inputs.shape[0])

    return compiled(Own(), "mse"), (X[:16], VALUES[:16]), {"validation_data": None}


def nothing_trainable():
    model = network()
    model.trainable = False
    return compiled(model, "mse"), (X, VALUES)


CASES = [
    classes, summed, weighted, weighted_over_batch, unweighted_mean, class_weights, masked,
    masked_sum, masked_mean, masked_weighted, two_outputs, weights_for_each_output,
    list_of_outputs, own_loss, ignored_labels, curves, scores, average_of_weights, subclassed,
    accumulated_by_the_optimizer, one_of_two_losses, added_loss,
    split_off, weights_in_a_column, poisson, flat_outputs, flat_outputs_beside_columns,
    flat_outputs_with_a_loss_by_rows, mean_over_the_rows, several_losses_of_one_output,
    metric_used_twice, rows_read_by_the_loss, rows_read_by_the_model, nothing_trainable,
]  # fmt: skip


def train(case, fit, epochs=2, **options):
    """Trains a case; returns (history, weights, model)."""
    keras.utils.clear_session(free_memory=False)  # Else the second model's metrics have new names.
    keras.utils.set_random_seed(1)
    model, data, *more = case()
    options = {**(more[0] if more else {}), **options}
    names = ("x", "y", "sample_weight")
    held_out = keras.tree.map_structure(lambda part: part[:9], data)
    arguments = dict(zip(names, data, strict=False))
    options = {"validation_data": held_out, "batch_size": 8, "shuffle": False, **options}
    if "validation_split" in options:
        options["validation_data"] = None
    history = fit(model, **arguments, epochs=epochs, verbose=0, **options)
    return history.history, model.get_weights(), model


@pytest.mark.parametrize(
    ("case", "num_towers"),
    [
        pytest.param(
            case, count, id=f"{case.__name__}-{count}",
            marks=[] if case.__name__ in QUICK and count == 2 else pytest.mark.slow,
        )
        for case in CASES
        for count in (1, 2, 3)
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
def test_a_compiled_model_trains_as_on_one_device(case, num_towers):
    expected, weights, _ = train(case, keras.Model.fit)
    actual, others, _ = train(case, towers.fit, towers=tower_devices(num_towers))
    assert set(actual) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(actual[name], values, rtol=1e-12, atol=1e-12, err_msg=name)
    for one, other in zip(others, weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * max(1, np.abs(other).max()))


@pytest.mark.slow
def test_clipped_micro_batches_are_those_of_a_clipped_batch():
    def clipped():
        optimizer = keras.optimizers.SGD(0.5, global_clipnorm=0.1)
        return compiled(network(), "mse", optimizer=optimizer), (X, VALUES)

    def plain():
        return compiled(network(), "mse", optimizer=keras.optimizers.SGD(0.5)), (X, VALUES)

    expected, weights, _ = train(clipped, keras.Model.fit)
    options = {"towers": tower_devices(2), "accumulate": 2, "clip_norm": 0.1}
    actual, others, _ = train(plain, towers.fit, **options)
    np.testing.assert_allclose(actual["loss"], expected["loss"], rtol=1e-12)
    for one, other in zip(others, weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_float16_is_trained_with_the_loss_scale_of_compile():
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("mixed_float16")
    histories = []
    for fit, options in ((keras.Model.fit, {}), (towers.fit, {"towers": tower_devices(2)})):
        keras.utils.set_random_seed(1)
        model = compiled(network(), "mse", optimizer=keras.optimizers.SGD(0.1))
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        options = {"batch_size": 8, "epochs": 3, "shuffle": False, "verbose": 0, **options}
        histories.append(fit(model, X, VALUES, **options).history["loss"])
        assert int(model.optimizer.iterations) == 9
    np.testing.assert_allclose(*histories, rtol=2e-3)
    assert histories[0][-1] < 0.98 * histories[0][0]


def test_a_float16_training_goes_on_with_the_scale_that_it_found():
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("mixed_float16")

    def train(fit, **options):
        keras.utils.set_random_seed(1)
        inputs = keras.Input(X.shape[1:])
        hidden = keras.layers.Dense(3, use_bias=False)(inputs)
        hidden = keras.layers.Rescaling(100.0, dtype="float16")(hidden)
        outputs = keras.layers.Activation("linear", dtype="float32")(hidden)
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.SGD(1e-6), "mse")
        seen = []
        for _ in range(3):
            fit(
                model, 1e-3 * X, VALUES, batch_size=8, epochs=2, shuffle=False, verbose=0, **options
            )
            optimizer = model.optimizer
            seen.append((int(optimizer.iterations), float(optimizer.dynamic_scale)))
        return seen

    expected = train(keras.Model.fit)
    assert expected[0][1] < 2**15 and expected[-1][0] > 0
    assert train(towers.fit) == expected
    for number in (2, 3):  # It scales the mean loss of the batch; rows overflow, no sums of rows.
        assert train(towers.fit, towers=tower_devices(number)) == expected


@pytest.mark.parametrize("policy", ["float16", "mixed_float16"])
def test_layers_in_float16_without_a_scale_overflow_where_those_of_one_device_do(policy):
    """The gradients of a sum of losses would overflow here, those of its mean do not."""
    keras.config.set_floatx("float32")
    x = np.random.default_rng(0).normal(50.0, 1.0, (600, 5))

    def train(fit, **options):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, dtype=policy)])
        model.compile(keras.optimizers.SGD(1e-4), "mse")
        options = {"batch_size": 300, "shuffle": False, "verbose": 0, **options}
        return fit(model, x, x[:, :3], **options).history["loss"]

    expected = train(keras.Model.fit)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(train(towers.fit, towers=tower_devices(2)), expected, rtol=1e-3)
