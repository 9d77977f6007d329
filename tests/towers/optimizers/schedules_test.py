"""The learning rates of hand-picked steps, against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from towers.optimizers.schedules import (
    build_schedule,
    scale_learning_rate,
)

SCHEDULES = {
    "constant": ({}, lambda step: 0.8),
    "exponential": (
        {"decay_steps": 10, "decay_rate": 0.5},
        lambda step: 0.8 * 0.5 ** (step // 10),
    ),
    "piecewise": (
        {"boundaries": [20, 60], "decay_rate": 0.1},
        lambda step: [0.8, 0.08, 0.008][int(np.searchsorted([20, 60], step, side="right"))],
    ),
    "cosine": (
        {},
        lambda step: 0.8 * (1 + np.cos(np.pi * min(step, 100) / 100)) / 2,
    ),
    "linear": ({}, lambda step: 0.8 * max(0, 1 - step / 100)),
}
STEPS = (0, 1, 3, 4, 5, 9, 10, 19, 20, 21, 59, 60, 61, 99, 100, 250)


@pytest.mark.parametrize("warmup_steps", [0, 1, 4, 30])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_equals_numpy(name, warmup_steps):
    options, expected = SCHEDULES[name]
    schedule = build_schedule(name, 0.8, total_steps=100, warmup_steps=warmup_steps, **options)
    assert isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule)
    in_graph = tf.function(schedule)
    for step in STEPS:
        warm = min(1, (step + 1) / warmup_steps) if warmup_steps else 1
        for learning_rate in (schedule(step), in_graph(tf.constant(step, tf.int64))):
            assert learning_rate.dtype == tf.float32
            np.testing.assert_allclose(learning_rate, expected(step) * warm, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("warmup_steps", [0, 1, 4, 30])
def test_the_inverse_root_falls_from_the_end_of_the_warm_up(warmup_steps):
    """Vaswani et al. 2017, equation 3, times what makes its peak the learning rate."""
    schedule = build_schedule("inverse_sqrt", 0.8, total_steps=100, warmup_steps=warmup_steps)
    copy = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    warmup = max(1, warmup_steps)
    for step in STEPS:
        count = step + 1
        expected = 0.8 * warmup**0.5 * min(count**-0.5, count * warmup**-1.5)
        assert schedule(step).dtype == tf.float32
        np.testing.assert_allclose([schedule(step), copy(step)], expected, rtol=2e-6)


def test_warm_up_rises_linearly_from_the_first_step_to_the_peak():
    schedule = build_schedule("constant", 1.0, total_steps=100, warmup_steps=4)
    learning_rates = [float(schedule(step)) for step in range(6)]
    assert learning_rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_warm_up_rises_with_a_power_of_the_steps():
    schedule = build_schedule("constant", 1.0, total_steps=9, warmup_steps=4, warmup_power=2)
    learning_rates = [float(schedule(step)) for step in range(6)]
    assert learning_rates == [0.0625, 0.25, 0.5625, 1.0, 1.0, 1.0]


def test_warm_up_keeps_the_place_of_the_boundaries():
    schedule = build_schedule(
        "piecewise", 1.0, total_steps=20, warmup_steps=2, boundaries=[10], decay_rate=0.5
    )
    assert [float(schedule(step)) for step in (0, 1, 9, 10)] == [0.5, 1.0, 1.0, 0.5]


def test_warm_up_longer_than_the_training_is_cut_off_by_its_end():
    schedule = build_schedule("constant", 1.0, total_steps=2, warmup_steps=8)
    assert float(schedule(1)) == 0.25


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_can_be_made_again_from_its_config(name):
    options, _ = SCHEDULES[name]
    options = {**options, "warmup_steps": 30, "warmup_power": 1.5}
    schedule = build_schedule(name, 0.8, total_steps=100, **options)
    optimizer = keras.optimizers.SGD(schedule)
    again = keras.optimizers.SGD.from_config(optimizer.get_config())
    for step in STEPS:
        assert again._learning_rate(step) == schedule(step)


def test_optimizer_follows_the_schedule():
    variable = keras.Variable(0.0)
    optimizer = keras.optimizers.SGD(build_schedule("constant", 1.0, total_steps=9, warmup_steps=4))
    apply = tf.function(lambda: optimizer.apply([tf.constant(1.0)], [variable]))
    optimizer.build([variable])
    values = []
    for _ in range(5):
        apply()
        values.append(float(variable))
    assert values == [-0.25, -0.75, -1.5, -2.5, -3.5]


def test_learning_rate_scales_with_the_batch_size():
    assert scale_learning_rate(0.1, 1024, 256) == 0.4
    assert scale_learning_rate(0.1, 64, base_batch_size=256) == 0.025


@pytest.mark.parametrize(
    ("name", "learning_rate", "options", "message"),
    [
        ("cosin", 0.1, {}, r"schedule must be one of constant, .*Did you mean cosine\?"),
        ("constant", 0.0, {}, r"learning_rate must be above 0 and finite. Received 0.0"),
        ("constant", 0.1, {"total_steps": 0}, r"total_steps must be .* at least 1. Received 0"),
        (
            "constant",
            0.1,
            {"warmup_power": 0},
            r"warmup_power must be above 0 and finite. Received 0",
        ),
        ("constant", 0.1, {"warmup_steps": -1}, r"warmup_steps must be .* at least 0. Received -1"),
        ("exponential", 0.1, {}, r"needs decay_steps.*Received None"),
        ("exponential", 0.1, {"decay_steps": 1.5}, r"decay_steps must be a whole number"),
        ("exponential", 0.1, {"decay_rate": -1.0}, r"decay_rate must be above 0"),
        ("piecewise", 0.1, {}, r"at least one boundary.*use the constant schedule"),
        ("piecewise", 0.1, {"boundaries": [5, 5]}, r"boundaries must rise.*\[5, 5\]"),
        ("piecewise", 0.1, {"boundaries": [0, 5]}, r"the first at least 1"),
    ],
)
def test_wrong_arguments_are_refused(name, learning_rate, options, message):
    with pytest.raises(ValueError, match=message):
        build_schedule(name, learning_rate, **{"total_steps": 10, **options})


def test_wrong_batch_size_is_refused():
    with pytest.raises(ValueError, match=r"base_batch_size must be .* at least 1. Received 0"):
        scale_learning_rate(0.1, 64, 0)
