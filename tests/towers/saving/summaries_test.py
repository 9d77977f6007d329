"""One curve per tower under one tag, and each step once, however often a run was killed."""

import os
import signal
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.plugins.hparams.metadata import (
    SESSION_START_INFO_TAG,
    parse_session_start_info_plugin_data,
)
from tensorboard.util.tensor_util import make_ndarray

from tests.curves import read_scalars
from tests.file_faults import Watch
from tests.programs import exit_code, forked
from towers.saving.graph_boxes import box_graph
from towers.saving.summaries import SummaryWriters, event_files, read_events, remove_events_after

RUNS = ["average", "evaluation", "tower_0", "tower_1"]


def write_steps(folder, steps, *, offset=0.0, runs=("tower_0",)):
    """Writes the step's number plus the offset as the loss of each step."""
    with SummaryWriters(folder) as writers:
        for step in steps:
            for run in runs:
                writers.write(run, step, {"loss": step + offset, "accuracy": 0.5})


def tensorboard_curve(folder, tag="loss"):
    """The points (step, value) that TensorBoard itself finds in a run's folder."""
    accumulator = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    accumulator.Reload()
    return [
        (event.step, make_ndarray(event.tensor_proto).item()) for event in accumulator.Tensors(tag)
    ]


def only_file(folder):
    [path] = event_files(folder)
    return path


def test_one_chart_has_a_curve_for_each_tower(tmp_path):
    with SummaryWriters(tmp_path) as writers:
        for step in (1, 2):
            for index, run in enumerate(RUNS):
                writers.write(run, step, {"loss": step + index / 4, "accuracy": 1 / step})

    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    assert sorted(multiplexer.Runs()) == RUNS
    for index, run in enumerate(RUNS):
        assert sorted(multiplexer.Runs()[run]["tensors"]) == ["accuracy", "loss"]
        curve = [(1, 1 + index / 4), (2, 2 + index / 4)]
        assert tensorboard_curve(tmp_path / run) == curve
        assert read_scalars(tmp_path, run) == {"loss": curve, "accuracy": [(1, 1.0), (2, 0.5)]}
        plugin = multiplexer.SummaryMetadata(run, "loss").plugin_data.plugin_name
        assert plugin == "scalars"


def test_a_run_without_a_point_has_no_folder(tmp_path):
    write_steps(tmp_path, [1], runs=["average"])
    assert os.listdir(tmp_path) == ["average"]


def test_values_that_are_not_finite_are_written(tmp_path):
    with SummaryWriters(tmp_path) as writers:
        writers.write("average", 1, {"nan": np.nan, "infinite": -np.inf, "large": 1e300})
    values = {tag: points[0][1] for tag, points in read_scalars(tmp_path, "average").items()}
    assert np.isnan(values["nan"])
    assert (values["infinite"], values["large"]) == (-np.inf, np.inf)


def test_texts_and_the_graph_are_shown(tmp_path):
    graph = some_graph()
    with SummaryWriters(tmp_path) as writers:
        writers.write_graph(graph)
        writers.write_text("average", 0, "recipe", "*one* line")
    accumulator = EventAccumulator(str(tmp_path / "average"))
    accumulator.Reload()
    names = [node.name for node in accumulator.Graph().node]
    assert names == [node.name for node in box_graph(graph).node]
    assert any(name.startswith("tower_0/") for name in names)
    [text] = accumulator.Tensors("recipe")
    assert make_ndarray(text.tensor_proto).item() == b"*one* line"
    assert accumulator.SummaryMetadata("recipe").plugin_data.plugin_name == "text"


def some_graph():
    @tf.function
    def double(value):
        with tf.name_scope("tower_0"):
            return value * 2

    return double.get_concrete_function(tf.TensorSpec([])).graph


def test_flushed_points_can_be_read_while_the_writer_is_open(tmp_path):
    with SummaryWriters(tmp_path) as writers:
        for run in RUNS:
            writers.write(run, 1, {"loss": 2.0})
        writers.flush()
        for run in RUNS:
            assert tensorboard_curve(tmp_path / run) == [(1, 2.0)]


def test_forgetting_keeps_everything_up_to_the_step(tmp_path):
    with SummaryWriters(tmp_path) as writers:
        writers.write_graph(some_graph())
        for step in range(11):
            writers.write_text("average", step, "note", f"step {step}")
            writers.write("evaluation", step, {"loss": step})
    remove_events_after(tmp_path, 6)
    assert read_scalars(tmp_path, "evaluation") == {"loss": [(step, step) for step in range(7)]}
    accumulator = EventAccumulator(str(tmp_path / "average"))
    accumulator.Reload()
    assert accumulator.Graph().node
    assert accumulator.file_version == 2.0
    assert [event.step for event in accumulator.Tensors("note")] == list(range(7))


def test_histograms_hold_every_finite_number(tmp_path):
    numbers = np.random.default_rng(3).normal(size=(40, 50)).astype(np.float32)
    numbers[0, :2] = np.nan, np.inf
    arrays = {
        "dense/kernel": numbers,
        "equal": np.full(7, 2.5, np.float16),
        "whole": np.arange(30),
        "none": np.full(3, np.nan),
        "empty": np.zeros((0, 4)),
    }
    with SummaryWriters(tmp_path) as writers:
        writers.write_histograms("average", 5, arrays)
    accumulator = EventAccumulator(str(tmp_path / "average"))
    accumulator.Reload()
    found = {}
    for tag in arrays:
        metadata = accumulator.SummaryMetadata(tag)
        assert metadata.plugin_data.plugin_name == "histograms"
        [event] = accumulator.Tensors(tag)
        assert event.step == 5
        found[tag] = make_ndarray(event.tensor_proto)
        assert found[tag].shape == (30, 3) and (found[tag][:, 0] <= found[tag][:, 1]).all()
    finite = numbers[np.isfinite(numbers)].astype(np.float64)
    left, right, counts = found["dense/kernel"].T
    assert (left[0], right[-1], counts.sum()) == (finite.min(), finite.max(), finite.size)
    inside = [((low <= finite) & (finite < high)).sum() for low, high, _ in found["dense/kernel"]]
    inside[-1] += 1  # The largest number is the end of the last bucket.
    np.testing.assert_array_equal(counts, inside)
    [(low, high, count)] = [bucket for bucket in found["equal"] if bucket[2]]
    assert low <= 2.5 <= high and count == 7
    np.testing.assert_array_equal(found["whole"][:, 2], 1)
    assert not found["none"][:, 2].any() and not found["empty"][:, 2].any()


def test_files_without_later_events_are_left_alone(tmp_path):
    write_steps(tmp_path, range(1, 5), runs=RUNS)
    before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in event_files(tmp_path)]
    remove_events_after(tmp_path, 4)
    after = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in event_files(tmp_path)]
    assert before == after
    assert len(before) == len(RUNS)


def test_a_folder_without_events_is_left_alone(tmp_path):
    remove_events_after(tmp_path / "none", 3)
    assert not (tmp_path / "none").exists()
    (tmp_path / "notes.txt").write_text("kept")
    remove_events_after(tmp_path, 3)
    assert os.listdir(tmp_path) == ["notes.txt"]
    assert read_scalars(tmp_path, "tower_0") == {}


def test_a_resumed_run_shows_each_step_once(tmp_path):
    write_steps(tmp_path, range(1, 11))
    path = only_file(tmp_path)
    os.truncate(path, path.stat().st_size - 9)  # In the middle of step 10.
    remove_events_after(tmp_path, 6)
    write_steps(tmp_path, range(7, 11), offset=0.5)

    assert len(event_files(tmp_path)) == 2
    expected = [(step, step + 0.5 * (step > 6)) for step in range(1, 11)]
    assert tensorboard_curve(tmp_path / "tower_0") == expected
    assert read_scalars(tmp_path, "tower_0")["loss"] == expected


def test_two_files_of_a_run_are_both_cut(tmp_path):
    write_steps(tmp_path, range(1, 6))
    write_steps(tmp_path, range(6, 11))
    remove_events_after(tmp_path, 3)
    write_steps(tmp_path, range(4, 6), offset=0.5)
    expected = [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.5), (5, 5.5)]
    assert tensorboard_curve(tmp_path / "tower_0") == expected


def test_a_run_that_starts_over_forgets_everything(tmp_path):
    write_steps(tmp_path, range(1, 6), runs=RUNS)
    remove_events_after(tmp_path, 0)
    for run in RUNS:
        assert read_scalars(tmp_path, run) == {}


def test_a_file_cut_anywhere_keeps_its_whole_points(tmp_path):
    write_steps(tmp_path, range(1, 4))
    path = only_file(tmp_path)
    content = path.read_bytes()
    counts = []
    for length in [*range(0, len(content), 17), len(content)]:
        path.write_bytes(content[:length])
        remove_events_after(tmp_path, 3)
        assert content.startswith(path.read_bytes())
        points = tensorboard_points(tmp_path / "tower_0")
        assert points == [(step, float(step)) for step in range(1, len(points) + 1)]
        assert path.stat().st_size <= length
        counts.append(len(points))
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2, 3}


def tensorboard_points(folder):
    """As `tensorboard_curve`, with no points where TensorBoard knows no such tag."""
    return tensorboard_curve(folder) if read_scalars(folder, ".") else []


@pytest.mark.parametrize("tail", [b"\0" * 40, b"nonsense " * 9], ids=["zeros", "text"])
def test_a_damaged_tail_is_told_and_kept_aside(tmp_path, tail):
    write_steps(tmp_path, range(1, 4))
    path = only_file(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content + tail)
    with pytest.warns(RuntimeWarning, match=f"{path.name} are damaged .* is kept as damaged-1-"):
        remove_events_after(tmp_path, 3)
    assert path.read_bytes() == content
    (kept,) = path.parent.glob("damaged-1-*")
    assert kept.read_bytes() == content + tail
    assert tensorboard_curve(tmp_path / "tower_0") == [(1, 1.0), (2, 2.0), (3, 3.0)]


def test_a_flipped_byte_is_told_and_nothing_is_lost(tmp_path):
    write_steps(tmp_path, range(1, 9))
    path = only_file(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match="damaged"):
        remove_events_after(tmp_path, 8)
    (kept,) = path.parent.glob("damaged-1-*")
    assert kept.read_bytes() == bytes(content)
    points = tensorboard_curve(tmp_path / "tower_0")
    assert points == [(step, float(step)) for step in range(1, len(points) + 1)] and len(points) < 8
    remove_events_after(tmp_path, 8)  # It is whole now: nothing more to tell.


def test_flushed_curves_survive_a_power_cut(tmp_path):
    """What a checkpoint is behind is on the disk before the checkpoint is."""
    (tmp_path / "watched").mkdir()
    assert exit_code(write_and_lose_power, tmp_path / "watched") == -signal.SIGKILL
    assert read_scalars(tmp_path / "watched", "tower_0")["loss"] == [(1, 1.0), (2, 2.0)]


def write_and_lose_power(folder):
    watch = Watch(folder, last="checkpoint", power_cut=True)
    writers = SummaryWriters(folder)
    for step in (1, 2):
        writers.write("tower_0", step, {"loss": float(step)})
    writers.flush()
    (folder / "partial").write_bytes(b"")
    os.replace(folder / "partial", folder / "checkpoint")
    raise AssertionError(watch.operations)


def test_a_record_that_is_no_event_is_removed(tmp_path):
    path = tmp_path / "tower_0" / "events.out.tfevents.1"
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"\xff\xff no event")
    with pytest.warns(RuntimeWarning, match="damaged"):
        remove_events_after(tmp_path, 3)
    assert path.read_bytes() == b""


def test_what_a_killed_rewriting_left_is_removed(tmp_path):
    write_steps(tmp_path, range(1, 4))
    (tmp_path / "tower_0" / "rewriting.partial").write_bytes(b"half")
    assert tensorboard_curve(tmp_path / "tower_0") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    remove_events_after(tmp_path, 3)
    assert os.listdir(tmp_path / "tower_0") == [only_file(tmp_path).name]


def write_without_end(folder, step):
    """Writes step after step until killed."""
    with SummaryWriters(folder) as writers:
        while True:
            step += 1
            for run in RUNS:
                writers.write(run, step, {"loss": step, "accuracy": 0.5})
            if step % 10 == 0:
                writers.flush()


def test_a_killed_writer_leaves_each_step_once(tmp_path):
    random = np.random.default_rng()
    step = 0
    for _ in range(3):
        with forked(write_without_end, tmp_path, step) as process:
            while not (points := read_scalars(tmp_path, RUNS[-1])) or points["loss"][-1][0] <= step:
                assert process.is_alive()
                time.sleep(0.01)
            time.sleep(random.uniform(0, 0.05))
        step = points["loss"][-1][0] - 3  # As if a checkpoint had been saved there.
        remove_events_after(tmp_path, step)
        for run in RUNS:
            expected = [(number, float(number)) for number in range(1, step + 1)]
            assert tensorboard_curve(tmp_path / run) == expected


def test_a_full_disk_is_named(small_disk):
    writers = SummaryWriters(small_disk)
    (small_disk / "filler").write_bytes(bytes(1000 * 1024))
    with pytest.raises(OSError, match=r"Cannot write summaries in .*: No space left on device\."):
        for step in range(2000):
            writers.write("average", step, {"loss": 1.0})
    (small_disk / "filler").unlink()
    writers.close()


def test_a_full_disk_keeps_the_file_that_was_to_be_cut(small_disk):
    write_steps(small_disk, range(1, 200))
    path = only_file(small_disk)
    before = path.read_bytes()
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize
    (small_disk / "filler").write_bytes(bytes(free))
    with pytest.raises(OSError, match="No space left on device"):
        remove_events_after(small_disk, 100)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(NotADirectoryError, match="file/average"):
        SummaryWriters(tmp_path / "file").write("average", 1, {"loss": 1.0})


def test_hyperparameters_are_those_of_the_page_hparams(tmp_path):
    values = {"learning_rate": 0.5, "recipe": "shapes", "filters": (2, 3), "xla": True}
    with SummaryWriters(tmp_path) as writers:
        writers.write_hyperparameters("evaluation", {"epochs": 1})
        writers.write_hyperparameters("evaluation", values)  # TensorBoard would show the first.
        writers.write("evaluation", 3, {"accuracy": 0.5})
    remove_events_after(tmp_path, 3)
    found = [
        parse_session_start_info_plugin_data(value.metadata.plugin_data.content).hparams
        for path in event_files(tmp_path)
        for event, _ in read_events(path)
        for value in event.summary.value
        if value.tag == SESSION_START_INFO_TAG
    ]
    (settings,) = found
    assert settings["learning_rate"].number_value == 0.5 and settings["xla"].bool_value
    assert settings["recipe"].string_value == "shapes"
    assert settings["filters"].string_value == "(2, 3)"
