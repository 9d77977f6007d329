"""The options of a training step, checked: among them the loss scale that float16 needs."""

from __future__ import annotations

import dataclasses
import numbers

import keras
import tensorflow as tf

from towers.ground.arguments import check_above_0, check_at_least, check_choice
from towers.step.carried import Carried

BATCH_NORM_POLICIES = ("first", "mean")
PRECISIONS = {
    "float32": "float32",
    "float64": "float64",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}


@dataclasses.dataclass(frozen=True)
class StepOptions:
    """The options of a step, apart from its model and its placement.

    Args:
        clip_norm: the norm to which the averaged gradient is clipped, or None.
        accumulate: the number of micro-batches into which each tower cuts its shard. The result
            equals that of the uncut batch, with the memory of one micro-batch. A synchronized
            BatchNorm sums over the towers of each micro-batch instead.
        batch_norm: how the towers' moving averages are combined, once a step: the `first` tower's,
            or the `mean` over the towers, weighted by the towers' weights.
        seed: all random numbers derive from this seed, the step and the micro-batch's number.
        loss_scale: a loss scale for float16, or None.
        compiled: whether XLA compiles each tower. XLA cannot compile cuDNN's kernels: a model's
            recurrent layers then run without them, and other recurrent layers need
            `use_cudnn=False`.
        carried: a state that is carried from step to step, such as the LSTM state of a language
            model on contiguous streams, or None. The tower function is then
            `tower_fn(batch, state) -> (loss_sum, weight, metrics, state)`. The state has one row
            per row of the batch, begins with zeros and carries no gradient; the tower function
            resets it where the data begins a new stream. A step with a non-finite gradient leaves
            it unchanged.
        steps_per_call: how many updates the trainer makes in one call of the graph, which saves
            most of the host's time for small steps. Each update is the same as otherwise and has
            its own report, of NumPy numbers; actions get the reports after the call. A call ends at
            a step whose number this divides, at the end of an epoch, and with a gradient that is
            not finite. Single updates make one more then: they are checked a step later.
        probe: whether the first call of the step checks, with a few rows, that the tower function
            returns sums.

    Raises:
        ValueError: a value is out of range.
    """

    clip_norm: float | None = None
    accumulate: int = 1
    batch_norm: str = "mean"
    seed: int = 0
    loss_scale: LossScale | None = None
    compiled: bool = False
    carried: Carried | None = None
    steps_per_call: int = 1
    probe: bool = True

    def __post_init__(self) -> None:
        if self.clip_norm is not None:
            check_above_0(clip_norm=self.clip_norm)
        check_at_least(1, accumulate=self.accumulate, steps_per_call=self.steps_per_call)
        if not isinstance(self.seed, numbers.Integral) or not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed must be a whole number of 64 bits. Received {self.seed!r}.")
        for name, kind in (("loss_scale", LossScale), ("carried", Carried)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ValueError(f"{name} must be a {kind.__name__}, or None. Received {value!r}.")
        check_choice("batch_norm", self.batch_norm, BATCH_NORM_POLICIES)
        for name in ("compiled", "probe"):
            if (value := getattr(self, name)) not in (True, False):
                raise ValueError(f"{name} must be True or False. Received {value!r}.")


class LossScale:
    """A dynamic loss scale: halved when a gradient overflows, doubled after steps without overflow.

    Micikevicius et al. 2018, "Mixed Precision Training", section 3.2. It scales the *mean* loss
    of the batch: the factor for each tower's summed loss is scale / weight of the batch. So tower
    functions are called for their weights before, and a `tf.numpy_function` in one runs twice.

    Args:
        initial: the initial scale.
        growth_steps: the number of updates without overflow after which it is doubled.

    Raises:
        ValueError: one of them is not above 0.
    """

    def __init__(self, *, initial: float = 2.0**15, growth_steps: int = 2000):
        check_above_0(initial=initial)
        check_at_least(1, growth_steps=growth_steps)
        self._growth_steps = growth_steps
        self._scale = keras.Variable(
            initial, dtype="float32", trainable=False, autocast=False, name="loss_scale"
        )
        self._calm_steps = keras.Variable(
            0, dtype="int32", trainable=False, autocast=False, name="calm_steps"
        )

    @classmethod
    def of_keras(cls, optimizer: keras.optimizers.LossScaleOptimizer) -> LossScale:
        """Returns the scale of a built optimizer of Keras's: both have it in the same variables."""
        scale = cls.__new__(cls)
        scale._growth_steps = optimizer.dynamic_growth_steps
        scale._scale, scale._calm_steps = optimizer.dynamic_scale, optimizer.step_counter
        return scale

    @property
    def variables(self) -> list[keras.Variable]:
        """The variables that a checkpoint saves."""
        return [self._scale, self._calm_steps]

    def read(self) -> tf.Tensor:
        """Returns the scale, a float32 scalar."""
        return tf.convert_to_tensor(self._scale.value)

    def update(self, finite: tf.Tensor) -> None:
        """Updates the scale; `finite` is a bool scalar, whether the summed gradient was finite."""
        scale, calm_steps = self.read(), tf.convert_to_tensor(self._calm_steps.value)
        none = tf.zeros_like(calm_steps)  # Keras's are int64.
        calm_steps = tf.where(finite, calm_steps + 1, none)
        grows = calm_steps >= self._growth_steps
        factor = tf.where(finite, tf.where(grows, 2.0, 1.0), 0.5)
        self._scale.assign(tf.maximum(scale * factor, tf.minimum(scale, 1.0)))
        self._calm_steps.assign(tf.where(grows, none, calm_steps))


class FixedLossScale(LossScale):
    """A loss scale that stays as it is: the `loss_scale_factor` of an optimizer of Keras's."""

    def __init__(self, factor: float):
        self._factor = factor

    @property
    def variables(self) -> list[keras.Variable]:
        """No variables."""
        return []

    def read(self) -> tf.Tensor:
        """Returns the scale, a float32 scalar."""
        return tf.constant(self._factor, tf.float32)


def set_precision(precision: str) -> None:
    """Sets Keras's dtype policy; with 16-bit precision variables stay float32.

    Args:
        precision: float32, float64, bfloat16 or float16.

    Raises:
        ValueError: there is no such precision.
    """
    check_choice("precision", precision, PRECISIONS)
    keras.config.set_dtype_policy(PRECISIONS[precision])
