"""The blueprint of a training step: its program, its variables' copies and its towers, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from towers.batches.shards import Batches, Shard, shard_specs
from towers.devices.placement import Placement
from towers.processes.processes import Processes
from towers.step.options import StepOptions
from towers.step.probe import Probe
from towers.step.program import TowerProgram, check_kinds, make_program
from towers.step.tower import Tower
from towers.step.tower_function import TowerFn
from towers.step.update import Update
from towers.variables.copies import Copies
from towers.variables.optimizers import check_optimizer
from towers.variables.shared_variables import SharedVariables


class Blueprint(NamedTuple):
    """What a training step is built from.

    Attributes:
        program: what every tower runs.
        towers: the towers of this process.
        update: changes the variables; `update.copies` are their copies.
        specs: the specs of the shards that a step takes.
        probe: asks the tower function before the first step.
    """

    program: TowerProgram
    towers: list[Tower]
    update: Update
    specs: tuple[Shard, ...]
    probe: Probe


def draw_blueprint(
    tower_fn: TowerFn,
    variables: keras.Model | Sequence[keras.Variable],
    optimizer: keras.optimizers.Optimizer,
    placement: Placement,
    batches: Batches | tf.data.Dataset,
    options: StepOptions,
    processes: Processes,
    *,
    jointly: bool = True,
) -> Blueprint:
    """Returns the blueprint of a step; arguments as in `build_train_step`, which are checked.

    Args:
        jointly: whether all towers share each batch; otherwise each takes whole ones.

    Raises:
        ValueError: an argument is wrong.
    """
    check_optimizer(optimizer)
    check_kinds(placement, options, processes)
    num_shards = len(placement.devices) if jointly else 1
    specs = shard_specs(batches, num_shards)
    num_parts = processes.count * num_shards * options.accumulate
    program = make_program(tower_fn, variables, placement, specs, options, num_parts)
    check_trainable(program.shared)
    copies = Copies(program.shared, optimizer, placement.copy_groups)
    first = processes.first_tower(len(placement.devices))
    towers = [
        Tower(program, copies.variables_of(index), group, index, first, alone=not jointly)
        for index, group in enumerate(placement.groups)
    ]
    return Blueprint(program, towers, Update(copies, program), specs, Probe(program, towers[0]))


def check_trainable(shared: SharedVariables) -> None:
    """Raises ValueError if no variable is trainable."""
    if not shared.trainable:
        paths = [variable.path for variable in shared.states]
        raise ValueError(
            "There is nothing to train: none of the variables is trainable. Received "
            f"{paths or 'no variables'}."
        )
