"""What towers cannot add is refused by name, before anything is trained."""

import contextlib
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.metrics import ALL_OBJECTS

import towers
from tests.helpers import tower_devices
from towers.compiled.checks import adds_up

X, Y = np.ones((6, 3), "float32"), np.arange(12, dtype="float32").reshape(6, 2)


def network(outputs=None, **options):
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(2)(inputs)
    model = keras.Model(inputs, hidden if outputs is None else outputs(hidden))
    model.compile(**{"loss": "mse", **options})
    return model


def refused(model, match, **options):
    before = model.get_weights()
    with pytest.raises(ValueError, match=match):
        towers.fit(model, X, Y, verbose=0, **options)
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["train_step", "compute_loss", "compute_metrics"])
def test_own_steps_are_refused(name):
    inputs = keras.Input((3,))
    own = type("Own", (keras.Model,), {name: lambda self, *given, **named: None})
    model = own(inputs, keras.layers.Dense(2)(inputs))
    model.compile(loss="mse")
    refused(model, rf"Own overrides {name}\(\)")


def test_a_model_that_is_not_compiled_is_refused():
    inputs = keras.Input((3,))
    refused(keras.Model(inputs, keras.layers.Dense(2)(inputs)), r"Call model.compile\(\)")


def test_an_eager_step_is_refused():
    refused(network(run_eagerly=True), "run_eagerly=True")


def test_a_loss_that_is_a_mean_over_the_batch_is_refused():
    def distance(y_true, y_pred):
        return keras.ops.mean(keras.ops.abs(y_true - y_pred))

    refused(network(loss=distance), "'distance' must return a value for each example")


def test_a_loss_with_its_own_division_is_refused():
    class Own(keras.losses.Loss):
        def __call__(self, y_true, y_pred, sample_weight=None):
            return keras.ops.mean(y_true - y_pred)

    refused(network(loss=Own(name="own")), r"'own' of type Own overrides __call__\(\)")


def test_a_loss_without_a_reduction_is_refused():
    loss = keras.losses.MeanSquaredError(reduction=None)
    refused(network(loss=loss), "must have one of the reductions")


def test_a_loss_of_a_layer_is_refused_unless_it_is_said_what_it_is():
    class Penalty(keras.layers.Layer):
        def call(self, inputs):
            self.add_loss(keras.ops.mean(inputs))
            return inputs

    refused(network(Penalty(name="penalty")), "'penalty' of type Penalty adds a loss")
    towers.fit(network(Penalty()), X, Y, verbose=0, added_losses="mean")
    refused(network(Penalty()), "added_losses must be one of", added_losses="median")


def test_a_metric_that_is_a_mean_over_the_batch_is_refused():
    def error(y_true, y_pred):
        return keras.ops.mean(keras.ops.abs(y_true - y_pred))

    refused(network(metrics=[error]), "'error' of type MeanMetricWrapper cannot be added")


def by_columns(metric):
    return metric(axis=0, name="by_columns")


@pytest.mark.parametrize("metric", ["CosineSimilarity", "PearsonCorrelation"])
def test_a_metric_of_keras_over_the_rows_is_refused(metric):
    model = network(metrics=[by_columns(getattr(keras.metrics, metric))])
    refused(model, f"'by_columns' of type {metric} cannot be added")


@pytest.mark.parametrize(
    "metric, is_refused", [("KLDivergence", True), ("CategoricalHinge", True), ("mse", False)]
)
def test_a_metric_of_labels_of_one_dimension_is_refused_if_it_pairs_the_rows(metric, is_refused):
    model = network(lambda hidden: keras.layers.Dense(1, "sigmoid")(hidden), metrics=[metric])
    match = "cannot be added over the shards" if is_refused else None
    with pytest.raises(ValueError, match=match) if is_refused else contextlib.nullcontext():
        towers.fit(model, X * np.arange(6)[:, None] / 6, Y[:, 0] / 12, verbose=0)


@pytest.mark.parametrize("loss", [keras.losses.Circle(), "circle"], ids=["class", "name"])
def test_a_loss_of_pairs_of_examples_is_refused_on_several_towers(loss):
    model = network(loss=loss)
    labels = np.arange(6) % 2
    with pytest.raises(ValueError, match="'circle' compares the examples of a batch"):
        towers.fit(model, X, labels, verbose=0, towers=2)
    with pytest.raises(ValueError, match="'circle' compares the examples of a batch"):
        towers.fit(model, X, labels, verbose=0, accumulate=2)
    towers.fit(model, X, labels, verbose=0)


def test_a_metric_that_is_no_sum_is_refused():
    class Largest(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="largest")
            self.value = self.add_variable((), "zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.value.assign(keras.ops.maximum(self.value, keras.ops.max(y_true)))

        def result(self):
            return self.value

    refused(network(metrics=[Largest()]), "'largest' of type Largest cannot be added")


def test_a_metric_of_a_layer_is_refused():
    class Counting(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.count = keras.metrics.Sum(name="count")

        def call(self, inputs):
            return inputs

    refused(network(Counting()), "Received 'count', which the model or one of its layers owns")


NEEDED = {
    "MeanIoU": {"num_classes": 3}, "OneHotMeanIoU": {"num_classes": 3},
    "IoU": {"num_classes": 3, "target_class_ids": [0, 2]},
    "OneHotIoU": {"num_classes": 3, "target_class_ids": [1]},
    "BinaryIoU": {}, "MeanRelativeError": {"normalizer": np.full(3, 0.5, "float32")},
    "SensitivityAtSpecificity": {"specificity": 0.5},
    "SpecificityAtSensitivity": {"sensitivity": 0.5},
    "PrecisionAtRecall": {"recall": 0.5}, "RecallAtPrecision": {"precision": 0.5},
    "MeanMetricWrapper": {"fn": keras.losses.mean_squared_error},
}  # fmt: skip
METRICS = sorted(set(ALL_OBJECTS) - {keras.metrics.Metric}, key=str)


def test_every_metric_of_keras_adds_up_over_shards():
    """Which is why none of them is tried on the data of a training."""
    random, tried = np.random.default_rng(0), 0
    labels = random.integers(0, 3, 9)
    one_hot, scores = np.eye(3, dtype="float32")[labels], random.uniform(0.01, 1, (9, 3))
    for kind in METRICS:
        metric = kind(**NEEDED.get(kind.__name__, {}))
        sparse = "Sparse" in kind.__name__
        y_true = labels if sparse or kind.__name__ in ("MeanIoU", "IoU") else one_hot
        y_pred = random.integers(0, 3, 9) if kind.__name__ in ("MeanIoU", "IoU") else scores
        values = [np.asarray(part) for part in (y_true, y_pred.astype("float32"))]
        if kind.__name__ in ("Mean", "Sum"):
            values = values[1:]

        def update(start, stop, states=None, values=values, metric=metric):
            rows = [tf.constant(part[start:stop]) for part in values]
            return metric.stateless_update_state(states or zeros(metric), *rows)

        if not metric.variables:  # It builds itself.
            metric.update_state(*map(tf.constant, values))
        parts = update(0, 9), update(0, 4), update(4, 9), update(4, 9, update(0, 4))
        for states in zip(*parts, strict=True):
            assert adds_up(*map(np.asarray, states)), kind.__name__
            tried += 1
    assert tried > 60


def zeros(metric):
    return [tf.zeros(variable.shape, variable.dtype) for variable in metric.variables]


@pytest.mark.parametrize(
    "metric", [keras.losses.MeanSquaredError(), keras.losses.dice, keras.losses.Tversky()]
)
def test_a_loss_of_keras_that_is_no_metric_by_rows_is_refused(metric):
    refused(network(metrics=[metric]), "cannot be added over the shards")


def test_generators_of_validation_data_need_their_number_of_steps():
    def batches():
        yield X, Y

    refused(network(), "read once.*validation_steps", validation_data=batches())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"seed": -1}, "seed must be at least 0"),
        ({"steps_per_epoch": 0}, "steps_per_epoch must be at least 1"),
        ({"towers": ["/GPU:3", "/GPU:4"]}, r"no device '/GPU:3'. TensorFlow has .*/device:CPU:0"),
        ({"towers": ["gpu"]}, "no device 'gpu'"),
    ],
)
def test_wrong_arguments_are_refused(options, match):
    refused(network(), match, **options)


def test_missing_data_is_told():
    with pytest.raises(ValueError, match="Received x=None"):
        towers.fit(network())


def test_a_stateful_layer_is_told_as_such():
    inputs = keras.Input((3, 2), batch_size=6)
    model = keras.Model(inputs, keras.layers.LSTM(2, stateful=True)(inputs))
    model.compile(loss="mse")
    with pytest.raises(ValueError, match="stateful"):
        towers.fit(model, np.ones((6, 3, 2)), np.ones((6, 2)), verbose=0)


def test_endless_data_is_refused_where_it_would_never_end():
    endless = tf.data.Dataset.from_tensors((X, Y)).repeat()
    refused(network(), "endless.*validation_steps", validation_data=endless)
    with pytest.raises(ValueError, match=r"endless.*steps"):
        towers.evaluate(network(), endless)
    with pytest.raises(ValueError, match=r"endless.*pass steps"):
        towers.predict(network(), endless.map(lambda x, y: x))
    assert towers.predict(network(), endless.map(lambda x, y: x), steps=2, verbose=0).shape[0] == 12


CLUSTER = {"worker": ["127.0.0.1:7001", "127.0.0.1:7002"]}


def test_a_process_of_several_is_refused(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": CLUSTER, "task": {"index": 0}}))
    refused(network(), "TF_CONFIG with 2 processes; .* processes=towers.processes.join_processes()")
    for alone in ("", "{}", "no JSON", json.dumps({"cluster": {"chief": ["127.0.0.1:7001"]}})):
        monkeypatch.setenv("TF_CONFIG", alone)
        towers.fit(network(), X, Y, verbose=0)


@pytest.mark.parametrize("where", ["made", "compiled", "trained"])
def test_a_model_of_a_distribution_strategy_is_refused(where):
    scope = tf.distribute.MirroredStrategy(tower_devices(2)).scope

    def within(at):
        return scope() if at == where else contextlib.nullcontext()

    with within("made"):
        model = keras.Sequential([keras.layers.Dense(2)])
        if where != "trained":  # There it is built within the scope.
            model.build((None, 3))
    with within("compiled"):
        model.compile("sgd", "mse")
    calls = [towers.fit, *([] if where == "trained" else [towers.evaluate])]
    with within("trained"):
        for call in calls:
            with pytest.raises(ValueError, match="made or compiled in the scope"):
                call(model, X, Y, verbose=0)
