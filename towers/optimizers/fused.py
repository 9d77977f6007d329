"""Updates of Keras's optimizers, and of ours, in fewer of TensorFlow's kernels."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.ground.private_apis import get_default_graph, slots_of
from towers.optimizers.optimizers import Adam, AdamW, to_dense
from towers.travel.gradients import Gradient

FUSED_DTYPES = (tf.float32, tf.float64)  # Kernels round half precision at other points.


def apply_gradients(
    optimizer: keras.optimizers.Optimizer,
    gradients: Sequence[tuple[Gradient, keras.Variable]],
) -> None:
    """Applies gradients as the optimizer's own `apply_gradients` does, in fewer kernels.

    Keras's SGD, Adam and AdamW do so to the last bit; to rounding, Adagrad in the rows that a
    gradient has, and our `Adam`. Classes and functions that others wrote make their own updates.

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
        if not type(optimizer).__module__.startswith(("keras.", "towers.")):
            # It may compute from some gradients, in the branch where it is, and pass the others on.
            gradients = [(identical(gradient), variable) for gradient, variable in gradients]
        optimizer.apply_gradients(gradients)


def identical(gradient: Gradient) -> Gradient:
    """Returns the same gradient, made where it is called."""
    same: Gradient = tf.nest.map_structure(tf.identity, gradient, expand_composites=True)
    return same


def optimizers_in(
    optimizer: keras.optimizers.Optimizer,
) -> Sequence[keras.optimizers.Optimizer]:
    """Returns the optimizers of a `keras.optimizers.MultiOptimizer`, or the optimizer itself."""
    return list(getattr(optimizer, "optimizers", [optimizer]))


class OneUpdate:
    """What the variables of one update share.

    Attributes:
        optimizer: the optimizer.
        stock: its own `update_step`.
    """

    def __init__(self, optimizer: Any):
        self.optimizer, self.stock = optimizer, optimizer.update_step
        self._known: dict[Any, tuple[tf.Tensor, ...]] = {}

    def of_adam(self, variable: tf.Variable, learning_rate: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns beta_1 and beta_2 to the power of the step, counted from 1, and Adam's rate.

        They are computed once for all variables of a device and dtype.
        """
        graph, dtype = None if tf.executing_eagerly() else get_default_graph(), variable.dtype
        key = graph, variable.device, dtype
        if key not in self._known:
            step = tf.cast(self.optimizer.iterations + 1, dtype)
            betas = self.optimizer.beta_1, self.optimizer.beta_2
            power_1, power_2 = (tf.cast(beta, dtype) ** step for beta in betas)
            rate = tf.cast(learning_rate, dtype) * tf.sqrt(1 - power_2) / (1 - power_1)
            self._known[key] = power_1, power_2, rate
        return self._known[key]


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
    """Updates a variable by Keras's Adam, in six kernels instead of twelve.

    TensorFlow's kernel for all of it takes another `1 - beta_2`; our `Adam` has that one.
    """
    optimizer, dtype = one.optimizer, variable.dtype
    numbers = optimizer.beta_1, optimizer.beta_2, optimizer.epsilon
    are_fixed = all(isinstance(number, (int, float)) for number in numbers)
    is_lazy = getattr(optimizer, "lazy", False) and isinstance(gradient, tf.IndexedSlices)
    if is_lazy or optimizer.amsgrad or dtype not in FUSED_DTYPES or not are_fixed:
        one.stock(gradient, variable, learning_rate)
        return
    gradient = tf.cast(to_dense(gradient, variable), dtype)
    momentum, velocity = slots_of(optimizer, variable, "momentums", "velocities")
    beta_1_power, beta_2_power, rate = one.of_adam(variable, learning_rate)
    beta_1, beta_2, epsilon = (tf.constant(number, dtype) for number in numbers)
    if isinstance(optimizer, Adam):
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle, m=momentum.handle, v=velocity.handle,
            beta1_power=beta_1_power, beta2_power=beta_2_power, beta1=beta_1, beta2=beta_2,
            lr=tf.cast(learning_rate, dtype), epsilon=epsilon, grad=gradient,
        )  # fmt: skip
        return
    move(momentum, gradient, 1 - optimizer.beta_1)
    move(velocity, tf.square(gradient), 1 - optimizer.beta_2)
    # Adagrad's kernel divides by the root of its slot, and may leave the slot as it is.
    tf.raw_ops.ResourceApplyAdagradV2(
        var=variable.handle, accum=velocity.handle, lr=rate, epsilon=epsilon, grad=momentum,
        update_slots=False,
    )  # fmt: skip


def move(slot: tf.Variable, value: tf.Tensor, share: float) -> None:
    """Moves a slot towards a value, by a share of the way."""
    tf.raw_ops.ResourceApplyGradientDescent(
        var=slot.handle, alpha=tf.constant(share, slot.dtype), delta=slot - value
    )


UPDATES = {
    keras.optimizers.SGD: update_sgd,
    keras.optimizers.Adagrad: update_adagrad,
    **dict.fromkeys((keras.optimizers.Adam, keras.optimizers.AdamW, Adam, AdamW), update_adam),
}
