"""Config files: options and a recipe's fields in TOML or YAML; what the command line gives wins."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from towers.ground.extras import import_extra
from towers.scripts.options.setting import Setting, all_settings, is_utf_8, settings_of, values_of
from towers.scripts.shown import OBEYED
from towers.scripts.training.catalogue import check_contradictions
from towers.scripts.training.options import FLAGS, TrainOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.wrong_input import nearest

HEADER = "# `towers train --config FILE` starts this run; options on the command line win."
FIELDS_TABLE = "set"  # As the option that sets a field.
YAML_SUFFIXES = (".yaml", ".yml")
SAID_ONCE = ("overwrite",)  # Not kept in a file.
COMMAND_LINE_ONLY = ("config", "dump_config", *SAID_ONCE)
INSTEAD = {"steps": "epochs", "epochs": "steps"}  # One is given instead of the other.


def read_config(path: Path, kind: type) -> dict[str, Any]:
    """Returns the options of a config file, each of its setting's type.

    Raises:
        ValueError: the file cannot be understood, contradicts itself, or has an unknown key or a
            wrong value; or it is YAML, and the library for it is not installed.
        OSError: it cannot be read.
    """
    settings = {setting.key: setting for setting in all_settings(kind).values()}
    try:
        given = dict(options_of(parse_file(path), settings))
        check_contradictions(given)
        return given
    except RecursionError as error:
        raise ValueError(f"{path}: its values are nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def parse_file(path: Path) -> Mapping[str, Any]:
    """Returns the content of a TOML or YAML file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not in UTF-8 ({error.reason}). Save it as UTF-8.") from error
    if path.suffix.lower() in YAML_SUFFIXES:
        yaml = import_extra("yaml", "yaml", f"{path} is a YAML file (TOML needs no library)")
        try:
            content = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(" ".join(str(error).split())) from error
    else:
        try:
            import tomllib
        except ImportError:  # Python 3.10.
            import tomli as tomllib
        try:
            content = tomllib.loads(text)
        except ValueError as error:
            raise ValueError(f"it is not TOML: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"expected lines such as `recipe = ...`, received {content!r:.60}")
    return content


def options_of(
    content: Mapping[str, Any], settings: Mapping[str, Setting]
) -> Iterator[tuple[str, Any]]:
    """Yields the names and the values of a file's options."""
    check_spellings(content)
    for key, value in content.items():
        setting = settings.get(str(key).replace("_", "-"))
        if key == FIELDS_TABLE:
            yield "overrides", list(overrides_in(value))
        elif setting is None:
            raise ValueError(
                f"there is no option {key!r}.{nearest(str(key), settings)} Fields of the recipe "
                f"belong below a line [{FIELDS_TABLE}]."
            )
        elif setting.name in COMMAND_LINE_ONLY:
            raise ValueError(f"{key!r} belongs on the command line; leave it out of the file.")
        else:
            yield setting.name, value_in(key, value, setting)


def check_spellings(content: Mapping[str, Any]) -> None:
    """Raises ValueError if two keys are one, such as run-dir and run_dir."""
    found: dict[str, str] = {}
    for key in map(str, content):
        other = found.setdefault(key.replace("_", "-"), key)
        if other != key:
            raise ValueError(f"{other!r} and {key!r} are the same option; give it once")


def overrides_in(fields: Any) -> Iterator[str]:
    """Yields the recipe's fields as the texts of `--set`."""
    if not isinstance(fields, dict):
        raise ValueError(f"[{FIELDS_TABLE}] must hold lines FIELD = VALUE, not {fields!r:.60}")
    check_spellings(fields)
    for name, value in fields.items():
        yield f"{name}={','.join(texts_of(name, value))}"


def value_in(key: str, value: Any, setting: Setting) -> Any:
    """Returns the value of an option in a file."""
    if setting.kind is bool:
        if not isinstance(value, bool):
            raise ValueError(f"{key} takes true or false, not {value!r}")
        return value
    texts = texts_of(key, value)
    if not texts:
        raise ValueError(f"{key} is an empty list. Leave it out for the default.")
    try:
        if setting.is_given_in_parts:
            return tuple(map(setting.read, texts))
        return setting.read(",".join(texts))
    except ValueError as error:
        raise ValueError(f"argument --{setting.key}: {error}") from error


def texts_of(key: str, value: Any) -> list[str]:
    """Returns the value of a file, or those of its list, as the command line has them."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(one, (bool, str, int, float)) for one in values):
        raise ValueError(f"{key} takes text, a number, true or false, or a list of one of these")
    return [str(one).lower() if isinstance(one, bool) else str(one) for one in values]


def merged(file: Mapping[str, Any], line: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a file and of a command line, which wins."""
    before, overrides = dict(file), line.get("overrides", [])
    overridden = {one.partition("=")[0].strip().replace("-", "_") for one in overrides}
    for name in {*line, *overridden}:
        before.pop(INSTEAD.get(name, ""), None)
    for name in overridden.intersection(FLAGS):
        before.pop(name, None)
    return {**before, **line, "overrides": [*file.get("overrides", []), *overrides]}


def config_text(recipe: Recipe, options: TrainOptions) -> str:
    """Returns the config file of a training; what has no value by default is left out."""
    values = {"recipe": recipe.name, "run_dir": f"runs/{recipe.name}"}
    given, kept = values_of(options), all_settings(TrainOptions).keys() - {*SAID_ONCE}
    values |= {name: value for name, value in given.items() if name in kept}
    lines = [line_of(name.replace("_", "-"), value) for name, value in values.items()]
    table = [
        f"{line_of(name, getattr(recipe.fields, name))}  # {setting.meaning}"
        for name, setting in settings_of(type(recipe.fields)).items()
        if name != "epochs" or options.steps is None  # Steps are given instead of epochs.
    ]
    return "\n".join([HEADER, "", *lines, "", f"[{FIELDS_TABLE}]", *table, ""])


def line_of(key: str, value: Any) -> str:
    """Returns the line of an option or a field; a comment if a name of a file is no UTF-8."""
    texts = value if isinstance(value, (list, tuple)) else [value]
    if not all(map(is_utf_8, map(str, texts))):
        return f"# {key} is not UTF-8, as TOML is: give it on the command line."
    return f"{key} = {toml_of(value)}"


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
