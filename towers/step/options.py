"""The options of a training step, checked."""

from __future__ import annotations

import dataclasses

from towers.ground.arguments import check_choice
from towers.step.carried import Carried
from towers.step.precision import LossScale
from towers.step.states import BATCH_NORM_POLICIES


@dataclasses.dataclass(frozen=True)
class StepOptions:
    """The options of a step, apart from its model and its placement.

    Args:
        clip_norm: the norm to which the averaged gradient is clipped, or None.
        accumulate: the number of micro-batches into which each tower cuts its shard. The result
            equals that of the uncut batch, with the memory of one micro-batch. A synchronized
            BatchNorm sums over the towers of each micro-batch instead.
        batch_norm: how the towers' moving averages become one, once a step: the averages of the
            `first` tower, or the `mean` over the towers, weighted by the towers' weights.
        seed: all random numbers derive from this seed, the step and the micro-batch's number.
        loss_scale: a loss scale for float16, or None.
        compiled: whether XLA compiles each tower. It compiles no kernel of cuDNN: a model's
            recurrent layers do without them then, and others need `use_cudnn=False`.
        carried: a state that is carried from step to step, such as the LSTM state of a language
            model on contiguous streams, or None. The tower function is then
            `tower_fn(batch, state) -> (loss_sum, weight, metrics, state)`. The state has one row
            per row of the batch, begins with zeros and carries no gradient; the tower function
            resets it where the data begins a new stream. A step with a non-finite gradient leaves
            it unchanged.
        probe: whether the first call of the step asks the tower function, with a few rows, if it
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
    probe: bool = True

    def __post_init__(self) -> None:
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm must be above 0, or None. Received {self.clip_norm}.")
        if type(self.accumulate) is not int or self.accumulate < 1:
            raise ValueError(
                "accumulate must be at least 1, a whole number: the micro-batches of each shard. "
                f"Received {self.accumulate!r}."
            )
        check_choice("batch_norm", self.batch_norm, BATCH_NORM_POLICIES)
