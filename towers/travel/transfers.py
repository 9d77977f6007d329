"""Transfers: variables travel from the CPU to towers on GPUs in few vectors, and gradients back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.travel.gradients import Gradient, identity
from towers.travel.packed_sums import PACK_BYTES, plan_packs
from towers.travel.packing import cut_aligned, indices_by_dtype, join_aligned


def needs_upload(source: str, tower: str) -> bool:
    """Returns whether a tower's values travel packed: from the CPU to a GPU.

    To a tower on a CPU nothing travels, and a pack would be a copy for nothing.

    Args:
        source: the device of the variables.
        tower: the tower's device.
    """
    kinds = [tf.DeviceSpec.from_string(device).device_type for device in (source, tower)]
    return kinds == ["CPU", "GPU"]


def upload_for(
    variables: Sequence[keras.Variable], sources: Sequence[str], towers: Sequence[str]
) -> Upload | None:
    """Returns the upload that towers on GPUs share; None if no tower needs one.

    Args:
        variables: those whose whole values the towers read.
        sources: the device of each copy of the variables; towers read copies of their own, if
            there are several.
        towers: the towers' devices.
    """
    if len(sources) > 1 or not any(needs_upload(sources[0], tower) for tower in towers):
        return None
    with tf.name_scope("upload"), tf.device(sources[0]):
        return Upload(variables, sources[0])


class Upload:
    """The values of variables, read once and joined on the current device.

    The vectors are made by an op whose result goes to GPUs only, so that TensorFlow puts it into
    page-locked memory: a GPU fetches it without help from the host. A variable's own memory is not
    page-locked, and each would be a copy of its own.

    What is no floating-point number stays out: it is read alone.

    Args:
        variables: those whose whole values the towers read.
        source: the current device.
    """

    def __init__(self, variables: Sequence[keras.Variable], source: str):
        self._source = source
        self._variables = list(filter(is_floating, variables))
        values = [tf.convert_to_tensor(variable.value) for variable in self._variables]
        self._groups = [
            (join_aligned([values[index] for index in indices]), indices)
            for indices in indices_by_dtype(values)
        ]
        self._values = values

    def values(self, device: str) -> dict[int, Any]:
        """Returns each value on the current device, by the variable's id.

        Args:
            device: the tower's device; without a need for an upload, nothing comes back.
        """
        values: dict[int, Any] = {}
        if not needs_upload(self._source, device):
            return values
        for vector, indices in self._groups:
            pieces = cut_aligned(tf.identity(vector), [self._values[index] for index in indices])
            for index, piece in zip(indices, pieces, strict=True):
                values[id(self._variables[index])] = piece
        return values


def is_floating(variable: keras.Variable) -> bool:
    """Returns whether a variable is of floating-point numbers and not empty."""
    return tf.as_dtype(variable.dtype).is_floating and variable.shape.num_elements() > 0


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
        parts = [one for index in pack if isinstance(one := gradients[index], tf.Tensor)]
        if len(pack) == 1 or len(parts) < len(pack):
            with tf.device(target):
                for index in pack:
                    arrived[index] = identity(gradients[index])
            continue
        with tf.device(tower):
            vector = join_aligned(parts)
        with tf.device(target):
            pieces = cut_aligned(tf.identity(vector), parts)
        for index, piece in zip(pack, pieces, strict=True):
            arrived[index] = piece
    return arrived
