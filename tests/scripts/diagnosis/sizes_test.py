"""Sizes are those of the variables, and what moves is what a step reads and sends."""

import json

from towers.scripts.diagnosis.sizes import Sizes, needs
from towers.scripts.main import main


def test_each_placement_needs_what_it_keeps_and_moves():
    sizes = Sizes(parameters=25, variables=120, slots=200, read=100, gradients=90)
    assert [tuple(need) for need in needs(sizes, 4)] == [
        ("cpu", 320, 190, 190, 4 * 190),
        ("tower0", 0, 510, 190, 3 * 190),
        ("replicated", 0, 410, 410, 4 * 2 * 3 * 90 // 4),
    ]
    assert [need.other_towers for need in needs(sizes, 1)] == [0, 0, 0]
    assert [need.moved for need in needs(sizes, 1)] == [190, 0, 0]


def test_a_recipe_is_estimated(capsys):
    small = ["--set", "filters=2,3", "--set", "hidden_size=4"]
    assert main(["estimate", "shapes", "--towers", "3", "--json", *small]) == 0
    output = capsys.readouterr().out
    found = json.loads(output.splitlines()[-1])
    kernels = (5 * 5 * 3 * 2 + 2) + (5 * 5 * 2 * 3 + 3)
    dense = (5 * 5 * 3 * 4 + 4) + (4 * 10 + 10)
    assert found["parameters"] == kernels + dense
    assert found["variables"] == found["read"] == found["gradients"] == 4 * (kernels + dense)
    assert 8 * (kernels + dense) <= found["slots"] <= 8 * (kernels + dense) + 64  # Adam's.
    assert f"{kernels + dense:,} parameters" in output


def test_tables_that_are_looked_up_do_not_travel(capsys):
    assert main(["estimate", "stories", "--json", "--set", "hidden_size=8"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0 < found["read"] < found["variables"]


def test_devices_that_share_a_tower_share_its_sizes(capsys):
    small = ["--set", "hidden_size=8", "--json"]
    assert main(["estimate", "stories", "--gpus-per-tower", "2", *small]) == 0
    output = capsys.readouterr().out
    found = json.loads(output.splitlines()[-1])
    for name in ("parameters", "variables", "read", "gradients"):
        assert sum(stage[name] for stage in found["stages"]) == found[name] > 0
    assert "device 1 of each tower" in output
