"""Checks of what a step is built from: placement, options, optimizer, variables."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.ground.private_apis import learning_rate_object
from towers.run.checkpoint_files import path_of, tensorflow_variable
from towers.run.processes import Processes
from towers.step.gradients import Gradient
from towers.step.options import StepOptions
from towers.step.parameters import SharedVariables
from towers.step.placement import Placement


def check_kinds(
    placement: Placement,
    options: StepOptions = StepOptions(),
    processes: Processes | None = None,
) -> None:
    """Raises ValueError for what is no placement, no options or no processes."""
    check_kind("placement", placement, Placement, "towers.Placement(devices)")
    check_kind("options", options, StepOptions, "towers.StepOptions(clip_norm=5.0)")
    if processes is not None:
        check_kind("processes", processes, Processes, "towers.join_processes(...)")


def check_kind(name: str, value: object, kind: type, example: str) -> None:
    """Raises ValueError for an argument of another kind; `example` makes one."""
    if not isinstance(value, kind):
        raise ValueError(
            f"{name} must be a towers.{kind.__name__}, such as {example}. Received {value!r}."
        )


def check_optimizer(optimizer: keras.optimizers.Optimizer) -> None:
    """Raises ValueError for what is no optimizer, or one that unscales gradients.

    The step's gradients are not scaled.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(
            f"optimizer must be a Keras optimizer. Received {optimizer!r}; pass an instance such "
            "as keras.optimizers.Adam(1e-3), or towers.build_optimizer('adam', 1e-3)."
        )
    factor = getattr(optimizer, "loss_scale_factor", None)
    if factor is not None or isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        kind = type(optimizer).__name__
        received = kind if factor is None else f"{kind} with loss_scale_factor={factor}"
        raise ValueError(
            "The optimizer must not unscale gradients: the step passes it unscaled ones, which it "
            f"would make even smaller. Received {received}; expected an optimizer without a loss "
            "scale. For float16 pass StepOptions(loss_scale=towers.LossScale()) instead."
        )


def optimizers_in(
    optimizer: keras.optimizers.Optimizer,
) -> Sequence[keras.optimizers.Optimizer]:
    """Returns the optimizers of a `keras.optimizers.MultiOptimizer`, or the optimizer itself."""
    return list(getattr(optimizer, "optimizers", [optimizer]))


class LearningRates:
    """The objects that hold the learning rates of a traced step: variables, schedules, functions.

    Args:
        optimizer: the step's optimizer.
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer):
        self._found = [(one, learning_rate_object(one)) for one in optimizers_in(optimizer)]

    def check(self) -> None:
        """Raises RuntimeError for a learning rate that was replaced by another object since."""
        for optimizer, rate in self._found:
            now = learning_rate_object(optimizer)
            if now is not rate:
                raise RuntimeError(
                    f"The learning rate of {optimizer.name} was replaced after the step was built, "
                    f"which goes on with the old one. Received {now!r}; make the optimizer with a "
                    "number and assign numbers, or build the step with the new one."
                )


def check_slots(optimizer: keras.optimizers.Optimizer, shared: SharedVariables) -> None:
    """Raises ValueError for a variable of a built optimizer that Keras does not know as its own."""
    model = {id(tensorflow_variable(variable)) for variable in shared.all}
    known = model | {id(tensorflow_variable(variable)) for variable in optimizer.variables}
    for variable in variables_in(vars(optimizer)):
        if id(tensorflow_variable(variable)) not in known:
            raise ValueError(
                f"The optimizer {type(optimizer).__name__} keeps the variable "
                f"'{path_of(variable)}' outside of its `variables`: it would be in no checkpoint, "
                "and towers with a copy each would update it several times. Make it with the "
                "optimizer's add_variable, or let its `variables` list those of an inner optimizer."
            )


def variables_in(value: Any) -> Iterator[keras.Variable | tf.Variable]:
    """Yields the variables in nested containers and optimizers."""
    if isinstance(value, (keras.Variable, tf.Variable)):
        yield value
    elif isinstance(value, keras.optimizers.Optimizer):
        yield from value.variables
    elif isinstance(value, dict):
        yield from variables_in(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from variables_in(part)


def check_variables(variables: keras.Model | Sequence[keras.Variable]) -> None:
    """Raises ValueError for what are neither Keras variables nor an object that owns some."""
    if hasattr(variables, "variables"):
        return
    if not isinstance(variables, (list, tuple)):
        raise ValueError(
            "variables must be the model, or a list of its Keras variables. Received "
            f"{variables!r}; pass the model itself, or model.variables."
        )
    for part in variables:
        if isinstance(part, keras.Variable):
            continue
        remedy = "make it a keras.Variable, or a weight of a Keras layer (add_weight)"
        if hasattr(part, "variables"):
            remedy = "pass the model itself, or model.variables; of several models, the sum of both"
        raise ValueError(
            "variables must be the model, or a list of its Keras variables. Received a list with "
            f"{part!r}; {remedy}."
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
