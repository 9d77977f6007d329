"""Where a model that exists already is trained."""

import keras
import pytest
import tensorflow as tf

from tests.helpers import tower_devices
from towers.compiled.setting import place
from towers.devices.placement import tower_devices as devices_of


def model_on(device):
    with tf.device(device):
        return keras.Sequential(
            [keras.Input((3,)), keras.layers.Dropout(0.1), keras.layers.Dense(2)]
        )


def test_without_gpus_there_is_one_tower_on_the_cpu_or_as_many_as_asked_for():
    assert devices_of(None) == devices_of(1) == ["/CPU:0"]
    assert devices_of(2) == ["/CPU:1", "/CPU:2"], "of the five that the tests have"
    assert devices_of(6) == ["/CPU:0"] * 6, "where there are not enough"
    assert devices_of(["/CPU:3"]) == ["/CPU:3"]
    with pytest.raises(ValueError, match="Received 0"):
        devices_of(0)


def test_parameters_stay_where_the_model_was_made():
    assert place(model_on("/CPU:0"), tower_devices(2)).device == "/CPU:0"
    assert place(model_on("/CPU:0"), ["/CPU:3"]).device == "/CPU:0"
    assert place(model_on("/CPU:1"), tower_devices(2)).parameters == "tower0"
    assert place(model_on("/CPU:1"), tower_devices(2), "replicated").device == "/CPU:1"
    unbuilt = keras.Sequential([keras.layers.Dense(2)])
    assert place(unbuilt, tower_devices(2)).device == "/CPU:0"


def test_a_model_in_another_place_is_refused():
    with pytest.raises(ValueError, match=r"belong on /CPU:1. Received .* on /CPU:0"):
        place(model_on("/CPU:0"), tower_devices(2), "replicated")
    with pytest.raises(ValueError, match=r"belong on /CPU:1. Received .* on /CPU:2"):
        place(model_on("/CPU:2"), tower_devices(2))
