"""How much `towers train` prints and keeps, what it replaces, and whose weights it begins with."""

import json
import os
import re
import shutil
import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from tests.scripts.runs import arrays_of, train_shapes, weights_of
from towers.saving.checkpoint_folder import CheckpointFolder
from towers.saving.metrics_file import MetricsFile
from towers.scripts.commands.train import numbered
from towers.scripts.main import main, read_command
from towers.scripts.options.flags import words_to_continue
from towers.scripts.training.overview import read_overview
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.saved_run import choose_checkpoint

STEPS = ["--report-every", "2", "--checkpoint-every", "2"]


def train(run_dir, *options):
    return main(train_shapes(run_dir, *STEPS, *options))


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """A run of six steps that holds nothing out, made once; tests work on copies."""
    path = tmp_path_factory.mktemp("runs") / "shapes"
    assert train(path, "--steps", "6", "--keep-checkpoints", "2", "--quiet") == 0
    return path


@pytest.fixture
def run(finished_run, tmp_path):
    return shutil.copytree(finished_run, tmp_path / "run")


def test_a_number_in_the_directorys_name_is_the_first_free_one(tmp_path, monkeypatch):
    (tmp_path / "shapes-1").mkdir()
    (tmp_path / "shapes-2").symlink_to("gone")
    assert numbered(f"{tmp_path}/shapes-{{n}}") == f"{tmp_path}/shapes-3"
    assert (numbered(None), numbered("runs/shapes")) == (None, "runs/shapes")
    cluster = {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}}
    task = {"task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps({**cluster, **task}))
    with pytest.raises(ValueError, match=r"need the same directory. Received --run-dir runs/\{n\}"):
        numbered("runs/{n}")


@pytest.mark.parametrize("given", ["--run-dir runs/s-{n}", "--run-dir=s-{n} --overwrite", ""])
def test_the_command_that_continues_a_run_names_its_directory(given):
    words = words_to_continue(["train", *given.split(), "--data", "a", "--", "images"], "runs/s-1")
    _, options = read_command(words)
    found = (options.run_dir, options.overwrite, options.data, options.recipe)
    assert found == ("runs/s-1", False, ("a",), "images")


@pytest.mark.slow
def test_each_training_has_a_directory_of_its_own_on_request(tmp_path):
    for number in (1, 2):
        assert train(tmp_path / "shapes-{n}", "--steps", str(number), "--quiet") == 0
    found = [read_overview(tmp_path / f"shapes-{number}").step for number in (1, 2)]
    assert found == [1, 2] and len(list(tmp_path.iterdir())) == 2


def test_so_many_checkpoints_are_kept_and_none_is_chosen_by_test_data(finished_run):
    names = sorted(path.name for path in (finished_run / "checkpoints").iterdir())
    assert names == ["step-00000004.ckpt.npz", "step-00000006.ckpt.npz"]
    (line,) = (
        line for line in MetricsFile(finished_run / "metrics.jsonl").read() if "best" in line
    )
    assert line["best"] is False


def test_a_run_of_an_earlier_release_that_goes_on_is_chosen_by_test_data_no_longer(run):
    path = run / "run.json"
    record = json.loads(path.read_text())
    assert record.pop("chooses") is False
    path.write_text(json.dumps(record))
    shutil.copy(run / "checkpoints/step-00000004.ckpt.npz", run / "checkpoints/best.ckpt.npz")
    directory = RunDirectory(run)
    assert choose_checkpoint(directory, directory.read(), "best").step == 4
    assert train(run, "--steps", "7", "--quiet") == 0
    assert choose_checkpoint(directory, directory.read(), "best").step == 7
    assert choose_checkpoint(directory, directory.read(), "4").step == 4
    with pytest.raises(ValueError, match=r"of step 5\. It has step 4, 6"):
        choose_checkpoint(directory, directory.read(), "5")


def test_a_profile_of_steps_that_do_not_come_is_refused(tmp_path, capsys):
    assert train(tmp_path / "run", "--steps", "4", "--profile", "5-9") == 2
    expected = "--profile 5-9 begins after the last step of this training, 4."
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_test_data_does_not_end_a_training(tmp_path, capsys):
    assert train(tmp_path / "run", "--early-stopping", "2") == 2
    assert "--set validation_share=0.1" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_metrics_hold_each_step_once_over_a_resume(run, capsys):
    assert train(run, "--steps", "8", "--quiet", "--json") == 0
    output = capsys.readouterr().out
    assert output.count("\n") == 1
    summary = json.loads(output)
    assert (summary["step"], summary["state"], summary["reason"]) == (8, "finished", "8 steps done")
    lines = MetricsFile(run / "metrics.jsonl").read()
    found = [(line["kind"], line["step"]) for line in lines]
    train_steps = [("train", step) for step in (2, 4, 6, 8)]
    assert sorted(found) == sorted([*train_steps, ("test", 6), ("test", 8), ("end", 8)])
    assert summary["train"]["loss"] == lines[-3]["loss"]


def test_a_report_is_the_mean_since_the_last_also_over_a_resume(tmp_path):
    """Every batch has 100 examples, so that the mean of ten steps is that of two fives."""
    options = ["--towers", "2", "--quiet", "--report-every"]
    for name, every, stops in [("fives", 5, [10]), ("ten", 10, [10]), ("resumed", 5, [8, 10])]:
        for steps in stops:
            assert train(tmp_path / name, *options, every, "--steps", steps) == 0
    fives, ten, resumed = (
        [
            line
            for line in MetricsFile(tmp_path / name / "metrics.jsonl").read()
            if line["kind"] == "train"
        ]
        for name in ("fives", "ten", "resumed")
    )
    means = ("loss", "tower_0_loss", "tower_1_loss", "accuracy")
    exact = (*means, "gradient_norm", "learning_rate")
    assert [[line[name] for name in exact] for line in resumed] == [
        [line[name] for name in exact] for line in fives
    ]
    for name in means:
        assert ten[0][name] == pytest.approx(np.mean([line[name] for line in fives]), rel=1e-6)
    norms = np.array([line["gradient_norm"] for line in fives])
    assert ten[0]["gradient_norm"] == pytest.approx(np.sqrt(np.mean(norms**2)), rel=1e-6)


@pytest.mark.slow
def test_verbose_names_every_save(run, capsys):
    assert train(run, "--steps", "8", "--verbose") == 0
    output = capsys.readouterr().out
    assert "saved | step 8 | " in output and "variables" in output


def test_quiet_still_says_what_is_wrong(run, capsys):
    assert train(run, "--quiet", "--seed", "9") == 2
    assert "seed: 0 before, 9 now" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_of_minutes_stops_and_goes_on(run, capsys):
    assert train(run, "--steps", "400", "--max-minutes", "1e-6") == 0
    printed = capsys.readouterr().out
    assert "done: 1e-06 minutes are over, step 7 saved" in printed
    when = r" \| \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$"  # Nobody looks on.
    assert re.search(r"^test  \| step 7 .*" + when, printed, re.MULTILINE)
    assert MetricsFile(run / "metrics.jsonl").read()[-1]["finished"] is False
    assert CheckpointFolder(run / "checkpoints").latest().step == 7


def test_overwrite_removes_the_run_and_nothing_else(run):
    mine = [run / name for name in ("notes.txt", "checkpoints/my.npz", "summaries/a/notes.txt")]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    curves = set(run.rglob("*tfevents*"))
    assert train(run, "--steps", "2", "--seed", "9", "--overwrite", "--quiet") == 0
    assert [path.read_text() for path in mine] == ["mine"] * 3
    assert not curves.intersection(run.rglob("*tfevents*"))
    assert arrays_of(run)[0] == 2
    assert [line["step"] for line in MetricsFile(run / "metrics.jsonl").read()] == [2, 2, 2]
    record = json.loads((run / "run.json").read_text())
    assert record["seed"] == 9 and len(record["starts"]) == 1


@pytest.mark.parametrize("answer", ["n", "", "\x04"], ids=["no", "nothing", "end of input"])
def test_overwrite_asks_on_a_terminal(run, answer, capsys, monkeypatch):
    main_end, terminal = os.openpty()
    os.write(main_end, answer.encode() + (b"" if answer == "\x04" else b"\n"))
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert train(run, "--steps", "2", "--seed", "9", "--overwrite") == 2
    os.close(main_end)
    output = capsys.readouterr()
    assert "holds a run of shapes, finished, step 6." in output.out
    assert "is kept" in output.err
    assert arrays_of(run)[0] == 6


def test_nothing_is_removed_for_wrong_input(run, capsys):
    wrong = ["--set", "schedule=piecewise"]  # Without boundaries: refused late.
    assert train(run, "--overwrite", *wrong) == 2
    assert train(run, "--overwrite", "--data", str(run / "absent")) == 2
    assert arrays_of(run)[0] == 6


@pytest.mark.slow
def test_a_run_that_never_saved_may_be_replaced(run, capsys):
    shutil.rmtree(run / "checkpoints")
    assert train(run, "--steps", "2", "--set", "learning_rate=0.5", "--quiet") == 0
    record = json.loads((run / "run.json").read_text())
    assert record["fields"]["learning_rate"] == 0.5 and len(record["starts"]) == 1
    assert [line["step"] for line in MetricsFile(run / "metrics.jsonl").read()] == [2, 2, 2]


def test_a_run_begins_with_the_weights_of_another(run, tmp_path, capsys):
    wider = ["--set", "hidden_size=5", "--set", "learning_rate=1e-30", "--init-from", str(run)]
    assert train(tmp_path / "new", "--steps", "1", "--report-every", "1", *wider) == 0
    output = capsys.readouterr().out
    assert "starts with 5 of 8 variables" in output and "step 6); not found there: " in output
    assert "hidden/kernel (shape [150, 32], here [150, 5])" in output
    expected, found = weights_of(run), weights_of(tmp_path / "new")
    same = [one.shape == other.shape for one, other in zip(expected, found, strict=True)]
    assert sum(same) == 5
    for one, other, is_same in zip(expected, found, same, strict=True):
        if is_same:
            np.testing.assert_allclose(one, other, atol=1e-7)


def test_a_run_goes_on_when_the_one_it_began_with_is_gone(run, tmp_path, capsys):
    begin = ["--init-from", str(run)]
    assert train(tmp_path / "new", "--steps", "1", *begin) == 0
    shutil.rmtree(run)
    assert train(tmp_path / "new", "--steps", "2", *begin) == 0
    assert "continues at step 1" in capsys.readouterr().out


def test_weights_of_a_run_that_is_none_are_refused(run, tmp_path, capsys):
    assert train(tmp_path / "new", "--init-from", str(tmp_path / "absent")) == 2
    assert "holds no run" in capsys.readouterr().err
    shutil.rmtree(run / "checkpoints")
    assert train(tmp_path / "new", "--init-from", str(run)) == 2
    assert "has no checkpoint yet" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_histograms_show_each_trained_variable_at_its_steps(run):
    """The last ones are those of the weights in the checkpoint."""
    assert train(run, "--steps", "10", "--towers", "2", "--histograms", "2", "--quiet") == 0
    accumulator = EventAccumulator(str(run / "summaries" / "average"), {"tensors": 0})
    accumulator.Reload()
    tags = accumulator.PluginTagToContent("histograms")
    weights = weights_of(run)
    assert len(tags) == len(weights) > 0
    for tag in tags:
        assert [event.step for event in accumulator.Tensors(tag)] == [8, 10]
    ends = sorted(
        (left, right, counts.sum())
        for left, right, counts in (
            (buckets[0, 0], buckets[-1, 1], buckets[:, 2])
            for buckets in (make_ndarray(accumulator.Tensors(tag)[-1].tensor_proto) for tag in tags)
        )
    )
    expected = sorted((value.min(), value.max(), value.size) for value in weights)
    np.testing.assert_array_equal(ends, np.array(expected, np.float64))
