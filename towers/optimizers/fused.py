"""Keras's own optimizers, updating in fewer kernels of TensorFlow's that give the same bits."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.ground.private_apis import get_default_graph, slots_of
from towers.optimizers.optimizers import FUSED_DTYPES, to_dense
from towers.travel.gradients import Gradient


def apply_gradients(
    optimizer: keras.optimizers.Optimizer,
    gradients: Sequence[tuple[Gradient, keras.Variable]],
) -> None:
    """Applies gradients as the optimizer's own `apply_gradients` does, to the last bit.

    Keras's SGD, Adam, AdamW and Adagrad do so in fewer kernels, and Adagrad in the rows that a
    gradient has. Classes and functions that others wrote make their own updates.

    Args:
        optimizer: any; the optimizers in a `keras.optimizers.MultiOptimizer` count each.
        gradients: gradients and variables; the rows of sparse gradients are unique.
    """
    with contextlib.ExitStack() as scopes:
        for one in optimizers_in(optimizer):
            update = UPDATES.get(type(one))
            if update is not None and "update_step" not in vars(one):
                one.update_step = functools.partial(update, OneUpdate(one))
                scopes.callback(delattr, one, "update_step")
        optimizer.apply_gradients(gradients)


def optimizers_in(
    optimizer: keras.optimizers.Optimizer,
) -> Sequence[keras.optimizers.Optimizer]:
    """Returns the optimizers of a `keras.optimizers.MultiOptimizer`, or the optimizer itself."""
    return list(getattr(optimizer, "optimizers", [optimizer]))


class OneUpdate:
    """What the variables of one update share.

    Attributes:
        optimizer: the optimizer, one of Keras's.
        stock: its own `update_step`.
    """

    def __init__(self, optimizer: Any):
        self.optimizer, self.stock = optimizer, optimizer.update_step
        self._rates: dict[Any, tf.Tensor] = {}

    def adam_rate(self, variable: tf.Variable, rate: tf.Tensor) -> tf.Tensor:
        """Returns the learning rate with Adam's correction of the bias, once a device and dtype."""
        graph = None if tf.executing_eagerly() else get_default_graph()
        key, dtype = (graph, variable.device, variable.dtype), variable.dtype
        if key not in self._rates:
            step = tf.cast(self.optimizer.iterations + 1, dtype)
            betas = self.optimizer.beta_1, self.optimizer.beta_2
            power_1, power_2 = (tf.cast(beta, dtype) ** step for beta in betas)
            self._rates[key] = tf.cast(rate, dtype) * tf.sqrt(1 - power_2) / (1 - power_1)
        return self._rates[key]


def update_sgd(
    one: OneUpdate, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor
) -> None:
    """Updates a variable by gradient descent, plain, with momentum or with Nesterov's momentum.

    With momentum, all rows of a sparse gradient change: velocities act without a gradient, too.
    """
    momentum, dtype = one.optimizer.momentum, variable.dtype
    is_sparse = isinstance(gradient, tf.IndexedSlices)
    if dtype not in FUSED_DTYPES or (is_sparse and not momentum):
        one.stock(gradient, variable, learning_rate)
        return
    rate, gradient = tf.cast(learning_rate, dtype), tf.cast(to_dense(gradient, variable), dtype)
    if not momentum:
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)
        return
    (velocity,) = slots_of(one.optimizer, variable, "momentums")
    tf.raw_ops.ResourceApplyKerasMomentum(
        var=variable.handle,
        accum=velocity.handle,
        lr=rate,
        grad=gradient,
        momentum=tf.cast(momentum, dtype),
        use_nesterov=one.optimizer.nesterov,
    )


def update_adagrad(
    one: OneUpdate, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor
) -> None:
    """Updates only the rows of a sparse gradient; without one neither row nor accumulator changes.

    TensorFlow's kernels add epsilon outside the root, Keras inside, so dense gradients take Keras's
    own code.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        one.stock(gradient, variable, learning_rate)
        return
    values, rows = tf.cast(gradient.values, variable.dtype), gradient.indices
    (accumulator,) = slots_of(one.optimizer, variable, "accumulators")
    sums = tf.gather(accumulator, rows) + tf.square(values)
    root = tf.sqrt(sums + one.optimizer.epsilon)
    accumulator.scatter_update(tf.IndexedSlices(sums, rows))
    change = tf.cast(learning_rate, variable.dtype) * values / root
    variable.scatter_sub(tf.IndexedSlices(change, rows))


def update_adam(
    one: OneUpdate, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor
) -> None:
    """Updates a variable by Adam, in six kernels instead of twelve.

    TensorFlow's kernel for all of it takes another `1 - beta_2` (see `optimizers.Adam`).
    """
    optimizer, dtype = one.optimizer, variable.dtype
    numbers = optimizer.beta_1, optimizer.beta_2, optimizer.epsilon
    are_fixed = all(isinstance(number, float) for number in numbers)
    if optimizer.amsgrad or dtype not in FUSED_DTYPES or not are_fixed:
        one.stock(gradient, variable, learning_rate)
        return
    gradient = tf.cast(to_dense(gradient, variable), dtype)
    momentum, velocity = slots_of(optimizer, variable, "momentums", "velocities")
    move(momentum, gradient, 1 - optimizer.beta_1)
    move(velocity, tf.square(gradient), 1 - optimizer.beta_2)
    # Adagrad's kernel divides by the root of its slot, and may leave the slot as it is.
    tf.raw_ops.ResourceApplyAdagradV2(
        var=variable.handle,
        accum=velocity.handle,
        lr=one.adam_rate(variable, learning_rate),
        epsilon=tf.constant(optimizer.epsilon, dtype),
        grad=momentum,
        update_slots=False,
    )


def move(slot: tf.Variable, value: tf.Tensor, share: float) -> None:
    """Moves a slot towards a value, by a share of the way."""
    tf.raw_ops.ResourceApplyGradientDescent(
        var=slot.handle, alpha=tf.constant(share, slot.dtype), delta=slot - value
    )


UPDATES = {
    keras.optimizers.SGD: update_sgd,
    keras.optimizers.Adagrad: update_adagrad,
    keras.optimizers.Adam: update_adam,
    keras.optimizers.AdamW: update_adam,
}
