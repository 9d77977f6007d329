"""Asynchronous towers: every batch once, no update lost, staleness counted, nobody waits."""

import functools
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers, programs
from tests.curves import read_scalars
from tests.towers.loop.reports import line_of
from towers import StepReport
from towers.actions import NonFiniteGradientError
from towers.devices.op_devices import record_op_devices
from towers.loop.actions import with_rates
from towers.loop.curves import write_summaries
from towers.other_steps.asynchronous_updates import MOST_UNREPORTED
from towers.saving.summaries import SummaryWriters
from towers.steps import Position

TIMEOUT = 600.0  # Seconds until a test that waits for another thread gives up.


class Counter(keras.layers.Layer):
    """One weight whose gradient is always 1, and a count of the examples seen."""

    def __init__(self):
        super().__init__()
        self.weight = self.add_weight(shape=(), initializer="zeros", name="weight")
        self.seen = self.add_weight(
            shape=(), initializer="zeros", name="seen", trainable=False, dtype="float32"
        )


def counting(layer):
    """A tower function that moves the weight by 1 and the count by the examples."""

    def tower_fn(batch):
        (inputs,) = batch
        weight = tf.cast(tf.size(inputs), tf.float32)
        layer.seen.assign_add(weight)
        return layer.weight * weight, weight, {"first": inputs[0] * weight}

    return tower_fn


def numbers(num_batches, size=2):
    """Batches of the numbers 0, 0, 1, 1, ...: every batch is known by its number."""
    values = np.repeat(np.arange(num_batches, dtype="float32"), size)
    return towers.batches_from(tf.data.Dataset.from_tensor_slices((values,)).batch(size))


def build(tower_fn, variables, optimizer, batches, num_towers, **options):
    placement = helpers.tower_placement(num_towers, options.pop("parameters", "auto"))
    options = towers.StepOptions(**{"probe": False, **options})  # A trace less.
    return towers.steps.build_async_step(
        tower_fn, variables, optimizer, placement, batches, options
    )


def fresh_counting_step(num_towers):
    layer = Counter()
    optimizer = keras.optimizers.SGD(1.0)
    return layer, build(counting(layer), layer.weights, optimizer, numbers(10), num_towers)


counting_step_of = functools.cache(fresh_counting_step)


def counting_step(num_towers, num_batches=10):
    """A step that is built once for all tests of so many towers, as if it were a fresh one."""
    layer, step = counting_step_of(num_towers)
    for variable in (*layer.weights, step.update.copies.optimizer.iterations):
        variable.assign(0)
    return layer, step, numbers(num_batches)


class Before:
    """A step, but `act(tower, batch_number)` runs in the tower's thread before each update."""

    def __init__(self, step, act):
        self._step = step
        self._act = act

    def __getattr__(self, name):
        return getattr(self._step, name)

    def __call__(self, tower, shards, batch_number):
        self._act(tower, batch_number)
        return self._step(tower, shards, batch_number)


def second_tower_after(step):
    """What holds the second tower until the report of a step, and the action that releases it."""
    reported = threading.Event()

    def hold(tower, batch_number):
        if tower == 1:
            assert reported.wait(TIMEOUT)

    return hold, lambda report: reported.set() if report.step == step else None


class LostDeviceError(Exception):
    """What a tower fails with."""


def wait_until_still(step):
    """Returns when no tower has made an update for a while, and none is about to."""
    count = -1
    while count != (count := int(step.update.copies.optimizer.iterations.value)):
        time.sleep(1.0)


def failing(step, number):
    """The step, but batch `number` fails once the event is set; and the event."""
    fails = threading.Event()

    def act(tower, batch_number):
        if batch_number == number:
            assert fails.wait(TIMEOUT)
            raise LostDeviceError

    return Before(step, act), fails


def generated(generate):
    """Batches from a Python generator of arrays."""
    spec = (tf.TensorSpec([None], tf.float32),)
    return towers.batches_from(tf.data.Dataset.from_generator(generate, output_signature=spec))


def test_six_hundred_concurrent_updates_are_all_applied():
    layer, step, batches = counting_step(4, num_batches=300)
    reports: list[StepReport] = []
    trainer = helpers.make_async_trainer(step, batches, [reports.append])
    assert trainer.train(epochs=2) == "2 epochs done"
    assert float(layer.weight.value) == -600
    assert float(layer.seen.value) == 1200
    assert int(step.update.copies.optimizer.iterations.value) == 600
    assert [report.step for report in reports] == list(range(1, 601))
    assert {report.tower for report in reports} == {0, 1, 2, 3}
    assert trainer.position == Position(600, 2, 0)


@pytest.mark.parametrize("steps, position", [(20, Position(20, 1, 0)), (7, Position(7, 0, 7))])
def test_a_limit_at_the_end_of_an_epoch_ends_the_epoch(steps, position):
    _, step, batches = counting_step(2, num_batches=20)
    reports: list[StepReport] = []
    trainer = helpers.make_async_trainer(step, batches, [reports.append])
    trainer.train(steps=steps)
    assert trainer.position == reports[-1].position == position
    assert reports[-1].epoch_end == (position.epoch == 1)


def test_what_follows_the_last_batch_may_be_broken():
    def generate():
        for _ in range(3):
            yield (np.ones(1, "float32"),)
        raise OSError("a bad sector")

    _, step, _ = counting_step(2, num_batches=3)
    trainer = helpers.make_async_trainer(step, generated(generate))
    assert trainer.train(steps=3) == "3 steps done"
    assert trainer.position == Position(3, 0, 3)


def test_every_batch_is_taken_once_in_every_epoch():
    _, step, batches = counting_step(3, num_batches=20)
    reports: list[StepReport] = []
    helpers.make_async_trainer(step, batches, [reports.append]).train(epochs=3)
    for epoch in range(3):
        taken = [float(r.results.metrics["first"]) for r in reports if r.epoch == epoch]
        assert sorted(taken) == list(range(20))
    assert [r.step for r in reports if r.epoch_end] == [20, 40, 60]
    assert [r.position for r in reports if r.epoch_end][-1] == Position(60, 3, 0)


@pytest.mark.usefixtures("sums_as_written")
def test_one_asynchronous_tower_is_a_synchronous_one():
    """The same order, the same random numbers, the same weights to the last bit."""

    def fresh():
        keras.utils.set_random_seed(3)
        inputs = keras.Input((5,))
        hidden = keras.layers.Dense(8, activation="tanh")(inputs)
        dropped = keras.layers.Dropout(0.4, seed=1)(hidden)
        model = keras.Model(inputs, keras.layers.Dense(3)(dropped))
        return model, helpers.classify(model, training=True), keras.optimizers.Adam(0.01)

    batches = towers.batches_from(helpers.dataset_of(helpers.dense_batches([4, 4, 3, 4])))
    model, tower_fn, optimizer = fresh()
    options = {"clip_norm": 0.5, "accumulate": 2, "seed": 5}
    step = build(tower_fn, model, optimizer, batches, 1, **options)
    helpers.make_async_trainer(step, batches).train(epochs=2)

    expected, tower_fn, optimizer = fresh()
    step = helpers.build_step_for(tower_fn, expected, optimizer, batches, 1, **options)
    helpers.make_trainer(step, batches).train(epochs=2)
    for one, other in zip(helpers.weights_of(model), helpers.weights_of(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_state_that_is_true_or_false_is_assigned():
    layer = Counter()
    has_run = keras.Variable(False, dtype="bool", trainable=False, name="has_run")
    count = counting(layer)

    def tower_fn(batch):
        has_run.assign(tf.constant(True))
        return count(batch)

    batches = numbers(3)
    step = build(tower_fn, [*layer.weights, has_run], keras.optimizers.SGD(1.0), batches, 2)
    helpers.make_async_trainer(step, batches).train(epochs=1)
    assert bool(has_run.value) and float(layer.seen) == 6


def test_a_tower_that_stands_still_does_not_hold_the_others():
    _, step, batches = counting_step(2, num_batches=100)
    second, release = second_tower_after(50)
    reports: list[StepReport] = []
    helpers.make_async_trainer(Before(step, second), batches, [reports.append, release]).train(
        epochs=1
    )
    assert [report.tower for report in reports[:50]] == [0] * 50
    assert {report.tower for report in reports} == {0, 1}


def test_staleness_counts_the_updates_between_reading_and_writing():
    layer, batches = Counter(), numbers(40)
    plenty_done = threading.Event()

    def wait_on_tower_1(value):
        if "CPU:2" in value.device:
            waited = tf.py_function(lambda: plenty_done.wait(TIMEOUT), [], tf.bool)
            with tf.control_dependencies([waited]):
                return tf.identity(value)
        return value

    def tower_fn(batch):
        loss, weight, metrics = counting(layer)(batch)
        return wait_on_tower_1(tf.identity(loss)), weight, metrics

    step = build(tower_fn, layer.weights, keras.optimizers.SGD(1.0), batches, 2)
    reports: list[StepReport] = []

    def act(report):
        reports.append(report)
        if report.step == 12:
            plenty_done.set()

    helpers.make_async_trainer(step, batches, [act]).train(epochs=1)
    first_of_slow = next(report for report in reports if report.tower == 1)
    assert first_of_slow.staleness >= 12
    before = [report for report in reports if report.step < first_of_slow.step]
    assert all(report.staleness == 0 for report in before)
    assert float(layer.weight.value) == -40


def test_nothing_moves_while_an_action_keeps_the_towers_still():
    layer, step, batches = counting_step(3, num_batches=60)
    seen = []

    def act(report):
        if report.step % 10:
            return
        with trainer.paused():
            before = float(layer.weight.value)
            time.sleep(0.02)
            seen.append((trainer.position, before, float(layer.weight.value)))
            assert int(step.update.copies.optimizer.iterations.value) == trainer.position.step

    trainer = helpers.make_async_trainer(step, batches, [act])
    trainer.train(epochs=1)
    assert len(seen) == 6
    for position, before, after in seen:
        assert before == after == -position.step
        assert position in (Position(position.step, 0, position.step), Position(60, 1, 0))


def test_an_action_may_keep_the_towers_still_twice():
    layer, step, batches = counting_step(3, num_batches=200)
    seen = []

    def act(report):
        if report.step != 10:
            return
        with trainer.paused():
            before = float(layer.weight.value)
            with trainer.paused():
                pass
            time.sleep(0.1)
            seen.append((before, float(layer.weight.value)))

    trainer = helpers.make_async_trainer(step, batches, [act])
    trainer.train(epochs=1)
    ((before, after),) = seen
    assert before == after
    assert float(layer.weight.value) == -200


def test_a_stopped_run_continues_with_the_batches_that_are_left():
    layer, step, batches = counting_step(3, num_batches=50)
    taken = []

    def act(report):
        taken.append(float(report.results.metrics["first"]))
        if report.step == 17:
            raise towers.StopTraining("enough")

    trainer = helpers.make_async_trainer(step, batches, [act])
    assert trainer.train(epochs=1) == "enough"
    position = trainer.position
    assert position.step >= 17
    assert position == Position(position.step, 0, position.step)
    assert float(layer.weight.value) == -position.step
    reports: list[StepReport] = []
    trainer = helpers.make_async_trainer(step, batches, [reports.append], position=position)
    trainer.train(epochs=1)
    rest = [float(report.results.metrics["first"]) for report in reports]
    assert sorted(rest) == list(range(position.step, 50))
    assert trainer.position == Position(50, 1, 0)
    assert float(layer.weight.value) == -50


def test_a_slow_action_that_stops_the_training_has_seen_every_update():
    layer, step, batches = counting_step(2, num_batches=300)
    seen = []

    def act(report):
        seen.append(report.step)
        if report.step == 2:
            time.sleep(1.0)  # Two towers could do all three hundred meanwhile.
            raise towers.StopTraining("enough")

    trainer = helpers.make_async_trainer(step, batches, [act])
    assert trainer.train(epochs=1) == "enough"
    assert seen == list(range(1, trainer.position.step + 1))
    assert float(layer.weight.value) == -trainer.position.step
    assert trainer.position.step <= 2 + 2 * MOST_UNREPORTED


def test_a_stop_does_not_wait_for_a_data_set_that_blocks():
    layer, step, _ = counting_step(2)
    blocked, go_on, released = threading.Event(), threading.Event(), []

    def generate():
        for _ in range(4):
            yield (np.ones(2, "float32"),)
        blocked.set()
        released.append(go_on.wait(TIMEOUT))

    def act(report):
        if report.step == 3:
            assert blocked.wait(TIMEOUT)
            raise towers.StopTraining("enough")

    trainer = helpers.make_async_trainer(step, generated(generate), [act])
    assert trainer.train(epochs=1) == "enough"
    assert trainer.position == Position(4, 0, 4)
    assert float(layer.weight.value) == -4
    assert not released  # The data set has not gone on: nobody has waited for it.
    go_on.set()


def test_an_endless_data_set_is_refused_for_epochs():
    _, step, batches = counting_step(2)
    trainer = helpers.make_async_trainer(step, batches(0, 0).repeat())
    with pytest.raises(ValueError, match=r"endless .*train\(steps="):
        trainer.train(epochs=1)
    assert trainer.train(steps=11) == "11 steps done"


def test_waiting_for_slow_actions_is_no_wait_for_data(monkeypatch):
    """The delay is one of the clock alone, and far longer than all that a busy machine delays."""
    _, step, batches = counting_step(2, num_batches=60)
    reports: list[StepReport] = []
    clock, delays = time.perf_counter, []
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + sum(delays))

    def act(report):
        reports.append(report)
        if report.step == 5:
            wait_until_still(step)  # All towers wait for this action.
            delays.append(1e6)

    helpers.make_async_trainer(step, batches, [act]).train(epochs=1)
    assert max(max(report.waits) for report in reports) < 1e6


def test_training_ends_after_so_many_steps():
    layer, step, batches = counting_step(3)
    trainer = helpers.make_async_trainer(step, batches)
    assert trainer.train(steps=13) == "13 steps done"
    assert trainer.position == Position(13, 1, 3)
    assert float(layer.weight.value) == -13


def test_empty_data_is_an_error():
    _, step, _ = counting_step(2)
    nothing = towers.batches_from(tf.data.Dataset.from_tensor_slices((np.ones(2, "f"),)).batch(1))
    with pytest.raises(ValueError, match="has no batch in epoch 0"):
        helpers.make_async_trainer(step, lambda epoch, first: nothing(epoch, first).take(0)).train(
            epochs=1
        )


def test_a_batch_that_failed_is_not_done():
    layer, step, batches = counting_step(2, num_batches=20)
    step, fails = failing(step, 3)
    trainer = helpers.make_async_trainer(
        step, batches, [lambda report: report.step == 10 and fails.set()]
    )
    with pytest.raises(LostDeviceError):
        trainer.train(epochs=1)
    assert 11 <= trainer.position.step < 20
    assert trainer.position == Position(trainer.position.step, 0, 2)
    assert float(layer.weight.value) == -trainer.position.step


def test_nothing_stands_still_after_a_tower_has_failed():
    _, step, batches = counting_step(2, num_batches=20)
    step, fails = failing(step, 3)
    seen = []

    def act(report):
        if report.step == 5:
            fails.set()
            with trainer.paused():
                seen.append(trainer.position)

    trainer = helpers.make_async_trainer(step, batches, [act])
    with pytest.raises(LostDeviceError):
        trainer.train(epochs=1)
    assert not seen


def test_a_training_that_failed_was_not_stopped():
    _, step, batches = counting_step(2, num_batches=20)
    step, fails = failing(step, 3)

    def act(report):
        if report.step == 5:
            fails.set()
            raise towers.StopTraining("enough")

    with pytest.raises(LostDeviceError):
        helpers.make_async_trainer(step, batches, [act]).train(epochs=1)


def test_an_error_in_the_data_ends_the_training():
    _, step, _ = counting_step(2)

    def generate():
        yield (np.ones(2, "float32"),)
        raise OSError("the disk is gone")

    with pytest.raises(tf.errors.UnknownError, match="the disk is gone"):
        helpers.make_async_trainer(step, generated(generate)).train(epochs=1)


def test_nothing_stands_still_after_the_data_has_failed():
    _, step, _ = counting_step(2)
    reported = threading.Event()
    errors = []

    def generate():
        for _ in range(3):
            yield (np.ones(2, "float32"),)
        assert reported.wait(TIMEOUT)
        raise OSError("the disk is gone")

    def act(report):
        reported.set()
        deadline = time.monotonic() + TIMEOUT
        try:
            while time.monotonic() < deadline:  # Until a tower has asked for the fourth batch.
                with trainer.paused():
                    assert trainer.position.epoch_step <= 3
                time.sleep(0.01)
        except tf.errors.UnknownError as error:
            errors.append(error)
            raise

    trainer = helpers.make_async_trainer(step, generated(generate), [act])
    with pytest.raises(tf.errors.UnknownError, match="the disk is gone"):
        trainer.train(epochs=1)
    assert len(errors) == 1
    assert trainer.position == Position(3, 0, 3)


def test_waiting_for_the_data_is_counted_for_each_tower(monkeypatch):
    """Of three towers that do nothing else each waits for the batches of the others, too.

    A batch takes its time by the clock alone. It comes when those before it are done, but for the
    last one, which is done when it is known that another one follows.
    """
    _, step, _ = counting_step(3)
    waits, delays, clock = [], [], time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + sum(delays))

    def generate():
        for number in range(15):
            programs.wait_until(lambda done=number - 1: len(waits) >= done, "the last batches")
            time.sleep(0.05)  # Until the tower that was the last one waits again.
            delays.append(1e6)
            yield (np.ones(2, "float32"),)

    def act(report):
        waits.append(max(report.waits))

    helpers.make_async_trainer(step, generated(generate), [act]).train(epochs=1)
    assert max(waits) > 1.5e6


def test_a_pause_is_no_wait_for_data(monkeypatch):
    """The pause is one of the clock alone, and far longer than all that a busy machine delays."""
    _, step, batches = counting_step(3, num_batches=30)
    reports: list[StepReport] = []
    clock, pauses = time.perf_counter, []
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + sum(pauses))

    def act(report):
        reports.append(report)
        if report.step == 5:
            with trainer.paused():
                pauses.append(1e6)

    trainer = helpers.make_async_trainer(step, batches, [act])
    trainer.train(epochs=1)
    assert pauses
    assert max(max(report.waits) for report in reports) < 1e6
    assert max(report.seconds for report in reports) < 1e6


def test_an_update_is_handed_over_while_another_tower_waits_for_data():
    _, step, _ = counting_step(2)
    reported = threading.Event()
    in_time = []

    def generate():
        yield (np.ones(2, "float32"),)
        yield (np.ones(2, "float32"),)
        in_time.append(reported.wait(TIMEOUT))
        yield (np.ones(2, "float32"),)

    def slow_second(tower, batch_number):
        if batch_number == 2:
            time.sleep(0.5)  # The other tower asks for the third batch meanwhile.

    def act(report):
        reported.set()  # The first is reported when the second is handed over.

    helpers.make_async_trainer(Before(step, slow_second), generated(generate), [act]).train(
        epochs=1
    )
    assert in_time == [True]


def test_a_gradient_that_is_not_finite_changes_nothing_and_names_its_tower():
    model = helpers.dense_model()
    batches = helpers.dense_batches([4])
    batches[0][0][0, 0] = np.nan
    data = towers.batches_from(helpers.dataset_of(batches))
    step = build(helpers.classify(model), model, keras.optimizers.SGD(0.1), data, 1)
    before = helpers.weights_of(model)
    with pytest.raises(NonFiniteGradientError, match=r"not finite at step 1: tower 0"):
        helpers.make_async_trainer(step, data).train(epochs=1)
    for one, other in zip(before, helpers.weights_of(model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_tower_that_has_not_run_has_no_part_in_a_gradient_that_is_not_finite():
    model = helpers.dense_model()
    batches = helpers.dense_batches([4] * 5)
    for inputs, _ in batches:
        inputs[0, 0] = np.nan
    data = towers.batches_from(helpers.dataset_of(batches))
    step = build(helpers.classify(model), model, keras.optimizers.SGD(0.1), data, 2)
    second, release = second_tower_after(1)
    with pytest.raises(NonFiniteGradientError, match=r"step 1: tower 0 \(loss nan\)\. The"):
        helpers.make_async_trainer(Before(step, second), data, [release]).train(epochs=1)


def test_a_report_leaves_out_who_has_made_no_update():
    _, step, batches = counting_step(2, num_batches=40)
    second, release = second_tower_after(10)
    lines: list[str] = []

    def write(report, rates):
        lines.append(line_of(report, rates))

    handed = [with_rates(write, steps=1), release]
    helpers.make_async_trainer(Before(step, second), batches, handed).train(epochs=1)
    assert all("(t0 " in line for line in lines[:10])
    assert not any("t1 " in line for line in lines[:10])
    assert any("(t1 " in line for line in lines[10:]) and not any("nan" in line for line in lines)


def test_staleness_is_reported_and_drawn_for_each_tower(tmp_path):
    _, step, batches = counting_step(2, num_batches=40)
    lines: list[str] = []
    with SummaryWriters(tmp_path) as writers:
        handed = [
            with_rates(write_summaries(writers), steps=10),
            with_rates(
                lambda report, rates: lines.append(line_of(report, rates)),
                steps=10,
            ),
        ]
        helpers.make_async_trainer(step, batches, handed).train(epochs=1)
    assert len(lines) == 4
    assert all("| stale t" in line for line in lines)
    for run in ("tower_0", "tower_1"):
        curves = read_scalars(tmp_path, run)
        assert curves["staleness"]
        assert np.isfinite([value for _, value in curves["loss"]]).all()


def test_a_dry_run_runs_every_tower_and_changes_nothing():
    layer, step = fresh_counting_step(2)
    batches = numbers(10)
    updates = towers.steps.AsynchronousUpdates(step, batches)
    trainer = towers.Trainer.making(updates)
    with record_op_devices() as placement:
        updates.dry_run()
    assert {"CPU:1", "CPU:2"} <= {device for _, device in placement}
    assert float(layer.weight.value) == float(layer.seen.value) == 0
    assert int(step.update.copies.optimizer.iterations.value) == trainer.position.step == 0
    trainer.train(epochs=1)
    assert float(layer.weight.value) == -10


def test_replicated_parameters_are_refused():
    layer, batches = Counter(), numbers(4)
    with pytest.raises(ValueError, match=r"auto, cpu or tower0\. Received 'replicated'"):
        build(
            counting(layer), layer.weights, keras.optimizers.SGD(1.0), batches, 2,
            parameters="replicated",
        )  # fmt: skip
