"""Mixed precision: the dtype policy of a run and the loss scale that float16 needs."""

from __future__ import annotations

import keras
import tensorflow as tf

PRECISIONS = {
    "float32": "float32",
    "float64": "float64",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}


def set_precision(precision: str) -> None:
    """Sets Keras's dtype policy: variables stay float32 where computing is in 16 bits."""
    if precision not in PRECISIONS:
        raise ValueError(
            f"precision must be one of {', '.join(PRECISIONS)}. Received {precision!r}."
        )
    keras.config.set_dtype_policy(PRECISIONS[precision])


class LossScale:
    """A dynamic loss scale: halved when a gradient overflows, doubled after a calm time.

    Micikevicius et al. 2018, "Mixed Precision Training", section 3.2. It scales the *mean* loss
    of a tower; the factor on the summed loss is scale / weight.

    Args:
        initial: the first scale.
        growth_steps: after how many updates without an overflow it is doubled.
    """

    def __init__(self, *, initial: float = 2.0**15, growth_steps: int = 2000):
        self._growth_steps = growth_steps
        self._scale = keras.Variable(
            initial, dtype="float32", trainable=False, autocast=False, name="loss_scale"
        )
        self._calm_steps = keras.Variable(
            0, dtype="int32", trainable=False, autocast=False, name="calm_steps"
        )

    @property
    def variables(self) -> list[keras.Variable]:
        """What a checkpoint keeps of it."""
        return [self._scale, self._calm_steps]

    def read(self) -> tf.Tensor:
        """Returns the scale, a float32 scalar."""
        return tf.convert_to_tensor(self._scale.value)

    def update(self, finite: tf.Tensor) -> None:
        """Adapts the scale to whether the reduced gradient was finite, a bool scalar."""
        scale, calm_steps = self.read(), tf.convert_to_tensor(self._calm_steps.value)
        calm_steps = tf.where(finite, calm_steps + 1, 0)
        grows = calm_steps >= self._growth_steps
        factor = tf.where(finite, tf.where(grows, 2.0, 1.0), 0.5)
        self._scale.assign(tf.maximum(scale * factor, 1.0))
        self._calm_steps.assign(tf.where(grows, 0, calm_steps))
