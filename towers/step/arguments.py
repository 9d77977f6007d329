"""What the engine asks of what it is given to train, and how it says no."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import keras

from towers.loop.inputs import Shard
from towers.run.devices import check_devices
from towers.step.gradients import Gradient
from towers.step.parameters import SharedVariables
from towers.step.states import BATCH_NORM_POLICIES


def check_arguments(
    devices: Sequence[str],
    shard_specs: Sequence[Shard],
    clip_norm: float | None = None,
    accumulate: int = 1,
    batch_norm: str = "mean",
) -> None:
    """Raises ValueError for arguments that no step can be built from."""
    check_devices(devices)
    if len(shard_specs) != len(devices):
        raise ValueError(
            f"There must be one shard per tower. Received specs of {len(shard_specs)} shards "
            f"for {len(devices)} towers; use towers.shard_specs(batches, {len(devices)})."
        )
    if clip_norm is not None and not clip_norm > 0:
        raise ValueError(f"clip_norm must be above 0, or None. Received {clip_norm}.")
    if accumulate < 1:
        raise ValueError(f"accumulate must be at least 1. Received {accumulate}.")
    if batch_norm not in BATCH_NORM_POLICIES:
        raise ValueError(
            f"batch_norm must be one of {', '.join(BATCH_NORM_POLICIES)}. Received {batch_norm!r}."
        )


def check_optimizer(optimizer: keras.optimizers.Optimizer) -> None:
    """Raises ValueError for an optimizer that unscales gradients, which the step has not scaled."""
    factor = getattr(optimizer, "loss_scale_factor", None)
    if factor is not None or isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        kind = type(optimizer).__name__
        received = kind if factor is None else f"{kind} with loss_scale_factor={factor}"
        raise ValueError(
            "The optimizer must not unscale gradients: the step hands it unscaled ones, which it "
            f"would make smaller still. Received {received}; expected an optimizer without a loss "
            "scale. For float16 pass loss_scale=towers.LossScale() to the step instead."
        )


def check_trainable(shared: SharedVariables) -> None:
    """Raises ValueError if there is nothing to train."""
    if not shared.trainable:
        paths = [variable.path for variable in shared.states]
        raise ValueError(
            "There is nothing to train: none of the variables is trainable. Received "
            f"{paths or 'no variables'}."
        )


def report_unconnected(variables: Sequence[keras.Variable], gradients: Sequence[Gradient]) -> None:
    """Warns of variables on which the loss does not depend; it must depend on some."""
    pairs = zip(variables, gradients, strict=True)
    paths = [variable.path for variable, gradient in pairs if gradient is None]
    if len(paths) == len(variables):
        raise ValueError(
            "The loss depends on none of the trainable variables, so that there is nothing to "
            f"update. Received {', '.join(paths)}; does the tower function use this model, and "
            "only operations that have a gradient?"
        )
    if paths:
        warnings.warn(
            f"The loss does not depend on {', '.join(paths)}: they stay as they are.",
            stacklevel=2,
        )
