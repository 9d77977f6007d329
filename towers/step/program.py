"""The program of the towers: the tower function, its variables and its carried state, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from towers.batches.shards import Shard
from towers.devices.placement import Placement
from towers.devices.stages import Stages, device_name
from towers.processes.processes import Processes
from towers.step.carried import CarriedState
from towers.step.options import StepOptions
from towers.step.synchronized import Listener
from towers.step.tower_function import ShardFn, TowerFn
from towers.variables.find_variables import gather_variables
from towers.variables.outside_writes import unobserved
from towers.variables.shared_variables import SharedVariables, StagedVariables


class TowerProgram(NamedTuple):
    """The program that every tower runs.

    Attributes:
        shard_fn: the tower function on the pair (batch, state).
        shared: the variables that it uses.
        carried: the state that it carries from step to step.
        options: the step's options.
        num_parts: the number of parts into which a batch is cut for one update.
        synchronized: whether layers sum over the replicas.
        stages: of towers of several devices, the stages of their layers; None for one device each.
    """

    shard_fn: ShardFn
    shared: SharedVariables
    carried: CarriedState
    options: StepOptions
    num_parts: int = 1
    synchronized: bool = False
    stages: Stages | None = None


def make_program(
    tower_fn: TowerFn,
    variables: keras.Model | Sequence[keras.Variable],
    placement: Placement,
    specs: Sequence[Shard],
    options: StepOptions = StepOptions(),
    num_parts: int = 1,
) -> TowerProgram:
    """Returns the program of a tower function; an unbuilt model is built on the parameter device.

    Args:
        tower_fn, variables, placement, options: as in `build_train_step`.
        specs: the specs of each tower's shard.
        num_parts: the number of parts into which a batch is cut for one update.
    """
    check_variables(variables)
    check_compilable(specs[0], options)
    carried = CarriedState(options.carried, placement.devices)
    shard_fn = ShardFn(tower_fn, carried.shard_specs)
    # The trace is not run: it writes no variable.
    with placement.scope(), unobserved(), Listener() as listener:
        pair = (specs[0].batch, carried.shard_specs)
        shared = gather_variables(shard_fn, variables, pair, compiled=options.compiled)
    stages = placement.stages(variables)
    if stages is not None:
        check_homes(shared, stages, placement)
        check_stepwise(options)
        shard_fn, shared = shard_fn.within(stages), StagedVariables(shared, stages)
    return TowerProgram(shard_fn, shared, carried, options, num_parts, listener.has_heard, stages)


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


def check_homes(shared: SharedVariables, stages: Stages, placement: Placement) -> None:
    """Raises ValueError for a variable that is not where its stage is."""
    for variable in shared.all:
        expected = device_name(placement.copy_groups[0][stages.of_variable(variable)])
        if device_name(variable.value.device) != expected:
            raise ValueError(
                f"With parameters={placement.parameters!r} the variable '{variable.path}' belongs "
                f"on {expected}. Received it on {device_name(variable.value.device)}; make and "
                "build the model under `placement.scope()`, and call `placement.place(model)` "
                "before anything else uses it."
            )


def check_compilable(spec: Shard, options: StepOptions) -> None:
    """Raises ValueError for strings in towers that XLA compiles."""
    if options.compiled and tf.string in [part.dtype for part in tf.nest.flatten(spec)]:
        raise ValueError(
            "XLA compiles no strings. Received a batch with some for compiled=True; turn them into "
            "numbers in the data set (`dataset.map`), or leave compiled out."
        )


def check_stepwise(options: StepOptions) -> None:
    """Raises ValueError for towers that XLA would compile for one device."""
    if options.compiled:
        raise ValueError(
            "XLA compiles a tower for one device. Received compiled=True for towers of several; "
            "leave it out."
        )


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
