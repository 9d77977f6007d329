"""How a checkpoint is restored into variables: which saved value belongs to which variable."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple, TypeAlias

import keras
import tensorflow as tf

from towers.ground.arguments import shorten
from towers.saving.checkpoint_files import (
    Checkpoint,
    Groups,
    SavedArray,
    path_of,
    tensorflow_variable,
)

LONGEST_LIST = 2

Variable: TypeAlias = keras.Variable | tf.Variable
Pair: TypeAlias = tuple[SavedArray, Variable]


def restore(checkpoint: Checkpoint, groups: Groups) -> None:
    """Assigns a checkpoint's values to the variables, all of them or none.

    Within a group, paths identify variables, without the numbers that Keras adds to automatic
    names (`dense_1`), since these differ between processes. Variables with equal paths are
    identified by their order. A variable stays on its device.

    Args:
        checkpoint: the checkpoint.
        groups: the groups that were saved, with built variables.

    Raises:
        ValueError: groups and checkpoint differ; the message lists where.
    """
    pairs, differences = match_groups(checkpoint.groups, groups)
    if differences:
        raise ValueError(
            f"The checkpoint {checkpoint.path} does not fit this model, and nothing was restored. "
            f"{' '.join(differences)} Build the model with the options it was trained with."
        )
    for saved, variable in pairs:
        target = tensorflow_variable(variable)
        with tf.device(target.device):  # Else a table would pass through the GPU's memory.
            target.assign(saved.array)


def match_groups(
    saved: Mapping[str, list[SavedArray]], groups: Groups
) -> tuple[list[Pair], list[str]]:
    """Returns pairs of saved value and variable, and a sentence for each kind of difference."""
    matches = [match_variables(saved[name], groups[name]) for name in groups if name in saved]
    pairs = [pair for match in matches for pair in match.pairs]
    kinds = {
        "Checkpoint lacks": [f"group '{name}'" for name in groups if name not in saved]
        + [path for match in matches for path in match.only_given],
        "Unused in checkpoint": [f"group '{name}'" for name in saved if name not in groups]
        + [path for match in matches for path in match.only_saved],
        "Keras numbered these layers in a different order, so name them yourself": [
            difference for match in matches for difference in match.reordered
        ],
        "Shape differs": [
            f"{path_of(variable)}, checkpoint {list(array.shape)}, model {list(variable.shape)}"
            for (_, array), variable in pairs
            if array.shape != tuple(variable.shape)
        ],
        "Dtype differs": [
            f"{path_of(variable)}, checkpoint {array.dtype.name}, model {dtype_of(variable)}"
            for (_, array), variable in pairs
            if array.dtype.name != dtype_of(variable)
        ],
    }
    return pairs, [
        f"{kind}: {shorten(items, LONGEST_LIST)}." for kind, items in kinds.items() if items
    ]


class PartialRestore(NamedTuple):
    """What was restored of another model's checkpoint.

    Attributes:
        restored: the paths of the variables that got a value.
        unmatched: the paths of the others, each with the reason if it is another than no name.
    """

    restored: list[str]
    unmatched: list[str]


def restore_matching(checkpoint: Checkpoint, variables: Sequence[Variable]) -> PartialRestore:
    """Assigns a checkpoint's values to the variables of the same name and shape, such as to
    fine-tune.

    Names are compared as by `restore`. Values are converted to the dtype of their variable.

    Args:
        checkpoint: of any model; of its groups, `variables` is used.
        variables: those of this model, built.
    """
    match = match_variables(checkpoint.groups.get("variables", []), variables)
    result, paired = PartialRestore([], []), {id(variable) for _, variable in match.pairs}
    left = [path_of(variable) for variable in variables if id(variable) not in paired]
    result.unmatched.extend(f"{path}{match.reasons.get(path, '')}" for path in left)
    for saved, variable in match.pairs:
        path, target = path_of(variable), tensorflow_variable(variable)
        if saved.array.shape != tuple(variable.shape):
            shapes = f"shape {list(saved.array.shape)}, here {list(variable.shape)}"
            result.unmatched.append(f"{path} ({shapes})")
            continue
        with tf.device(target.device):
            target.assign(tf.cast(saved.array, target.dtype))
        result.restored.append(path)
    return result


class Match(NamedTuple):
    """How the variables of a group match those of a checkpoint.

    Attributes:
        pairs: pairs of a saved value and its variable.
        only_saved, only_given: paths without a counterpart.
        reordered: descriptions of variables that only their order identifies, if it changed.
        reasons: why variables whose name is in the checkpoint have no pair, by path.
    """

    pairs: list[Pair]
    only_saved: list[str]
    only_given: list[str]
    reordered: list[str]
    reasons: dict[str, str]


def match_variables(saved: list[SavedArray], variables: Sequence[Variable]) -> Match:
    """Returns the match of saved values and variables."""
    automatic = automatic_names()
    before = by_name([array.path for array in saved], automatic)
    after = by_name([path_of(variable) for variable in variables], automatic)
    match = Match([], [], [], [], {})
    for name in {**after, **before}:
        old, new = before.get(name, []), after.get(name, [])
        reason = ""
        if len(old) != len(new):
            if old:
                reason = f" ({len(old)} of this name in the checkpoint, {len(new)} here)"
            match.only_saved.extend(without_counterpart(old, new))
            match.only_given.extend(without_counterpart(new, old))
        elif ranks(old) != ranks(new):
            paths = [" and ".join(found.path for found in group) for group in (old, new)]
            match.reordered.append(f"{paths[0]} in the checkpoint, {paths[1]} in the model")
            reason = f" (in another order than {paths[0]} in the checkpoint)"
        else:
            pairs = zip(old, new, strict=True)
            match.pairs.extend(
                (saved[one.position], variables[other.position]) for one, other in pairs
            )
        match.reasons.update((one.path, reason) for one in new if reason)
    return match


class Numbered(NamedTuple):
    """A variable's path with the numbers in it that Keras added.

    Attributes:
        numbers: one for each automatic name in the path, 0 for a name without a number.
        position: the variable's index in its group.
    """

    numbers: tuple[int, ...]
    path: str
    position: int


def by_name(paths: Sequence[str], automatic: Set[str]) -> dict[str, list[Numbered]]:
    """Returns the paths in their order, grouped by their names without automatic numbers."""
    found: dict[str, list[Numbered]] = {}
    for index, path in enumerate(paths):
        name, numbers = without_numbers(path, automatic)
        found.setdefault(name, []).append(Numbered(numbers, path, index))
    return found


def without_numbers(path: str, automatic: Set[str]) -> tuple[str, tuple[int, ...]]:
    """Returns a path without the numbers of automatic names, and these numbers.

    >>> without_numbers("adam_2/my_dense_kernel_momentum/expert_1", {"adam", "dense"})
    ('adam/my_dense_kernel_momentum/expert_1', (2, 0))
    """
    kept: list[str] = []
    numbers: list[int] = []
    for part in path.split("/"):
        words: list[str] = []
        follows = False  # Whether the words so far end with an automatic name.
        for word in part.split("_"):
            if follows and word.isdecimal():
                numbers[-1], follows = int(word), False
                continue
            words.append(word)
            follows = any("_".join(words[start:]) in automatic for start in range(len(words)))
            numbers += [0] * follows
        kept.append("_".join(words))
    return "/".join(kept), tuple(numbers)


def automatic_names() -> Set[str]:
    """Returns the names, without numbers, that Keras gives to objects that get no name."""
    classes = [
        keras.Layer, keras.Variable, keras.optimizers.Optimizer, keras.metrics.Metric,
        keras.random.SeedGenerator,
    ]  # fmt: skip
    for known in classes:  # The list grows during the loop.
        classes += known.__subclasses__()
    return {automatic_name(known.__name__) for known in classes}


def automatic_name(class_name: str) -> str:
    """Returns the name that Keras gives to an object of a class.

    >>> automatic_name("LSTM"), automatic_name("Conv2DTranspose"), automatic_name("ReLU")
    ('lstm', 'conv2d_transpose', 're_lu')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])", "_", class_name).lower()


def ranks(group: Sequence[Numbered]) -> list[int]:
    """Returns the indices that sort a group by its numbers; equal numbers keep their order."""
    return sorted(range(len(group)), key=lambda index: group[index].numbers)


def without_counterpart(group: Sequence[Numbered], others: Sequence[Numbered]) -> list[str]:
    """Returns the surplus paths of a group over the others; paths missing in the others first."""
    paths = {other.path for other in others}
    by_counterpart = sorted(group, key=lambda found: found.path not in paths)
    return [found.path for found in by_counterpart[len(others) :]]


def dtype_of(variable: Variable) -> str:
    """Returns the name of a variable's dtype."""
    return tf.as_dtype(variable.dtype).name
