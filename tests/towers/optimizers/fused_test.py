"""Keras's own optimizers in fewer kernels, beside Keras's own updates of the same variables."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import helpers
from towers.optimizers.fused import apply_gradients

SHAPE, NUM_STEPS = (50, 33), 30
STOCK = {
    "sgd": lambda: keras.optimizers.SGD(0.1, weight_decay=0.01),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "nesterov": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adam": lambda: keras.optimizers.Adam(0.1),
    "adam_set": lambda: keras.optimizers.Adam(0.1, beta_1=0.5, beta_2=0.9, epsilon=0.001),
    "amsgrad": lambda: keras.optimizers.Adam(0.1, amsgrad=True),
    "adamw": lambda: keras.optimizers.AdamW(0.1, global_clipnorm=1.0),
    "averaged": lambda: keras.optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=4),
    "accumulated": lambda: keras.optimizers.Adam(0.1, gradient_accumulation_steps=3),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.1),
}


def gradients_of(dtype, sparse):
    """Gradients that differ by orders of magnitude, as the first ones of a training do."""
    random = np.random.default_rng(0)
    for _ in range(NUM_STEPS):
        values = random.normal(size=SHAPE) * random.normal() ** 3
        rows = tf.constant(random.permutation(SHAPE[0])[: random.integers(1, 20)])
        values = tf.constant(values, dtype)
        yield (
            tf.IndexedSlices(tf.gather(values, rows), rows, tf.constant(SHAPE))
            if sparse
            else values
        )


def trained(optimizer, apply, dtype="float32", sparse=False):
    """The values of the variable and of the optimizer's, after compiled steps."""
    initial = np.random.default_rng(1).normal(size=SHAPE).astype(dtype)
    variable = keras.Variable(initial, dtype=dtype)
    optimizer.build([variable])
    step = tf.function(
        lambda gradient: apply(optimizer, [(gradient, variable)]), reduce_retracing=True
    )
    for gradient in gradients_of(dtype, sparse):
        step(gradient)
    return [one.numpy() for one in (variable, *optimizer.variables)]


def kernels(optimizer, num_variables=1):
    """The kinds of the operations of one update."""
    names = ("first", "second")[:num_variables]
    variables = [keras.Variable(np.ones([3]), name=name) for name in names]
    optimizer.build(variables)
    pairs = [(tf.ones([3]), variable) for variable in variables]
    step = tf.function(lambda: apply_gradients(optimizer, pairs))
    return [op.type for op in step.get_concrete_function().graph.get_operations()]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", STOCK)
def test_dense_updates_are_those_of_keras_to_the_last_bit(name, dtype):
    expected = trained(STOCK[name](), keras.optimizers.Optimizer.apply_gradients, dtype)
    for one, other in zip(trained(STOCK[name](), apply_gradients, dtype), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", STOCK)
def test_updates_of_a_table_are_those_of_keras(name):
    expected = trained(STOCK[name](), keras.optimizers.Optimizer.apply_gradients, sparse=True)
    rounding = 2.0**-23 if name == "adagrad" else 0
    for one, other in zip(
        trained(STOCK[name](), apply_gradients, sparse=True), expected, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=rounding * np.abs(other).max())


@pytest.mark.parametrize(
    ("name", "kernel", "count"),
    [
        ("sgd", "ResourceApplyGradientDescent", 1),
        ("nesterov", "ResourceApplyKerasMomentum", 1),
        ("adam", "ResourceApplyAdagradV2", 1),
        ("adamw", "ResourceApplyGradientDescent", 2),
        ("amsgrad", "ResourceApplyAdagradV2", 0),
    ],
)
def test_update_takes_few_kernels(name, kernel, count):
    assert kernels(STOCK[name]()).count(kernel) == count


@helpers.newer_keras("has no MultiOptimizer")
def test_each_optimizer_of_several_takes_few_kernels():
    chosen = {"first": keras.optimizers.Adam(0.1), "second": keras.optimizers.SGD(0.1)}
    several = keras.optimizers.MultiOptimizer(lambda variable: chosen[variable.name])
    found = kernels(several, num_variables=2)
    assert found.count("ResourceApplyAdagradV2") == 1
    assert found.count("ResourceApplyGradientDescent") == 3


class HalfSteps(keras.optimizers.Adam):
    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate / 2)


def with_an_update_of_its_own():
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.update_step = lambda gradient, variable, learning_rate: variable.assign_sub(gradient)
    return optimizer


def with_a_beta_that_changes():
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.beta_1 = tf.Variable(0.5, trainable=False)
    return optimizer


@pytest.mark.parametrize("make", [HalfSteps, with_an_update_of_its_own, with_a_beta_that_changes])
def test_what_users_wrote_is_called(make):
    optimizer = make()
    expected = trained(make(), keras.optimizers.Optimizer.apply_gradients)
    for one, other in zip(trained(optimizer, apply_gradients), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert ("update_step" in vars(optimizer)) == (make is with_an_update_of_its_own)
