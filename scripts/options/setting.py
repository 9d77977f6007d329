"""A setting: one field of a dataclass of options, or of a recipe's fields, and all that it takes.

It is declared once: its type as the field's annotation, its default beside it, its meaning below
`Attributes:` in the docstring. An `Annotated` type adds `Bound`s, as a text the name that the help
gives to the value, and a `Flag`. From that come flags, help, `--set`, config files, checks, and
what `towers recipes` prints.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import re
import types
import typing
import unicodedata
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

MOST_INT = 2**63


class Bound(NamedTuple):
    """The values that a setting takes, of a list its elements; it stands in an `Annotated` type.

    Attributes:
        text: as errors and `towers recipes` say it, such as `above 0`.
        holds: `holds(value)`.
    """

    text: str
    holds: Callable[[Any], bool]


class Flag(dict[str, Any]):
    """What a type does not say about the flag: options of argparse's `add_argument`, and

    name: of the flag, if it is not the field's.
    is_argument: whether it is given without a flag, as all that has no default is.
    opposite: whether --no-NAME turns it off, as a config file may have turned it on.
    """

    __hash__ = object.__hash__  # type: ignore[assignment]  # `Annotated` types are hashed.


def at_most(most: int) -> Bound:
    """Returns the upper bound of a whole number."""
    return Bound(f"of at most {most}", lambda value: value <= most)


POSITIVE = Bound("above 0", lambda value: 0 < value < float("inf"))
TEMPERATURE = Bound("above 0 (--top-k 1 gives the likeliest words)", POSITIVE.holds)
NOT_NEGATIVE = Bound("at least 0", lambda value: 0 <= value < float("inf"))
FRACTION = Bound("in [0, 1)", lambda value: 0 <= value < 1)
AT_LEAST_1 = Bound("of at least 1", lambda value: value >= 1)
UINT32 = Bound("from 0 to 2**32 - 1", lambda value: 0 <= value < 2**32)
PORT = Bound("from 0 to 65535", lambda value: 0 <= value < 2**16)
INT32 = Bound("whole numbers such as 0,2", lambda value: abs(value) < 2**31)
NOT_BLANK = Bound("a path", lambda text: bool(text.strip()))
# Names of files may be any bytes; TensorFlow takes only those that are text.
UTF_8 = Bound("a path in UTF-8, as TensorFlow needs it", lambda text: is_utf_8(text))
CHECKPOINT = Bound(
    "best, latest or the number of a step",
    lambda text: text in ("best", "latest") or (text.isascii() and text.isdigit()),
)
STEP_RANGE = Bound("a range of steps from 2 on, such as 100-110", lambda text: is_range(text))

Switch = Annotated[bool, Flag(opposite=True)]
Count = Annotated[int, AT_LEAST_1, at_most(2**31 - 1), "N"]
# Each part costs a device, a process or a graph.
Parts = Annotated[int, AT_LEAST_1, at_most(1024), "N"]
# Tokens of a text that is written; there is room for all of them from the start.
Tokens = Annotated[int, AT_LEAST_1, at_most(100_000), "N"]
Seed = Annotated[int, UINT32, "S"]  # As NumPy takes it.
Port = Annotated[int, PORT, "P"]
Amount = Annotated[float, POSITIVE, "X"]
Temperature = Annotated[float, TEMPERATURE, "T"]
Numbers = Annotated[tuple[int, ...], INT32, "N,N"]
Names = Annotated[tuple[str, ...], "NAME,NAME"]
File = Annotated[str, NOT_BLANK, "FILE"]
Folder = Annotated[str, NOT_BLANK, UTF_8, "DIR"]
RunDir = Annotated[str, NOT_BLANK, UTF_8, "RUN_DIR"]
StepRange = Annotated[str, STEP_RANGE, "FIRST-LAST"]
Paths = Annotated[tuple[str, ...], NOT_BLANK, "PATH", Flag(nargs="+")]


def is_utf_8(text: str) -> bool:
    """Returns whether UTF-8 can hold a text, in which Python keeps other bytes as surrogates."""
    return not any("\ud800" <= one <= "\udfff" for one in text)


def is_blank(text: str) -> bool:
    """Returns whether a text holds nothing but blanks and characters without a width (Unicode Cf).

    >>> is_blank(" \u200b"), is_blank("\u200b你")
    (True, False)
    """
    return all(one.isspace() or unicodedata.category(one) == "Cf" for one in text)


def is_range(text: str) -> bool:
    """Returns whether a text is a range of steps from 2 on, such as 100-110."""
    first, _, last = text.partition("-")
    return first.isdigit() and last.isdigit() and 2 <= int(first) <= int(last)


class Setting(NamedTuple):
    """A field of a dataclass.

    Attributes:
        name: of the field.
        kind: its type, without None.
        is_optional: whether None is one of its values.
        bounds: of its values.
        flag: what its type does not say about its flag.
        default: `dataclasses.MISSING` if it has none.
        meaning: in words.
    """

    name: str
    kind: Any
    is_optional: bool
    bounds: tuple[Bound, ...]
    flag: Flag
    default: Any
    meaning: str

    @property
    def key(self) -> str:
        """The name on the command line, without dashes before it, and in a config file."""
        return str(self.flag.get("name", self.name)).replace("_", "-")

    @property
    def is_argument(self) -> bool:
        """Whether it is given without a flag."""
        return self.default is dataclasses.MISSING or "is_argument" in self.flag

    @property
    def is_given_in_parts(self) -> bool:
        """Whether it is a list each of whose elements is a text of its own."""
        is_list = typing.get_origin(self.kind) is tuple
        return is_list and (self.flag.get("nargs", "?") != "?" or "action" in self.flag)

    @property
    def choices(self) -> tuple[str, ...]:
        """The names among which it chooses; none if it takes other values."""
        return typing.get_args(self.kind) if typing.get_origin(self.kind) is Literal else ()

    @property
    def takes(self) -> str:
        """What it takes, in words, without the bounds."""
        if self.choices:
            return f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        return names.get(self.kind, "values such as 1,2")

    def holds(self, value: Any) -> bool:
        """Returns whether a value is of the type, whatever the bounds."""
        return (value is None and self.is_optional) or is_of(self.kind, value)

    def broken(self, value: Any) -> list[Bound]:
        """Returns the bounds that a value breaks."""
        values = value if isinstance(value, tuple) else () if value is None else (value,)
        return [bound for bound in self.bounds if not all(map(bound.holds, values))]

    def read(self, text: str) -> Any:
        """Returns the value of a text, or of one element's; raises ValueError about a wrong one."""
        if NOT_BLANK in self.bounds:  # A shell leaves the ~ of --run-dir=~/run as it is.
            text = os.path.expanduser(text)
        try:
            value = parse(element_of(self.kind) if self.is_given_in_parts else self.kind, text)
            broken = list(self.bounds) if value == () else self.broken(value)
        except ValueError:
            value, broken = None, list(self.bounds)
        if broken or value is None:
            bounds = broken[0].text if broken else ""
            is_number = self.kind in (int, float)
            expected = f"{self.takes} {bounds}".strip() if is_number else bounds or self.takes
            raise ValueError(f"expected {expected}, not {text!r}")
        return value


def read_settings(kind: type) -> dict[str, Setting]:
    """Returns the settings of a dataclass by name; fields that are dataclasses are none."""
    hints = typing.get_type_hints(kind, include_extras=True)
    meanings, settings = meanings_of(kind), dict[str, Setting]()
    for field in dataclasses.fields(kind):
        meaning = meanings.get(field.name, "")
        one = setting_of(hints[field.name], field.name, field.default, meaning)
        if not dataclasses.is_dataclass(one.kind):
            settings[field.name] = one
    return settings


def setting_of(
    hint: Any, name: str = "", default: Any = dataclasses.MISSING, meaning: str = ""
) -> Setting:
    """Returns the setting of an annotated type, such as `Count`."""
    own, extras, is_optional = unwrapped(hint)
    bounds = tuple(extra for extra in extras if isinstance(extra, Bound))
    flag = Flag()
    for extra in extras:
        if isinstance(extra, (str, Flag)):
            flag.update({"metavar": extra} if isinstance(extra, str) else extra)
    return Setting(name, own, is_optional, bounds, flag, default, meaning)


settings_of: Callable[[type], dict[str, Setting]] = functools.cache(read_settings)


def groups_of(kind: type) -> dict[str, type]:
    """Returns the fields of a dataclass that are dataclasses themselves, by name."""
    hints: dict[str, Any] = typing.get_type_hints(kind)
    return {name: hints[name] for name in hints if dataclasses.is_dataclass(hints[name])}


def all_settings(*kinds: type) -> dict[str, Setting]:
    """Returns the settings of dataclasses by name, those of their groups included."""
    found: dict[str, Setting] = {}
    for kind in kinds:
        found |= settings_of(kind) | all_settings(*groups_of(kind).values())
    return found


def values_of(options: Any) -> dict[str, Any]:
    """Returns the values of options that are not None by name, those of groups included."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        found |= values_of(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return {name: value for name, value in found.items() if value is not None}


def arguments_for(function: Callable[..., Any], options: Any, **others: Any) -> dict[str, Any]:
    """Returns the arguments that a function or a class takes of options, by their names.

    The others win; those that the function does not take are left out.
    """
    own: Any = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    values = {**vars(options), **others}
    return {name: values[name] for name in inspect.signature(own).parameters if name in values}


def unwrapped(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Returns a type without annotations and None, the annotations, and whether None was there."""
    extras: tuple[Any, ...] = ()
    is_optional = False
    while True:
        if typing.get_origin(hint) is Annotated:
            hint, extras = hint.__origin__, (*hint.__metadata__, *extras)
        elif typing.get_origin(hint) in (typing.Union, types.UnionType):
            (hint,) = (one for one in typing.get_args(hint) if one is not types.NoneType)
            is_optional = True
        else:
            return hint, extras, is_optional


def element_of(kind: Any) -> Any:
    """Returns the type of the elements of `tuple[type, ...]`."""
    return typing.get_args(kind)[0]


def is_of(kind: Any, value: Any) -> bool:
    """Returns whether a value is of a type."""
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(is_of(element_of(kind), one) for one in value)
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is int:
        return isinstance(value, int) and abs(value) < MOST_INT
    return isinstance(value, int | float if kind is float else kind)


def parse(kind: Any, text: str) -> Any:
    """Returns the value of a text; raises ValueError if it is of another type."""
    if typing.get_origin(kind) is tuple:
        element, inner = element_of(kind), text.strip()
        if inner[:1] + inner[-1:] in ("[]", "()"):  # As in run.toml.
            inner = inner[1:-1]
        parts = (part.strip().strip("\"'") for part in inner.split(","))
        return tuple(parse(element, part) for part in parts if part)
    if typing.get_origin(kind) is Literal or kind is bool:
        words = {"true": True, "1": True, "false": False, "0": False}
        values = words if kind is bool else {name: name for name in typing.get_args(kind)}
        word = text.lower() if kind is bool else text
        if word not in values:
            raise ValueError(f"{text!r} is none of {', '.join(values)}")
        return values[word]
    return kind(text)


def meanings_of(kind: type) -> dict[str, str]:
    """Returns the meaning of each field from the docstrings of a class and its bases."""
    meanings: dict[str, str] = {}
    names = "|".join(field.name for field in dataclasses.fields(kind))
    # The lines that continue a meaning are indented further than its name.
    entry = re.compile(rf"^( *)({names}): (.*(?:\n\1 +\S.*)*)", re.MULTILINE)
    for base in reversed(kind.__mro__):
        for _, name, meaning in entry.findall(inspect.getdoc(base) or ""):
            meanings[name] = " ".join(meaning.split())
    return meanings


def shown(value: Any) -> str:
    """Returns a value as the text that gives it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
