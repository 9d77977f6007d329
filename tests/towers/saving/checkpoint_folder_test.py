"""A run goes on from its newest whole checkpoint, whatever happened to the process or the disk."""

import contextlib
import functools
import json
import os
import shutil
import subprocess
import time
import warnings

import numpy as np
import pytest
import tensorflow as tf

from tests.file_faults import Watch, assert_durable
from tests.programs import exit_code, forked
from tests.towers.saving.saved_groups import group_of, values_of, write_checkpoint
from towers.saving.checkpoint_files import DamagedCheckpointError, take_snapshot
from towers.saving.checkpoint_folder import CheckpointFolder


def damage(path):
    """Flips one bit of a checkpoint's manifest."""
    content = bytearray(path.read_bytes())
    content[content.index(b'"step"')] ^= 16
    path.write_bytes(content)


def test_a_new_folder_has_no_checkpoint(tmp_path):
    folder = CheckpointFolder(tmp_path / "none")
    assert folder.latest() is None
    assert folder.best() is None
    assert not (tmp_path / "none").exists()


def test_the_last_few_and_the_best_are_kept(tmp_path):
    folder = CheckpointFolder(tmp_path / "run" / "checkpoints", keep=2)
    folder.save_best(1, group_of(1), {"loss": 0.5})
    for step in (1, 2, 99_999_999, 100_000_000):
        path = folder.save(step, group_of(step), {"epoch": step})
        assert folder.latest().path == path
    assert sorted(os.listdir(folder.path)) == [
        "best.ckpt.npz",
        "step-100000000.ckpt.npz",
        "step-99999999.ckpt.npz",
    ]
    assert (folder.latest().step, folder.latest().state) == (100_000_000, {"epoch": 100_000_000})
    assert (folder.best().step, folder.best().state) == (1, {"loss": 0.5})


def test_the_same_step_is_replaced(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for value in (1, 2):
        folder.save(7, group_of(value), {})
        folder.save_best(7, group_of(value), {})
    assert values_of(folder.latest()) == values_of(folder.best()) == {2.0}
    assert len(os.listdir(tmp_path)) == 2


def test_a_run_that_went_back_keeps_what_it_saves(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=1)
    damage(folder.save(12, group_of(12), {}))
    folder.save(5, group_of(5), {})
    with pytest.warns(RuntimeWarning):
        assert folder.latest().step == 5
    folder.save(12, group_of(13), {})
    assert values_of(folder.latest()) == {13.0}
    assert os.listdir(tmp_path) == ["step-00000012.ckpt.npz"]


def test_the_latest_is_the_one_saved_last_not_that_of_the_largest_step(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for step in (10, 20, 30, 11, 12):
        folder.save(step, group_of(step), {})
        assert folder.latest().step == CheckpointFolder(tmp_path).latest().step == step
    damage(tmp_path / "step-00000012.ckpt.npz")
    with pytest.warns(RuntimeWarning, match="step-00000012"):
        assert folder.latest().step == 11
    os.unlink(tmp_path / "step-00000012.ckpt.npz")
    os.truncate(tmp_path / "step-00000011.ckpt.npz", 100)
    with pytest.warns(RuntimeWarning, match=r"step-00000011.* is used instead"):
        folder.latest()
    os.unlink(tmp_path / "step-00000011.ckpt.npz")
    for step in (13, 22):
        folder.save(step, group_of(step), {})
    assert folder.latest().step == 22


def test_what_was_saved_before_a_run_went_back_is_removed_when_it_has_passed(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=2)
    for step in (10, 20, 30, 11, 12):
        folder.save(step, group_of(step), {})
    assert steps_in(tmp_path) == [11, 12, 20, 30]
    for step in (25, 35):
        folder.save(step, group_of(step), {})
    assert steps_in(tmp_path) == [25, 35]


def steps_in(folder):
    return sorted(int(name[5:13]) for name in os.listdir(folder))


def test_checkpoints_without_a_serial_go_by_their_steps(tmp_path):
    """Those of earlier versions; what is saved now comes after them."""
    for step in (10, 20, 30):
        write_checkpoint(tmp_path / f"step-{step:08d}.ckpt.npz", step, group_of(step), {})
    folder = CheckpointFolder(tmp_path)
    assert folder.latest().step == 30
    folder.save(11, group_of(11), {})
    assert folder.latest().step == 11


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for step in (1, 2, 3):
        folder.save(step, group_of(step), {})
    damage(tmp_path / "step-00000003.ckpt.npz")
    os.truncate(tmp_path / "step-00000002.ckpt.npz", 100)
    with pytest.warns(RuntimeWarning) as caught:
        checkpoint = folder.latest()
    assert (checkpoint.step, values_of(checkpoint)) == (1, {1.0})
    [message] = [str(warning.message) for warning in caught]
    assert "step-00000003.ckpt.npz is not a whole checkpoint" in message
    assert f"{checkpoint.path} is used instead" in message


def test_a_run_does_not_silently_start_over(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for step in (1, 2):
        damage(folder.save(step, group_of(step), {}))
    damage(folder.save_best(1, group_of(1), {}))
    with pytest.raises(DamagedCheckpointError, match=r"Every .* damaged.*Remove them to start"):
        folder.latest()
    with pytest.raises(DamagedCheckpointError, match=r"best\.ckpt\.npz"):
        folder.best()


def test_a_best_that_was_saved_last_is_the_latest(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.save_best(3, group_of(3), {"epoch": 0}, resumable=True)
    assert (folder.latest().step, folder.latest().state) == (3, {"epoch": 0})
    folder.save(5, group_of(5), {})
    assert folder.latest().step == 5
    folder.save_best(7, group_of(7), {}, resumable=True)
    assert folder.latest().step == 7
    folder.save(7, group_of(7.5), {})
    assert values_of(folder.latest()) == {7.5}


def test_a_best_is_the_last_resort(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.save_best(1, group_of(1), {}, resumable=True)
    damage(folder.save(2, group_of(2), {}))
    with pytest.warns(RuntimeWarning, match=r"step-00000002.*best\.ckpt\.npz is used instead"):
        assert folder.latest().step == 1


def test_a_best_with_other_variables_is_never_the_latest(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.save_best(3, group_of(3), {"loss": 0.5})
    assert folder.latest() is None and folder.has_best
    folder.save(1, group_of(1), {})
    assert folder.latest().step == 1
    damage(folder.best_path)
    assert folder.latest().step == 1 and not folder.has_best


def test_left_over_partial_files_are_removed_and_nothing_else(tmp_path):
    for name in ("step-00000009.ckpt.npz.partial", "notes.partial", "step-x.ckpt.npz", "my.npz"):
        (tmp_path / name).write_bytes(b"half")
    folder = CheckpointFolder(tmp_path)
    assert folder.latest() is None
    folder.save(10, group_of(1), {})
    assert sorted(os.listdir(tmp_path)) == [
        "my.npz",
        "notes.partial",
        "step-00000010.ckpt.npz",
        "step-x.ckpt.npz",
    ]


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    folder = CheckpointFolder(tmp_path / "file")
    with pytest.raises(OSError, match=r"Cannot save the checkpoint .*file is not a folder"):
        folder.save(1, group_of(1), {})
    with pytest.raises(NotADirectoryError):
        folder.latest()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with without_privileges(), pytest.raises(OSError, match=r"Cannot save .*: Permission denied"):
        CheckpointFolder(tmp_path).save(1, group_of(1), {})
    assert os.listdir(tmp_path) == []


@contextlib.contextmanager
def without_privileges():
    """The scope in which a superuser, who may write everywhere, is another user."""
    superuser = os.geteuid() == 0
    if superuser:
        os.seteuid(65534)
    try:
        yield
    finally:
        if superuser:
            os.seteuid(0)


def test_a_read_only_file_system_is_refused(small_disk):
    folder = CheckpointFolder(small_disk)
    folder.save(1, group_of(1), {})
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(remount, check=True, timeout=600)
    with pytest.raises(OSError, match=r"Cannot save the checkpoint .*: Read-only file system"):
        folder.save(2, group_of(2), {})
    assert values_of(folder.latest()) == {1.0}


def test_a_full_disk_keeps_what_was_saved(small_disk):
    folder = CheckpointFolder(small_disk, keep=1)
    folder.save(1, group_of(1, size=50_000), {})
    with pytest.raises(OSError, match="No space left on device"):
        folder.save(2, group_of(2, size=50_000), {})
    assert values_of(folder.latest()) == {1.0}
    assert os.listdir(small_disk) == ["step-00000001.ckpt.npz"]


def adam(value):
    tf.raw_ops.ResourceApplyAdam(
        var=value.handle, m=tf.Variable(tf.zeros([64])).handle,
        v=tf.Variable(tf.zeros([64])).handle, beta1_power=0.9, beta2_power=0.999, lr=0.1,
        beta1=0.9, beta2=0.999, epsilon=1e-7, grad=tf.ones([64]),
    )  # fmt: skip


@pytest.mark.parametrize(
    "update",
    [
        lambda value: value.assign_sub(tf.ones([64])),
        lambda value: value.assign(2 * value),
        lambda value: value.scatter_nd_add([[0]], [9.0]),
        lambda value: value.scatter_sub(tf.IndexedSlices([9.0], [1])),
        tf.function(lambda value: value.assign_add(tf.ones([64])), jit_compile=True),
        adam,
    ],
    ids=["subtract", "assign", "scatter", "rows", "xla", "adam"],
)
def test_a_snapshot_holds_what_was_there_when_it_was_taken(update):
    for rounds in range(2):  # TensorFlow treats a variable otherwise once its rows were written.
        groups = group_of(3 + rounds, size=64)
        for _ in range(rounds):
            update(groups["variables"][0])
        before = groups["variables"][0].numpy().copy()
        snapshot = take_snapshot(1, groups, {})
        update(groups["variables"][0])
        [saved, *_] = snapshot.groups["variables"]
        np.testing.assert_array_equal(saved.array, before)
        assert (groups["variables"][0].numpy() != before).any()


def test_a_failure_beside_the_training_is_told_by_the_next_save_and_at_the_end(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.save(1, group_of(1), {})
    (folder.best_path / "in the way").mkdir(parents=True)
    next_save = functools.partial(folder.save, 2, group_of(2), {}, wait=False)
    for tell in (next_save, folder.wait, folder.latest, CheckpointFolder(tmp_path).wait):
        folder.save_best(1, group_of(1), {}, wait=False)
        with pytest.raises(OSError, match=r"Cannot save .*best.*Earlier checkpoints are untouched"):
            tell()
        folder.wait()
    with pytest.raises(OSError, match="Cannot save"), folder:
        folder.save_best(1, group_of(1), {}, wait=False)
    with pytest.raises(KeyError), pytest.warns(RuntimeWarning, match="Cannot save"), folder:
        folder.save_best(1, group_of(1), {}, wait=False)
        raise KeyError
    shutil.rmtree(folder.best_path)
    assert folder.latest().step == 1


def test_keep_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match=r"at least 1\. Received 0"):
        CheckpointFolder(tmp_path, keep=0)


def save_without_end(path, step):
    """Saves step after step beside its updates until killed."""
    folder = CheckpointFolder(path)
    groups = group_of(step, size=50_000)
    while True:
        step += 1
        for variable in groups["variables"]:
            variable.assign(tf.fill([50_000], float(step)))
        folder.save(step, groups, {"step": step}, wait=False)


def test_a_process_killed_while_it_saves_leaves_a_whole_checkpoint(tmp_path):
    folder, random = CheckpointFolder(tmp_path), np.random.default_rng()
    step = 0
    for _ in range(4):
        old = f"step-{step:08d}.ckpt.npz"
        with forked(save_without_end, tmp_path, step) as process:
            while (latest := newest_name(tmp_path)) is None or latest <= old:
                assert process.is_alive()
                time.sleep(0.001)
            time.sleep(random.uniform(0, 0.05))

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            checkpoint = folder.latest()
        assert checkpoint.step > step
        step = checkpoint.step
        assert (values_of(checkpoint), checkpoint.state) == ({float(step)}, {"step": step})
    folder.save(step + 1, group_of(step + 1), {})
    assert len(os.listdir(tmp_path)) == 3


def save_and_report(folder, report):
    """Saves checkpoints and goes back to the first; notes what was done to files."""
    watch = Watch(folder)
    with CheckpointFolder(folder / "run" / "checkpoints", keep=1) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, group_of(step), {}, wait=step == 1)
            checkpoints.save_best(step, group_of(step), {}, wait=step == 1)
    report.write_text(json.dumps(watch.operations))


def test_saved_checkpoints_are_durable(tmp_path):
    (tmp_path / "watched").mkdir()
    assert exit_code(save_and_report, tmp_path / "watched", tmp_path / "report.json") == 0
    operations = [tuple(one) for one in json.loads((tmp_path / "report.json").read_text())]
    assert_durable(operations)
    kinds = [kind for kind, *_ in operations]
    assert kinds.count("rename") == 4
    assert kinds.index("remove") > kinds.index("rename")


def newest_name(folder):
    """The name of the newest whole checkpoint."""
    return max((name for name in os.listdir(folder) if name.endswith(".npz")), default=None)
