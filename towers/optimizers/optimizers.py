"""The optimizers by name: Keras's own, and Adam that may be lazy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.optimizers.schedules import LearningRateSchedule

from towers.ground.arguments import (
    check_above_0,
    check_choice,
    check_fraction,
    check_not_negative,
)
from towers.ground.private_apis import slots_of
from towers.travel.gradients import Gradient


def build_optimizer(
    name: str,
    learning_rate: float | LearningRateSchedule,
    *,
    momentum: float = 0.9,
    weight_decay: float = 0.004,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    **options: Any,
) -> keras.optimizers.Optimizer:
    """Returns an optimizer by name; options that it does not have are ignored.

    Args:
        name: sgd, momentum, nesterov, adagrad, adam, adamw or lazy_adam.
        learning_rate: above 0, or a schedule (see `towers.optimizers.build_schedule`).
        momentum: the momentum of `momentum` and `nesterov`, in [0, 1).
        weight_decay: the decoupled decay of `adamw`, multiplied by the learning rate each step.
        beta_1: the decay of the first moment in `adam`, `adamw` and `lazy_adam`, in [0, 1).
        beta_2: the decay of the second moment, in [0, 1).
        epsilon: the constant that keeps the divisor of Adagrad and Adam from 0.
        options: those of every Keras optimizer, such as `use_ema=True`.

    Raises:
        ValueError: there is no such optimizer, or an option is out of range.
    """
    check_above_0(epsilon=epsilon)
    check_not_negative(weight_decay=weight_decay)
    check_fraction(momentum=momentum, beta_1=beta_1, beta_2=beta_2)
    if not isinstance(learning_rate, LearningRateSchedule):
        check_above_0(learning_rate=learning_rate)
        learning_rate = float(learning_rate)
    moments: dict[str, Any] = {"beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon, **options}
    with_momentum: dict[str, Any] = {"momentum": float(momentum), **options}
    builders: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
        "sgd": lambda: keras.optimizers.SGD(learning_rate, **options),
        "momentum": lambda: keras.optimizers.SGD(learning_rate, **with_momentum),
        "nesterov": lambda: keras.optimizers.SGD(learning_rate, nesterov=True, **with_momentum),
        "adagrad": lambda: keras.optimizers.Adagrad(learning_rate, epsilon=epsilon, **options),
        "adam": lambda: Adam(learning_rate, **moments),
        "adamw": lambda: AdamW(learning_rate, weight_decay=weight_decay, **moments),
        "lazy_adam": lambda: Adam(learning_rate, lazy=True, **moments),
    }
    check_choice("optimizer", name, builders)
    return builders[name]()


class Adam(keras.optimizers.Adam):
    """Adam that towers update in one kernel, or in the rows of a sparse gradient.

    Arguments, variables and updates are those of `keras.optimizers.Adam` (Kingma and Ba 2015,
    in the form just before section 2.1): by default, every step changes every row of a table,
    rows without a gradient included. In float32 the kernel computes `1 - beta_2` from the rounded
    beta_2 (0.999 is 0.99900001), Keras from the exact value: a step is longer by a factor of
    1.000006, which is below the last bit of a weight that changes by less than a hundredth.

    Args:
        args: as for `keras.optimizers.Adam`.
        lazy: whether a sparse gradient updates the moments and weights of its own rows only. This
            is another algorithm: a row without a gradient does not change. Weight decay stays
            dense.
        options: as for `keras.optimizers.Adam`.
    """

    def __init__(self, *args: Any, lazy: bool = False, **options: Any):
        super().__init__(*args, **options)
        if lazy and self.amsgrad:
            raise ValueError("lazy=True is not available with amsgrad=True; choose one of them.")
        self.lazy = lazy

    def update_step(
        self, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates one variable; if lazy, the rows of a sparse gradient must be unique."""
        if not (self.lazy and isinstance(gradient, tf.IndexedSlices)):
            super().update_step(to_dense(gradient, variable), variable, learning_rate)
            return
        dtype, rows = variable.dtype, gradient.indices
        values, rate = tf.cast(gradient.values, dtype), tf.cast(learning_rate, dtype)
        momentum, velocity = slots_of(self, variable, "momentums", "velocities")
        step = tf.cast(self.iterations + 1, dtype)
        power_1, power_2 = (tf.cast(beta, dtype) ** step for beta in (self.beta_1, self.beta_2))
        m, v = tf.gather(momentum, rows), tf.gather(velocity, rows)
        m += (values - m) * (1 - tf.constant(self.beta_1, dtype))
        v += (tf.square(values) - v) * (1 - tf.constant(self.beta_2, dtype))
        momentum.scatter_update(tf.IndexedSlices(m, rows))
        velocity.scatter_update(tf.IndexedSlices(v, rows))
        alpha = rate * tf.sqrt(1 - power_2) / (1 - power_1)
        change = m * alpha / (tf.sqrt(v) + self.epsilon)
        variable.scatter_sub(tf.IndexedSlices(change, rows))

    def get_config(self) -> dict[str, Any]:
        """Returns the config to make the optimizer again; Keras's own unless it is lazy."""
        return {**super().get_config(), **({"lazy": True} if self.lazy else {})}


class AdamW(Adam, keras.optimizers.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    Arguments, variables and updates are those of `keras.optimizers.AdamW`; `lazy` as in `Adam`.
    """


def to_dense(gradient: Gradient, variable: tf.Variable) -> tf.Tensor:
    """Returns a dense gradient; repeated rows of a sparse one are summed."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])
