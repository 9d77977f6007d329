"""The sum of gradients across towers without a central device: each tower adds some packs."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from towers.ground.host import HOST, are_all, device_type
from towers.travel.gradients import Gradient, identity, sum_gradient
from towers.travel.packing import ALIGNMENT, PACK_BYTES, cut_pack, join_pack, num_bytes, plan_packs
from towers.travel.pairs import add_in_pairs, part_sizes

WHOLE_BYTES = 256 * 2**10  # Of smaller packs, slices would cost more launches than time on a link.
CHECK_ROWS = 2**18
CHECK_RANGE = 4096  # Sums of integers below this are exact in float32, in any order.

Add = Callable[[Sequence[Any]], Sequence[Any]]


def sum_in_packs(
    tower_gradients: Sequence[Sequence[Gradient]],
    devices: Sequence[str],
    *,
    pack_bytes: int = PACK_BYTES,
    whole_bytes: int | None = None,
) -> list[list[Gradient]]:
    """Returns, for each tower, the gradients summed over all towers, on its device.

    Small gradients travel together in packs of a few megabytes. Packs follow the order of the
    backward pass, the last variable's gradient first, so that the first packs travel while other
    gradients are computed. Of n towers, tower k mod n adds pack k and sends the sum to all. A pack
    that would keep one link busy alone is cut into n slices, of which tower k adds slice k. So each
    tower sends and receives 2 (n - 1) / n of all bytes, as in a ring, and the sums are
    bit-identical on all towers: the order in which an entry is summed is the same for all packs.

    Args:
        tower_gradients: one list per tower, in the order of the variables.
        devices: one per tower.
        pack_bytes: the largest size of a pack in bytes; a larger gradient is a pack of its own.
        whole_bytes: the largest size of a pack that is not cut; by default `WHOLE_BYTES`, and no
            limit on CPUs, which have no links.
    """
    if whole_bytes is None:
        whole_bytes = sys.maxsize if are_all("CPU", devices) else WHOLE_BYTES
    totals: list[list[Gradient]] = [[None] * len(tower_gradients[0]) for _ in devices]
    owners = itertools.cycle(devices)
    for pack in plan_packs(tower_gradients, pack_bytes):
        parts = [[row[index] for index in pack] for row in tower_gradients]
        size = sum(num_bytes(column) or 0 for column in zip(*parts, strict=True))
        if size > whole_bytes:
            sums = sum_pack(parts, functools.partial(sum_slices, devices), devices)
        elif len(pack) == 1:
            sums = [sum_single(next(owners), devices, [row[0] for row in parts])]
        else:
            sums = sum_pack(parts, functools.partial(sum_single, next(owners), devices), devices)
        for index, copies in zip(pack, sums, strict=True):
            for total, gradient in zip(totals, copies, strict=True):
                total[index] = gradient
    return totals


def sum_single(owner: str, devices: Sequence[str], gradients: Sequence[Any]) -> list[Gradient]:
    """Returns the sum of one variable's gradients or of vectors on each device; the owner adds."""
    if all(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
        total = sum_rows(gradients, owner)
    else:
        with tf.device(owner):
            total = sum_gradient([send(gradient, owner) for gradient in gradients])
    return [send(total, device) for device in devices]


def sum_rows(gradients: Sequence[Any], owner: str) -> tf.IndexedSlices:
    """Returns the sum of a variable's sparse gradients on a device; rows that they share are one.

    Next to a GPU the host finds these rows: it has the ids already, or they are few bytes. A GPU
    would find them in several kernels with a wait of the host after each.
    """
    finder = HOST if device_type(owner) == "GPU" else owner

    def add(first: tf.IndexedSlices, second: tf.IndexedSlices) -> tf.IndexedSlices:
        with tf.device(finder):
            rows, positions = tf.unique(tf.concat([first.indices, second.indices], axis=0))
            count = tf.size(rows)
        with tf.device(owner):
            values = tf.concat([first.values, second.values], axis=0)
            values = tf.math.unsorted_segment_sum(values, positions, count)
        return tf.IndexedSlices(values, rows, first.dense_shape)

    sent = [
        tf.IndexedSlices(send(one.values, owner), send(one.indices, finder), one.dense_shape)
        for one in gradients
    ]
    return add_in_pairs(add, sent)


def on_each(devices: Sequence[str], function: Callable[..., Any], *columns: Any) -> list[Any]:
    """Returns what a function returns on each device, for the device's row of the columns."""
    results = []
    for device, *row in zip(devices, *columns, strict=True):
        with tf.device(device):
            results.append(function(*row))
    return results


def send(gradient: Any, device: str) -> Any:
    """Returns a gradient, or any tensor, on a device; None stays None."""
    with tf.device(device):
        return identity(gradient)


def sum_pack(
    parts: Sequence[Sequence[Any]], add: Add, devices: Sequence[str]
) -> list[list[Gradient]]:
    """Returns the sums of several variables' gradients: for each variable, one per device.

    Args:
        parts: for each tower, gradients of one dtype and of known shapes that travel together.
        add: from a vector on each device to their sum on each device.
    """
    sums = on_each(devices, cut_pack, add(on_each(devices, join_pack, parts)), parts)
    return [list(copies) for copies in zip(*sums, strict=True)]


def sum_slices(devices: Sequence[str], vectors: Sequence[Any]) -> list[Any]:
    """Returns the sum of the vectors on each device; each device adds a slice of them."""
    sizes = slice_sizes(vectors[0], len(devices))
    starts = list(itertools.accumulate(sizes[:-1], initial=0))

    def cut(vector: tf.Tensor) -> list[tf.Tensor]:
        return [
            tf.slice(vector, [start], [size]) for start, size in zip(starts, sizes, strict=True)
        ]

    slices = on_each(devices, cut, vectors)
    arrived = send_by_turns(lambda source, target: slices[source][target], devices)
    totals = on_each(devices, sum_gradient, arrived)
    arrived = send_by_turns(lambda source, target: totals[source], devices)
    return on_each(devices, lambda parts: tf.concat(parts, axis=0), arrived)


def slice_sizes(vector: tf.Tensor, count: int) -> list[int]:
    """Returns the sizes of the slices; all but the last end where a GPU cuts without a copy."""
    entries = ALIGNMENT // vector.dtype.size
    lines, rest = divmod(vector.shape.num_elements(), entries)
    *sizes, last = [entries * part for part in part_sizes(lines, count)]
    return [*sizes, last + rest]


def send_by_turns(
    value: Callable[[int, int], tf.Tensor], devices: Sequence[str]
) -> list[list[tf.Tensor]]:
    """Returns, for each device, what all devices have sent to it.

    In each turn every device sends to another one, so that none waits for a link.

    Args:
        value: from the numbers of two devices to what the first sends to the second.
    """
    count = len(devices)
    arrived: list[list[Any]] = [[None] * count for _ in devices]
    for turn in range(count):
        for source in range(count):
            target = (source + turn) % count
            arrived[target][source] = send(value(source, target), devices[target])
    return arrived


@functools.cache
def wrong_sums(devices: tuple[str, ...]) -> list[str]:
    """Returns the devices on which a sum of known values over all devices is wrong.

    It sums one pack per device, so that each device adds one (or a slice of each) and every link
    between two devices is used.
    """
    return wrong_devices(devices, lambda gradients: sum_in_packs(gradients, devices, pack_bytes=1))


def wrong_devices(
    devices: Sequence[str], add: Callable[[list[list[Gradient]]], list[list[Gradient]]]
) -> list[str]:
    """Returns the devices on which `add` gives wrong sums of known values over all devices."""
    ramp, count = np.arange(CHECK_ROWS) % CHECK_RANGE, len(devices)

    def ramps(factor: int) -> list[Gradient]:
        return [tf.constant(factor * ramp, tf.float32) for _ in devices]

    gradients = on_each(devices, ramps, range(1, count + 1))
    expected = (count * (count + 1) // 2 * ramp).astype(np.float32)
    return [
        device
        for device, parts in zip(devices, add(gradients), strict=True)
        if not all(np.array_equal(np.asarray(part), expected) for part in parts)
    ]
