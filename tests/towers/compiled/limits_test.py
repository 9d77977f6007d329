"""What Keras's configuration and its seed say of a training."""

import keras
import numpy as np
import pytest

import towers
from tests.helpers import tower_devices

RANDOM = np.random.default_rng(6)
X, Y = RANDOM.normal(size=(20, 4)), RANDOM.normal(size=(20, 2))


def network(rate=0.0):
    layers = [keras.Input((4,)), keras.layers.Dropout(rate), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    model.set_weights([np.ones_like(one) for one in model.get_weights()])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model


@pytest.fixture
def limits():
    keras.config.set_max_epochs(2)
    keras.config.set_max_steps_per_epoch(3)
    yield
    keras.config.set_max_epochs(None)
    keras.config.set_max_steps_per_epoch(None)


@pytest.mark.usefixtures("limits")
@pytest.mark.filterwarnings("ignore:Limiting")
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.filterwarnings("ignore:The data ended before")
def test_the_limits_of_keras_are_followed():
    models, devices = (network(), network()), tower_devices(2)
    options = {"batch_size": 4, "verbose": 0}
    for method in ("fit", "evaluate", "predict"):
        data = (X,) if method == "predict" else (X, Y)
        more = {"epochs": 4, "shuffle": False, "validation_data": (X, Y)} if method == "fit" else {}
        expected = getattr(models[0], method)(*data, **options, **more)
        actual = getattr(towers, method)(models[1], *data, **options, **more, towers=devices)
        if method == "fit":
            assert actual.epoch == expected.epoch == [0, 1]
            expected, actual = (
                [one.history["loss"], one.history["val_loss"]] for one in (expected, actual)
            )
        np.testing.assert_allclose(actual, expected, rtol=1e-4)
    assert np.shape(actual) == (12, 2), "three batches of four rows"


@pytest.mark.usefixtures("limits")
def test_a_limit_is_told():
    with pytest.warns(UserWarning) as told:
        towers.fit(network(), X, Y, epochs=4, verbose=0)
    assert [str(one.message) for one in told if one.category is UserWarning] == [
        "Limiting epochs to 2", "Limiting steps_per_epoch to 3",
    ]  # fmt: skip
    assert {one.filename for one in told if one.category is UserWarning} == {__file__}


def losses(keras_seed, rate=0.0, **options):
    keras.utils.set_random_seed(keras_seed)
    return towers.fit(
        network(rate), X, Y, batch_size=7, verbose=0, towers=tower_devices(2), **options
    ).history["loss"]


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_order_and_masks_follow_the_seed_of_keras(rate):
    shuffle = not rate
    assert losses(1, rate, shuffle=shuffle) == losses(1, rate, shuffle=shuffle)
    assert losses(1, rate, shuffle=shuffle) != losses(2, rate, shuffle=shuffle)
    both = {"shuffle": shuffle, "seed": 3}
    assert losses(1, rate, **both) == losses(2, rate, **both), "a seed of its own comes first"
