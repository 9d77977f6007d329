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
GPUS = towers.Devices(("/GPU:0", "/GPU:1"), "two GPUs")


def options(devices=None, **engine):
    return TrainOptions(
        devices or DeviceOptions(), EngineOptions(**engine), PeriodOptions(), OutputOptions()
    )


class OnAnyDevices(MeasuredPlacement):
    """Measures without GPUs, too."""

    def applies_to(self, devices):
        return True


def test_what_was_measured_is_said_and_kept_with_the_run(capsys):
    recipe = load_recipe("shapes", OVERRIDES)
    data = recipe.make_data(recipe.fields, None, 0)
    devices = towers.Devices(tuple(helpers.tower_devices(2)), "two")
    measured = OnAnyDevices(recipe, options(), None)
    placement = measured(devices, data)
    assert "ms a step; " in capsys.readouterr().out
    assert placement.parameters == measured.record["parameters"]
    assert set(measured.record["milliseconds"]) == {"cpu", "replicated"}
    for policy in ("cpu", "replicated"):
        kept = {**measured.record, "parameters": policy}
        again = OnAnyDevices(recipe, options(), kept)
        assert again(devices, data).parameters == policy and again.record == kept
    assert capsys.readouterr().out == ""
    nccl = {**measured.record, "parameters": "replicated", "exchange": "nccl"}
    assert OnAnyDevices(recipe, options(), nccl)(devices, data).exchange == "nccl"
    before = {name: value for name, value in nccl.items() if name != "exchange"}
    assert OnAnyDevices(recipe, options(), before)(devices, data).exchange == "packs"
    anew = OnAnyDevices(recipe, options(exchange="packs"), nccl)
    assert anew(devices, data).exchange == anew.record["exchange"] == "packs"


@pytest.mark.parametrize(
    ("chosen", "devices", "applies"),
    [
        (options(), GPUS, True),
        (options(), towers.Devices(("/GPU:0",), "one GPU"), False),
        (options(), towers.Devices(("/CPU:1", "/CPU:2"), "two CPUs"), False),
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
