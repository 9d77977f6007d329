"""Laws 1, 5, 7 and 9 hold within a call: its updates are those that single calls would make."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.actions import NonFiniteGradientError
from towers.devices.op_devices import record_op_devices
from towers.steps import Position

SIZES = [4, 4, 3, 5, 1]  # The last one is an empty shard.


def batches(epoch, first_step=0):
    """Five batches, other examples in each epoch."""
    return helpers.dataset_of(helpers.dense_batches(SIZES, seed=epoch)).skip(first_step)


@pytest.fixture(scope="module")
def step():
    keras.utils.set_random_seed(3)
    inputs = keras.Input((5,))
    normed = keras.layers.BatchNormalization()(inputs)
    model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Dropout(0.3, seed=1)(normed)))
    tower_fn = helpers.classify(model, training=True)
    optimizer = keras.optimizers.Adam(0.01)
    built, _ = helpers.build_step(tower_fn, model, optimizer, helpers.dense_batches(SIZES), 2)
    built.first = [value.numpy() for value in variables_of(built)]
    return built


def variables_of(step):
    return [*step.update.copies.shared.all, *step.update.copies.optimizer.variables]


def train(step, per_call, *, stops=(), data=batches):
    """Returns variables and reports of 13 steps from the first values; a stop leaves the epoch."""
    for variable, value in zip(variables_of(step), step.first, strict=True):
        variable.assign(value)
    reports, position = [], Position()
    for end in (*stops, 13):
        step.steps_per_call = per_call
        trainer = helpers.make_trainer(step, data, [reports.append], position=position)
        trainer.train(steps=end)
        position = trainer.position
        assert position.step == end
    return [variable.numpy() for variable in variables_of(step)], reports


def numbers(report):
    parts = dataclasses.replace(report, seconds=0.0, waits=(), call_end=True)
    results = [
        np.asarray(one).tolist() for one in tf.nest.flatten(report.results) if one is not None
    ]
    return dataclasses.replace(parts, results=results)


@pytest.mark.parametrize("per_call, stops", [(2, ()), (3, (4, 11)), (20, (7,))])
def test_a_call_of_several_updates_changes_no_bit_and_no_report(step, per_call, stops):
    expected, reports = train(step, 1)
    actual, others = train(step, per_call, stops=stops)
    for one, two in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, two)
    assert list(map(numbers, others)) == list(map(numbers, reports))


@pytest.mark.parametrize("pads", [False, True])
def test_convolutions_have_the_same_kernels_in_a_call(pads):
    """TensorFlow joins those of a convolution with others, but none that waits for a loop.

    On some processors the last bits would differ.
    """
    layers = keras.layers
    convolution = layers.Conv2D(16, 5, padding="valid" if pads else "same", activation="relu")
    body = [layers.ZeroPadding2D(2), convolution] if pads else [convolution]
    ends = [layers.GlobalAveragePooling2D(), layers.Dense(10)]
    model = keras.Sequential([keras.Input([8, 8, 3]), *body, *ends])
    random = np.random.default_rng(0)
    images, labels = random.normal(size=[6, 8, 8, 3]), random.integers(0, 10, 6)
    data = [(images.astype("float32"), labels.astype("int32"))] * 3
    tower_fn = helpers.classify(model, training=True)
    built, _ = helpers.build_step(tower_fn, model, keras.optimizers.SGD(0.1), data, 2)
    built.first = [value.numpy() for value in variables_of(built)]

    def kernels(per_call):
        with record_op_devices() as ops:
            train(built, per_call, data=lambda epoch, first=0: helpers.dataset_of(data).skip(first))
        names = "Conv", "Bias", "Pad", "MatMul", "Relu"
        return {
            op: number
            for op, number in ops.items()
            if op[1] in ("CPU:1", "CPU:2") and any(name in op[0] for name in names)
        }

    alone = kernels(1)
    assert sum(alone.values()) > 12
    assert kernels(3) == alone


def test_what_runs_every_so_many_steps_sees_the_weights_of_its_step(step):
    """After a resumption within a call and the end of an epoch, too."""

    def seen(per_call, stops):
        found = {}

        def look(report):
            found[report.step] = step.update.copies.shared.all[0].numpy().tolist()

        periodic = towers.actions.every(look, steps=3)
        position = Position()
        for variable, value in zip(variables_of(step), step.first, strict=True):
            variable.assign(value)
        for end in (*stops, 13):
            step.steps_per_call = per_call
            trainer = helpers.make_trainer(step, batches, [periodic], position=position)
            trainer.train(steps=end)
            position = trainer.position
        return found

    assert seen(3, [4]) == seen(1, [])


def test_what_runs_every_so_many_seconds_sees_the_end_of_a_call(step):
    """There the variables and the position are those of the report, and all reports are told."""
    step.steps_per_call, seen = 4, []

    def look(report):
        seen.append((report.step, trainer.position))

    trainer = helpers.make_trainer(step, batches, [towers.actions.every(look, seconds=0)])
    trainer.train(steps=11)
    ends = [Position(4, 0, 4), Position(5, 1, 0), Position(8, 1, 3), Position(10, 2, 0)]
    assert seen == [(one.step, one) for one in (*ends, Position(11, 2, 1))]


def test_a_stop_comes_after_the_reports_of_its_call(step):
    step.steps_per_call, heard = 3, []

    def stop(report):
        heard.append(report.step)
        if report.step == 1:
            raise towers.StopTraining("enough")

    trainer = helpers.make_trainer(step, batches, [stop])
    assert trainer.train(epochs=1) == "enough"
    assert heard == [1, 2, 3] and trainer.position == Position(3, 0, 3)


def test_a_call_ends_with_a_gradient_that_is_not_finite(step):
    """Nothing is changed by its update or after it, and the message names its step."""
    bad = helpers.dense_batches(SIZES)
    bad[2][0][0, 0] = np.nan
    step.steps_per_call = 1
    for variable, value in zip(variables_of(step), step.first, strict=True):
        variable.assign(value)
    helpers.make_trainer(step, helpers.dataset_of(bad).take(2)).train(steps=2)
    expected = [variable.numpy() for variable in variables_of(step)]
    for variable, value in zip(variables_of(step), step.first, strict=True):
        variable.assign(value)
    step.steps_per_call, heard = 5, []
    trainer = helpers.make_trainer(step, helpers.dataset_of(bad), [heard.append])
    with pytest.raises(NonFiniteGradientError, match="at step 3"):
        trainer.train(epochs=1)
    assert [report.step for report in heard] == [1, 2, 3]
    for variable, value in zip(variables_of(step), expected, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_a_metric_of_unknown_shape_is_told():
    model = helpers.dense_model()

    def tower_fn(batch):
        features, labels = batch
        metrics = {"classes": (tf.math.bincount(labels, minlength=3, maxlength=3), None)}
        return tf.reduce_sum(model(features)), tf.size(labels), metrics

    step, _ = helpers.build_step(
        tower_fn, model, keras.optimizers.SGD(), helpers.dense_batches(SIZES), 2
    )
    step.steps_per_call = 2
    trainer = helpers.make_trainer(step, helpers.dataset_of(helpers.dense_batches(SIZES)))
    with pytest.raises(ValueError, match=r"Received \(None,\); tf.ensure_shape\(metric, \[3\]\)"):
        trainer.train(epochs=1)


@pytest.mark.parametrize(
    "steps_per_call, build",
    [(0, None), (2, towers.steps.build_async_step), (2, towers.steps.build_joint_step)],
    ids=["zero", "asynchronous", "joint"],
)
def test_what_makes_single_updates_refuses_calls_of_several(steps_per_call, build):
    with pytest.raises(ValueError, match="steps_per_call"):
        options = towers.StepOptions(steps_per_call=steps_per_call)
        model, placement = helpers.dense_model(), helpers.tower_placement(2)
        tower_fn = helpers.classify(model)
        if build is towers.steps.build_joint_step:
            update = towers.steps.JointUpdate(tower_fn, model, keras.optimizers.SGD())
            build({"one": update}, placement, batches, options=options)
        build(tower_fn, model, keras.optimizers.SGD(), placement, batches, options)
