"""Gradients between towers without a meeting place: packs that are added up by turns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from towers.step.gradients import Gradient, sum_gradient

PACK_BYTES = 4 * 2**20
CHECK_ROWS = 2**18
CHECK_RANGE = 4096  # Sums of such whole numbers are exact in float32, in any order.

Send = Callable[[tf.Tensor, str], tf.Tensor]


def send(tensor: tf.Tensor, device: str) -> tf.Tensor:
    """Returns the tensor on a device."""
    with tf.device(device):
        return tf.identity(tensor)


def sum_in_packs(
    tower_gradients: Sequence[Sequence[Gradient]],
    devices: Sequence[str],
    *,
    pack_bytes: int = PACK_BYTES,
    send: Send = send,
) -> list[list[Gradient]]:
    """Returns, for each tower, the gradients summed over all towers, on its device.

    Gradients of a few megabytes travel together. The packs are made in the order in which the
    backward pass yields them, that of the last variable first, so that the first travel while
    the others are computed. Tower k modulo their number adds up pack k, and every tower gets
    that sum: each sends and receives 2 (n - 1) / n of all bytes, as in a ring, and what the
    towers have in the end is the same to the last bit.

    Args:
        tower_gradients: one list per tower, in the order of the variables.
        devices: one per tower.
        pack_bytes: the size of a pack that takes no more; a larger gradient is a pack alone.
        send: what copies a tensor to a device.
    """
    totals: list[list[Gradient]] = [[None] * len(tower_gradients[0]) for _ in devices]
    for number, pack in enumerate(plan_packs(tower_gradients, pack_bytes)):
        owner = devices[number % len(devices)]
        if len(pack) == 1:
            sums = [sum_alone([row[pack[0]] for row in tower_gradients], owner, devices, send)]
        else:
            parts = [[row[index] for index in pack] for row in tower_gradients]
            sums = sum_together(parts, owner, devices, send)
        for index, of_towers in zip(pack, sums, strict=True):
            for total, gradient in zip(totals, of_towers, strict=True):
                total[index] = gradient
    return totals


def plan_packs(
    tower_gradients: Sequence[Sequence[Gradient]], pack_bytes: int
) -> Iterator[list[int]]:
    """Yields the indices of the gradients in each pack, the last variable's first.

    A sparse gradient, or one that not every tower has, is a pack alone.
    """
    pack: list[int] = []
    room, dtype = pack_bytes, None
    for index in reversed(range(len(tower_gradients[0]))):
        gradients: list[Any] = [row[index] for row in tower_gradients]
        size = num_bytes(gradients)
        if size is None:
            yield [index]
            continue
        if pack and (size > room or gradients[0].dtype != dtype):
            yield pack
            pack, room = [], pack_bytes
        pack.append(index)
        room, dtype = room - size, gradients[0].dtype
    if pack:
        yield pack


def num_bytes(gradients: Sequence[Gradient]) -> int | None:
    """Returns the size of a gradient that every tower has as a tensor of known shape, or None."""
    first: Any = gradients[0]
    if not all(isinstance(gradient, tf.Tensor) for gradient in gradients):
        return None
    elements = first.shape.num_elements()
    return None if elements is None else elements * first.dtype.size


def sum_alone(
    gradients: Sequence[Gradient], owner: str, devices: Sequence[str], send: Send
) -> list[Gradient]:
    """Returns the sum of one variable's gradients, for each device."""
    with tf.device(owner):
        total = sum_gradient([send_gradient(gradient, owner, send) for gradient in gradients])
    return [send_gradient(total, device, send) for device in devices]


def send_gradient(gradient: Gradient, device: str, send: Send) -> Gradient:
    """Returns a gradient on a device, a sparse one with its rows' numbers, None as it is."""
    if not isinstance(gradient, tf.IndexedSlices):
        return None if gradient is None else send(gradient, device)
    values, indices = send(gradient.values, device), send(gradient.indices, device)
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def sum_together(
    parts: Sequence[Sequence[Any]], owner: str, devices: Sequence[str], send: Send
) -> list[list[Gradient]]:
    """Returns the sums of several variables' gradients, for each of them on each device.

    Args:
        parts: for each tower, the gradients of one dtype that travel together.
        owner: where they are added up.
        devices: the towers'.
        send: as in `sum_in_packs`.
    """
    shapes = [part.shape for part in parts[0]]
    sizes = [shape.num_elements() for shape in shapes]
    packed = []
    for device, gradients in zip(devices, parts, strict=True):
        with tf.device(device):
            packed.append(tf.concat([tf.reshape(part, [-1]) for part in gradients], axis=0))
    with tf.device(owner):
        total = sum_gradient([send(pack, owner) for pack in packed])
    of_towers = []
    for device in devices:
        with tf.device(device):
            pieces = tf.split(send(total, device), sizes)
            of_towers.append(list(map(tf.reshape, pieces, shapes)))
    return [list(of_one) for of_one in zip(*of_towers, strict=True)]


@functools.cache
def wrong_sums(devices: tuple[str, ...], send: Send = send) -> list[str]:
    """Returns the devices on which a sum of known values over all devices is wrong.

    As many packs are summed as there are devices, so that each adds one up and every way between
    two of them is taken.
    """
    ramp = np.arange(CHECK_ROWS) % CHECK_RANGE
    gradients: list[list[Gradient]] = []
    for tower, device in enumerate(devices):
        with tf.device(device):
            gradients.append([tf.constant((tower + 1) * ramp, tf.float32) for _ in devices])
    count = len(devices)
    expected = (count * (count + 1) // 2 * ramp).astype(np.float32)
    sums = sum_in_packs(gradients, devices, pack_bytes=1, send=send)
    return [
        device
        for device, parts in zip(devices, sums, strict=True)
        if not all(np.array_equal(np.asarray(part), expected) for part in parts)
    ]
