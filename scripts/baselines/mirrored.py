"""MirroredStrategy: the task's model mirrored on every device, trained by the towers' loop."""

from __future__ import annotations

from collections.abc import Sequence

import towers
from towers.scripts.baselines.rivals import Task, mirror


def make_mirrored_step(
    task: Task, devices: Sequence[str], *, seed: int
) -> towers.steps.MirroredStep:
    """Returns a step under MirroredStrategy, with the towers' optimizer and random numbers.

    Args:
        task: what is trained.
        devices: one for each replica.
        seed: what all random numbers are derived from.
    """
    strategy, model, optimizer = mirror(task, devices, task.make_optimizer)
    options = towers.StepOptions(clip_norm=task.recipe.fields.clip_norm or None, seed=seed)
    tower_fn = task.make_tower_fn(model)
    return towers.steps.build_mirrored_step(
        tower_fn, model, optimizer, strategy, devices, task.dataset, options
    )
