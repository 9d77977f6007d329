"""Checks of the optimizer and the variables that a step trains."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import keras

from towers.step.gradients import Gradient
from towers.step.parameters import SharedVariables


def check_optimizer(optimizer: keras.optimizers.Optimizer) -> None:
    """Raises ValueError for an optimizer that unscales gradients: the step's are not scaled."""
    factor = getattr(optimizer, "loss_scale_factor", None)
    if factor is not None or isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        kind = type(optimizer).__name__
        received = kind if factor is None else f"{kind} with loss_scale_factor={factor}"
        raise ValueError(
            "The optimizer must not unscale gradients: the step passes it unscaled ones, which it "
            f"would make even smaller. Received {received}; expected an optimizer without a loss "
            "scale. For float16 pass StepOptions(loss_scale=towers.LossScale()) instead."
        )


def check_trainable(shared: SharedVariables) -> None:
    """Raises ValueError if no variable is trainable."""
    if not shared.trainable:
        paths = [variable.path for variable in shared.states]
        raise ValueError(
            "There is nothing to train: none of the variables is trainable. Received "
            f"{paths or 'no variables'}."
        )


def warn_of_unconnected(variables: Sequence[keras.Variable], gradients: Sequence[Gradient]) -> None:
    """Warns of variables on which the loss does not depend; raises ValueError if these are all."""
    pairs = zip(variables, gradients, strict=True)
    paths = [variable.path for variable, gradient in pairs if gradient is None]
    if len(paths) == len(variables):
        raise ValueError(
            "The loss depends on none of the trainable variables, so there is nothing to "
            f"update. Received {', '.join(paths)}; does the tower function use this model, and "
            "only operations that have a gradient?"
        )
    if paths:
        warnings.warn(
            f"The loss does not depend on {', '.join(paths)}: they stay as they are.",
            stacklevel=2,
        )
