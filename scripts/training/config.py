"""The text of a config file: every option and every field of a training, as TOML."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from towers.scripts.shown import OBEYED
from towers.scripts.training.fields import Fields, field_meanings
from towers.scripts.training.options import TrainOptions
from towers.scripts.training.recipe import Recipe

HEADER = "# `towers train --config FILE` starts this run; options of the command line win."
SAID_ONCE = ("overwrite",)  # Not kept in a file.
FIELDS_TABLE = "set"  # As the option that sets a field.


def config_text(recipe: Recipe, options: TrainOptions) -> str:
    """Returns the config file of a training; what has no value by default is left out."""
    values = {"recipe": recipe.name, "run_dir": f"runs/{recipe.name}"}
    values.update(
        (name, value)
        for name, value in flattened(options)
        if value is not None and name not in SAID_ONCE
    )
    lines = [HEADER, "", *(f"{key_of(name)} = {toml_of(values[name])}" for name in values)]
    return "\n".join([*lines, "", *field_lines(recipe.fields, options), ""])


def flattened(options: Any) -> Iterator[tuple[str, Any]]:
    """Yields the names and the values of options, those of their groups included."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            yield from flattened(value)
        else:
            yield field.name, value


def field_lines(fields: Fields, options: TrainOptions) -> Iterator[str]:
    """Yields the table of a recipe's fields, each with its meaning."""
    yield f"[{FIELDS_TABLE}]"
    meanings = field_meanings(type(fields))
    for field in dataclasses.fields(fields):
        if field.name != "epochs" or options.steps is None:  # Steps are given instead of epochs.
            value = toml_of(getattr(fields, field.name))
            yield f"{field.name} = {value}  # {meanings[field.name]}"


def key_of(name: str) -> str:
    """Returns the key of an option: its name on the command line, without the dashes."""
    return name.replace("_", "-")


def toml_of(value: Any) -> str:
    """Returns a value in TOML.

    >>> toml_of(("a", "b")), toml_of(True), toml_of(1e-05)
    ('["a", "b"]', 'true', '1e-05')
    """
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_of, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return repr(value)
