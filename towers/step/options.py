"""The options of a training step, checked."""

from __future__ import annotations

import dataclasses

from towers.step.carried import Carried
from towers.step.precision import LossScale
from towers.step.states import BATCH_NORM_POLICIES


@dataclasses.dataclass(frozen=True)
class StepOptions:
    """How a step computes, besides the model and where it runs.

    Args:
        clip_norm: the norm to which the averaged gradient is clipped, or None.
        accumulate: into how many micro-batches each tower cuts its shard. The result is that of
            the uncut batch, with the memory of a micro-batch.
        batch_norm: how the towers' moving averages become one, once a step: those of the
            `first` tower, or the `mean` over the towers by their weights.
        seed: what all random numbers are derived from, with the step and the part of the batch.
        loss_scale: for float16, else None.
        compiled: whether XLA compiles each tower.
        carried: a state that goes on from step to step, such as that of a language model on
            contiguous streams, or None. The tower function is then
            `tower_fn(batch, state) -> (loss_sum, weight, metrics, state)`. The state begins with
            zeros, row by row beside the rows of the batch, and carries no gradient; the data
            says where a stream begins anew. A step without a finite gradient leaves it as it was.

    Raises:
        ValueError: for a value that cannot work.
    """

    clip_norm: float | None = None
    accumulate: int = 1
    batch_norm: str = "mean"
    seed: int = 0
    loss_scale: LossScale | None = None
    compiled: bool = False
    carried: Carried | None = None

    def __post_init__(self) -> None:
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm must be above 0, or None. Received {self.clip_norm}.")
        if self.accumulate < 1:
            raise ValueError(f"accumulate must be at least 1. Received {self.accumulate}.")
        if self.batch_norm not in BATCH_NORM_POLICIES:
            raise ValueError(
                f"batch_norm must be one of {', '.join(BATCH_NORM_POLICIES)}. "
                f"Received {self.batch_norm!r}."
            )
