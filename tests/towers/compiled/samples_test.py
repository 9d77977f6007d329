"""A model that preprocesses its samples, as tasks of KerasHub do, trains as by its own `fit`."""

import functools
import importlib.util

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.helpers import tower_devices

pytestmark = pytest.mark.usefixtures("float64")
TEXTS = np.array(["a", "bb c", "d e f", "gg", "hh iii", "j", "k l", "m", "nn", "o p q", "rr s"])
LABELS, WEIGHTS = np.arange(11) % 2, np.linspace(0.5, 1.5, 11)


class Pipeline(keras.Model):
    """Of the shape of KerasHub's `PipelineModel`: its methods preprocess, and call Keras's."""

    def preprocess_samples(self, x, y=None, sample_weight=None):
        lengths = tf.strings.length(x), tf.strings.length(tf.strings.regex_replace(x, " ", ""))
        x = tf.stack([tf.cast(one, keras.config.floatx()) for one in lengths], axis=1)
        return keras.utils.pack_x_y_sample_weight(x, y, sample_weight)

    def data(self, x, y=None, sample_weight=None, batch_size=None):
        if not isinstance(x, tf.data.Dataset):
            rows = keras.utils.pack_x_y_sample_weight(x, y, sample_weight)
            x = tf.data.Dataset.from_tensor_slices(rows).batch(batch_size or 32)
        return x.map(self.preprocess_samples)

    def fit(self, x=None, y=None, batch_size=None, sample_weight=None, validation_data=None,
            validation_split=None, **options):  # fmt: skip
        if validation_split:
            middle = int(len(x) * (1 - validation_split))
            validation_data = (x[middle:], y[middle:])
            x, y = x[:middle], y[:middle]
        if isinstance(validation_data, tuple):
            validation_data = self.data(*validation_data, batch_size=batch_size)
        elif validation_data is not None:
            validation_data = self.data(validation_data)
        x = self.data(x, y, sample_weight, batch_size)
        return super().fit(x, validation_data=validation_data, shuffle=False, **options)

    def evaluate(self, x=None, y=None, batch_size=None, sample_weight=None, **options):
        if not options.get("_use_cached_eval_dataset"):
            x = self.data(x, y, sample_weight, batch_size)
        return super().evaluate(x, **options)

    def predict(self, x=None, batch_size=None, **options):
        return super().predict(self.data(x, batch_size=batch_size), **options)


def pipeline(kind=Pipeline):
    keras.utils.set_random_seed(1)
    inputs = keras.Input((2,))
    model = kind(inputs, keras.layers.Dense(2, "softmax")(inputs))
    loss = "sparse_categorical_crossentropy"
    model.compile(
        keras.optimizers.SGD(0.1), loss, metrics=["accuracy"], weighted_metrics=["accuracy"]
    )
    return model


def batches():
    return tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(4)


HELD_OUT = {"validation_data": (TEXTS[:5], LABELS[:5])}
CALLS = {
    "arrays": lambda: ((TEXTS, LABELS), {"batch_size": 4, **HELD_OUT}),
    "weights": lambda: ((TEXTS, LABELS), {"batch_size": 4, "sample_weight": WEIGHTS}),
    "list": lambda: ((list(TEXTS), LABELS), {"batch_size": 4}),
    "data_set": lambda: ((batches(),), {"validation_data": batches()}),
    "split": lambda: ((TEXTS, LABELS), {"batch_size": 4, "validation_split": 0.3}),
    "list_split": lambda: ((list(TEXTS), LABELS), {"batch_size": 4, "validation_split": 0.3}),
    "classes": lambda: ((TEXTS, LABELS), {"batch_size": 4, "class_weight": {0: 2.0, 1: 0.5}}),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "split",
        "list_split",
        *(pytest.param(one, marks=pytest.mark.slow) for one in CALLS if "split" not in one),
    ],
)
def test_a_model_that_preprocesses_trains_evaluates_and_predicts_as_by_its_own_methods(name):
    results = []
    for own in ({}, {"towers": tower_devices(2)}):
        model = pipeline()
        names = ("fit", "evaluate", "predict")
        fit, evaluate, predict = (
            functools.partial(getattr(towers, name), model) if own else getattr(model, name)
            for name in names
        )
        data, options = CALLS[name]()
        history = fit(*data, epochs=2, verbose=0, **options, **own).history
        data, options = CALLS[name]()
        weights = {key: options[key] for key in options if key == "sample_weight"}
        size = {} if name == "data_set" else {"batch_size": 4}
        means = evaluate(*data, verbose=0, **size, **weights, **own)
        x = data[0].map(lambda x, y: x) if name == "data_set" else data[0]
        outputs = predict(x, verbose=0, **size, **own)
        results.append((history, means, outputs, model.get_weights()))
    (history, *expected), (other, *actual) = results
    assert set(history) == set(other)
    for key, values in history.items():
        np.testing.assert_allclose(other[key], values, rtol=1e-12, err_msg=key)
    for one, two in zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-12)


def test_samples_that_are_no_rows_are_told():
    with pytest.raises(ValueError, match="Pipeline preprocesses its samples, which must be arrays"):
        towers.fit(pipeline(), iter([(TEXTS, LABELS)]), verbose=0)


class OwnFit(Pipeline):
    def fit(self, *data, **options):
        return super().fit(*data, **{**options, "epochs": 1})


class OwnEvaluate(keras.Model):
    def evaluate(self, *data, **options):
        super().evaluate(*data, **options)
        return "its own"


class OwnPredict(keras.Model):
    def predict(self, *data, **options):
        return 0.5 * super().predict(*data, **options)


class OwnTestStep(keras.Model):
    def test_step(self, data):
        return {"loss": 0.0}


X = np.ones((4, 2))


@pytest.mark.parametrize("num_towers", [1, 2])
def test_other_methods_of_its_own_are_called(num_towers):
    history = towers.fit(pipeline(OwnFit), TEXTS, LABELS, verbose=0, epochs=3, towers=num_towers)
    assert history.epoch == [0], "which is how its fit changes the epochs"
    model = pipeline(OwnPredict)
    halves = towers.predict(model, X, verbose=0, towers=num_towers)
    np.testing.assert_allclose(2 * halves, keras.Model.predict(model, X, verbose=0), rtol=1e-6)
    split = {"validation_split": 0.5, "verbose": 0, "towers": num_towers}
    assert towers.fit(pipeline(OwnTestStep), X, LABELS[:4], **split).history["val_loss"] == [0.0]
    named = towers.evaluate(pipeline(OwnEvaluate), X, LABELS[:4], verbose=0, towers=num_towers)
    assert named == "its own"


def test_a_method_that_is_not_called_is_no_obstacle():
    towers.fit(pipeline(OwnPredict), X, LABELS[:4], verbose=0)
    towers.fit(pipeline(OwnTestStep), X, LABELS[:4], verbose=0)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("keras_hub") is None,
    reason="keras-hub is not installed; the extra `zoo` brings it",
)
def test_a_task_of_keras_hub_trains_as_by_its_own_fit():
    import keras_hub

    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    pictures = np.random.default_rng(0).integers(0, 256, (12, 20, 20, 3)).astype("float32")
    labels, weights = np.arange(12) % 3, []
    for own in ({}, {"towers": tower_devices(2)}):
        keras.utils.set_random_seed(1)
        converter = keras_hub.layers.ViTImageConverter(image_size=(16, 16), scale=1 / 255)
        model = keras_hub.models.ViTImageClassifier(
            backbone=keras_hub.models.ViTBackbone(
                image_shape=(16, 16, 3), patch_size=8, num_layers=1, num_heads=2, hidden_dim=8,
                mlp_dim=12,
            ),
            preprocessor=keras_hub.models.ViTImageClassifierPreprocessor(image_converter=converter),
            num_classes=3, pooling="token",
        )  # fmt: skip
        model.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(True))
        options = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0, **own}
        fit = functools.partial(towers.fit, model) if own else model.fit
        fit(pictures, labels, **options)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
