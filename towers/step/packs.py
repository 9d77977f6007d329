"""The sum of gradients across towers without a central device: each tower adds some packs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from towers.step.gradients import Gradient, sum_gradient

PACK_BYTES = 4 * 2**20
CHECK_ROWS = 2**18
CHECK_RANGE = 4096  # Sums of integers below this are exact in float32, in any order.

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

    Small gradients travel together in packs of a few megabytes. Packs follow the order of the
    backward pass, the last variable's gradient first, so that the first packs travel while other
    gradients are computed. Of n towers, tower k mod n adds pack k and sends the sum to all. So each
    tower sends and receives 2 (n - 1) / n of all bytes, as in a ring, and the sums are
    bit-identical on all towers.

    Args:
        tower_gradients: one list per tower, in the order of the variables.
        devices: one per tower.
        pack_bytes: the largest size of a pack in bytes; a larger gradient is a pack of its own.
        send: copies a tensor to a device.
    """
    totals: list[list[Gradient]] = [[None] * len(tower_gradients[0]) for _ in devices]
    for number, pack in enumerate(plan_packs(tower_gradients, pack_bytes)):
        owner = devices[number % len(devices)]
        if len(pack) == 1:
            sums = [sum_single([row[pack[0]] for row in tower_gradients], owner, devices, send)]
        else:
            parts = [[row[index] for index in pack] for row in tower_gradients]
            sums = sum_pack(parts, owner, devices, send)
        for index, copies in zip(pack, sums, strict=True):
            for total, gradient in zip(totals, copies, strict=True):
                total[index] = gradient
    return totals


def plan_packs(
    tower_gradients: Sequence[Sequence[Gradient]], pack_bytes: int
) -> Iterator[list[int]]:
    """Yields the indices of the gradients in each pack, the last variable's first.

    A sparse gradient is a pack of its own, and so is one that some towers lack.
    """
    pack: list[int] = []
    bytes_left, dtype = pack_bytes, None
    for index in reversed(range(len(tower_gradients[0]))):
        gradients: list[Any] = [row[index] for row in tower_gradients]
        size = num_bytes(gradients)
        if size is None:
            yield [index]
            continue
        if pack and (size > bytes_left or gradients[0].dtype != dtype):
            yield pack
            pack, bytes_left = [], pack_bytes
        pack.append(index)
        bytes_left, dtype = bytes_left - size, gradients[0].dtype
    if pack:
        yield pack


def num_bytes(gradients: Sequence[Gradient]) -> int | None:
    """Returns a gradient's size; None unless all towers have a tensor of known shape."""
    first: Any = gradients[0]
    if not all(isinstance(gradient, tf.Tensor) for gradient in gradients):
        return None
    elements = first.shape.num_elements()
    return None if elements is None else elements * first.dtype.size


def sum_single(
    gradients: Sequence[Gradient], owner: str, devices: Sequence[str], send: Send
) -> list[Gradient]:
    """Returns the sum of one variable's gradients, copied to each device."""
    with tf.device(owner):
        total = sum_gradient([send_gradient(gradient, owner, send) for gradient in gradients])
    return [send_gradient(total, device, send) for device in devices]


def send_gradient(gradient: Gradient, device: str, send: Send) -> Gradient:
    """Returns a gradient on a device: values and indices of a sparse one; None stays None."""
    if not isinstance(gradient, tf.IndexedSlices):
        return None if gradient is None else send(gradient, device)
    values, indices = send(gradient.values, device), send(gradient.indices, device)
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def sum_pack(
    parts: Sequence[Sequence[Any]], owner: str, devices: Sequence[str], send: Send
) -> list[list[Gradient]]:
    """Returns the sums of several variables' gradients: for each variable, one per device.

    Args:
        parts: for each tower, gradients of one dtype that travel together.
        owner: the device that adds them.
        devices: the towers' devices.
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
    split_sums = []
    for device in devices:
        with tf.device(device):
            pieces = tf.split(send(total, device), sizes)
            split_sums.append(list(map(tf.reshape, pieces, shapes)))
    return [list(copies) for copies in zip(*split_sums, strict=True)]


@functools.cache
def wrong_sums(devices: tuple[str, ...], send: Send = send) -> list[str]:
    """Returns the devices on which a sum of known values over all devices is wrong.

    It sums one pack per device, so that each device adds one and every link between two devices
    is used.
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
