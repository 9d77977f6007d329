"""Optimizers as a step sees them: checked, with their slots, learning rates and averages."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from towers.ground.private_apis import learning_rate_object, variables_built_for
from towers.optimizers.fused import optimizers_in
from towers.saving.checkpoint_files import path_of, tensorflow_variable, value_of
from towers.travel.gradients import Gradient
from towers.variables.shared_variables import SharedVariables


def check_optimizer(optimizer: keras.optimizers.Optimizer) -> None:
    """Raises ValueError for what is no optimizer, or one that unscales gradients.

    The step's gradients are not scaled.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(
            f"optimizer must be a Keras optimizer. Received {optimizer!r}; pass an instance such "
            "as keras.optimizers.Adam(1e-3), or towers.optimizers.build_optimizer('adam', 1e-3)."
        )
    factor = getattr(optimizer, "loss_scale_factor", None)
    if factor is not None or isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        kind = type(optimizer).__name__
        received = kind if factor is None else f"{kind} with loss_scale_factor={factor}"
        raise ValueError(
            "The optimizer must not unscale gradients: the step passes it unscaled ones, which it "
            f"would make even smaller. Received {received}; expected an optimizer without a loss "
            "scale. For float16 pass StepOptions(loss_scale=towers.steps.LossScale()) instead."
        )


def check_gradients(variables: Iterable[keras.Variable]) -> None:
    """Raises ValueError for variables whose gradient is no gradient, but their next value."""
    for variable in variables:
        if variable.overwrite_with_gradient:
            raise ValueError(
                f"Towers add gradients. Received the variable {variable.path}, which Keras sets to "
                "its gradient, as it does with the scales of float8; train such a model on one "
                "device with its own fit()."
            )


class LearningRates:
    """What holds the learning rates of a traced step: variables, schedules, functions."""

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
    for variable in unlisted(optimizer, shared.all):
        raise ValueError(
            f"The optimizer {type(optimizer).__name__} keeps the variable "
            f"'{path_of(variable)}' outside of its `variables`: it would be in no checkpoint, "
            "and towers with a copy each would update it several times. Make it with the "
            "optimizer's add_variable, or let its `variables` list those of an inner optimizer."
        )


def unlisted(optimizer: keras.optimizers.Optimizer, others: Iterable[Any]) -> Iterator[Any]:
    """Yields what an optimizer holds besides its `variables`, those it trains and these others."""
    listed = (*others, *optimizer.variables, *variables_built_for(optimizer))
    known = {id(tensorflow_variable(variable)) for variable in listed}
    # TensorFlow's `_self_...` still hold a learning rate that was replaced by a schedule.
    own = {name: value for name, value in vars(optimizer).items() if not name.startswith("_self_")}
    for variable in variables_in(own):
        if id(tensorflow_variable(variable)) not in known:
            yield variable


def variables_in(value: Any) -> Iterator[keras.Variable | tf.Variable]:
    """Yields the variables in nested containers and optimizers."""
    if isinstance(value, (keras.Variable, tf.Variable)):
        yield value
    elif isinstance(value, keras.optimizers.Optimizer):
        yield from (*value.variables, *unlisted(value, ()))
    elif isinstance(value, dict):
        yield from variables_in(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from variables_in(part)


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


class Averaged:
    """The scope in which variables hold their averages; without averages nothing changes.

    Polyak and Juditsky 1992, "Acceleration of Stochastic Approximation by Averaging". Afterwards
    the variables hold their own values again, except those that were assigned within the scope.
    A scope that is never left changes nothing more: a model keeps the averages.
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]):
        self._optimizer = optimizer
        # Keras finds averages by their positions in its own list: a step may train others. An
        # optimizer around another one may have none.
        self._variables = variables_built_for(optimizer) or list(variables)
        self._own: list[np.ndarray] = []
        self._averages: list[np.ndarray] = []

    def __enter__(self) -> None:
        if keeps_averages(self._optimizer):
            self._own = list(map(value_of, self._variables))
            self._optimizer.finalize_variable_values(self._variables)
            self._averages = list(map(value_of, self._variables))

    def __exit__(self, *_: object) -> None:
        for variable, own, average in zip(
            self._variables if self._own else (), self._own, self._averages, strict=True
        ):
            if np.array_equal(value_of(variable), average, equal_nan=True):
                variable.assign(own)


def keeps_averages(optimizer: keras.optimizers.Optimizer) -> bool:
    """Returns whether an optimizer has made an update and ends a training with other weights.

    It averages them, or finalizes them in a way of its own. Before its first update the averages
    are zeros.
    """
    if not int(optimizer.iterations):
        return False
    finalize = keras.optimizers.Optimizer.finalize_variable_values
    return any(
        one.use_ema or type(one).finalize_variable_values is not finalize
        for one in optimizers_in(optimizer)
    )
