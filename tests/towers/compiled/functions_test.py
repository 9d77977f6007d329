"""What Keras's `fit` calls on towers: their step for shards, and Keras's own for other data."""

import keras
import numpy as np
import pytest

import towers
from tests.helpers import tower_devices

RANDOM = np.random.default_rng(5)
X, Y = RANDOM.normal(size=(22, 4)).astype("float32"), RANDOM.normal(size=(22, 2))


def network():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
    return model


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


def test_nothing_to_evaluate_is_told():
    with pytest.raises(ValueError, match="nothing to evaluate"):
        towers.evaluate(network(), X[:0], Y[:0], verbose=0, towers=tower_devices(2))
