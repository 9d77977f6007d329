"""Whatever ends a training, what it did is saved, and the same command completes it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import towers
from tests.curves import read_scalars
from tests.faults.scenarios import names_in
from tests.paths import ROOT
from tests.programs import PATIENCE, TOWERS, started
from tests.scripts.runs import HELD_OUT, train_shapes, weights_of
from towers.saving.checkpoint_folder import CheckpointFolder
from towers.saving.lock import lock, lock_holder, locked
from towers.saving.metrics_file import MetricsFile
from towers.scripts.main import main

OPTIONS = ["--steps", 3, "--evaluate-every", 1000, "--checkpoint-every", 3]


def latest(run_dir):
    return CheckpointFolder(run_dir / "checkpoints").latest()


def evaluated_steps(run_dir):
    return [step for step, _ in read_scalars(run_dir / "summaries", "evaluation")["loss"]]


DYING = """
import sys
from tests.file_faults import Watch
from towers.scripts.main import main
Watch(sys.argv[1], last=sys.argv[2])
sys.exit(main(sys.argv[3:]))
"""


def test_a_run_killed_before_its_last_evaluation_gets_it(tmp_path, capsys):
    run_dir = tmp_path / "run"
    command = train_shapes(run_dir, *OPTIONS, *HELD_OUT)
    dying = [sys.executable, "-c", DYING, str(run_dir), "best.ckpt.npz", *command]
    assert subprocess.run(dying, cwd=ROOT, timeout=PATIENCE).returncode == -signal.SIGKILL
    assert latest(run_dir).step == 3 and latest(run_dir).state["best"]["value"] is None
    assert main(command) == 0
    assert "validation | step 3 |" in capsys.readouterr().out
    assert CheckpointFolder(run_dir / "checkpoints").best().step == 3
    assert latest(run_dir).state["best"]["step"] == 3
    assert evaluated_steps(run_dir) == [3]
    assert main(command) == 0
    assert "validation | step 3 |" not in capsys.readouterr().out, "it was evaluated already"


def test_a_run_killed_after_its_best_was_saved_saves_that_step_and_goes_on(tmp_path, capsys):
    options = ["--evaluate-every", 2, "--checkpoint-every", 1, "--keep-checkpoints", 2, *HELD_OUT]
    checkpoints = tmp_path / "run" / "checkpoints"
    assert main(train_shapes(tmp_path / "run", "--steps", 2, *options)) == 0
    (checkpoints / "step-00000002.ckpt.npz").unlink()
    best = latest(tmp_path / "run").state["best"]
    assert main(train_shapes(tmp_path / "run", "--steps", 3, *options)) == 0
    assert "continues at step 2 from " in capsys.readouterr().out
    assert latest(tmp_path / "run").step == 3
    assert evaluated_steps(tmp_path / "run") == [2, 3] and best["step"] == 2
    assert main(train_shapes(tmp_path / "whole", "--steps", 3, *options)) == 0
    assert names_in(tmp_path / "run") == names_in(tmp_path / "whole")
    for one, other in zip(*map(weights_of, (tmp_path / "run", tmp_path / "whole")), strict=True):
        np.testing.assert_array_equal(one, other)
    # As a process leaves it that was killed after its last save.
    MetricsFile(tmp_path / "run" / "metrics.jsonl").cut(3, 3)
    assert main(train_shapes(tmp_path / "run", "--steps", 3, *options[:5], 1, *HELD_OUT)) == 0
    kept = {path.name for path in checkpoints.iterdir()}
    assert kept == {"best.ckpt.npz", "step-00000003.ckpt.npz"}


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_a_best_that_is_lost_is_told_and_the_next_one_is_saved(tmp_path, how):
    options = ["--evaluate-every", 1, *HELD_OUT]
    assert main(train_shapes(tmp_path / "run", "--steps", 2, *options)) == 0
    best = CheckpointFolder(tmp_path / "run" / "checkpoints").best_path
    best.write_bytes(b"?") if how == "damaged" else best.unlink()
    with pytest.warns(RuntimeWarning, match=r"best\.ckpt\.npz is missing or damaged; the next"):
        assert main(train_shapes(tmp_path / "run", "--steps", 3, *options)) == 0
    assert CheckpointFolder(tmp_path / "run" / "checkpoints").best().step == 3


def test_a_signal_in_the_last_evaluation_saves_and_the_next_start_evaluates(
    tmp_path, capsys, monkeypatch
):
    run_dir = tmp_path / "run"
    command = train_shapes(run_dir, "--steps", 2, "--evaluate-every", 1000)

    def terminated(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal did not end the evaluation")

    with monkeypatch.context() as patch:
        patch.setattr(towers, "evaluate_step", terminated)
        assert main(command) == 143
    assert "continue with: towers" in capsys.readouterr().out
    assert latest(run_dir).step == 2
    assert main(command) == 0
    assert "test  | step 2 |" in capsys.readouterr().out
    assert evaluated_steps(run_dir) == [2]


@pytest.mark.slow
def test_a_reader_that_leaves_ends_the_training_and_it_is_saved(tmp_path):
    command = train_shapes(tmp_path / "run", "--steps", 100_000, "--report-every", 1)
    with started([*TOWERS, *command], stderr=subprocess.PIPE) as process:
        for _ in range(4):
            process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
        assert process.stderr.read() == ""
    assert latest(tmp_path / "run").step >= 2


@pytest.mark.slow
def test_a_closed_terminal_ends_the_training_and_it_is_saved(tmp_path):
    command = train_shapes(tmp_path / "run", "--steps", 100_000, "--report-every", 1)
    with started([*TOWERS, *command], preexec_fn=hear_hang_up) as process:
        for line in process.stdout:
            if line.startswith("train | step 3 "):
                break
        process.send_signal(signal.SIGHUP)
        process.stdout.close()
        code = process.wait(PATIENCE)
        assert code in (128 + signal.SIGHUP, 128 + signal.SIGPIPE), "what it noticed first"
    assert latest(tmp_path / "run").step >= 3


def hear_hang_up():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


HOLD = """
import sys
from towers.saving.lock import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def another_process(folder, *words):
    """A process that trains in this folder, for all that the lock can tell."""
    with started([sys.executable, "-c", HOLD, folder, *words], stdin=subprocess.PIPE) as process:
        assert process.stdout.readline() == "held\n"
        yield process


def test_two_trainings_in_one_directory_are_refused_and_a_killed_one_is_not_in_the_way(
    tmp_path, capsys, monkeypatch
):
    run_dir = tmp_path / "run"
    command = train_shapes(run_dir, "--steps", 1)
    with another_process(run_dir) as process:
        with monkeypatch.context() as patch:
            patch.delattr("towers.scripts.training.open.open_data")  # Before data is made.
            assert main(command) == 2
        error = capsys.readouterr().err
        assert (
            f"is in use by process {process.pid} on " in error and "another run directory" in error
        )
        assert [path.name for path in run_dir.iterdir()] == [".lock"]
        process.kill()
        process.wait()
    assert main(command) == 0
    assert not (run_dir / ".lock").exists()


def test_a_lock_names_a_process_whose_command_is_no_utf_8(tmp_path):
    with another_process(tmp_path, "caf\udce9"):
        assert "caf\\udce9" in lock_holder(tmp_path)


def test_who_looks_at_a_lock_keeps_nobody_from_training(tmp_path):
    with open(tmp_path / ".lock", "w+") as looked_at:
        lock(looked_at.fileno())  # As `lock_holder` has it, for longer.
        threading.Timer(0.2, looked_at.close).start()
        with locked(tmp_path):
            assert lock_holder(tmp_path).startswith("process ")


def test_a_folder_is_locked_again_after_its_end_and_no_empty_one_is_left(tmp_path):
    for _ in range(2):
        with locked(tmp_path / "new"), pytest.raises(ValueError, match="is in use by process"):
            locked(tmp_path / "new").__enter__()
        assert not (tmp_path / "new").exists()


def test_a_lock_is_released_to_one_of_those_who_ask(tmp_path):
    with locked(tmp_path):
        pass
    with another_process(tmp_path) as process:
        with pytest.raises(ValueError, match=f"process {process.pid}"):
            locked(tmp_path).__enter__()
        process.stdin.close()
        finish_quietly(process)
    with locked(tmp_path):
        assert (tmp_path / ".lock").read_text().startswith(f"process {os.getpid()} on ")


def finish_quietly(process):
    assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("another_begins", [False, True])
def test_a_run_whose_directory_is_moved_ends_and_is_not_split(
    tmp_path, capsys, monkeypatch, another_begins
):
    run_dir, moved = tmp_path / "run", tmp_path / "moved"
    save = CheckpointFolder.save

    def move_after_saving(folder, step, *args, **options):
        path = save(folder, step, *args, **options)
        folder.wait()
        if step == 2:
            run_dir.rename(moved)
            if another_begins:
                run_dir.mkdir()
                (run_dir / ".lock").write_text("another's")
        return path

    monkeypatch.setattr(CheckpointFolder, "save", move_after_saving)
    command = train_shapes(run_dir, "--steps", 4, "--checkpoint-every", 2)
    assert main(command) == 2
    assert f"{run_dir} was moved, removed or replaced" in capsys.readouterr().err
    assert names_in(run_dir) == ([".lock"] if another_begins else [])
    assert latest(moved).step == 2
    if not another_begins:
        moved.rename(run_dir)
        assert main(command) == 0
        assert latest(run_dir).step == 4


def test_a_disk_that_cannot_lock_is_told(tmp_path, monkeypatch, capsys):
    import fcntl

    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path):
        pass
    assert capsys.readouterr().out == (
        f"warning: {tmp_path} cannot be locked (Operation not supported): make sure that no other "
        "process trains in it\n"
    )


@pytest.mark.slow
def test_a_lost_record_is_taken_from_a_checkpoint(tmp_path, capsys):
    run_dir = tmp_path / "run"
    command = train_shapes(run_dir, "--steps", 2)
    assert main(command) == 0
    for steps, spoil in ((3, empty), (4, os.unlink)):
        spoil(run_dir / "run.json")
        with pytest.warns(RuntimeWarning, match="A checkpoint's copy is used"):
            assert main(["evaluate", str(run_dir)]) == 0
        with pytest.warns(RuntimeWarning, match="A checkpoint's copy is used"):
            assert main([*command, "--seed", "9"]) == 2
        assert "seed: 0 before, 9 now" in capsys.readouterr().err
        with pytest.warns(RuntimeWarning, match="A checkpoint's copy is used"):
            assert main(train_shapes(run_dir, "--steps", steps)) == 0
        assert main(["evaluate", str(run_dir)]) == 0


def empty(path):
    path.write_bytes(b"")


def test_a_damaged_best_is_no_dead_end_for_an_evaluation(tmp_path, capsys):
    run_dir = tmp_path / "run"
    assert main(train_shapes(run_dir, "--steps", 1, *HELD_OUT)) == 0
    CheckpointFolder(run_dir / "checkpoints").best_path.write_bytes(b"?")
    assert main(["evaluate", str(run_dir)]) == 2
    assert "Use --checkpoint latest for the one saved last" in capsys.readouterr().err
    assert main(["evaluate", str(run_dir), "--checkpoint", "latest"]) == 0
