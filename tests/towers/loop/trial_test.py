"""The trial of the parameters' places: it takes the faster, and leaves everything as it was."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.loop.trial import policies_for

DEVICES = helpers.tower_devices(2)
BATCHES = helpers.dense_batches([6, 5, 4])


def build(placement):
    """Returns a step whose start and whose course depend on random numbers."""
    with placement.scope():
        inputs = keras.Input((5,))
        hidden = keras.layers.Dropout(0.3)(keras.layers.Dense(4)(inputs))
        model = keras.Model(inputs, keras.layers.Dense(3)(hidden))
        optimizer = keras.optimizers.Adam(0.01)
    tower_fn = helpers.classify(model, training=True)
    dataset = helpers.dataset_of(BATCHES)
    options = towers.StepOptions(probe=False)
    return towers.build_train_step(tower_fn, model, optimizer, placement, dataset, options)


def train(parameters):
    step = build(towers.Placement(DEVICES, parameters))
    shards = towers.engine.split(helpers.dataset_of(BATCHES), 2)
    for number, each in enumerate(shards, 1):
        step(each, number)
    groups = step.groups()
    variables = [*groups["variables"], *groups["optimizer"]]
    return {variable.path: np.asarray(variable) for variable in variables}


def test_a_trial_changes_no_bit_and_no_name():
    dataset = helpers.dataset_of(BATCHES)
    found = []
    for tries in (False, True):
        keras.backend.clear_session()
        keras.utils.set_random_seed(7)
        if tries:
            trial = towers.steps.try_parameters(build, DEVICES, dataset)
            assert set(trial.milliseconds) == {"cpu", "replicated"}
        found.append(train("cpu"))
    without, after = found
    assert list(after) == list(without)
    for path, value in without.items():
        np.testing.assert_array_equal(after[path], value)


def test_the_faster_is_taken_and_both_times_are_said():
    trial = towers.steps.Trial({"cpu": 12.34, "replicated": 7.89})
    assert trial.parameters == "replicated"
    assert trial.description == (
        "parameters with a copy on every tower: 7.9 ms a step; on the CPU: 12.3 ms a step"
    )


@pytest.mark.slow
def test_collective_ops_are_tried_and_said():
    dataset = helpers.dataset_of(BATCHES)
    trial = towers.steps.try_parameters(build, DEVICES, dataset, ["replicated", "nccl"])
    assert set(trial.milliseconds) == {"replicated", "nccl"}
    trial = towers.steps.Trial({"cpu": 12.34, "replicated": 7.89, "nccl": 6.5})
    assert (trial.parameters, trial.exchange) == ("replicated", "nccl")
    assert trial.description.startswith(
        "parameters with a copy on every tower, summed by collective ops: 6.5 ms a step; on the"
    )
    assert towers.steps.Trial({"cpu": 12.3, "replicated": 7.8, "nccl": 8.1}).exchange == "packs"


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match=r"replicated.*Received 'replicate'"):
        towers.steps.try_parameters(build, DEVICES, helpers.dataset_of(BATCHES), ["replicate"])


def test_collective_ops_are_tried_on_many_gpus_only():
    assert policies_for(helpers.tower_devices(4)) == ["cpu", "replicated"]
    assert policies_for(["/GPU:0", "/GPU:1"]) == ["cpu", "replicated"]


def exhausted(*policies):
    """Returns a `build` without memory for these policies."""

    def build_or_fail(placement):
        if placement.parameters in policies:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        return build(placement)

    return build_or_fail


@pytest.mark.slow
def test_a_policy_without_memory_for_it_is_not_taken():
    dataset = helpers.dataset_of(BATCHES)
    trial = towers.steps.try_parameters(exhausted("replicated"), DEVICES, dataset)
    assert trial.parameters == "cpu"
    assert trial.description.endswith("with a copy on every tower: too little memory")
    with pytest.raises(tf.errors.ResourceExhaustedError, match="smaller batch"):
        towers.steps.try_parameters(exhausted("cpu", "replicated"), DEVICES, dataset)


@pytest.mark.slow
def test_a_policy_that_devices_cannot_be_trusted_with_is_left_out(monkeypatch):
    monkeypatch.setattr("towers.devices.placement.wrong_sums", lambda devices: list(devices))
    with pytest.warns(RuntimeWarning, match="cannot be trusted"):
        trial = towers.steps.try_parameters(build, DEVICES, helpers.dataset_of(BATCHES))
    assert list(trial.milliseconds) == ["cpu"]
