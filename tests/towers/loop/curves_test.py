"""What TensorBoard shows: a curve for each tower, histograms, and a profile."""

import math

import keras
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.util.tensor_util import make_ndarray

from tests.towers.loop.reports import rates_of, report_of
from towers.loop import curves, printing
from towers.saving.summaries import SummaryWriters


def written(folder):
    """Returns {(run, tag): [(step, value)]} from the event files."""
    found = {}
    for path in sorted(folder.rglob("*tfevents*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = Event.FromString(record.numpy())
            for value in event.summary.value:
                number = float(tf.make_ndarray(value.tensor))
                key = (path.parent.relative_to(folder).as_posix(), value.tag)
                found.setdefault(key, []).append((event.step, number))
    return found


def test_each_tower_has_a_curve_under_the_same_tags(tmp_path):
    with SummaryWriters(tmp_path) as writers:
        write = curves.write_summaries(writers)
        write(report_of(5), rates_of((0.0, 2.5)))
        write(report_of(10), rates_of((0.0, 2.5)))
    found = written(tmp_path)
    assert {run for run, _ in found} == {"average", "tower_0", "tower_1"}
    own = {"loss", "accuracy", "gradient_norm", "examples_per_second", "input_wait"}
    own |= {"loss_spread"}
    assert {tag for run, tag in found if run == "tower_1"} == own
    assert {tag for run, tag in found if run == "average"} == own | {"learning_rate"}
    assert found["tower_1", "loss"] == [(5, 4.0), (10, 4.0)]
    ((_, average), _), ((_, low), _) = found["average", "loss"], found["tower_0", "loss"]
    assert found["tower_1", "loss_spread"][0] == pytest.approx((5, 4.0 - average))
    assert found["average", "loss_spread"][0] == (5, 4.0 - low)
    assert found["tower_1", "gradient_norm"] == [(5, 8.0), (10, 8.0)]
    assert found["tower_1", "input_wait"] == [(5, 0.25), (10, 0.25)]
    assert found["tower_0", "accuracy"] == [(5, 0.375), (10, 0.375)]
    assert found["average", "learning_rate"] == [(5, 0.125), (10, 0.125)]
    assert found["average", "examples_per_second"] == [(5, 3628.0), (10, 3628.0)]


def test_a_tower_without_an_example_has_no_loss(tmp_path):
    towers = report_of(5).results.towers._replace(loss=[4.0, 0.0], weight=[3.0, 0.0])
    report = report_of(5, loss=tf.constant(4.0), towers=towers)
    with SummaryWriters(tmp_path) as writers:
        curves.write_summaries(writers)(report, rates_of((0.0, 2.5)))
    found = written(tmp_path)
    assert {run for run, _ in found} == {"average", "tower_0"}
    assert found["average", "loss_spread"] == [(5, 0.0)]
    assert printing.tower_losses(report, None) == [(0, 4.0)]
    assert math.isnan(curves.report_values(report, rates_of((0.0, 2.5)))["tower_1_loss"])


def test_variables_of_one_path_have_histograms_of_their_own(tmp_path):
    variables = [keras.Variable([value], name="same") for value in (1.0, 2.0, 3.0)]
    assert len({variable.path for variable in variables}) == 1
    with SummaryWriters(tmp_path) as writers:
        curves.write_histograms(writers, variables)(report_of(7))
    events = EventAccumulator(str(tmp_path / "average")).Reload()
    found = {
        tag: make_ndarray(events.Tensors(tag)[0].tensor_proto) for tag in events.Tags()["tensors"]
    }
    middles = {tag: buckets[buckets[:, 2] > 0][0, :2].mean() for tag, buckets in found.items()}
    assert {tag: round(middle) for tag, middle in middles.items()} == {
        "same": 1,
        "same_2": 2,
        "same_3": 3,
    }


def test_the_steps_of_a_range_are_profiled(tmp_path):
    profile = curves.profile_steps(tmp_path, first=3, last=4)
    profile(report_of(1))
    assert not list(tmp_path.iterdir())
    for step in (2, 3):
        profile(report_of(step))
    assert not list(tmp_path.rglob("*.xplane.pb"))
    profile(report_of(4))
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1
    profile(report_of(5))
    for first, last in ((1, 5), (5, 4)):
        with pytest.raises(ValueError, match="2 <= first <= last"):
            curves.profile_steps(tmp_path, first=first, last=last)
