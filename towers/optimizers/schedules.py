"""The learning-rate schedules, each with an optional warm-up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.optimizers.schedules import (
    CosineDecay,
    ExponentialDecay,
    LearningRateSchedule,
    PiecewiseConstantDecay,
    PolynomialDecay,
)

from towers.ground.arguments import check_above_0, check_at_least, check_choice


def build_schedule(
    name: str,
    learning_rate: float,
    *,
    total_steps: int,
    warmup_steps: int = 0,
    warmup_power: float = 1.0,
    decay_steps: int | None = None,
    decay_rate: float = 0.1,
    boundaries: Sequence[int] = (),
) -> LearningRateSchedule:
    """Returns a schedule by name; options that it does not have are ignored.

    Steps count updates from 0, warm-up included: a warm-up does not shift the rest of the schedule.

    Args:
        name: constant, exponential, piecewise, cosine, linear or inverse_sqrt.
        learning_rate: the highest learning rate, above 0.
        total_steps: the number of updates in the whole training; cosine and linear reach 0 there.
        warmup_steps: the number of updates in which the learning rate rises (see `WarmUp`).
        warmup_power: the power of the rise: 1 is linear, 2 quadratic, and so on.
        decay_steps: the number of updates between two decays of the exponential schedule.
        decay_rate: the factor of each decay of the exponential and the piecewise schedule.
        boundaries: the numbers of updates after which the piecewise schedule decays.

    Raises:
        ValueError: there is no such schedule, or an option is missing or out of range.
    """
    check_at_least(1, total_steps=total_steps)
    check_at_least(0, warmup_steps=warmup_steps)
    check_above_0(learning_rate=learning_rate, decay_rate=decay_rate, warmup_power=warmup_power)
    rate = float(learning_rate)
    builders: dict[str, Callable[[], LearningRateSchedule]] = {
        "constant": lambda: Constant(rate),
        "exponential": lambda: exponential(rate, decay_steps=decay_steps, decay_rate=decay_rate),
        "piecewise": lambda: piecewise(rate, boundaries=boundaries, decay_rate=decay_rate),
        # Loshchilov and Hutter 2017, "SGDR", equation 5, without a restart: half a cosine.
        "cosine": lambda: CosineDecay(rate, total_steps),
        "linear": lambda: PolynomialDecay(rate, total_steps, end_learning_rate=0.0),
        "inverse_sqrt": lambda: InverseSquareRoot(learning_rate, max(1, warmup_steps)),
    }
    check_choice("schedule", name, builders)
    schedule = builders[name]()
    return WarmUp(schedule, warmup_steps, warmup_power) if warmup_steps else schedule


def exponential(
    learning_rate: float, *, decay_steps: int | None, decay_rate: float
) -> LearningRateSchedule:
    """Returns a staircase: `learning_rate * decay_rate^floor(step / decay_steps)`."""
    if decay_steps is None:
        raise ValueError(
            "The exponential schedule needs decay_steps, the updates between two decays. "
            "Received None."
        )
    check_at_least(1, decay_steps=decay_steps)
    return ExponentialDecay(learning_rate, decay_steps, float(decay_rate), staircase=True)


def piecewise(
    learning_rate: float, *, boundaries: Sequence[int], decay_rate: float
) -> LearningRateSchedule:
    """Returns a step function, which decays after each of `boundaries` updates."""
    if not boundaries:
        raise ValueError(
            "The piecewise schedule needs at least one boundary. Received none; without "
            "boundaries use the constant schedule."
        )
    for lower, upper in itertools.pairwise([0, *boundaries]):
        if not lower < upper:
            raise ValueError(
                f"boundaries must rise, the first at least 1. Received {list(boundaries)}."
            )
    # Keras counts a boundary as the last step of the old value.
    last_steps = [boundary - 1 for boundary in boundaries]
    values = [learning_rate * decay_rate**index for index in range(len(boundaries) + 1)]
    return PiecewiseConstantDecay(last_steps, values)


@keras.saving.register_keras_serializable(package="towers")
class Constant(LearningRateSchedule):
    """The same learning rate for every step."""

    def __init__(self, learning_rate: float):
        self.learning_rate = learning_rate

    def __call__(self, step: int | tf.Tensor) -> tf.Tensor:
        """Returns the learning rate, a float32 scalar."""
        return tf.constant(self.learning_rate)

    def get_config(self) -> dict[str, Any]:
        """Returns the config to make the schedule again."""
        return {"learning_rate": self.learning_rate}


@keras.saving.register_keras_serializable(package="towers")
class InverseSquareRoot(LearningRateSchedule):
    """A learning rate that falls with the root of the steps (Vaswani et al. 2017, section 5.3).

    The learning rate of step t, from 0, is `learning_rate * sqrt(flat_steps / max(flat_steps, t +
    1))`; the paper's schedule is this one with a warm-up of `flat_steps` steps.

    Args:
        learning_rate: the highest learning rate, above 0.
        flat_steps: the number of steps before it falls, at least 1.
    """

    def __init__(self, learning_rate: float, flat_steps: int):
        check_above_0(learning_rate=learning_rate)
        check_at_least(1, flat_steps=flat_steps)
        self.learning_rate = learning_rate
        self.flat_steps = flat_steps

    def __call__(self, step: int | tf.Tensor) -> tf.Tensor:
        """Returns the learning rate of a step, a float32 scalar."""
        count = tf.maximum(tf.cast(step, tf.int64) + 1, self.flat_steps)
        return tf.cast(self.learning_rate * tf.sqrt(self.flat_steps / count), tf.float32)

    def get_config(self) -> dict[str, Any]:
        """Returns the config to make the schedule again."""
        return {"learning_rate": self.learning_rate, "flat_steps": self.flat_steps}


@keras.saving.register_keras_serializable(package="towers")
class WarmUp(LearningRateSchedule):
    """A schedule times a factor that rises to 1; linear in Goyal et al. 2017, section 2.2.

    The learning rate of step t, from 0, is `schedule(t) * min(1, (t + 1) / warmup_steps)^power`.
    So the first step already learns, and step `warmup_steps - 1` is the first with the full rate.
    The schedule counts from the start of the training: the warm-up does not shift it.

    Args:
        schedule: the schedule to scale.
        warmup_steps: the number of steps of the rise, at least 1.
        power: the power of the rise, above 0; 1 for a linear rise.
    """

    def __init__(self, schedule: LearningRateSchedule, warmup_steps: int, power: float = 1.0):
        check_at_least(1, warmup_steps=warmup_steps)
        check_above_0(power=power)
        self.schedule = schedule
        self.warmup_steps = warmup_steps
        self.power = power

    def __call__(self, step: int | tf.Tensor) -> tf.Tensor:
        """Returns the learning rate of a step, a scalar of the schedule's dtype."""
        learning_rate = tf.convert_to_tensor(self.schedule(step))
        count = tf.minimum(tf.cast(step, tf.int64) + 1, self.warmup_steps)
        factor = (count / self.warmup_steps) ** self.power
        return learning_rate * tf.cast(factor, learning_rate.dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the config to make the schedule again."""
        schedule = keras.optimizers.schedules.serialize(self.schedule)
        return {"schedule": schedule, "warmup_steps": self.warmup_steps, "power": self.power}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> WarmUp:
        """Returns the schedule made from a config."""
        schedule = keras.optimizers.schedules.deserialize(config["schedule"])
        return cls(schedule, config["warmup_steps"], config["power"])


def scale_learning_rate(learning_rate: float, batch_size: int, base_batch_size: int) -> float:
    """Returns the learning rate for a batch size, given a good one for another batch size.

    Linear scaling: k times the batch, k times the learning rate (Goyal et al. 2017, "Accurate,
    Large Minibatch SGD: Training ImageNet in 1 Hour", section 2.1). Use it with a warm-up.

    >>> scale_learning_rate(0.1, 1024, base_batch_size=256)
    0.4

    Args:
        learning_rate: the learning rate at `base_batch_size`.
        batch_size: the number of examples in one update, over all towers.
        base_batch_size: the batch size for which the learning rate was found.
    """
    check_above_0(learning_rate=learning_rate)
    check_at_least(1, batch_size=batch_size, base_batch_size=base_batch_size)
    return learning_rate * batch_size / base_batch_size
