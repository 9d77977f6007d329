"""Asynchronous updates, options that exclude each other, and the placement that is measured."""

import contextlib
import io
import json
import shutil

import numpy as np
import pytest

import towers
from tests import helpers
from tests.curves import read_scalars
from tests.scripts.runs import arrays_of, train_shapes
from towers.devices import placement
from towers.scripts.main import main
from towers.scripts.training import engine
from towers.scripts.training.catalogue import restore_recipe
from towers.scripts.training.options import (
    EXCHANGES,
    WITHOUT_COPIES,
    DeviceOptions,
    EngineOptions,
    OutputOptions,
    PeriodOptions,
    TrainOptions,
)

NUM_STEPS = 40
OPTIONS = ["--precision", "float64", "--report-every", 1]


def train(run_dir, *options, steps):
    """Trains until so many steps are done and returns the exit code."""
    return main(train_shapes(run_dir, "--steps", steps, *OPTIONS, *options))


def curve_of(run_dir, curve="average", tag="loss"):
    return read_scalars(run_dir / "summaries", curve)[tag]


def refuse(arguments, capsys):
    """Runs a command and returns how it refuses."""
    capsys.readouterr()
    code = main(arguments)
    error = capsys.readouterr().err
    assert code == 2, error
    assert "Traceback" not in error
    return error


def test_the_commands_know_the_exchanges_of_the_library():
    assert EXCHANGES == placement.EXCHANGES
    assert set(EXCHANGES) - set(WITHOUT_COPIES) == {"nccl"}


ASYNC = ["--updates", "async", "--towers", "2"]
REFUSED = {
    "asynchronous and determined": (["shapes", *ASYNC, "--deterministic"], "--deterministic"),
    "asynchronous with a state": (["stories", *ASYNC], "carries a state"),
    "asynchronous copies": (
        ["shapes", *ASYNC, "--parameters", "replicated"],
        "--updates async cannot be combined with --parameters replicated",
    ),
    "asynchronous collective ops": (
        ["shapes", *ASYNC, "--exchange", "nccl"],
        "--updates async cannot be combined with --exchange nccl",
    ),
    "collective ops without copies": (
        ["shapes", "--exchange", "nccl", "--parameters", "tower0"],
        "--exchange nccl cannot be combined with --parameters tower0. Leave that out, or use",
    ),
    "collective ops that are determined": (
        ["shapes", "--exchange", "nccl", "--deterministic"],
        "--exchange nccl cannot be combined with --deterministic",
    ),
    "a number of parts that other towers cannot share out": (
        ["shapes", "--deterministic", "--accumulate", "3"],
        "--deterministic cannot be combined with --accumulate 3. Leave that out, or use a power of",
    ),
    "statistics of the first of any number of towers": (
        ["shapes", "--deterministic", "--batch-norm", "first"],
        "--deterministic cannot be combined with --batch-norm first",
    ),
    "asynchronous statistics": (["shapes", *ASYNC, "--batch-norm", "first"], "--batch-norm first"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_engine_cannot_do_is_refused(name, capsys, tmp_path):
    arguments, expected = REFUSED[name]
    error = refuse(
        ["train", *arguments, "--steps", "1", "--run-dir", str(tmp_path / "run")], capsys
    )
    assert expected in error
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize(
    "options",
    [["--parameters", "replicated"], ["--batch-norm", "first"], ["--deterministic"]],
)
def test_asynchronous_towers_refuse_before_the_data_is_made(options, capsys, tmp_path, monkeypatch):
    monkeypatch.delattr("towers.scripts.training.open.open_data")
    error = refuse(train_shapes(tmp_path / "run", *ASYNC, *options), capsys)
    assert f"--updates async cannot be combined with {' '.join(options)}. Leave that out" in error


def test_several_processes_are_refused_before_they_wait(capsys, tmp_path, monkeypatch):
    task = {"type": "worker", "index": 0}
    cluster = {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": task}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    assert "several processes" in refuse(train_shapes(tmp_path, *ASYNC), capsys)


@pytest.fixture(scope="module")
def asynchronous(tmp_path_factory):
    """A run of 25 steps, and what the command printed."""
    path = tmp_path_factory.mktemp("async") / "run"
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert train(path, *ASYNC, "--log-placement", steps=25) == 0
    return path, output.getvalue()


def test_asynchronous_towers_report_each_update_and_evaluate(asynchronous):
    """What they learn in few steps depends on their order, which is the machine's affair."""
    run_dir, output = asynchronous
    reports = [line for line in output.splitlines() if line.startswith("train | ")]
    assert len(reports) == 25 and all(" | stale t" in line for line in reports)
    assert "test  | step 20 | " in output and "test  | step 25 | " in output
    evaluated = curve_of(run_dir, "evaluation")
    assert evaluated[-1][0] == 25 and all(np.isfinite(loss) for _, loss in evaluated)


def test_an_asynchronous_run_goes_on_where_it_stopped(asynchronous, tmp_path, capsys):
    run_dir = shutil.copytree(asynchronous[0], tmp_path / "run")
    assert train(run_dir, *ASYNC, steps=50) == 0
    assert "continues at step 25" in capsys.readouterr().out
    assert arrays_of(run_dir)[0] == 50
    assert [step for step, _ in curve_of(run_dir)] == list(range(1, 51))


def test_each_asynchronous_tower_has_a_curve_of_its_staleness(asynchronous):
    run_dir, _ = asynchronous
    points = [curve_of(run_dir, f"tower_{tower}", "staleness") for tower in range(2)]
    assert all(points)
    assert sorted(step for own in points for step, _ in own) == list(range(1, 26))
    assert any(value > 0 for own in points for _, value in own)


def test_the_placement_of_all_asynchronous_towers_is_printed(asynchronous):
    _, output = asynchronous
    lines = output.splitlines()
    assert any("ResourceApplyAdam" in line for line in lines if line.startswith("CPU:0"))
    for tower in ("CPU:1", "CPU:2"):
        assert any("MatMul" in line for line in lines if line.startswith(tower))


# `--parameters auto` on several GPUs is measured once, said, and kept with the run.

OVERRIDES = ("filters=2,2", "hidden_size=4", "batch_size=20")
GPUS = towers.devices.Devices(("/GPU:0", "/GPU:1"), "two GPUs")
TWO = towers.devices.Devices(tuple(helpers.tower_devices(2)), "two")


@pytest.fixture(scope="module")
def recipe_and_data():
    recipe = restore_recipe("shapes", {}, OVERRIDES)
    return recipe, recipe.make_data(recipe.fields, None, 0)


def options(devices=None, **engine):
    return TrainOptions(
        devices or DeviceOptions(), EngineOptions(**engine), PeriodOptions(), OutputOptions()
    )


@pytest.fixture
def on_any_devices(monkeypatch):
    """It is measured without GPUs, too."""
    monkeypatch.setattr(engine, "is_measured", lambda options, devices: True)


@pytest.mark.slow
def test_what_was_measured_is_said_and_recorded(recipe_and_data, on_any_devices, capsys):
    recipe, data = recipe_and_data
    placement, record = engine.choose_placement(recipe, options(), TWO, data, None)
    assert "ms a step; " in capsys.readouterr().out
    times = record["milliseconds"]
    assert set(times) == {"cpu", "replicated"}
    assert placement.parameters == min(times, key=times.get)


@pytest.mark.parametrize(
    ("times", "parameters", "exchange"),
    [
        ({"cpu": 3.0, "replicated": 4.0}, "cpu", "packs"),
        ({"cpu": 3.0, "replicated": 2.0, "nccl": 2.5}, "replicated", "packs"),
        ({"cpu": 3.0, "replicated": 2.0, "nccl": 1.5}, "replicated", "nccl"),
    ],
)
def test_what_is_kept_with_the_run_is_not_measured_again(
    times, parameters, exchange, recipe_and_data, on_any_devices, capsys
):
    recipe, data = recipe_and_data
    kept = {"towers": 2, "milliseconds": times}
    placement, record = engine.choose_placement(recipe, options(), TWO, data, kept)
    assert (placement.parameters, placement.exchange) == (parameters, exchange)
    assert record == kept
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_towers", "exchange", "times"),
    [(2, "packs", {"cpu": 3.0, "replicated": 2.0, "nccl": 1.5}), (3, "auto", {"cpu": 3.0})],
)
def test_another_exchange_or_number_of_towers_is_measured_anew(
    num_towers, exchange, times, recipe_and_data, on_any_devices
):
    recipe, data = recipe_and_data
    kept = {"towers": num_towers, "milliseconds": times}
    own = options(exchange=exchange)
    placement, record = engine.choose_placement(recipe, own, TWO, data, kept)
    assert placement.exchange == "packs"
    assert record["towers"] == 2
    assert set(record["milliseconds"]) == {"cpu", "replicated"}


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
    ],
)
def test_only_several_gpus_without_another_wish_are_measured(chosen, devices, applies):
    assert engine.is_measured(chosen, devices) is applies
