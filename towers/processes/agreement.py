"""What all processes of a training must have in common: their settings, and the variables."""

from __future__ import annotations

import hashlib
import itertools
import json
import warnings
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from towers.batches.shards import Batches, order_of
from towers.devices.kernels import levels_to_caller
from towers.ground.arguments import shorten
from towers.ground.epochs import Epochs
from towers.processes.processes import Processes
from towers.saving.checkpoint_files import Groups, path_of, value_of

LONGEST_LIST = 5
# A fraction of a variable's largest value. Equal machines make equal updates to the last bit;
# others may round differently, and another seed, rate or batch makes differences of some percent.
TOLERANCE = 1e-4


def check_settings(processes: Processes, settings: Mapping[str, Any]) -> None:
    """Raises ValueError in every process unless all have the same settings.

    Every process must call it, at the same place. Settings are values of JSON types by name.
    """
    texts = share_texts(processes, json.dumps(settings, default=str), "settings")
    chief, *others = [json.loads(text) for text in texts]
    differences = [
        f"worker {index} has {name} {other.get(name)}, worker 0 has {chief.get(name)}"
        for index, other in enumerate(others, 1)
        for name in {**chief, **other}
        if other.get(name) != chief.get(name)
    ]
    if differences:
        raise ValueError(
            "All processes must train with the same settings, and these differ: "
            f"{shorten(differences, LONGEST_LIST)}. Start every process with the same command, and "
            "with the same run, or none, in its run directory."
        )


def take_from_chief(processes: Processes, groups: Groups) -> None:
    """Assigns the chief's values to the variables in every process, each of which must call it.

    Raises:
        ValueError: in every process, if not all have such variables.
    """
    variables = list(itertools.chain(*groups.values()))
    kinds = [f"{variable.dtype}{variable.shape}" for variable in variables]
    check_settings(processes, {"variables": "; ".join(kinds)})
    processes.broadcast(variables)


def check_variables(processes: Processes, groups: Groups) -> None:
    """Raises RuntimeError in every process unless all hold the same values, but for rounding.

    Every process must call it, at the same place, with the variables in the same order.
    """
    if processes.count == 1:
        return
    variables = list(itertools.chain(*groups.values()))
    own = [value_of(variable) for variable in variables]
    if len(set(share_texts(processes, digest(own), "a digest of the variables"))) == 1:
        return
    expected = processes.chief_values(variables)
    found = {
        path_of(variable): difference(value, one.numpy())
        for variable, value, one in zip(variables, own, expected, strict=True)
    }
    worst = max(found, key=lambda path: found[path], default="")
    text = f"{worst} by {found[worst]:.1e}" if worst and found[worst] > TOLERANCE else ""
    differences = [
        f"worker {index} in {one}"
        for index, one in enumerate(share_texts(processes, text, "differences"))
        if one
    ]
    if differences:
        raise RuntimeError(
            "The processes no longer train one model. They differ from worker 0, relative to the "
            f"largest value: {shorten(differences, LONGEST_LIST)}. Use the same versions and files "
            "everywhere; a run goes on from its last checkpoint, which has worker 0's variables."
        )


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Returns a text that differs between arrays of other types, shapes or bits."""
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        found.update(f"{array.dtype}{array.shape}".encode())
        is_text = array.dtype.hasobject
        found.update(repr(array.tolist()).encode() if is_text else array.tobytes())
    return found.hexdigest()


def check_same_batches(
    processes: Processes, batches: Batches, settings: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Raises ValueError in every process unless all have the same settings and batches.

    Of data that may be augmented the labels of the first batch are compared. Other inputs are
    warned of, unless their order follows from a seed.
    """
    dataset = batches(0, 0)
    first = next(iter(dataset.take(1)), ())
    has_labels = isinstance(first, tuple) and len(first) > 1
    is_fixed = isinstance(batches, Epochs) and batches.is_fixed
    compared = digest(arrays_of(first[1:] if has_labels and not is_fixed else first))
    found = {"batches": int(dataset.cardinality()), "a checksum of the first batch": compared[:8]}
    check_settings(processes, {**settings, **order_of(batches), **found})
    if not isinstance(batches, Epochs):
        warn_of_other_inputs(processes, first)


def warn_of_other_inputs(processes: Processes, batch: Any) -> None:
    """Warns in the chief if a first batch is another one in other processes; all must call it."""
    found = share_texts(processes, digest(arrays_of(batch)), "a digest of the first batch")
    if processes.is_chief and len(set(found)) > 1:
        warnings.warn(
            "The first batch has the same labels in all processes, and other inputs or weights. "
            "That is right for inputs that are augmented at random. If the data is shuffled, its "
            "order differs between the processes, so that rows come twice or never: shuffle with "
            "a seed, the same in all.",
            RuntimeWarning,
            stacklevel=levels_to_caller(),
        )


def arrays_of(batch: Any) -> list[np.ndarray]:
    """Returns what the tensors of a batch hold."""
    return list(map(np.asarray, tf.nest.flatten(batch, expand_composites=True)))


def difference(value: np.ndarray, expected: np.ndarray) -> float:
    """Returns the largest difference, as a fraction of the largest expected value."""
    one, other = (np.asarray(array, np.float64) for array in (value, expected))
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    if np.all(same):
        return 0.0
    if not np.all(np.isfinite(one[~same]) & np.isfinite(other[~same])):
        return float("inf")
    largest = np.max(np.abs(other[np.isfinite(other)]), initial=np.finfo(np.float32).tiny)
    return float(np.max(np.abs(one - other)[~same]) / largest)


def share_texts(processes: Processes, text: str, what: str) -> list[str]:
    """Returns the texts of all processes, in order; each gives its own; `what` is as in `share`."""
    return [data.decode() for data in processes.share(text.encode(), what)]
