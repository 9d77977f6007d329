"""The download: a tower's gradients travel from its GPU to the CPU in a few vectors."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from towers.travel.gradients import Gradient, identity
from towers.travel.packed_sums import PACK_BYTES, plan_packs
from towers.travel.packing import cut_aligned, join_aligned


def download(gradients: Sequence[Gradient], tower: str, target: str) -> list[Gradient]:
    """Returns a tower's gradients on another device.

    They travel in packs of a few megabytes, the last variable's gradient first, so that the first
    packs travel while other gradients are computed. A larger gradient, a sparse one, and one of
    unknown shape travels alone.

    Args:
        gradients: one per variable.
        tower: the tower's device.
        target: the device.
    """
    arrived: list[Gradient] = [None] * len(gradients)
    for pack in plan_packs([gradients], PACK_BYTES):
        parts = [one for place in pack if isinstance(one := gradients[place], tf.Tensor)]
        if len(pack) == 1 or len(parts) < len(pack):
            with tf.device(target):
                for place in pack:
                    arrived[place] = identity(gradients[place])
            continue
        with tf.device(tower):
            vector = join_aligned(parts)
        with tf.device(target):
            pieces = cut_aligned(tf.identity(vector), parts)
        for place, piece in zip(pack, pieces, strict=True):
            arrived[place] = piece
    return arrived
