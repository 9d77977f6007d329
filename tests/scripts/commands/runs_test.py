"""`towers runs` lists what is there and compares runs by settings and metrics."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.scripts.runs import train_shapes
from tests.scripts.training.beginning import RECORD
from towers.saving.metrics_file import MetricsFile
from towers.scripts.main import main
from towers.scripts.training.run_directory import RunDirectory


def make_run(path, rate, *, steps=(10, 20, 30), saved=True, ends=True, finished=True):
    """Writes what a run leaves, as far as `towers runs` reads it."""
    directory = RunDirectory(path)
    fields = {"batch_size": 4, "learning_rate": rate}
    record = {**RECORD, "fields": fields, "best_metric": "accuracy"}
    directory.begin(record, ["CPU"], None, num_processes=1)
    directory.begin(record, ["CPU"], directory.read(), num_processes=2)
    metrics = MetricsFile(directory.metrics)
    for number, step in enumerate(steps):
        metrics.write(MetricsFile.TRAIN, step, {"epoch": 1, "loss": rate / step})
        metrics.write(MetricsFile.TEST, step, {"accuracy": step / 100, "best": number < 2})
    if saved:
        directory.checkpoints.mkdir()
        (directory.checkpoints / f"step-{steps[-1]:08d}.ckpt.npz").write_bytes(b"")
    if ends:
        metrics.write(MetricsFile.END, steps[-1], {"reason": "", "finished": finished})
    return path


@pytest.fixture
def runs(tmp_path):
    make_run(tmp_path / "a", 0.1)
    make_run(tmp_path / "group" / "b", 0.2, finished=False)
    make_run(tmp_path / "c", 0.3, ends=False)
    make_run(tmp_path / "d", 0.4, ends=False, saved=False)
    return tmp_path


def test_all_runs_below_a_folder_are_listed(runs, capsys):
    (runs / "other").mkdir()
    (runs / "other" / "run.json").write_text("{}")  # Of another program.
    assert main(["runs", str(runs)]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    names = "run recipe state processes starts step result changed size"
    assert header.split() == names.split()
    assert all("  2          2       30    test accuracy" in row for row in rows)
    assert [row.split()[0].removeprefix(f"{runs}/") for row in rows] == ["a", "c", "d", "group/b"]
    assert [row.split()[2] for row in rows] == ["finished", "unfinished", "unsaved", "stopped"]
    assert all("30    test accuracy 0.2000  20" in row for row in rows)
    assert main(["runs", str(runs), "--json"]) == 0
    (first, *_) = json.loads(capsys.readouterr().out)["runs"]
    assert first["best"] == {"step": 20, "accuracy": 0.2}
    assert first["test"] == {"step": 30, "accuracy": 0.3}


def test_a_copied_run_is_as_far_as_the_one_it_was_copied_from(runs, capsys):
    """A copy's files may have been written in any order."""
    late = runs / "a" / "checkpoints" / "step-00000010.ckpt.npz"
    late.write_bytes(b"")
    os.utime(late, (2e9, 2e9))
    assert main(["runs", str(runs / "a")]) == 0
    assert re.search(r"finished +2 +2 +30 ", capsys.readouterr().out)


def test_a_run_is_read_from_its_checkpoint_if_its_record_is_lost(tmp_path, capsys):
    assert main([*train_shapes(tmp_path / "a"), "--steps", "2"]) == 0
    (tmp_path / "a" / "run.json").unlink()
    (tmp_path / "b" / "checkpoints").mkdir(parents=True)
    (tmp_path / "b" / "checkpoints" / "step-00000001.ckpt.npz").write_bytes(b"half")
    (tmp_path / "b" / "metrics.jsonl").touch()
    (tmp_path / "c" / "run.json").mkdir(parents=True)
    (tmp_path / "c" / "checkpoints").mkdir()
    # What `towers.fit` leaves is no run of the command line.
    shutil.copytree(tmp_path / "a" / "checkpoints", tmp_path / "fit" / "checkpoints")
    capsys.readouterr()
    with pytest.warns(RuntimeWarning) as warned:
        assert main(["runs", str(tmp_path)]) == 0
    _, row = capsys.readouterr().out.splitlines()
    assert row.split()[:6] == [str(tmp_path / "a"), "shapes", "finished", "1", "0", "2"]
    first, second, third = (str(one.message) for one in warned)
    assert f"{tmp_path / 'a'} holds no run" in first and "A checkpoint's copy is used." in first
    assert f"{tmp_path / 'b'}" in second and second.endswith("The run is left out.")
    assert third == (
        f"{tmp_path / 'c' / 'run.json'}: Is a directory. Expected a file; give another one, or "
        "move the folder away. The run is left out."
    )


def test_a_run_with_its_best_alone_is_saved(runs, capsys):
    (runs / "d" / "checkpoints").mkdir()
    (runs / "d" / "checkpoints" / "best.ckpt.npz").write_bytes(b"")
    assert main(["runs", str(runs / "d")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[2] == "unfinished"


def test_a_finished_run_whose_checkpoints_were_removed_is_unsaved(runs, capsys):
    shutil.rmtree(runs / "a" / "checkpoints")
    assert main(["runs", str(runs / "a")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[2] == "unsaved"


def test_a_checkpoint_that_a_training_removes_meanwhile_hides_no_run(runs, capsys):
    (runs / "a" / "checkpoints" / "step-00000020.ckpt.npz").symlink_to("removed")
    assert main(["runs", str(runs / "a")]) == 0
    assert "step-00000020" not in capsys.readouterr().err


def test_runs_are_compared(runs, capsys):
    assert main(["runs", "compare", str(runs / "a"), str(runs / "c")]) == 0
    lines = capsys.readouterr().out.splitlines()
    settings = lines[1 : lines.index("")]
    assert [line.split() for line in settings] == [["learning_rate", "0.1", "0.3"]]
    (loss,) = [line.split() for line in lines if line.startswith("train loss  ")]
    assert loss == ["train", "loss", "0.0033333", "0.01"]


def test_options_that_change_results_are_compared(runs, capsys):
    (runs / "a" / "run.toml").write_text("accumulate = 1\nquiet = true\n")
    (runs / "c" / "run.toml").write_text("accumulate = 2\nquiet = false\nsteps = 30\n")
    (runs / "d" / "run.toml").write_text("accumulate =")
    assert main(["runs", "compare", *(str(runs / name) for name in "acd")]) == 0
    lines = capsys.readouterr().out.splitlines()
    settings = [line.split() for line in lines[1 : lines.index("")]]
    assert settings[:2] == [["steps", "-", "30", "-"], ["accumulate", "1", "2", "-"]]
    assert [row[0] for row in settings[2:]] == ["learning_rate"]


def test_an_option_may_stand_between_the_runs_that_are_compared(runs, capsys):
    assert main(["compare", str(runs / "a"), "--json", str(runs / "c")]) == 0
    compared = json.loads(capsys.readouterr().out)["runs"]
    assert [one["run"] for one in compared] == [str(runs / "a"), str(runs / "c")]
    assert [one["settings"]["learning_rate"] for one in compared] == [0.1, 0.3]


def test_a_comparison_names_the_part_that_each_run_evaluates(runs, capsys):
    record = json.loads((runs / "a" / "run.json").read_text())
    (runs / "a" / "run.json").write_text(
        json.dumps({**record, "about": {"evaluated": "validation"}})
    )
    assert main(["runs", "compare", str(runs / "a"), str(runs / "c")]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["validation", "accuracy", "0.3", "-"] in lines
    assert ["test", "accuracy", "-", "0.3"] in lines


def test_runs_of_older_versions_are_listed(runs, capsys):
    """They have no metrics.jsonl, and their record says nothing of the deciding metric."""
    record = json.loads((runs / "a" / "run.json").read_text())
    del record["best_metric"]
    (runs / "a" / "run.json").write_text(json.dumps(record))
    (runs / "a" / "metrics.jsonl").unlink()
    assert main(["runs", str(runs / "a")]) == 0
    assert re.search(r"unfinished +2 +2 +30    -  ", capsys.readouterr().out)
    assert main(["runs", "compare", str(runs / "a"), str(runs / "c")]) == 0
    assert "test accuracy  -  " in capsys.readouterr().out


def test_equal_settings_are_said(runs, capsys):
    shutil.copytree(runs / "a", runs / "again")
    assert main(["runs", "compare", str(runs / "a"), str(runs / "again")]) == 0
    assert capsys.readouterr().out.startswith("the same settings\n")


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["nowhere"], "There is no run in nowhere"),
        (["runs/a", "runs/b"], "towers runs compare runs/a runs/b"),
        (["compare", "runs/a"], "two or more run directories. Received 1"),
        (["compare", "nowhere", "nowhere"], "holds no run"),
    ],
)
def test_wrong_paths_are_refused(arguments, expected, capsys):
    assert main(["runs", *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_no_tensorflow_is_imported(runs):
    program = "import sys; from towers.scripts.main import main; main(sys.argv[1:]); "
    program += "sys.exit('tensorflow' in sys.modules)"
    command = [sys.executable, "-c", program, "runs"]
    assert subprocess.run([*command, str(runs)], capture_output=True).returncode == 0
    compare = [*command, "compare", str(runs / "a"), str(runs / "c")]
    assert subprocess.run(compare, capture_output=True).returncode == 0
