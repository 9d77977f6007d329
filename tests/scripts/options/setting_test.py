"""A setting: a text becomes a value within its bounds, or an error says what it takes."""

import dataclasses
from typing import Annotated, Literal

import pytest

from towers.scripts.options.setting import (
    POSITIVE,
    Count,
    Folder,
    Numbers,
    Parts,
    Paths,
    Port,
    Seed,
    StepRange,
    Switch,
    settings_of,
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Some options.

    Attributes:
        name: of something.
        count: how many, at most
            many.
    """

    name: str
    count: Count = 3
    parts: Parts | None = None
    rate: Annotated[float | None, POSITIVE] = None
    seed: Seed = 0
    port: Annotated[Port, "WHERE"] = 0
    numbers: Numbers | None = None
    paths: Paths = ()
    folder: Folder = "runs"
    steps: StepRange | None = None
    kind: Literal["this", "that", "other"] = "this"
    switch: Switch = False


SETTINGS = settings_of(Options)


def test_a_setting_knows_what_its_field_says():
    assert SETTINGS["count"].meaning == "how many, at most many."
    assert SETTINGS["name"].is_argument and not SETTINGS["count"].is_argument
    assert SETTINGS["parts"].is_optional and not SETTINGS["count"].is_optional
    assert [SETTINGS[name].flag["metavar"] for name in ("port", "seed")] == ["WHERE", "S"]
    assert SETTINGS["switch"].flag["opposite"] and SETTINGS["paths"].is_given_in_parts


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("count", "7", 7),
        ("rate", "1e-3", 1e-3),
        ("seed", "4294967295", 2**32 - 1),
        ("numbers", "0, 2", (0, 2)),
        ("paths", "a,b", "a,b"),
        ("steps", "100-110", "100-110"),
        ("kind", "that", "that"),
    ],
)
def test_a_text_becomes_a_value(name, text, expected):
    assert SETTINGS[name].read(text) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("count", "0", "a whole number of at least 1"),
        ("count", "9" * 5000, "a whole number of at least 1"),
        ("count", "1.5", "a whole number of at least 1"),
        ("parts", "1025", "a whole number of at most 1024"),
        ("rate", "nan", "a number above 0"),
        ("rate", "fast", "a number above 0"),
        ("seed", "-1", "a whole number from 0 to 2**32 - 1"),
        ("port", "65536", "a whole number from 0 to 65535"),
        ("numbers", "first", "whole numbers such as 0,2"),
        ("numbers", ",", "whole numbers such as 0,2"),
        ("paths", " ", "a path"),
        ("folder", "runs/caf\udce9", "a path in UTF-8, as TensorFlow needs it"),
        ("steps", "1-5", "a range of steps from 2 on, such as 100-110"),
        ("steps", "²-³", "a range of steps from 2 on, such as 100-110"),
        ("kind", "those", "this, that or other"),
    ],
)
def test_another_text_is_refused_with_what_is_taken(name, text, expected):
    with pytest.raises(ValueError) as raised:
        SETTINGS[name].read(text)
    assert str(raised.value) == f"expected {expected}, not {text!r}"
