"""`towers.evaluate` and `towers.predict` against Keras's own on one device."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.helpers import tower_devices

RANDOM = np.random.default_rng(2)
X = {"a": RANDOM.normal(size=(11, 3)), "b": RANDOM.normal(size=(11, 2))}
Y = [RANDOM.normal(size=(11, 2)), RANDOM.normal(size=(11, 1))]


def make_model():
    inputs = {"a": keras.Input((3,), name="a"), "b": keras.Input((2,), name="b")}
    joined = keras.layers.Concatenate()(list(inputs.values()))
    outputs = [keras.layers.Dense(2, name="c")(joined), keras.layers.Dense(1, name="d")(joined)]
    model = keras.Model(inputs, outputs)
    model.compile(loss=["mse", "mse"], loss_weights=[1.0, 0.5], metrics=[["mae"], ["mae"]])
    return model


@pytest.mark.parametrize("num_towers", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_evaluate_returns_what_keras_does(num_towers):
    model, devices = make_model(), tower_devices(num_towers)
    expected = model.evaluate(X, Y, batch_size=4, verbose=0, return_dict=True)
    actual = towers.evaluate(model, X, Y, batch_size=4, verbose=0, return_dict=True, towers=devices)
    assert set(actual) == set(expected)
    for name, value in expected.items():
        assert actual[name] == pytest.approx(value, rel=1e-5), name
    listed = towers.evaluate(model, X, Y, batch_size=4, verbose=0, towers=devices)
    np.testing.assert_allclose(listed, model.evaluate(X, Y, batch_size=4, verbose=0), rtol=1e-5)


def test_evaluate_takes_so_many_steps():
    model = make_model()
    part = {name: array[:8] for name, array in X.items()}
    expected = model.evaluate(part, [array[:8] for array in Y], batch_size=4, verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices((X, tuple(Y))).batch(4)
    actual = towers.evaluate(model, dataset, steps=2, verbose=0, towers=tower_devices(2))
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("num_towers", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_predict_returns_what_keras_does(num_towers):
    model = make_model()
    expected = model.predict(X, batch_size=5, verbose=0)
    actual = towers.predict(model, X, batch_size=5, verbose=0, towers=tower_devices(num_towers))
    assert type(actual) is type(expected)
    for one, other in zip(actual, expected, strict=True):
        assert isinstance(one, np.ndarray) and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_what_is_otherwise_in_a_training_alone_is_told_by_a_training_alone(capsys):
    class Own(keras.Model):
        def train_step(self, data):
            return super().train_step(data)

    inputs = keras.Input((3,))
    model = Own(inputs, keras.layers.BatchNormalization()(inputs), name="norm")
    model.compile("sgd", "mse")
    towers.predict(model, X["a"], towers=tower_devices(2))
    assert "2 towers run norm\n" in capsys.readouterr().out
    towers.fit(model, X["a"], X["a"], towers=tower_devices(2), verbose=2)
    assert "takes each tower's rows by themselves" in capsys.readouterr().out


def test_predict_needs_no_compile_and_tells_its_callbacks():
    heard = []
    model = keras.Sequential([keras.layers.Dense(2)])
    callback = keras.callbacks.LambdaCallback()
    callback.on_predict_batch_end = lambda batch, logs: heard.append(logs["outputs"].shape)
    outputs = towers.predict(
        model, X["a"], batch_size=4, verbose=0, callbacks=[callback], towers=tower_devices(2)
    )
    assert heard == [(4, 2), (4, 2), (3, 2)] and outputs.shape == (11, 2)
    np.testing.assert_allclose(outputs, model.predict(X["a"], verbose=0), rtol=1e-5, atol=1e-7)


def test_data_without_examples_is_refused():
    empty = tf.data.Dataset.from_tensor_slices((X, tuple(Y))).batch(2).take(0)
    with pytest.raises(ValueError, match="nothing to evaluate"):
        towers.evaluate(make_model(), empty, verbose=0)
    with (
        pytest.warns(UserWarning, match="ran out of data"),
        pytest.raises(ValueError, match="nothing to predict"),
    ):
        towers.predict(make_model(), X["a"][:0], verbose=0)


@pytest.mark.parametrize("x, received", [(X["a"].tolist(), "Received list"), (None, "x=None")])
def test_what_predict_cannot_read_is_told_in_one_sentence(x, received):
    with pytest.raises(ValueError, match=received) as told:
        towers.predict(make_model(), x, verbose=0)
    assert len(str(told.value)) < 200
