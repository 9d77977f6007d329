"""Copies of the variables on every tower: the same to the last bit, and kept so."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import helpers
from towers.devices.op_devices import record_op_devices
from towers.optimizers.optimizers import build_optimizer
from towers.variables.copies import same_bits

VALUES = {
    "float32": ([1.0, np.nan], [1.0, -np.nan]),
    "float16": ([0.0, 1.0], [-0.0, 1.0]),
    "bfloat16": ([1.0, 2.0], [1.0, 2.5]),
    "float64": ([0.0, 1.0], [0.0, np.nextafter(1.0, 2.0)]),
    "int32": ([1, 2], [1, 3]),
    "int64": ([1, 2**40], [1, 2**40 + 1]),
    "uint8": ([1, 2], [1, 3]),
    "bool": ([True, False], [True, True]),
}


def batch_norm_model():
    inputs = keras.Input((5,))
    hidden = keras.layers.Dense(8, activation="tanh", name="hidden")(inputs)
    hidden = keras.layers.BatchNormalization(name="norm")(hidden)
    return keras.Model(inputs, keras.layers.Dense(helpers.NUM_CLASSES, name="logits")(hidden))


def replicated_step(model, tower_fn, batches, num_towers=3, make_optimizer=None, **options):
    with helpers.tower_placement(3, "replicated").scope():
        optimizer = make_optimizer() if make_optimizer else build_optimizer("adam", 0.01)
    return helpers.build_step(
        tower_fn, model, optimizer, batches, num_towers, parameters="replicated", **options
    )


def dense_step(num_towers=3, **options):
    with helpers.tower_placement(3, "replicated").scope():
        model = batch_norm_model()
    tower_fn = helpers.classify(model, training=True)
    step, shards = replicated_step(
        model, tower_fn, helpers.dense_batches([8, 7, 8]), num_towers, **options
    )
    return model, step, shards


@functools.cache
def trained():
    """A model with clipped gradients after three steps; returns (model, step, shards)."""
    model, step, shards = dense_step(clip_norm=0.05)
    run(step, shards)
    return model, step, shards


def run(step, shards):
    for number, of_towers in enumerate(shards, 1):
        step(of_towers, number)


def copies_of(step):
    return [[variable.value for variable in copy.all] for copy in step.update.copies._copies]


def test_every_tower_has_a_copy_of_variables_and_slots_on_its_device():
    _, step, _ = trained()
    assert len(step.update.copies) == 3
    for tower, copy in enumerate(copies_of(step)):
        assert {variable.device[-5:] for variable in copy} == {f"CPU:{tower + 1}"}
        assert len(copy) == 8 + 2 + 2 * 6


def test_copies_stay_the_same_to_the_last_bit():
    _, step, _ = trained()
    first, *others = copies_of(step)
    for other in others:
        for one, copy in zip(first, other, strict=True):
            np.testing.assert_array_equal(one.numpy(), copy.numpy())
    step.check_copies()


@pytest.mark.slow
def test_updates_run_on_every_tower_and_nothing_on_the_cpu_zero():
    _, step, shards = dense_step()
    with record_op_devices() as placement:
        run(step, shards[:1])
    updates = {where for op, where in placement if op == "ResourceApplyAdam"}
    assert updates == {"CPU:1", "CPU:2", "CPU:3"}
    reads = {where for op, where in placement if op in ("ReadVariableOp", "MatMul")}
    assert reads == {"CPU:1", "CPU:2", "CPU:3"}


def test_batch_norm_averages_are_those_of_a_shared_copy():
    keras.utils.set_random_seed(1)
    replicated, step, shards = dense_step()
    run(step, shards)
    keras.utils.set_random_seed(1)
    shared = batch_norm_model()
    helpers.train_on_towers(
        helpers.classify(shared, training=True),
        shared,
        keras.optimizers.Adam(0.01),
        helpers.dense_batches([8, 7, 8]),
        3,
    )
    helpers.assert_same_weights(helpers.weights_of(replicated), helpers.weights_of(shared))


def test_rows_are_gathered_from_the_towers_own_table():
    with helpers.tower_placement(3, "replicated").scope():
        model = helpers.recurrent_model(helpers.LookupTable(name="table"))
    step, shards = replicated_step(model, helpers.tag(model), helpers.token_batches([7, 8]))
    with record_op_devices() as placement:
        run(step, shards)
    gathers = {where for op, where in placement if op == "ResourceGather"}
    assert gathers == {"CPU:1", "CPU:2", "CPU:3"}
    step.check_copies()


def test_values_given_before_the_first_step_reach_every_copy():
    model, step, shards = dense_step()
    model.layers[1].kernel.assign(tf.ones((5, 8)))
    run(step, shards[:1])
    step.check_copies()
    np.testing.assert_allclose(model.layers[1].kernel.value.numpy(), 1, atol=0.011)


def test_copies_are_compared_before_the_first_step(monkeypatch):
    """As if the link to another device changed the values."""
    _, step, shards = dense_step()
    monkeypatch.setattr(tf, "convert_to_tensor", lambda value: tf.zeros_like(value))
    with pytest.raises(RuntimeError, match="differs from that on"):
        run(step, shards[:1])


def test_a_copy_that_differs_is_named_and_mended_on_demand():
    model, step, _ = trained()
    handle = model.layers[1].kernel.value.handle
    tf.raw_ops.AssignAddVariableOp(resource=handle, value=tf.fill((5, 8), 1e-6))
    with pytest.raises(RuntimeError, match=r"'hidden/kernel' on /CPU:2 differs .*/CPU:1.*copy_par"):
        step.check_copies()
    step.copy_parameters()
    step.check_copies()


def test_constraints_hold_on_every_copy():
    with helpers.tower_placement(3, "replicated").scope():
        inputs = keras.Input((5,))
        logits = keras.layers.Dense(3, kernel_constraint="non_neg", name="logits")(inputs)
        model = keras.Model(inputs, logits)
    step, shards = replicated_step(model, helpers.classify(model), helpers.dense_batches([8, 8]))
    run(step, shards)
    assert model.layers[1].kernel.value.numpy().min() >= 0
    step.check_copies()


def test_non_finite_gradient_changes_no_copy():
    _, step, shards = trained()
    before = [[variable.numpy() for variable in copy] for copy in copies_of(step)]
    bad = tf.nest.map_structure(tf.identity, shards[1])
    inputs, labels = bad[1].batch
    bad = (bad[0], bad[1]._replace(batch=(inputs * float("nan"), labels)), bad[2])
    assert not bool(step(bad, 2).finite)
    for copy, values in zip(copies_of(step), before, strict=True):
        for variable, value in zip(copy, values, strict=True):
            np.testing.assert_array_equal(variable.numpy(), value)


@pytest.mark.parametrize("dtype", VALUES)
def test_copies_are_the_same_only_if_all_their_bits_are(dtype):
    value, other = VALUES[dtype]

    def make(content):
        return keras.Variable(np.asarray(content), dtype=dtype, trainable=False)

    assert same_bits([make(value), make(other)], [[make(value), make(other)]] * 2, "/CPU:1")
    assert not same_bits([make(value)], [[make(value)], [make(other)]], "/CPU:1")


def test_nothing_is_the_same_as_nothing():
    assert same_bits([], [[], []], "/CPU:0")
