"""The other engines of `towers train`, and asynchronous updates: what they give and refuse."""

import contextlib
import io
import json
import re
import shutil
import signal

import numpy as np
import pytest

from tests import helpers
from tests.programs import TOWERS, run, started
from tests.scripts.runs import arrays_of, train_shapes, weights_of
from towers.saving.summaries import read_scalars
from towers.scripts.main import main

NUM_STEPS = 40
OPTIONS = ["--precision", "float64", "--report-every", 1]
ENGINES = {
    "mirrored": ["--engine", "mirrored", "--towers", 2],
    "keras": ["--engine", "keras"],
}
EACH_ENGINE = pytest.mark.parametrize("engine", ENGINES)


def train(run_dir, *options, steps=NUM_STEPS):
    """Trains until so many steps are done and returns the exit code.

    MirroredStrategy in a process of its own: it remembers the shapes and types of an earlier one.
    """
    arguments = train_shapes(run_dir, "--steps", steps, *OPTIONS, *options)
    if "mirrored" not in options:
        return main(arguments)
    print(run([*TOWERS, *arguments]))
    return 0


def curve_of(run_dir, curve="average", tag="loss"):
    return read_scalars(run_dir / "summaries", curve)[tag]


def assert_same_run(actual_dir, expected_dir):
    """The same arrays bit for bit, and the same curve of the loss."""
    step, actual = arrays_of(actual_dir)
    expected_step, expected = arrays_of(expected_dir)
    assert step == expected_step and actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array, err_msg=name)
    assert curve_of(actual_dir) == curve_of(expected_dir)


@pytest.fixture(scope="module")
def on_towers(tmp_path_factory):
    """A run on two towers."""
    path = tmp_path_factory.mktemp("towers") / "run"
    assert train(path, "--towers", 2) == 0
    return path


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Returns the run of an engine that was not interrupted; each trains once."""
    runs = {}

    def straight_run(engine):
        if engine not in runs:
            runs[engine] = tmp_path_factory.mktemp(engine) / "run"
            assert train(runs[engine], *ENGINES[engine]) == 0
        return runs[engine]

    return straight_run


@pytest.mark.slow
def test_mirrored_strategy_gives_the_weights_of_the_towers(straight, on_towers):
    actual, expected = straight("mirrored"), on_towers
    helpers.assert_same_weights(weights_of(actual), weights_of(expected), float64=True)
    for curve in ("average", "tower_0", "tower_1", "evaluation"):
        for tag in ("loss", "accuracy"):
            np.testing.assert_allclose(
                curve_of(actual, curve, tag), curve_of(expected, curve, tag), rtol=1e-6
            )


@pytest.mark.slow
def test_fit_begins_with_the_loss_of_the_towers_and_learns(straight, on_towers):
    (first, *_, last), (expected, *_) = curve_of(straight("keras")), curve_of(on_towers)
    np.testing.assert_allclose(first, expected, rtol=1e-6)
    assert [step for step, _ in curve_of(straight("keras"))] == list(range(1, NUM_STEPS + 1))
    assert last[1] < first[1] - 0.1
    norm, expected = (
        curve_of(path, tag="gradient_norm")[0] for path in (straight("keras"), on_towers)
    )
    np.testing.assert_allclose(norm, expected, rtol=1e-6)


def test_fit_evaluates_what_it_has_reached(straight):
    (_, before), (step, after) = curve_of(straight("keras"), "evaluation")
    assert step == NUM_STEPS and after < before - 0.1


SENTENCES = ["--set", "form=sentences", "--set", "hidden_size=12", "--batch-size", "16"]
SENTENCES += ["--set", "schedule=constant", "--precision", "float64", "--report-every", "1"]


def train_sentences(run_dir, *options):
    """Trains a language model of which no state is carried; returns what it printed."""
    command = [*map(str, ["train", "stories", "--run-dir", run_dir, *SENTENCES, *options])]
    if "mirrored" in options:
        return run([*TOWERS, *command], stderr=None)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main(command) == 0
    return output.getvalue()


def tokens_of(output):
    """Returns how many tokens the step had of which a line reports the rates."""
    rates = re.search(r"([0-9.]+) steps/s [|] ([0-9]+) tokens/s", output)
    return float(rates[2]) / float(rates[1])


@pytest.fixture(scope="module")
def sentences_on_towers(tmp_path_factory):
    """A run of one step on two towers, and what it printed."""
    path = tmp_path_factory.mktemp("sentences") / "run"
    return path, train_sentences(path, "--steps", 1, "--towers", 2)


@pytest.mark.slow
@EACH_ENGINE
def test_sentences_begin_with_the_loss_of_the_towers(engine, sentences_on_towers, tmp_path):
    expected_dir, expected_output = sentences_on_towers
    output = train_sentences(tmp_path, "--steps", 1, *ENGINES[engine])
    for tag in ("loss", "accuracy", "gradient_norm"):
        actual, expected = (curve_of(path, tag=tag) for path in (tmp_path, expected_dir))
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    # The rates are printed in few digits.
    np.testing.assert_allclose(tokens_of(output), tokens_of(expected_output), rtol=0.2)


@pytest.mark.slow
@EACH_ENGINE
def test_random_numbers_go_on(engine, tmp_path):
    options = [*ENGINES[engine], "--set", "dropout_rate=0.5"]
    train_sentences(tmp_path / "straight", "--steps", 6, *options)
    for steps in (3, 6):
        train_sentences(tmp_path / "run", "--steps", steps, *options)
    assert_same_run(tmp_path / "run", tmp_path / "straight")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["mirrored", "keras"])
def test_a_run_in_two_parts_ends_like_one(engine, straight, tmp_path, capfd):
    assert train(tmp_path, *ENGINES[engine], steps=13) == 0
    assert train(tmp_path, *ENGINES[engine]) == 0
    assert "continues at step 13" in capfd.readouterr().out
    assert_same_run(tmp_path, straight(engine))


@pytest.mark.slow
@EACH_ENGINE
def test_a_killed_run_goes_on(engine, straight, tmp_path, capfd):
    options = [*OPTIONS, *ENGINES[engine], "--checkpoint-every", 5, "--steps", NUM_STEPS]
    with started([*TOWERS, *train_shapes(tmp_path, *options)]) as process:
        for line in process.stdout:
            if line.startswith("train | step 12 "):
                process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert train(tmp_path, *ENGINES[engine]) == 0
    assert "continues at step" in capfd.readouterr().out
    assert_same_run(tmp_path, straight(engine))


def refuse(arguments, capsys):
    """Runs a command and returns how it refuses."""
    capsys.readouterr()
    code = main(arguments)
    error = capsys.readouterr().err
    assert code == 2, error
    assert "Traceback" not in error
    return error


@pytest.mark.parametrize("engine", [pytest.param("mirrored", marks=pytest.mark.slow), "keras"])
def test_another_engine_does_not_continue_a_run(engine, straight, tmp_path, capsys):
    run_dir = shutil.copytree(straight(engine), tmp_path / "run")
    record = json.loads((run_dir / "run.json").read_text())
    assert record["engine"] == engine
    options = ["--steps", 50, *OPTIONS]
    error = refuse(train_shapes(run_dir, *options), capsys)
    assert f"engine: {engine} before, towers now" in error
    del record["engine"]  # As in the days when there were only towers.
    (run_dir / "run.json").write_text(json.dumps(record))
    error = refuse(train_shapes(run_dir, *options, *ENGINES[engine]), capsys)
    assert f"engine: towers before, {engine} now" in error


MIRRORED, KERAS = (["--engine", engine] for engine in ENGINES)
ASYNC = ["--updates", "async", "--towers", "2"]
REFUSED = {
    "fit on two towers": (["shapes", *KERAS, "--towers", "2"], "--towers 2"),
    "fit with a lazy optimizer": (
        ["shapes", *KERAS, "--set", "optimizer=lazy_adam"],
        "optimizer=lazy_adam",
    ),
    "fit with smooth labels": (["mnist", *KERAS, "--set", "label_smoothing=0.1"], "label_smooth"),
    "fit with a state": (["stories", *KERAS], "carries no state"),
    "mirrored with a state": (["stories", *MIRRORED], "carries no state"),
    "mirrored with micro-batches": (["shapes", *MIRRORED, "--accumulate", "2"], "--accumulate"),
    "mirrored with XLA": (["shapes", *MIRRORED, "--xla"], "--xla"),
    "fit with XLA": (["shapes", *KERAS, "--xla"], "--xla"),
    "mirrored with float16": (["shapes", *MIRRORED, "--precision", "float16"], "float16"),
    "mirrored elsewhere": (["shapes", *MIRRORED, "--parameters", "cpu"], "--parameters cpu"),
    "mirrored and asynchronous": (["shapes", *MIRRORED, *ASYNC], "--updates async"),
    "several at once": (["shapes", *KERAS, "--xla", "--accumulate", "2"], "--accumulate, --xla"),
    "asynchronous and determined": (["shapes", *ASYNC, "--deterministic"], "--deterministic"),
    "asynchronous with a state": (["stories", *ASYNC], "carry its state"),
    "asynchronous copies": (
        ["shapes", *ASYNC, "--parameters", "replicated"],
        "--updates async cannot train with --parameters replicated",
    ),
    "asynchronous collective ops": (
        ["shapes", *ASYNC, "--exchange", "nccl"],
        "--updates async cannot train with --exchange nccl",
    ),
    "mirrored collective ops": (["shapes", *MIRRORED, "--exchange", "packs"], "--exchange packs"),
    "collective ops without copies": (
        ["shapes", "--exchange", "nccl", "--parameters", "tower0"],
        "--exchange nccl cannot train with --parameters tower0. Leave that out, or use --exch",
    ),
    "collective ops that are determined": (
        ["shapes", "--exchange", "nccl", "--deterministic"],
        "--exchange nccl cannot train with --deterministic",
    ),
    "asynchronous statistics": (["shapes", *ASYNC, "--batch-norm", "first"], "--batch-norm first"),
    "asynchronous fit": (["shapes", *KERAS, "--updates", "async"], "--engine keras"),
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
    [["--parameters", "replicated"], ["--batch-norm", "first"], MIRRORED, ["--deterministic"]],
)
def test_asynchronous_towers_refuse_before_the_data_is_made(options, capsys, tmp_path, monkeypatch):
    monkeypatch.delattr("towers.scripts.training.opening.open_session")
    error = refuse(train_shapes(tmp_path / "run", *ASYNC, *options), capsys)
    assert f"--updates async cannot train with {' '.join(options)}. Leave that out" in error


@pytest.mark.parametrize("options", [MIRRORED, KERAS, ASYNC])
def test_several_processes_are_refused_before_they_wait(options, capsys, tmp_path, monkeypatch):
    task = {"type": "worker", "index": 0}
    cluster = {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": task}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    assert "several processes" in refuse(train_shapes(tmp_path, *options), capsys)


@pytest.fixture(scope="module")
def asynchronous(tmp_path_factory):
    """A run of 25 steps that went on to 50, and what the two commands printed."""
    path = tmp_path_factory.mktemp("async") / "run"
    outputs = []
    for steps in (25, 50):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            assert train(path, *ASYNC, "--log-placement", steps=steps) == 0
        outputs.append(output.getvalue())
    return path, outputs


def test_asynchronous_towers_report_each_update_and_evaluate(asynchronous):
    """What they learn in few steps depends on their order, which is the machine's affair."""
    run_dir, (output, _) = asynchronous
    reports = [line for line in output.splitlines() if line.startswith("train | ")]
    assert len(reports) == 25 and all(" | stale t" in line for line in reports)
    assert "test  | step 20 | " in output and "test  | step 25 | " in output
    evaluated = curve_of(run_dir, "evaluation")
    assert evaluated[-1][0] == 50 and all(np.isfinite(loss) for _, loss in evaluated)


def test_an_asynchronous_run_goes_on_where_it_stopped(asynchronous):
    run_dir, (_, output) = asynchronous
    assert "continues at step 25" in output
    assert arrays_of(run_dir)[0] == 50
    assert [step for step, _ in curve_of(run_dir)] == list(range(1, 51))


def test_each_asynchronous_tower_has_a_curve_of_its_staleness(asynchronous):
    run_dir, _ = asynchronous
    points = [curve_of(run_dir, f"tower_{tower}", "staleness") for tower in range(2)]
    assert all(points)
    assert sorted(step for own in points for step, _ in own) == list(range(1, 51))
    assert any(value > 0 for own in points for _, value in own)


def test_the_placement_of_all_asynchronous_towers_is_printed(asynchronous):
    _, (output, _) = asynchronous
    lines = output.splitlines()
    assert any("ResourceApplyAdam" in line for line in lines if line.startswith("CPU:0"))
    for tower in ("CPU:1", "CPU:2"):
        assert any("MatMul" in line for line in lines if line.startswith(tower))
