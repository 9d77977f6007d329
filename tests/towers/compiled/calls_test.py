"""`steps_per_execution` makes calls as in Keras: callbacks, History, validation and evaluation."""

import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.helpers import tower_devices
from tests.kinds.comparison import float64

RANDOM = np.random.default_rng(3)
X, Y = RANDOM.normal(size=(55, 4)), RANDOM.normal(size=(55, 2))
HOOKS = [f"on_{kind}_{place}" for kind in ("train_batch", "test_batch", "epoch")
         for place in ("begin", "end")]  # fmt: skip


class Heard(keras.callbacks.Callback):
    """What was heard, with the numbers of batches and the logs."""

    def __init__(self):
        super().__init__()
        self.calls = []
        for name in HOOKS:
            setattr(self, name, self._hook(name))

    def _hook(self, name):
        def hear(number, logs=None):
            logs = {key: round(float(value), 10) for key, value in (logs or {}).items()}
            self.calls.append((name, number, logs))

        return hear


@pytest.fixture(scope="module")
def model():
    with float64():
        keras.utils.set_random_seed(1)
        made = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(2)]
        )
        made.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"])
        made.optimizer.build(made.trainable_variables)
        made.first = [variable.numpy() for variable in variables_of(made)]
        yield made


def variables_of(model):
    return [*model.variables, *model.optimizer.variables]


def train(fit, model, per_call, data=(X, Y), **options):
    for variable, value in zip(variables_of(model), model.first, strict=True):
        variable.assign(value)
    model.steps_per_execution = per_call
    model.train_function = model.test_function = None
    heard = Heard()
    given = {"epochs": 2, "verbose": 0, "shuffle": False, "callbacks": [heard], **options}
    history = fit(model, *data, **given).history
    return model.get_weights(), history, heard.calls


@pytest.mark.parametrize("per_call, num_towers", [(3, 2), (20, 1), (7, 3)])
def test_callbacks_hear_of_calls_as_in_keras_and_weights_are_those_of_single_steps(
    model, per_call, num_towers, sums_as_written
):
    """The number of batches, 7 and 4 of the validation, is no multiple of 3.

    TensorFlow flattens the sum of three towers otherwise, and adds in an order of chance.
    """
    options = {"batch_size": 8, "validation_data": (X[:30], Y[:30])}
    own = {**options, "towers": tower_devices(num_towers)}
    expected, history, calls = train(keras.Model.fit, model, per_call, **options)
    actual, other, heard = train(towers.fit, model, per_call, **own)
    single, _, _ = train(towers.fit, model, 1, **own)
    assert [call[:2] for call in heard] == [call[:2] for call in calls]
    for one, two in zip(heard, calls, strict=True):
        assert one[2] == pytest.approx(two[2], abs=1e-9)
    for name, values in history.items():
        np.testing.assert_allclose(other[name], values, rtol=1e-12, err_msg=name)
    for one, two, alone in zip(actual, expected, single, strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(one, alone)


def test_a_run_goes_on_with_calls_of_another_size_and_keeps_its_bits(model, tmp_path):
    options = {"batch_size": 8, "towers": tower_devices(2), "accumulate": 2, "epochs": 3}
    expected, history, _ = train(towers.fit, model, 1, **options)
    train(towers.fit, model, 3, run_dir=tmp_path, **{**options, "epochs": 1})
    actual, other, _ = train(towers.fit, model, "auto", run_dir=tmp_path, **options)
    for one, two in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, two)
    assert other["loss"] == history["loss"][1:]


def test_an_epoch_has_its_number_of_steps_whatever_a_call_has(model):
    """Keras would go on to the end of the call."""
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).repeat()
    options = {"steps_per_epoch": 5, "towers": tower_devices(1)}
    expected, _, _ = train(towers.fit, model, 1, (dataset,), **options)
    actual, _, calls = train(towers.fit, model, 3, (dataset,), **options)
    for one, two in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, two)
    ends = [number for name, number, _ in calls if name == "on_train_batch_end"]
    assert ends == [2, 5, 2, 5]


@pytest.mark.filterwarnings("ignore:Your input ran out of data", "ignore:The data ended before")
def test_in_an_epoch_with_fewer_batches_callbacks_hear_of_the_steps_that_are_made(model):
    options = {"batch_size": 16, "steps_per_epoch": 3, "epochs": 4}  # Of 4 batches.
    _, _, expected = train(keras.Model.fit, model, 1, **options)
    _, _, actual = train(towers.fit, model, 1, towers=2, **options)
    assert [call[:2] for call in actual] == [call[:2] for call in expected]


def test_a_call_of_many_steps_reads_no_more_batches_ahead_than_a_step(model):
    """A whole call of them would take a hundred times the memory of a batch."""
    read, read_at_end = [], []

    def note(index):
        read.append(int(index))
        return np.full((4, 4), 0.1)

    def batch(index):
        x = tf.numpy_function(note, [index], tf.float64)
        return tf.ensure_shape(x, (4, 4)), tf.zeros((4, 2), tf.float64)

    def look(number, logs):
        time.sleep(0.5)  # What would be read ahead is read meanwhile.
        read_at_end.append(len(read))

    batches = tf.data.Dataset.range(150).map(batch)
    listening = keras.callbacks.LambdaCallback(on_train_batch_end=look)
    train(towers.fit, model, 50, (batches,), epochs=1, towers=2, callbacks=[listening])
    first, second, last = read_at_end
    assert first < 75 and second < 125 and last == 150


def test_evaluate_makes_calls_too(model):
    model.steps_per_execution = 1
    options = {"batch_size": 8, "verbose": 0, "towers": tower_devices(2), "return_dict": True}
    expected = towers.evaluate(model, X, Y, **options)
    model.steps_per_execution, heard = 3, Heard()
    assert towers.evaluate(model, X, Y, callbacks=[heard], **options) == expected
    assert [call[:2] for call in heard.calls] == [
        ("on_test_batch_begin", 0), ("on_test_batch_end", 2), ("on_test_batch_begin", 3),
        ("on_test_batch_end", 5), ("on_test_batch_begin", 6), ("on_test_batch_end", 8),
    ]  # fmt: skip


def test_no_update_follows_a_call_with_a_gradient_that_is_not_finite(model):
    """The first of nine batches is trained on, the second has an infinity."""
    broken = X[:54].copy()
    broken[6] = np.inf
    options = {"batch_size": 6, "towers": tower_devices(2), "epochs": 1}
    expected, _, _ = train(towers.fit, model, 1, (X[:6], Y[:6]), **options)
    with pytest.raises(towers.actions.NonFiniteGradientError, match="at step 2"):
        train(towers.fit, model, 3, (broken, Y[:54]), **options)
    for one, two in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(one, two)
