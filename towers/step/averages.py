"""Averages of the weights that an optimizer keeps (`use_ema=True`), in the place of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from towers.run.checkpoint_files import value_of
from towers.step.arguments import optimizers_in


class Averaged:
    """The scope in which variables hold their averages; without averages nothing changes.

    Polyak and Juditsky 1992, "Acceleration of Stochastic Approximation by Averaging". Afterwards
    the variables hold their own values again, except those that were assigned within the scope.
    A scope that is never left changes nothing more: a model keeps the averages.

    Args:
        optimizer: the optimizer that trains the variables.
        variables: those with which it was built.
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]):
        self._optimizer = optimizer
        self._variables = list(variables)
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


class Together:
    """Several scopes as one, entered in their order; if it is never left, none of them is.

    Args:
        scopes: the scopes.
    """

    def __init__(self, scopes: Iterable[contextlib.AbstractContextManager[None]]):
        self._scopes = list(scopes)

    def __enter__(self) -> None:
        for scope in self._scopes:
            scope.__enter__()

    def __exit__(self, *error: Any) -> None:
        for scope in reversed(self._scopes):
            scope.__exit__(*error)


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
