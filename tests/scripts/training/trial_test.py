"""`--parameters auto` on several GPUs: measured once, said, and kept with the run."""

import pytest

import towers
from tests import helpers
from towers.scripts.training.catalogue import load_recipe
from towers.scripts.training.options import (
    DeviceOptions,
    EngineOptions,
    OutputOptions,
    PeriodOptions,
    TrainOptions,
)
from towers.scripts.training.trial import MeasuredPlacement

OVERRIDES = ("filters=2,2", "hidden_size=4", "batch_size=20")
GPUS = towers.devices.Devices(("/GPU:0", "/GPU:1"), "two GPUs")


TWO = towers.devices.Devices(tuple(helpers.tower_devices(2)), "two")


@pytest.fixture(scope="module")
def recipe_and_data():
    recipe = load_recipe("shapes", OVERRIDES)
    return recipe, recipe.make_data(recipe.fields, None, 0)


def options(devices=None, **engine):
    return TrainOptions(
        devices or DeviceOptions(), EngineOptions(**engine), PeriodOptions(), OutputOptions()
    )


class OnAnyDevices(MeasuredPlacement):
    """Measures without GPUs, too."""

    def applies_to(self, devices):
        return True


@pytest.mark.slow
def test_what_was_measured_is_said_and_recorded(recipe_and_data, capsys):
    recipe, data = recipe_and_data
    measured = OnAnyDevices(recipe, options(), None)
    placement = measured(TWO, data)
    assert "ms a step; " in capsys.readouterr().out
    assert placement.parameters == measured.record["parameters"]
    assert set(measured.record["milliseconds"]) == {"cpu", "replicated"}
    nccl = {**measured.record, "parameters": "replicated", "exchange": "nccl"}
    anew = OnAnyDevices(recipe, options(exchange="packs"), nccl)
    assert anew(TWO, data).exchange == anew.record["exchange"] == "packs"


@pytest.mark.parametrize("policy", ["cpu", "replicated"])
def test_what_is_recorded_with_the_run_is_not_measured_again(policy, recipe_and_data, capsys):
    recipe, data = recipe_and_data
    kept = {"parameters": policy, "towers": 2, "milliseconds": {"cpu": 3.0, "replicated": 4.0}}
    again = OnAnyDevices(recipe, options(), kept)
    assert again(TWO, data).parameters == policy and again.record == kept
    assert capsys.readouterr().out == ""


def test_the_exchange_that_was_measured_is_kept_with_the_run(recipe_and_data):
    recipe, data = recipe_and_data
    kept = {"parameters": "replicated", "towers": 2, "milliseconds": {}}
    nccl = {**kept, "exchange": "nccl"}
    assert OnAnyDevices(recipe, options(), nccl)(TWO, data).exchange == "nccl"
    assert OnAnyDevices(recipe, options(), kept)(TWO, data).exchange == "packs"


@pytest.mark.slow
def test_another_exchange_than_the_measured_one_is_measured_anew(recipe_and_data):
    recipe, data = recipe_and_data
    nccl = {"parameters": "replicated", "towers": 2, "milliseconds": {}, "exchange": "nccl"}
    anew = OnAnyDevices(recipe, options(exchange="packs"), nccl)
    assert anew(TWO, data).exchange == anew.record["exchange"] == "packs"


@pytest.mark.parametrize(
    ("chosen", "devices", "applies"),
    [
        (options(), GPUS, True),
        (options(), towers.devices.Devices(("/GPU:0",), "one GPU"), False),
        (options(), towers.devices.Devices(("/CPU:1", "/CPU:2"), "two CPUs"), False),
        (options(DeviceOptions(parameters="cpu")), GPUS, False),
        (options(deterministic=True), GPUS, False),
        (options(updates="async"), GPUS, False),
        (options(exchange="packs"), GPUS, True),
        (options(exchange="nccl"), GPUS, False),
        (options(engine="mirrored"), GPUS, False),
    ],
)
def test_only_several_gpus_without_another_wish_are_measured(chosen, devices, applies):
    measured = MeasuredPlacement(load_recipe("shapes"), chosen, None)
    assert measured.applies_to(devices) is applies
