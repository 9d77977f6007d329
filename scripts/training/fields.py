"""The fields of a recipe: the numbers that can be set by name, their meanings and bounds."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

from towers.scripts.wrong_input import nearest

MOST_EPOCHS = 10**9
MOST_INT = 2**63
AnyFields = TypeVar("AnyFields", bound="Fields")


class Bound(NamedTuple):
    """The values that a field takes; it stands in the field's `Annotated` type.

    Attributes:
        text: as errors and `towers recipes` say it, such as `above 0`.
        holds: `holds(value)` of a number.
    """

    text: str
    holds: Callable[[float], bool]


POSITIVE = Bound("above 0", lambda value: 0 < value < float("inf"))
NOT_NEGATIVE = Bound("at least 0", lambda value: 0 <= value < float("inf"))
SHARE = Bound("in [0, 1)", lambda value: 0 <= value < 1)
EPOCHS = Bound(f"from 0 to {MOST_EPOCHS:,}", lambda value: 0 <= value < MOST_EPOCHS)


@dataclasses.dataclass(frozen=True)
class Fields:
    """The fields that every recipe has; a recipe adds its own.

    Attributes:
        batch_size: examples in one update, over all towers.
        epochs: passes over the training data.
        optimizer: sgd, momentum, nesterov, adagrad, adam, adamw or lazy_adam.
        learning_rate: at its peak.
        momentum: of the momentum and nesterov optimizers.
        optimizer_weight_decay: decoupled decay of adamw.
        schedule: constant, exponential, piecewise, cosine or inverse_sqrt.
        warmup_steps: steps in which the learning rate rises to its peak.
        warmup_power: of the rise: 1 is linear, 2 slower at first.
        decay_epochs: epochs between two steps of the exponential schedule.
        decay_rate: factor of each of them.
        boundaries: epochs, or parts of one, after which the piecewise schedule multiplies by
            decay_rate.
        base_batch_size: if not 0, the learning rate is scaled by batch_size / base_batch_size.
        clip_norm: norm to which the averaged gradient is clipped; 0 for none.
    """

    batch_size: Annotated[int, POSITIVE] = 128
    epochs: Annotated[int, POSITIVE] = 10
    optimizer: str = "adam"
    learning_rate: Annotated[float, POSITIVE] = 1e-3
    momentum: Annotated[float, SHARE] = 0.9
    optimizer_weight_decay: Annotated[float, NOT_NEGATIVE] = 4e-3
    schedule: str = "constant"
    warmup_steps: Annotated[int, NOT_NEGATIVE] = 0
    warmup_power: Annotated[float, POSITIVE] = 1.0
    decay_epochs: Annotated[float, POSITIVE, EPOCHS] = 10.0
    decay_rate: Annotated[float, POSITIVE] = 0.1
    boundaries: Annotated[tuple[float, ...], EPOCHS] = ()
    base_batch_size: Annotated[int, NOT_NEGATIVE] = 0
    clip_norm: Annotated[float, NOT_NEGATIVE] = 0.0


def replace_fields(fields: AnyFields, values: dict[str, Any]) -> AnyFields:
    """Returns fields with other values; raises ValueError for a value outside of its bounds."""
    replaced = dataclasses.replace(fields, **values)
    check_types(replaced)
    check_bounds(replaced)
    return replaced


def check_types(fields: Fields) -> None:
    """Raises ValueError for a value that is not of its field's type, as in a record by hand."""
    for name, kind in typing.get_type_hints(type(fields)).items():
        value = getattr(fields, name)
        if not is_of(kind, value):
            raise ValueError(f"Field {name} takes {expected_kind(kind)}. Received {value!r}.")


def is_of(kind: Any, value: Any) -> bool:
    """Returns whether a value is of a field's type."""
    if typing.get_origin(kind) is tuple:
        element = typing.get_args(kind)[0]
        return isinstance(value, tuple) and all(is_of(element, one) for one in value)
    if typing.get_args(kind):  # Such as str | None.
        return any(is_of(one, value) for one in typing.get_args(kind))
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is int:
        return isinstance(value, int) and abs(value) < MOST_INT
    return isinstance(value, int | float if kind is float else kind)


def expected_kind(kind: Any) -> str:
    """Returns what a field of this type takes, in words."""
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(kind, "values such as 1,2")


def check_bounds(fields: Fields) -> None:
    """Raises ValueError for a field outside of its bounds."""
    for name, bounds in field_bounds(type(fields)).items():
        value = getattr(fields, name)
        for bound in bounds:
            if not all(map(bound.holds, value if isinstance(value, tuple) else (value,))):
                raise ValueError(f"Field {name} must be {bound.text}. Received {value}.")


def field_bounds(kind: type[Fields]) -> dict[str, list[Bound]]:
    """Returns the bounds of each field, of a tuple those of its elements."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {
        name: [extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Bound)]
        for name, hint in hints.items()
    }


def parse_overrides(kind: type[Fields], overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the values of `field=value` texts, each of its field's type."""
    types = typing.get_type_hints(kind)
    values = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise ValueError(f"--set takes FIELD=VALUE. Received {override!r}.")
        if name not in types:
            raise ValueError(f"The recipe has no field {name!r}.{nearest(name, types)}")
        values[name] = parse_value(name, text.strip(), types[name])
    return values


def parse_value(name: str, text: str, kind: Any) -> Any:
    """Returns a field's value from its text."""
    try:
        if typing.get_origin(kind) is tuple:
            element = typing.get_args(kind)[0]
            return tuple(element(part) for part in text.split(",") if part.strip())
        if kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError) as error:
        raise ValueError(f"Field {name} takes {expected_kind(kind)}. Received {text!r}.") from error


def describe_fields(fields: Fields) -> list[str]:
    """Returns a line for each field: its value, its meaning and its bounds."""
    meanings, bounds = field_meanings(type(fields)), field_bounds(type(fields))
    lines = []
    for field in dataclasses.fields(fields):
        value = getattr(fields, field.name)
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
        limits = " and ".join(bound.text for bound in bounds[field.name])
        lines.append(
            f"{field.name}={shown}  {meanings[field.name]}{f' ({limits})' if limits else ''}"
        )
    return lines


def field_meanings(kind: type) -> dict[str, str]:
    """Returns the meaning of each field from the docstrings of a class and its bases."""
    meanings: dict[str, str] = {}
    names = "|".join(field.name for field in dataclasses.fields(kind))
    # The lines that continue a meaning are indented further than its name.
    entry = re.compile(rf"^( *)({names}): (.*(?:\n\1 +\S.*)*)", re.MULTILINE)
    for base in reversed(kind.__mro__):
        for _, name, meaning in entry.findall(inspect.getdoc(base) or ""):
            meanings[name] = " ".join(meaning.split())
    return meanings
