"""Checks of what a step is built from: placement, options, optimizer, variables."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from towers.devices.placement import Placement
from towers.processes.processes import Processes
from towers.step.options import StepOptions
from towers.variables.shared_variables import SharedVariables


def check_kinds(
    placement: Placement,
    options: StepOptions = StepOptions(),
    processes: Processes | None = None,
) -> None:
    """Raises ValueError for what is no placement, no options or no processes."""
    check_kind("placement", placement, Placement, "towers.Placement(devices)")
    check_kind("options", options, StepOptions, "towers.StepOptions(clip_norm=5.0)")
    if processes is not None:
        check_kind("processes", processes, Processes, "towers.processes.join_processes(...)")


def check_kind(name: str, value: object, kind: type, example: str) -> None:
    """Raises ValueError for an argument of another kind; `example` makes one."""
    if not isinstance(value, kind):
        raise ValueError(
            f"{name} must be a {kind.__name__}, such as {example}. Received {value!r}."
        )


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
            remedy = "pass the model itself, or model.variables; for several models, their sum"
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
