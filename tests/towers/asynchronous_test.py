"""Asynchronous towers: every batch once, no update lost, staleness counted, nobody waits."""

import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
import towers.actions
from tests import helpers
from towers.async_trainer import AsyncTrainer
from towers.summaries import SummaryWriters, read_scalars
from towers.trainer import NonFiniteGradientError, Position, StepReport

TIMEOUT = 60.0  # Seconds until a test that waits for another thread gives up.


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
    devices = helpers.tower_devices(num_towers)
    specs = towers.shard_specs(batches, 1)
    return towers.build_async_step(tower_fn, variables, optimizer, devices, specs, **options)


def counting_step(num_towers, num_batches=10):
    layer, batches = Counter(), numbers(num_batches)
    optimizer = keras.optimizers.SGD(1.0)
    step = build(counting(layer), layer.weights, optimizer, batches, num_towers)
    return layer, step, batches


def test_six_hundred_concurrent_updates_are_all_applied():
    layer, step, batches = counting_step(4, num_batches=300)
    reports: list[StepReport] = []
    trainer = AsyncTrainer(step, batches, [reports.append])
    assert trainer.train(epochs=2) == "2 epochs done"
    assert float(layer.weight.value) == -600
    assert float(layer.seen.value) == 1200
    assert int(step.optimizer.iterations.value) == 600
    assert [report.step for report in reports] == list(range(1, 601))
    assert {report.tower for report in reports} == {0, 1, 2, 3}
    assert trainer.position == Position(600, 2, 0)


def test_every_batch_is_taken_once_in_every_epoch():
    _, step, batches = counting_step(3, num_batches=20)
    reports: list[StepReport] = []
    AsyncTrainer(step, batches, [reports.append]).train(epochs=3)
    for epoch in range(3):
        taken = [float(r.results.metrics["first"]) for r in reports if r.epoch == epoch]
        assert sorted(taken) == list(range(20))
    assert [r.step for r in reports if r.epoch_end] == [20, 40, 60]
    assert [r.position for r in reports if r.epoch_end][-1] == Position(60, 3, 0)


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
    AsyncTrainer(step, batches).train(epochs=2)

    expected, tower_fn, optimizer = fresh()
    devices = helpers.tower_devices(1)
    specs = towers.shard_specs(batches, 1)
    step = towers.build_train_step(tower_fn, expected, optimizer, devices, specs, **options)
    towers.Trainer(step, batches).train(epochs=2)
    for one, other in zip(helpers.weights_of(model), helpers.weights_of(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_tower_that_stands_still_does_not_hold_the_others():
    _, step, batches = counting_step(2, num_batches=100)
    others_done = threading.Event()

    class Slow:
        """The step, but its second tower begins when the first has done 50 updates."""

        def __getattr__(self, name):
            return getattr(step, name)

        def __call__(self, tower, shards, batch_number):
            if tower == 1:
                assert others_done.wait(TIMEOUT)
            return step(tower, shards, batch_number)

    def act(report):
        if report.step == 50:
            others_done.set()

    reports: list[StepReport] = []
    AsyncTrainer(Slow(), batches, [reports.append, act]).train(epochs=1)
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

    AsyncTrainer(step, batches, [act]).train(epochs=1)
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
        with trainer.still():
            before = float(layer.weight.value)
            time.sleep(0.02)
            seen.append((trainer.position, before, float(layer.weight.value)))
            assert int(step.optimizer.iterations.value) == trainer.position.step

    trainer = AsyncTrainer(step, batches, [act])
    trainer.train(epochs=1)
    assert len(seen) == 6
    for position, before, after in seen:
        assert before == after == -position.step
        assert position in (Position(position.step, 0, position.step), Position(60, 1, 0))


def test_a_stopped_run_continues_with_the_batches_that_are_left():
    layer, step, batches = counting_step(3, num_batches=50)
    taken = []

    def act(report):
        taken.append(float(report.results.metrics["first"]))
        if report.step == 17:
            raise towers.StopTraining("enough")

    trainer = AsyncTrainer(step, batches, [act])
    assert trainer.train(epochs=1) == "enough"
    position = trainer.position
    assert position.step >= 17
    assert position == Position(position.step, 0, position.step)
    assert float(layer.weight.value) == -position.step
    reports: list[StepReport] = []
    trainer = AsyncTrainer(step, batches, [reports.append], position=position)
    trainer.train(epochs=1)
    rest = [float(report.results.metrics["first"]) for report in reports]
    assert sorted(rest) == list(range(position.step, 50))
    assert trainer.position == Position(50, 1, 0)
    assert float(layer.weight.value) == -50


def test_training_ends_after_so_many_steps():
    layer, step, batches = counting_step(3)
    trainer = AsyncTrainer(step, batches)
    assert trainer.train(steps=13) == "13 steps done"
    assert trainer.position == Position(13, 1, 3)
    assert float(layer.weight.value) == -13


def test_empty_data_is_an_error():
    _, step, _ = counting_step(2)
    nothing = towers.batches_from(tf.data.Dataset.from_tensor_slices((np.ones(2, "f"),)).batch(1))
    with pytest.raises(ValueError, match="has no batch in epoch 0"):
        AsyncTrainer(step, lambda epoch, first: nothing(epoch, first).take(0)).train(epochs=1)


def test_an_error_in_the_data_ends_the_training():
    _, step, _ = counting_step(2)

    def generate():
        yield (np.ones(2, "float32"),)
        raise OSError("the disk is gone")

    spec = (tf.TensorSpec([None], tf.float32),)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=spec)
    with pytest.raises(tf.errors.UnknownError, match="the disk is gone"):
        AsyncTrainer(step, towers.batches_from(dataset)).train(epochs=1)


def test_a_gradient_that_is_not_finite_changes_nothing_and_names_its_tower():
    model = helpers.dense_model()
    batches = helpers.dense_batches([4])
    batches[0][0][0, 0] = np.nan
    data = towers.batches_from(helpers.dataset_of(batches))
    step = build(helpers.classify(model), model, keras.optimizers.SGD(0.1), data, 1)
    before = helpers.weights_of(model)
    with pytest.raises(NonFiniteGradientError, match=r"not finite at step 1: tower 0"):
        AsyncTrainer(step, data).train(epochs=1)
    for one, other in zip(before, helpers.weights_of(model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_staleness_is_reported_and_drawn_for_each_tower(tmp_path):
    _, step, batches = counting_step(2, num_batches=40)
    lines: list[str] = []
    with SummaryWriters(tmp_path) as writers:
        actions = [
            towers.actions.with_rates(towers.actions.write_summaries(writers), steps=10),
            towers.actions.with_rates(
                lambda report, rates: lines.append(towers.actions.format_report(report, rates)),
                steps=10,
            ),
        ]
        AsyncTrainer(step, batches, actions).train(epochs=1)
    assert len(lines) == 4
    assert all("| stale t" in line for line in lines)
    for run in ("tower_0", "tower_1"):
        curves = read_scalars(tmp_path, run)
        assert curves["staleness"]
        assert np.isfinite([value for _, value in curves["loss"]]).all()


def test_replicated_parameters_are_refused():
    layer, batches = Counter(), numbers(4)
    with pytest.raises(ValueError, match=r"auto, cpu or tower0\. Received 'replicated'"):
        build(
            counting(layer), layer.weights, keras.optimizers.SGD(1.0), batches, 2,
            parameters="replicated",
        )  # fmt: skip
