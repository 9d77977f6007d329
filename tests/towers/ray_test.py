"""`towers.ray.Run` gives Ray the checkpoint that was saved last, and fetches one saved later."""

import importlib.util
import os
import types
from pathlib import Path

import pytest

from tests.towers.saving.saved_groups import group_of
from towers.saving.checkpoint_folder import CheckpointFolder

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray[train] is not installed: it is an extra"
)


@pytest.fixture
def worker(monkeypatch):
    """The chief of a training, without a cluster: what it has reported, and what Ray has stored."""
    import towers.ray

    found = types.SimpleNamespace(run=towers.ray.Run, reported=[], stored=None)
    context = types.SimpleNamespace(get_world_rank=lambda: 0)

    def report(metrics, checkpoint, checkpoint_upload_mode):
        folder = checkpoint and Path(checkpoint.path) / "checkpoints"
        found.reported.append(sorted(os.listdir(folder)) if folder else [])

    ray_train = towers.ray.ray_train
    monkeypatch.setattr(towers.ray.collective, "barrier", lambda: None)
    monkeypatch.setattr(ray_train, "get_context", lambda: context)
    monkeypatch.setattr(ray_train, "report", report)
    monkeypatch.setattr(
        ray_train,
        "get_checkpoint",
        lambda: found.stored and ray_train.Checkpoint.from_directory(found.stored),
    )
    return found


def saved(folder, *steps):
    """Saves a checkpoint of each step, in this order."""
    checkpoints = CheckpointFolder(folder / "checkpoints")
    for step in steps:
        checkpoints.save(step, group_of(step), {})
    return checkpoints


def test_a_run_that_went_back_reports_what_it_saved_last(worker, tmp_path):
    run = worker.run(tmp_path)
    saved(tmp_path, 20, 30, 11)
    run.report({})
    assert worker.reported == [["step-00000011.ckpt.npz"]]


def test_each_checkpoint_is_reported_once(worker, tmp_path):
    run = worker.run(tmp_path)
    checkpoints = saved(tmp_path, 20)
    run.report({})
    run.report({})
    for _ in range(2):  # A run may go on from the best one.
        checkpoints.save_best(21, group_of(21), {}, resumable=True)
        run.report({}, last=True)
    best = ["best.ckpt.npz"]
    assert worker.reported == [["step-00000020.ckpt.npz"], [], best, best]


def test_a_damaged_newest_checkpoint_is_not_reported(worker, tmp_path):
    run = worker.run(tmp_path)
    saved(tmp_path, 1, 2)
    os.truncate(tmp_path / "checkpoints" / "step-00000002.ckpt.npz", 100)
    run.report({})
    assert worker.reported == [["step-00000001.ckpt.npz"]]


@pytest.mark.parametrize("steps", [(20, 30, 11), (20, 30, 40)])
def test_what_was_saved_later_is_fetched_and_nothing_earlier(steps, worker, tmp_path):
    stored = saved(tmp_path / "stored", *steps)
    own = saved(tmp_path / "own", 20, 30)
    worker.stored = tmp_path / "stored"
    worker.run(tmp_path / "own")
    assert own.latest().step == stored.latest().step == steps[-1]
    own.save(12, group_of(12), {})
    worker.run(tmp_path / "own")
    assert own.latest().step == 12
