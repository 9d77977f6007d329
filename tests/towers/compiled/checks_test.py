"""What towers cannot add trains by its own code; wrong arguments are refused before."""

import contextlib
import functools
import gc
import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.metrics import ALL_OBJECTS

import towers
from tests.helpers import tower_devices
from towers.layers.asking import near

X = np.sin(np.arange(18, dtype="float32")).reshape(6, 3)
Y = np.arange(12, dtype="float32").reshape(6, 2) / 12


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


def test_a_model_that_is_not_compiled_is_refused():
    inputs = keras.Input((3,))
    refused(keras.Model(inputs, keras.layers.Dense(2)(inputs)), r"Call model.compile\(\)")


def distance(y_true, y_pred):
    return keras.ops.mean(keras.ops.abs(y_true - y_pred))


class OwnDivision(keras.losses.Loss):
    def __call__(self, y_true, y_pred, sample_weight=None):
        return keras.ops.mean(keras.ops.square(y_true - y_pred)) / 2


class OfTheBatch(keras.losses.Loss):
    """Weighs each row by its part of all distances."""

    def call(self, y_true, y_pred):
        far = keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)
        return far * far / keras.ops.sum(far)


class Penalty(keras.layers.Layer):
    def __init__(self, reduce):
        super().__init__()
        self.reduce = reduce

    def call(self, inputs):
        self.add_loss(self.reduce(keras.ops.square(inputs)))
        return inputs


class Counting(keras.layers.Layer):
    """Owns a metric."""

    def __init__(self):
        super().__init__()
        self.mean = keras.metrics.Mean(name="mean_input")

    def call(self, inputs):
        self.mean.update_state(inputs)
        return inputs


class Largest(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="largest")
        self.value = self.add_variable((), "zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(keras.ops.maximum(self.value, keras.ops.max(y_pred)))

    def result(self):
        return self.value


class Doubled(keras.optimizers.SGD):
    def scale_loss(self, loss):
        return 2 * loss


class AroundAnother(keras.optimizers.SGD):
    def __init__(self):
        super().__init__()
        self.inner = keras.optimizers.SGD(0.05, momentum=0.9)

    def build(self, variables):
        super().build(variables)
        self.inner.build(variables)

    def apply(self, gradients, variables=None):
        self.inner.apply(gradients, variables)


def annealed():
    factor = keras.Variable(0.5, trainable=False)
    return lambda y_true, y_pred: factor * keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)


OWN_CODE = {
    "an eager step": (lambda: network(run_eagerly=True), "run_eagerly=True"),
    "a loss that is one number": (lambda: network(loss=distance), "loss 'distance' returns no"),
    "a loss with its own division": (lambda: network(loss=OwnDivision(name="own")), "loss 'own'"),
    "a loss that couples rows": (lambda: network(loss=OfTheBatch(name="far")), "'far' couples"),
    "a loss with a variable": (lambda: network(loss=annealed()), "uses variables"),
    "a loss of the whole batch": (lambda: network(loss="dice"), "'dice' is one of the whole batch"),
    "a mean that a layer adds": (lambda: network(Penalty(keras.ops.mean)), None),
    "a sum that a layer adds": (lambda: network(Penalty(keras.ops.sum)), "adds or returns a sum"),
    "values that a layer adds": (
        lambda: network(Penalty(lambda one: keras.ops.mean(one, -1))),
        None,
    ),
    "a function that is one number": (lambda: network(metrics=[distance]), "metric 'distance'"),
    "a metric over the columns": (
        lambda: network(metrics=[keras.metrics.CosineSimilarity(axis=0, name="columns")]),
        "metric 'columns' may not",
    ),
    "a metric that is no sum": (lambda: network(metrics=[Largest()]), "metric 'largest' may not"),
    "a loss as a metric": (lambda: network(metrics=[keras.losses.Tversky()]), "may not add up"),
    "a metric of a layer": (lambda: network(Counting()), "owns the metric 'mean_input'"),
    "an optimizer of others": (
        lambda: network(optimizer=AroundAnother()),
        "outside of its `variables`",
    ),
    "an optimizer's own scale": (lambda: network(optimizer=Doubled()), "a scale_loss() of its own"),
}


@pytest.fixture
def garbage_at_once():
    """Whatever nothing refers to is collected as soon as anything is made."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(20, 1, 1)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_a_loss_that_is_asked_stays_alive(garbage_at_once):
    model = network(loss=OfTheBatch(name="far"))
    towers.fit(model, X, Y, verbose=0, towers=tower_devices(2))


@pytest.mark.parametrize("name", OWN_CODE)
def test_code_that_towers_cannot_add_trains_as_one_device_does(name, capsys):
    """It says in one line why its layers alone run on the towers."""
    make, reason = OWN_CODE[name]
    ended = []
    for fit in (keras.Model.fit, functools.partial(towers.fit, towers=2)):
        keras.utils.set_random_seed(5)
        model = make()
        history = fit(model, X, Y, batch_size=4, epochs=2, shuffle=False, verbose=2)
        ended.append((model.get_weights(), history.history))
    said = capsys.readouterr().out
    assert said.count("the towers run layers only, since") == (reason is not None)
    assert reason is None or reason in said
    for one, other in zip(ended[0][0], ended[1][0], strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6)
    for key, values in ended[0][1].items():
        np.testing.assert_allclose(ended[1][1][key], values, rtol=1e-5)


def test_what_its_own_code_cannot_have_is_refused_by_name():
    for options in ({"accumulate": 2}, {"clip_norm": 1.0}):
        refused(network(loss=distance), f"{next(iter(options))} has no effect", **options)


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
            whole, first, second, after = map(np.asarray, states)
            assert near(whole, first + second) and near(after, whole), kind.__name__
            tried += 1
    assert tried > 60


def zeros(metric):
    return [tf.zeros(variable.shape, variable.dtype) for variable in metric.variables]


def test_generators_of_validation_data_need_their_number_of_steps():
    def batches():
        yield X, Y

    refused(network(), "read once.*validation_steps", epochs=2, validation_data=batches())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"seed": "a"}, "seed must be a whole number"),
        ({"epochs": "5"}, "epochs must be a whole number of at least 0. Received '5'"),
        ({"run_dir": __file__}, "run_dir must be a folder, or new"),
        ({"run_dir": ""}, "run_dir must be a folder, or new. Received ''"),
        ({"run_dir": 3}, "run_dir must be a folder, or new. Received 3"),
        ({"steps_per_epoch": 2.5}, "steps_per_epoch must be a whole number of at least 1"),
        ({"batch_size": "3"}, "batch_size must be a whole number of at least 1. Received '3'"),
        ({"clip_norm": "1"}, "clip_norm must be above 0 and finite. Received '1'"),
        ({"validation_split": "0.1"}, r"validation_split must be in \[0, 1\). Received '0.1'"),
        ({"validation_split": 20}, r"validation_split must be in \[0, 1\). Received 20"),
        ({"shuffle": "yes"}, "shuffle must be one of batch. Received 'yes'"),
        ({"class_weight": [1, 2]}, r"such as \{0: 1.0, 1: 2.5\}. Received \[1, 2\]"),
        ({"callbacks": keras.callbacks.EarlyStopping}, r"such as EarlyStopping\(...\). Received"),
        ({"callbacks": [print]}, r"such as LambdaCallback\(...\). Received"),
        ({"callbacks": "stop"}, "callbacks takes objects of Keras's"),
        ({"validation_data": X}, r"Received data without any; pass validation_data=\(x, y\)"),
        ({"validation_data": (X,)}, r"pass validation_data=\(x, y\)"),
        ({"validation_data": (X, Y, Y, Y)}, r"\(x, y, sample_weight\) .* Received a tuple of 4"),
        ({"validation_data": 0.2}, "Received 0.2; .* by validation_split=0.1"),
        ({"towers": ["/GPU:3", "/GPU:4"]}, r"no device '/GPU:3'. TensorFlow has .*/device:CPU:0"),
        ({"towers": ["gpu"]}, "no device 'gpu'"),
        ({"towers": 100_000}, "towers must be from 1 to 1024. Received 100000"),
        ({"towers": tf.distribute.OneDeviceStrategy("CPU:0")}, "towers takes a number or a list"),
        ({"towers": True}, "towers takes a number or a list of device names. Received True"),
        ({"towers": "2"}, "towers takes a number or a list of device names. Received '2'"),
    ],
)
def test_wrong_arguments_are_refused(options, match):
    refused(network(), match, **options)


def test_data_in_the_place_of_the_model_is_refused_in_one_line():
    with pytest.raises(ValueError, match=r"a Keras model first\. Received <class 'numpy.ndarray'>"):
        towers.fit(X, Y)


@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize`")
def test_scales_that_become_their_gradients_are_refused():
    """Those of float8: towers would add them."""
    model = network()
    model.quantize("float8")
    model.compile("sgd", "mse")
    refused(model, "inputs_scale, which Keras sets to its gradient")
    placement = towers.Placement(["/CPU:0"])
    batches = towers.batches_from(tf.data.Dataset.from_tensors((X, Y)))

    def tower_fn(shard):
        return tf.reduce_sum(model(shard[0])), tf.shape(shard[0])[0], {}

    with pytest.raises(ValueError, match="inputs_scale, which Keras sets to its gradient"):
        towers.build_train_step(tower_fn, model, model.optimizer, placement, batches)


def test_missing_data_is_told():
    with pytest.raises(ValueError, match="Received x=None"):
        towers.fit(network())
    for call in (towers.fit, towers.evaluate):
        with pytest.raises(ValueError, match=r"compares outputs with labels.* pass y"):
            call(network(), X)
        with pytest.raises(ValueError, match=r"labels.* a data set of pairs"):
            call(network(), tf.data.Dataset.from_tensors(X))
    with pytest.raises(ValueError, match="steps must be a whole number of at least 1"):
        towers.predict(network(), X, steps=0)
    with pytest.raises(ValueError, match=r"verbose must be one of auto\. Received 'yes'"):
        towers.fit(network(), X, Y, verbose="yes")


@pytest.mark.parametrize(
    ("loss", "labels", "match"),
    [
        ("sparse_categorical_crossentropy", Y, r"labels of shape \(6, 2\).* one number a row"),
        ("categorical_crossentropy", Y[:, 0], r"labels of shape \(6,\).* a row of 0 and 1"),
        ("sparse_categorical_crossentropy", np.arange(6), "has 2 outputs. Received label [2-5];"),
        ("mse", [[1.0, 2.0]] * 6, "Received ndarray of float32 and list; np.asarray makes"),
        ("mse", list(np.arange(6)), "Received ndarray of float32 and list; np.asarray makes"),
        ("mse", np.array(["a"] * 6), "Received ndarray of float32 and ndarray of <U1"),
    ],
)
def test_wrong_labels_are_told_of_in_one_sentence(loss, labels, match):
    with pytest.raises(ValueError, match=match) as told:
        towers.fit(network(loss=loss), X, labels, verbose=0)
    assert len(str(told.value)) < 300 and "\n" not in str(told.value)


@pytest.mark.parametrize("x", [X[:5], list(np.repeat(X, 50, axis=0))])
def test_other_numbers_of_rows_are_told_of_in_one_sentence(x):
    with pytest.raises(
        ValueError, match=r"same number of rows\. Received [35].* of x and 6 of y"
    ) as told:
        towers.fit(network(), x, Y, verbose=0)
    assert len(str(told.value)) < 200


@pytest.mark.parametrize("loss", ["mse", keras.losses.Huber()])
def test_labels_are_not_taken_for_those_of_other_rows_where_a_shard_has_as_many_as_outputs(loss):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
    model.compile("sgd", loss)
    with pytest.raises(ValueError, match=r"\[6\].*\[6,3\]|\[6,3\].*\[6\]"):
        towers.fit(model, X, Y[:, 0], towers=2, verbose=0)


@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize("metric", ["mae", keras.metrics.RootMeanSquaredError()])
def test_a_metric_compares_labels_with_those_of_their_own_row_and_output(metric, num_outputs):
    """Labels [rows, 3] beside outputs [rows, 3, 3], of which each shard has 3 rows."""

    def loss(y_true, y_pred):
        return keras.ops.mean(keras.ops.square(y_pred - y_true[:, None]), axis=(1, 2))

    inputs = keras.Input((3,))
    flat = keras.layers.Dense(3)(inputs)
    cubes = keras.layers.Reshape((3, 3))(keras.layers.Dense(9)(inputs))
    model = keras.Model(inputs, [cubes, flat][:num_outputs])
    model.compile(
        "sgd", [loss, "mse"][:num_outputs], metrics=[[metric], []] if num_outputs == 2 else [metric]
    )
    refusals = (ValueError, tf.errors.InvalidArgumentError)
    with pytest.raises(refusals, match=r"\[6,3\].*\[6,3,3\]|\[6,3,3\].*\[6,3\]"):
        towers.fit(model, X, [X] * num_outputs, towers=2, verbose=0)


def test_a_metric_that_takes_labels_of_classes_for_one_row_is_that_of_one_device():
    """`categorical_accuracy` finds the place of the largest label of all rows: here 0, then 1."""
    labels, rows = np.array([1, 0, 0, 0, 1, 0]), np.eye(3, dtype="float32")[[0] * 6]
    for num_towers in (1, 2):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["categorical_accuracy"])
        model.layers[0].kernel.assign(np.eye(3))
        options = {"towers": num_towers, "shuffle": False, "verbose": 0}
        history = towers.fit(model, rows, labels, **options).history
        assert history["categorical_accuracy"] == [1.0]


@pytest.mark.parametrize("metric", ["mae", "mse", "cosine_similarity", "accuracy"])
def test_labels_of_one_number_have_the_step_of_the_towers(metric):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[metric])
    towers.fit(model, X, Y[:, 0], towers=2, clip_norm=1.0, verbose=0)


def test_a_metric_beside_flat_labels_of_another_output_has_the_step_of_the_towers():
    labels = {
        "a": np.eye(2, dtype="float32")[[0, 1, 0, 0, 1, 1]],
        "b": np.array([1, 0, 1, 1, 0, 1]),
    }
    data, found = tf.data.Dataset.from_tensor_slices((X, labels)).batch(4), []
    for fit in (keras.Model.fit, functools.partial(towers.fit, towers=2, clip_norm=1e6)):
        keras.utils.set_random_seed(1)
        model = network(lambda hidden: {"a": hidden, "b": keras.layers.Dense(2)(hidden)})
        losses = {"a": "mse", "b": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
        metrics = {"a": ["categorical_accuracy", "mae", "poisson"], "b": ["accuracy"]}
        model.compile("sgd", losses, metrics=metrics)
        found.append(fit(model, data, shuffle=False, verbose=0).history)
    expected, history = found
    assert set(history) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5, err_msg=name)


ROWS = tf.data.Dataset.from_tensor_slices((X, Y))


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (ROWS, r"takes inputs of shape \(None, \d\), rows first\. Received \(None,\); batch the"),
        (ROWS.batch(3).batch(2), "labels of shape|takes inputs of shape"),
        (ROWS.batch(2).map(lambda x, y: (x[:, :1], y)), r"Received .*\(None, 1\); (bring|give)"),
    ],
)
def test_wrong_inputs_are_told_of_in_one_sentence(data, match):
    calls = (towers.fit, towers.evaluate, lambda *pair, verbose: towers.check(*pair))
    for call in calls:
        with pytest.raises(ValueError, match=match) as told:
            call(network(), data, verbose=0)
        assert len(str(told.value)) < 300 and "\n" not in str(told.value)
    with pytest.raises(ValueError, match="shape"):
        towers.predict(network(), data.map(lambda x, y: x), verbose=0)


def test_a_layer_of_own_code_without_batches_is_told_of_in_one_sentence():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(2)

        def call(self, inputs):
            return self.dense(inputs)

        def train_step(self, data):
            return super().train_step(data)

    model = Own()
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"Layer 'dense.* 2 dimensions or more.*`\.batch") as told:
        towers.fit(model, ROWS, towers=2, verbose=0)
    assert "\n" not in str(told.value)


def test_pictures_without_a_channel_are_not_taken_for_rows_without_a_batch():
    images = np.zeros([6, 8, 8], "float32")
    layers = [keras.layers.Conv2D(2, 3), keras.layers.Flatten(), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"Layer 'conv2d.*of 4 dimensions or more.*`x\[\.\.\."):
        towers.fit(model, images, Y, verbose=0)


def test_a_run_directory_that_cannot_be_written_is_named():
    with pytest.raises(OSError, match=r"run_dir .*passwd/x cannot be made or written: Not a dir"):
        towers.fit(network(), X, Y, run_dir="/etc/passwd/x", verbose=0)


def test_endless_data_is_refused_where_it_would_never_end():
    endless = tf.data.Dataset.from_tensors((X, Y)).repeat()
    refused(network(), "endless.*validation_steps", validation_data=endless)
    with pytest.raises(ValueError, match=r"endless.*steps"):
        towers.evaluate(network(), endless)
    with pytest.raises(ValueError, match=r"endless.*pass steps"):
        towers.predict(network(), endless.map(lambda x, y: x))
    assert towers.predict(network(), endless.map(lambda x, y: x), steps=2, verbose=0).shape[0] == 12


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
    received = "a call" if where == "trained" else "a model that was made or compiled"
    with within("trained"):
        for call in (towers.fit, towers.evaluate):
            with pytest.raises(ValueError, match=f"Received {received} in the scope"):
                call(model, X, Y, verbose=0)


def test_a_data_set_of_a_distribution_strategy_is_refused():
    strategy = tf.distribute.MirroredStrategy(["/CPU:0"])
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors((X, Y)))
    with pytest.raises(ValueError, match=r"cut global batches.* pass the one that it was made of"):
        towers.fit(network(), data, verbose=0)


def test_a_layer_that_couples_rows_of_its_range_alone_ends_as_on_one_device():
    """Keras's `Equalization` makes one histogram of a whole batch, if numbers are far apart."""
    pictures = np.random.default_rng(0).uniform(0, 255, (6, 4, 4, 1))
    weights = []
    for fit, more in ((keras.Model.fit, {}), (towers.fit, {"towers": tower_devices(2)})):
        keras.utils.set_random_seed(1)
        equalized = keras.layers.Pipeline([keras.layers.Equalization()])  # Alone, Keras drops it.
        layers = [equalized, keras.layers.Flatten(), keras.layers.Dense(2)]
        model = keras.Sequential([keras.Input((4, 4, 1)), *layers])
        model.compile(keras.optimizers.SGD(1e-6), "mse")
        fit(model, pictures, Y[:6], batch_size=6, verbose=0, **more)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-6)


def of_pairs(y_true, y_pred):
    """How far each row is behind those that should be behind it."""
    behind = keras.ops.cast(y_true > keras.ops.transpose(y_true), y_pred.dtype)
    return keras.ops.mean(behind * keras.ops.softplus(keras.ops.transpose(y_pred) - y_pred), axis=1)


def test_a_loss_of_pairs_of_which_the_first_batch_has_none_ends_as_on_one_device():
    keras.backend.clear_session()  # The layer that is asked has the name of an argument.
    ranks = np.repeat([0.0, 1.0, 2.0, 0.0], [6, 2, 2, 2])[:, None]
    weights = []
    for fit, more in ((keras.Model.fit, {}), (towers.fit, {"towers": tower_devices(2)})):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(1.0), of_pairs)
        fit(model, np.tile(X, (2, 1)), ranks, batch_size=6, shuffle=False, verbose=0, **more)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-6)


class Centring(keras.layers.Layer):
    """Couples rows in training alone; Keras tells it of training by the call around it."""

    def call(self, inputs, training=False):
        return inputs - keras.ops.mean(inputs, axis=0) if training else inputs


class Around(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner, self.last = Centring(), keras.layers.Dense(2)

    def call(self, inputs, training=False):
        return self.last(self.inner(inputs))


class Literal(keras.Model):
    """Its metric has a weight that is a number of the program."""

    def __init__(self):
        super().__init__()
        self.dense, self.mean = keras.layers.Dense(2), keras.metrics.Mean(name="mean")

    @property
    def metrics(self):
        return [self.mean]

    def call(self, inputs):
        return self.dense(inputs)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = keras.ops.mean((self(data[0]) - data[1]) ** 2)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        self.mean.update_state(loss, sample_weight=3)
        self.mean.update_state(2 * loss)
        return {"mean": self.mean.result()}


class Cached(keras.layers.Layer):
    """Keeps a tensor beside what is none."""

    def call(self, inputs):
        self.cache = {"rows": inputs * 2, "name": "rows", "none": None}
        return inputs


class Reading(Literal):
    def __init__(self):
        super().__init__()
        self.cached = Cached()

    def call(self, inputs):
        outputs = self.dense(self.cached(inputs))
        return outputs

    def train_step(self, data):
        with tf.GradientTape() as tape:
            error = keras.ops.mean((self(data[0]) - data[1]) ** 2)
            loss = error + keras.ops.mean(self.cached.cache["rows"] @ self.dense.kernel)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        self.mean.update_state(loss)
        return {"mean": self.mean.result()}


def activated(activation):
    return network(lambda hidden: keras.layers.Dense(2, activation=activation)(hidden))


def over_the_batch(values):
    return values - keras.ops.mean(values, axis=0)


HIDDEN = {
    "in a user's activation": (lambda: activated(over_the_batch), 4),
    "in an axis of Keras's": (lambda: network(keras.layers.Softmax(axis=0)), 4),
    "in training alone": (Around, 4),
    "in a first batch of one row": (lambda: activated(over_the_batch), 1),
    "in a literal weight": (Literal, 4),
    "in a cache beside other values": (Reading, 4),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_hides_in_a_model_ends_as_on_one_device(name):
    make, first = HIDDEN[name]
    parts = [slice(0, first), slice(first, 6)]
    batches = tf.data.Dataset.from_generator(
        lambda: ((X[part], Y[part]) for part in parts),
        output_signature=(tf.TensorSpec([None, 3]), tf.TensorSpec([None, 2])),
    ).apply(tf.data.experimental.assert_cardinality(2))
    ended = []
    for own in ({}, {"towers": 2}):
        keras.utils.set_random_seed(5)
        model = make()
        if not model.compiled:
            model(X[:2])
            model.compile("sgd", "mse")
        fit = towers.fit if own else keras.Model.fit
        history = fit(model, batches, epochs=2, shuffle=False, verbose=0, **own)
        ended.append((model.get_weights(), history.history))
    for one, other in zip(ended[0][0], ended[1][0], strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6)
    for key, values in ended[0][1].items():
        np.testing.assert_allclose(ended[1][1][key], values, rtol=1e-5)


class Noise(keras.layers.Layer):
    """Draws without a seed, and in training alone."""

    def call(self, inputs, training=False):
        return inputs + 0.1 * keras.random.normal(keras.ops.shape(inputs)) if training else inputs


class OwnStep(keras.Model):
    def train_step(self, data):
        return super().train_step(data)


@pytest.fixture
def nothing_drawn_yet():
    before = global_state.get_global_attribute("global_seed_generator")
    global_state.set_global_attribute("global_seed_generator", None)
    yield
    global_state.set_global_attribute("global_seed_generator", before)


@pytest.mark.parametrize(
    "kind, loss", [(keras.Model, "mse"), (keras.Model, distance), (OwnStep, "mse")]
)
def test_a_layer_draws_without_a_seed(nothing_drawn_yet, kind, loss):
    """Keras makes the generator of such numbers where it is first drawn from: within a scope."""
    inputs = keras.Input((3,))
    model = kind(inputs, keras.layers.Dense(2)(Noise()(inputs)))
    model.compile("sgd", loss)
    state = random.getstate()
    before = model.get_weights()[0]
    towers.fit(model, X, Y, verbose=0, towers=2)
    assert random.getstate() == state
    assert not np.array_equal(model.get_weights()[0], before)
    model.fit(X, Y, verbose=0)
    assert np.isfinite(keras.random.normal((2,)).numpy()).all()


class KeepsValue(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(3, 2), initializer="glorot_uniform")
        self.kept = self.kernel.value

    def call(self, inputs):
        return inputs @ self.kept


def around_an_unlisted_layer(folder):
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    return keras.layers.Lambda(lambda inputs: layer(inputs))  # As users write it.


def of_a_saved_model(folder):
    inside = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, "tanh")])
    inside.export(folder, verbose=False)
    return keras.layers.TFSMLayer(folder, call_endpoint="serve")


@pytest.mark.parametrize(
    "make", [lambda folder: KeepsValue(), around_an_unlisted_layer, of_a_saved_model]
)
def test_layers_that_read_variables_in_ways_of_their_own_train_as_in_keras(make, tmp_path):
    """A tower's own step would refuse them when it is traced."""

    def trained(fit, **options):
        keras.utils.set_random_seed(1)
        inputs = keras.Input((3,))
        model = keras.Model(inputs, keras.layers.Dense(2)(make(str(tmp_path / "saved"))(inputs)))
        model.compile("sgd", "mse")
        fit(model, X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0, **options)
        return model.get_weights()

    expected = trained(keras.Model.fit)
    for one, other in zip(trained(towers.fit, towers=2), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
