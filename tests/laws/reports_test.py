"""What is reported is what happened: means over all updates since the last report, exactly."""

import copy
import dataclasses
import functools
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import towers
from tests import helpers
from towers.loop import rates

SIZES = [9, 2, 7, 4, 12] * 12  # Of 60 batches; a mean over batches would be another one.
REPORTED = ("loss", "weight", "gradient_norm")


def tower_fn_of(model):
    """The loss counts examples; metrics count these, or others, or nothing, or are arrays."""
    classify = helpers.classify(model)

    def tower_fn(batch):
        inputs, labels = batch
        loss, weight, metrics = classify(batch)
        positive = tf.reduce_sum(tf.cast(inputs[:, 0] > 0, tf.float32))
        return loss, weight, {
            **metrics,
            "zeros among positives": (0.5 * positive, positive),
            "labels": (tf.reduce_sum(labels), None),
            "histogram": (tf.math.bincount(labels, minlength=3, maxlength=3), None),
        }  # fmt: skip

    return tower_fn


@functools.cache
def data_of_sizes():
    return helpers.dataset_of(helpers.dense_batches(SIZES))


def make_updates(kind="one"):
    """Returns fresh updates of a fresh model, over one epoch of batches that differ in size."""
    keras.utils.set_random_seed(3)
    data = data_of_sizes()
    model = helpers.dense_model()
    placement = helpers.tower_placement(1 if kind == "one" else 2)
    options = towers.StepOptions(probe=False)
    if kind == "asynchronous":
        step = towers.steps.build_async_step(
            tower_fn_of(model), model, keras.optimizers.SGD(0.1), placement, data, options
        )
        return towers.steps.AsynchronousUpdates(step, data)
    if kind == "joint":
        update = towers.steps.JointUpdate(tower_fn_of(model), model, keras.optimizers.SGD(0.1))
        step = towers.steps.build_joint_step({"only": update}, placement, data, options)
    else:
        step = towers.build_train_step(
            tower_fn_of(model), model, keras.optimizers.SGD(0.1), placement, data, options
        )
    return towers.steps.SynchronousUpdates(step, data)


@pytest.fixture(scope="module")
def eleven():
    """The reports of the first eleven updates on two towers."""
    updates = []
    towers.Trainer.making(make_updates("two"), [updates.append]).train(steps=11)
    return updates


def reporting(steps, into):
    return towers.actions.with_rates(lambda report, _: into.append(report), steps=steps)


def parts_of(report, tower):
    """Returns pairs (value, weight) of an update or a report by name, of one tower or of all."""
    results = report.results if tower is None else report.results.towers
    took_part = tower is None or report.tower in (None, tower)
    pairs = {"loss": (results.loss, results.weight)}
    for name, value in results.metrics.items():
        if np.ndim(value) == (tower is not None):  # One number.
            pairs[name] = (value, results.metric_weights[name])
    pairs["gradient_norm"] = (np.square(np.asarray(results.gradient_norm, "float64")), None)
    pairs = {name: pair if took_part else (0.0, 0.0) for name, pair in pairs.items()}
    return {
        name: tuple(
            1.0 if one is None else float(one if tower is None or np.ndim(one) == 0 else one[tower])
            for one in pair
        )
        for name, pair in pairs.items()
    }


def expected_means(updates, tower):
    """Returns the weighted means over single updates, and their summed weights."""
    parts = [parts_of(update, tower) for update in updates]
    pairs = {name: np.array([part[name] for part in parts]) for name in parts[0]}
    means = {name: (pair.prod(axis=1).sum(), pair[:, 1].sum()) for name, pair in pairs.items()}
    return {
        name: (total / weight if weight else 0, weight) for name, (total, weight) in means.items()
    }


@pytest.mark.parametrize("kind", ["one", "two", "joint", "asynchronous"])
def test_a_report_is_the_weighted_mean_of_all_updates_since_the_last(kind):
    single, tens, fifties = [], [], []
    actions = [single.append, reporting(10, tens), reporting(50, fifties)]
    updates = make_updates(kind)
    towers.Trainer.making(updates, actions).train(epochs=1)
    assert [report.step for report in tens] == [10, 20, 30, 40, 50, 60]
    (fifty,) = fifties
    num_towers = len(fifty.results.towers.loss)
    assert "histogram" not in fifty.results.metrics
    for tower in [None, *range(num_towers)]:
        counted = [one for one in single[:50] if tower is None or one.tower in (None, tower)]
        if not counted:  # An asynchronous tower without an update.
            assert np.isnan(fifty.results.towers.loss[tower])
            continue
        for report, since in [(fifty, single[:50]), (tens[1], single[10:20])]:
            if not any(tower is None or one.tower in (None, tower) for one in since):
                continue
            actual = parts_of(dataclasses.replace(report, tower=None), tower)
            for name, (mean, weight) in expected_means(since, tower).items():
                assert actual[name][0] == pytest.approx(mean, rel=1e-12), (tower, name)
                if name == "loss" or report.results.metric_weights.get(name) is not None:
                    assert actual[name][1] == weight, (tower, name)
    last = [one.results.loss for one in (single[49], fifty)]
    assert float(last[0]) != pytest.approx(float(last[1]), rel=1e-6)


@pytest.mark.parametrize("num_towers", [1, 2])
def test_fifty_steps_are_the_weighted_mean_of_five_times_ten(num_towers):
    tens, fifties = [], []
    updates = make_updates("one" if num_towers == 1 else "two")
    towers.Trainer.making(updates, [reporting(10, tens), reporting(50, fifties)]).train(steps=50)
    (fifty,) = fifties
    for tower in [None, *range(num_towers)]:
        means = expected_means(tens, tower)
        for name, (value, _) in parts_of(fifty, tower).items():
            assert value == pytest.approx(means[name][0], rel=1e-12)


@pytest.mark.parametrize("stops", [(10,), (3, 4, 33)])
def test_a_run_that_goes_on_reports_the_same_numbers(stops, tmp_path):
    """Whatever step it was stopped at: to the last bit."""

    def train(steps, run_dir):
        sevens, elevens = [], []
        actions = [reporting(7, sevens), reporting(11, elevens)]
        updates = make_updates("two")
        towers.Trainer.making(updates, actions, run_dir=run_dir).train(steps=steps)
        return [(report.step, numbers_of(report.results)) for report in sevens + elevens]

    expected = train(44, tmp_path / "whole")
    actual = [one for steps in (*stops, 44) for one in train(steps, tmp_path / "stopped")]
    assert sorted(actual) == sorted(expected)


def numbers_of(results):
    return [np.asarray(one).tolist() for one in tf.nest.flatten(results) if one is not None]


def test_a_run_that_goes_on_with_another_period_reports_what_was_saved(tmp_path):
    towers.Trainer.making(
        make_updates("two"), [reporting(11, []), reporting(7, [])], run_dir=tmp_path
    ).train(steps=4)
    fives, sixes = [], []
    towers.Trainer.making(
        make_updates("two"), [reporting(5, fives), reporting(6, sixes)], run_dir=tmp_path
    ).train(steps=10)
    weights = [[float(one.results.weight) for one in reports] for reports in (fives, sixes)]
    assert weights == [[sum(SIZES[:5]), sum(SIZES[5:10])], [sum(SIZES[:6])]]


def test_a_checkpoint_from_before_the_sums_still_goes_on(tmp_path):
    updates = make_updates()
    towers.Trainer.making(updates).train(steps=5)
    folder = towers.checkpoints.CheckpointFolder(tmp_path / "checkpoints")
    state = {"position": dataclasses.asdict(updates.position)}
    folder.save(5, updates.step.groups(), state)
    reports = []
    towers.Trainer.making(make_updates(), [reporting(7, reports)], run_dir=tmp_path).train(steps=7)
    assert [report.step for report in reports] == [7]
    assert reports[0].results.weight == sum(SIZES[5:7])


def test_sums_go_on_on_another_number_of_towers(eleven):
    window, single = rates.Window(), []
    list(map(window.add, eleven[:4]))
    other = rates.Window()
    other.restore(window.state())
    actions = [other.add, single.append]
    towers.Trainer.making(make_updates("one"), actions).train(steps=3)
    results, _ = other.read()
    assert results.weight == sum(SIZES[:4]) + sum(SIZES[:3])
    assert results.towers.weight.tolist() == [sum(SIZES[:3])]
    expected = expected_means(single, None)["loss"][0]
    assert results.towers.loss == pytest.approx(expected, rel=1e-12)


def test_a_run_on_fewer_towers_reports_no_staleness_of_the_others():
    window, reports = rates.Window(), []
    towers.Trainer.making(make_updates("asynchronous"), [reports.append]).train(steps=1)
    window.add(dataclasses.replace(reports[0], tower=1, staleness=4))
    resumed = rates.Window()
    resumed.restore(window.state())
    resumed.add(dataclasses.replace(reports[0], waits=[0.0], tower=0, staleness=3))
    assert resumed.state()["staleness"] == {"0": [3, 1]}


def test_adding_updates_waits_for_no_device(monkeypatch, eleven):
    """One loss is not computed yet, as on a GPU that is behind its host."""
    monkeypatch.setattr(rates, "STACKED", 4)
    window, computed = rates.Window(), threading.Event()
    impatience = threading.Timer(30, computed.set)
    impatience.start()
    with context.execution_mode(context.ASYNC):
        pending = tf.py_function(lambda: 2.0 * computed.wait(), [], tf.float32)
        for update in eleven:
            results = update.results._replace(loss=pending)
            window.add(dataclasses.replace(update, results=results))
        assert not computed.is_set()
        computed.set()
        impatience.cancel()
        results, _ = window.read()
    assert results.loss == pytest.approx(2.0, rel=1e-12)


def test_the_norm_leaves_out_updates_that_were_not_applied(eleven):
    """With a loss scale, a gradient that overflows is skipped; it is no infinite norm."""
    updates, reports = eleven[:3], []
    overflow = updates[1].results._replace(
        finite=tf.constant(False), gradient_norm=tf.constant(np.inf, tf.float32)
    )
    updates[1] = dataclasses.replace(copy.copy(updates[1]), results=overflow)
    action = reporting(3, reports)
    list(map(action, updates))
    norms = [float(updates[index].results.gradient_norm) for index in (0, 2)]
    norm = reports[0].results.gradient_norm
    assert norm == pytest.approx(np.sqrt(np.mean(np.square(norms))), rel=1e-12)
    assert reports[0].results.weight == sum(SIZES[:3])
