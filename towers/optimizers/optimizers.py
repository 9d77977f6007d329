"""The optimizers by name: Keras's own, and Adam in one fused kernel."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
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

FUSED_DTYPES = (tf.float32, tf.float64)  # Kernels round half precision at other points.

Powers = tuple[tf.Tensor, tf.Tensor]
# Those of the update that is being made, by graph, device and dtype.
POWERS: contextvars.ContextVar[dict[Any, Powers] | None] = contextvars.ContextVar(
    "powers", default=None
)


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
    """Adam in one fused kernel.

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

    def apply(
        self,
        grads: Sequence[Gradient],
        trainable_variables: Sequence[keras.Variable] | None = None,
    ) -> None:
        """Updates the variables; what depends on the step alone is computed once a device."""
        token = POWERS.set({})
        try:
            super().apply(grads, trainable_variables)
        finally:
            POWERS.reset(token)

    def update_step(
        self, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates one variable; if lazy, the rows of a sparse gradient must be unique."""
        if self.lazy and isinstance(gradient, tf.IndexedSlices):
            self._update_rows(gradient, variable, learning_rate)
        elif self.amsgrad or variable.dtype not in FUSED_DTYPES:
            super().update_step(to_dense(gradient, variable), variable, learning_rate)
        else:
            self._update_all(to_dense(gradient, variable), variable, learning_rate)

    def get_config(self) -> dict[str, Any]:
        """Returns the config to make the optimizer again; Keras's own unless it is lazy."""
        return {**super().get_config(), **({"lazy": True} if self.lazy else {})}

    def _update_all(
        self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates every weight of a variable."""
        momentum, velocity = slots_of(self, variable, "momentums", "velocities")
        beta_1, beta_2 = self._betas(variable.dtype)
        beta_1_power, beta_2_power = self._powers_for(variable)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=momentum.handle,
            v=velocity.handle,
            beta1_power=beta_1_power,
            beta2_power=beta_2_power,
            lr=tf.cast(learning_rate, variable.dtype),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=tf.constant(self.epsilon, variable.dtype),
            grad=tf.cast(gradient, variable.dtype),
        )

    def _update_rows(
        self, gradient: tf.IndexedSlices, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates only the rows that have a gradient."""
        rows, values = gradient.indices, tf.cast(gradient.values, variable.dtype)
        momentum, velocity = slots_of(self, variable, "momentums", "velocities")
        beta_1_power, beta_2_power = self._powers_for(variable)
        beta_1, beta_2 = self._betas(variable.dtype)
        rate = tf.cast(learning_rate, variable.dtype)
        alpha = rate * tf.sqrt(1 - beta_2_power) / (1 - beta_1_power)
        m, v = tf.gather(momentum, rows), tf.gather(velocity, rows)
        m += (values - m) * (1 - beta_1)
        v += (tf.square(values) - v) * (1 - beta_2)
        momentum.scatter_update(tf.IndexedSlices(m, rows))
        velocity.scatter_update(tf.IndexedSlices(v, rows))
        change = m * alpha / (tf.sqrt(v) + self.epsilon)
        variable.scatter_sub(tf.IndexedSlices(change, rows))

    def _betas(self, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns beta_1 and beta_2, for the moments."""
        return tf.constant(self.beta_1, dtype), tf.constant(self.beta_2, dtype)

    def _powers_for(self, variable: tf.Variable) -> Powers:
        """Returns `_powers`, which variables on one device share within an update."""
        known = POWERS.get()
        if known is None:  # Called by itself, or by a strategy in another thread.
            return self._powers(variable.dtype)
        graph = None if tf.executing_eagerly() else tf.constant(0).graph
        key = graph, variable.device, variable.dtype
        if key not in known:
            known[key] = self._powers(variable.dtype)
        return known[key]

    def _powers(self, dtype: tf.DType) -> Powers:
        """Returns beta_1 and beta_2 to the power of the step, counted from 1, as in Keras."""
        step = tf.cast(self.iterations + 1, dtype)
        return tf.cast(self.beta_1, dtype) ** step, tf.cast(self.beta_2, dtype) ** step


class AdamW(Adam, keras.optimizers.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), in one fused kernel.

    Arguments, variables and updates are those of `keras.optimizers.AdamW`; `lazy` as in `Adam`.
    """


def to_dense(gradient: Gradient, variable: tf.Variable) -> tf.Tensor:
    """Returns a dense gradient; repeated rows of a sparse one are summed."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])
