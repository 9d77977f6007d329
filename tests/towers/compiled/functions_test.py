"""What Keras's `fit` calls on towers: their step for shards, and Keras's own for other data."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.helpers import tower_devices
from towers.compiled.kept import NAME

RANDOM = np.random.default_rng(5)
X, Y = RANDOM.normal(size=(22, 4)).astype("float32"), RANDOM.normal(size=(22, 2))


def network(*layers, **options):
    keras.utils.set_random_seed(1)
    dense = [keras.layers.Dense(3), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((4,)), *layers, *dense])
    model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"], **options)
    return model


class Counting(keras.layers.Layer):
    """Counts its calls in Python, which a trace makes once."""

    calls = 0

    def call(self, inputs):
        self.calls += 1
        return inputs * self.calls


@pytest.mark.parametrize("number", [2, 3])
def test_a_layer_that_counts_its_calls_is_called_once_by_a_step(number):
    (expected, plain), (found, model) = (
        (fit(model, X, Y, batch_size=8, shuffle=False, verbose=0, **options).history, model)
        for fit, options, model in (
            (keras.Model.fit, {}, network(Counting())),
            (towers.fit, {"towers": tower_devices(number)}, network(Counting())),
        )
    )
    assert model.layers[0].calls == plain.layers[0].calls
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)


class Asks(keras.callbacks.Callback):
    """Calls methods of the model while it is trained."""

    def __init__(self, evaluate):
        super().__init__()
        self._evaluate = evaluate
        self.found = []

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.found.append(self.model.train_on_batch(X[:3], Y[:3]))

    def on_epoch_end(self, epoch, logs=None):
        options = {"batch_size": 8, "verbose": 0}
        self.found += [
            *self.model.evaluate(X, Y, **options),
            *self._evaluate(self.model, X, Y, **options),
            self.model.predict(X, **options).sum(),
            *self.model.test_on_batch(X, Y),
        ]


def test_callbacks_may_call_what_the_model_has():
    found = []
    devices = tower_devices(2)
    for fit, evaluate, options in (
        (keras.Model.fit, keras.Model.evaluate, {}),
        (towers.fit, lambda *given, **more: towers.evaluate(*given, **more, towers=devices),
         {"towers": devices}),
    ):  # fmt: skip
        model, asks = network(), Asks(evaluate)
        history = fit(
            model, X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=[asks],
            validation_data=(X[:9], Y[:9]), **options,
        ).history  # fmt: skip
        found.append((history, asks.found, model.get_weights()))
        assert model.fit(X, Y, batch_size=8, verbose=0).history, "Keras's own afterwards"
    (history, expected, weights), (other, heard, others) = found
    for name, values in history.items():
        np.testing.assert_allclose(other[name], values, rtol=1e-5, err_msg=name)
    flat = [keras.tree.flatten(one) for one in (heard, expected)]
    np.testing.assert_allclose(np.asarray(flat[0]), np.asarray(flat[1]), rtol=1e-5)
    for one, two in zip(weights, others, strict=True):
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-6)


class Compiles(keras.callbacks.Callback):
    """Compiles the model with another loss before the second epoch, and after the last one."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.model.compile(keras.optimizers.SGD(0.01), "mae", metrics=["mse"])
            self.model.make_train_function()

    def on_train_end(self, logs=None):
        self.model.compile(keras.optimizers.SGD(0.1), "log_cosh")


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_model_that_a_callback_compiles_goes_on_as_in_keras(epochs):
    found = []
    options = {"batch_size": 8, "shuffle": False, "verbose": 0}
    for fit, more in ((keras.Model.fit, {}), (towers.fit, {"towers": tower_devices(2)})):
        model = network()
        model.fit(X, Y, **options)
        more |= {"epochs": epochs, "validation_data": (X[:9], Y[:9]), "callbacks": [Compiles()]}
        history = fit(model, X, Y, **options, **more).history
        found.append([history, model.fit(X, Y, **options).history, model.get_weights()])
    for one, other in zip(*map(keras.tree.flatten, found), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)


def test_nothing_to_evaluate_is_told():
    with pytest.raises(ValueError, match="nothing to evaluate"):
        towers.evaluate(network(), X[:0], Y[:0], verbose=0, towers=tower_devices(2))


def synchronized_norm():
    return keras.layers.BatchNormalization(synchronized=True)


def is_compiled(model):
    """Returns whether XLA compiles the towers of the step that a model keeps."""
    kept = vars(model)[NAME].values
    (step, _), *_ = (value for key, value in kept.items() if key[0] == "fit")
    return any("_XlaMustCompile" in op.node_def.attr for op in step.graph.get_operations())


@pytest.mark.parametrize(
    ("layers", "jit_compile", "expected"),
    [
        ([], True, True),
        pytest.param([], False, False, marks=pytest.mark.slow),
        pytest.param([], "auto", False, marks=pytest.mark.slow),  # As in Keras without a GPU.
        pytest.param([synchronized_norm], True, False, marks=pytest.mark.slow),
    ],
)
def test_xla_compiles_the_towers_where_keras_would_compile_the_step(layers, jit_compile, expected):
    one = network(*(layer() for layer in layers), jit_compile=False)
    history = one.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    model = network(*(layer() for layer in layers), jit_compile=jit_compile)
    found = towers.fit(
        model, X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0, towers=tower_devices(2)
    ).history
    assert is_compiled(model) == expected
    for name, values in history.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, err_msg=name)
    for one_weight, weight in zip(one.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(weight, one_weight, rtol=1e-4, atol=1e-6)


def test_what_xla_cannot_compile_trains_without_it_and_says_so():
    class Forgetful(keras.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=[4, 4], name="kernel")

        def call(self, inputs):
            return tf.recompute_grad(lambda x: tf.tanh(x @ self.kernel.value))(inputs)

    model = network(Forgetful(), jit_compile=True)
    with pytest.warns(RuntimeWarning, match="jit_compile is off. .*XLA takes no variable"):
        towers.fit(model, X, Y, batch_size=8, verbose=0, towers=tower_devices(2))
    assert not is_compiled(model)
