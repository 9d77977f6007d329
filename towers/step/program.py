"""The program of the towers: the tower function, its variables and its carried state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import keras

from towers.step.arguments import check_variables
from towers.step.carried import CarriedState
from towers.step.gathering import gather_variables
from towers.step.options import StepOptions
from towers.step.parameters import SharedVariables
from towers.step.placement import Placement
from towers.step.shards import Shard
from towers.step.synchronized import Listener
from towers.step.tower_function import ShardFn, TowerFn
from towers.step.writes import unobserved


class TowerProgram(NamedTuple):
    """The program that every tower runs.

    Attributes:
        shard_fn: the tower function on the pair (batch, state).
        shared: the variables that it uses.
        carried: the state that it carries from step to step.
        num_parts: the number of parts into which a batch is cut for one update.
        synchronized: whether layers sum over the replicas.
    """

    shard_fn: ShardFn
    shared: SharedVariables
    carried: CarriedState
    num_parts: int = 1
    synchronized: bool = False


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
    carried = CarriedState(options.carried, placement.devices)
    shard_fn = ShardFn(tower_fn, carried.shard_specs)
    # The trace is not run: it writes no variable.
    with placement.scope(), unobserved(), Listener() as listener:
        pair = (specs[0].batch, carried.shard_specs)
        shared = gather_variables(shard_fn, variables, pair, compiled=options.compiled)
    return TowerProgram(shard_fn, shared, carried, num_parts, listener.has_heard)
