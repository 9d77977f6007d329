"""What a step of one's own costs on two pretended GPUs, beside MirroredStrategy."""

import json

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("model", ["dcgan", "sim_clr"])
def test_a_step_of_ones_own_waits_less_than_under_mirrored_strategy(run_on_gpus, model):
    towers, mirrored = (facts_of(run_on_gpus, model, way) for way in ("towers", "mirrored"))
    assert waits(towers) < waits(mirrored)
    assert towers[1]["bytes_to_host"] == towers[1]["bytes_from_host"] == 0
    assert all(device["launches"] for device in towers)


def facts_of(run_on_gpus, model, way):
    """Returns what each of two GPUs does in a step."""
    code, output = run_on_gpus(2, "-m", "tests.gpu.own_steps_worker", model, way)
    assert code == 0, output
    return json.loads(output.splitlines()[-1])["devices"]


def waits(devices):
    """Returns how often the host waits for GPUs in a step."""
    return sum(device["host_waits"] for device in devices)
