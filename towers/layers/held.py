"""What a layer, the layers in it and objects in these hold, before and after a call."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from towers.ground.private_apis import added_losses, flatten_layers
from towers.layers.known import PLAIN, as_key
from towers.variables.tower_scope import is_of

TENSORS = (tf.Tensor, tf.SparseTensor, tf.RaggedTensor, tf.IndexedSlices)


class Held(NamedTuple):
    """An attribute of a layer or of an object in it.

    Attributes:
        owner, name, value: whose it is, its name, and what it is.
        contents: a copy of a list or a dict, which may be changed in place; else the value.
    """

    owner: Any
    name: str
    value: Any
    contents: Any


def is_plain(layer: Any) -> bool:
    """Returns whether Keras wrote a layer and those in it, and TensorFlow the functions in them."""
    layers = flatten_layers(layer)
    held = [vars(one).values() for one in layers if not isinstance(one, keras.Model)]
    written = [*map(type, layers), *filter(callable, itertools.chain.from_iterable(held))]
    others = (keras.layers.Lambda, keras.layers.TFSMLayer)  # They run what users wrote.
    runs_others = any(isinstance(one, others) for one in layers)
    return not runs_others and all(is_of(one, "keras.src.", "tensorflow.") for one in written)


def settings_of(layer: Any) -> tuple[Any, ...]:
    """Returns what a plain layer, and those in it, read in a call beside tensors."""
    found: list[Any] = []
    for owner in flatten_layers(layer):
        if isinstance(owner, keras.Model):  # Its layers are all that it reads.
            continue
        losses = added_losses(owner)
        for name, value in vars(owner).items():
            if value is not losses and name != "_called":  # Which Keras sets at the first call.
                found.append((id(owner), name, tuple(map(as_key, leaves_of(value)))))
    return tuple(found)


def switches_of(layer: Any) -> tuple[Any, ...]:
    """Returns the numbers, texts and flags that a layer and what is in it hold.

    Python code of a user's may take another branch with others.
    """
    found: list[Any] = []
    for place, owner in enumerate([] if is_plain(layer) else owners_in(layer)):
        for name in vars(owner).keys() - names_of_keras():
            leaves = list(leaves_of(vars(owner)[name]))
            if leaves and are_plain(leaves):
                found.append((place, name, tuple(map(as_key, leaves))))
    return tuple(sorted(found))


def are_plain(leaves: Iterable[Any]) -> bool:
    """Returns whether all values are numbers, texts, flags and the like."""
    return all(isinstance(one, PLAIN) for one in leaves)


@functools.cache
def names_of_keras() -> frozenset[str]:
    """Returns the names of the attributes that Keras gives all models and layers."""
    own = (*vars(keras.Model(name="any")), *vars(keras.layers.Layer(name="any")))
    return frozenset((*own, "_eval_epoch_iterator"))  # `fit` makes that one when it begins.


def leaves_of(value: Any) -> Iterator[Any]:
    """Yields a value, or what a container holds in it, whatever its keys are."""
    if isinstance(value, (dict, list, tuple, set)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from leaves_of(one)
    else:
        yield value


def is_of_keras(value: Any) -> bool:
    """Returns whether an object is one of Keras's or a variable; its own attributes are asked."""
    kinds = (keras.layers.Layer, keras.optimizers.Optimizer, keras.metrics.Metric, keras.Variable)
    known = isinstance(value, (*kinds, bool, int, float, str))
    named = ("keras.", "tensorflow.", "towers.compiled.")  # What `fit` keeps on a model.
    return known or value is None or is_of(type(value), *named)


def is_tensor(value: Any) -> bool:
    """Returns whether a value is a tensor; a variable, which TensorFlow counts as one, is not."""
    return isinstance(value, TENSORS)


def attributes_of(layer: Any, *, others: bool = False) -> dict[tuple[int, str], Held]:
    """Returns the attributes that hold tensors, or all: of a layer and of what is in it."""
    found = {}
    for owner in owners_in(layer):
        losses = added_losses(owner) if isinstance(owner, keras.layers.Layer) else None
        for name, value in vars(owner).items():
            if value is not losses and (others or any(map(is_tensor, leaves_of(value)))):
                found[id(owner), name] = Held(owner, name, value, copied(value))
    return found


def taken_back(layer: Any, before: dict[tuple[int, str], Held]) -> Iterator[Held]:
    """Gives attributes what they held before a call, and yields what the call made of them."""
    for key, new in attributes_of(layer, others=True).items():
        old = before.get(key)
        if is_other(new.contents, old):
            if old is None:
                vars(new.owner).pop(new.name)
            else:
                put_back(old)
            is_same = old is not None and old.value is new.value
            yield new if is_same else new._replace(contents=new.value)


@contextlib.contextmanager
def counts_kept(layer: Any) -> Iterator[None]:
    """The scope after which the numbers, texts and flags in a layer are those of before.

    Objects that are made in it stay, and so does what a layer holds that is built in it.
    """
    found = attributes_of(layer, others=True)
    before = {key: held for key, held in found.items() if not is_built_later(held.owner)}
    try:
        yield
    finally:
        owners = {number for number, _ in before}
        for one in list(taken_back(layer, before)):
            is_count = are_plain(leaves_of(one.contents))
            if not is_count or one.name in names_of_keras() or id(one.owner) not in owners:
                put_back(one)


def is_built_later(owner: Any) -> bool:
    """Returns whether an owner is a layer that its first call builds in its own way."""
    if not isinstance(owner, keras.layers.Layer) or owner.built:
        return False
    return type(owner).build not in (keras.layers.Layer.build, keras.Model.build)


@contextlib.contextmanager
def same_start(layer: Any, function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The scope that gives a function whose calls in it all begin with a layer's attributes of now.

    Python code in a layer may count its calls; a step for one device, while it is built, has one.
    """
    before = attributes_of(layer, others=True)

    def call(*args: Any) -> Any:
        if before:
            list(taken_back(layer, before))
        return function(*args)

    try:
        yield call
    finally:
        before.clear()  # What changes attributes from now on is not of the building.


def put_back(held: Held) -> None:
    """Gives an attribute what it held, in the same list or dict if it was one."""
    is_container = isinstance(held.value, (list, dict))
    if is_container and held.contents is not held.value:
        fill(held.value, held.contents)
    vars(held.owner)[held.name] = held.value if is_container else held.contents


def copied(value: Any) -> Any:
    """Returns a list or a dict, and those in it, as new ones, and anything else as it is."""
    if isinstance(value, list):
        return list(map(copied, value))
    if isinstance(value, dict):
        return {key: copied(one) for key, one in value.items()}
    return value


def fill(container: Any, contents: Any) -> None:
    """Gives a list or a dict other contents, also one that Keras tracks."""
    if isinstance(container, list):
        list.__setitem__(container, slice(None), contents)
    else:
        dict.clear(container)
        dict.update(container, contents)


def owners_in(layer: Any) -> Iterator[Any]:
    """Yields a layer, the layers in it, and objects of a user's own that they hold."""
    rest, seen = list(flatten_layers(layer)), set()
    while rest:
        owner = rest.pop()
        if id(owner) not in seen:
            seen.add(id(owner))
            yield owner
            for one in itertools.chain.from_iterable(map(leaves_of, list(vars(owner).values()))):
                is_own = not (is_of_keras(one) or isinstance(one, (type, ModuleType)))
                if is_own and hasattr(one, "__dict__") and not callable(one):
                    rest.append(one)


def is_other(contents: Any, before: Held | None) -> bool:
    """Returns whether an attribute holds something else than before."""
    if before is None:
        return True
    old, new = list(leaves_of(before.contents)), list(leaves_of(contents))
    return len(old) != len(new) or any(a is not b for a, b in zip(old, new, strict=True))
