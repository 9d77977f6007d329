"""Options from a config file, in TOML or YAML; what the command line gives wins."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from towers.scripts.commands.options import FLAGS, check_contradictions
from towers.scripts.training.config import FIELDS_TABLE, SAID_ONCE
from towers.scripts.wrong_input import nearest

YAML_SUFFIXES = (".yaml", ".yml")
COMMAND_LINE_ONLY = ("help", "config", "dump_config", *SAID_ONCE)
INSTEAD = {"steps": "epochs", "epochs": "steps"}  # One is given instead of the other.


class FileParser(argparse.ArgumentParser):
    """A parser whose errors are ValueErrors, for options that stand in a file."""

    def error(self, message: str) -> NoReturn:
        """Raises ValueError instead of ending the program."""
        raise ValueError(message)


def with_config(
    given: argparse.Namespace, add_options: Callable[[argparse.ArgumentParser], None]
) -> argparse.Namespace:
    """Returns the options of a command line, completed by those of its `--config` file.

    Args:
        given: the parsed command line.
        add_options: adds the command's options to a parser.

    Raises:
        ValueError: the file cannot be understood, or has an unknown key or a wrong value.
        OSError: the file cannot be read.
        ImportError: it is YAML, and the library for it is not installed.
    """
    path = getattr(given, "config", None)
    return given if path is None else merged(read_config(Path(path), add_options), given)


def read_config(
    path: Path, add_options: Callable[[argparse.ArgumentParser], None]
) -> argparse.Namespace:
    """Returns the options of a config file, each of its option's type."""
    parser = FileParser(argument_default=argparse.SUPPRESS, allow_abbrev=False)
    add_options(parser)
    try:
        given = parser.parse_args(list(arguments_of(parse(path), parser)))
        check_contradictions(given)
        return given
    except RecursionError as error:
        raise ValueError(f"{path}: its values are nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def parse(path: Path) -> Mapping[str, Any]:
    """Returns the content of a TOML or YAML file."""
    if path.suffix.lower() in YAML_SUFFIXES:
        content = parse_yaml(path)
    else:
        try:
            import tomllib
        except ImportError:  # Python 3.10.
            import tomli as tomllib
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(content, dict):
        raise ValueError(f"expected lines such as `recipe = ...`, received {content!r:.60}")
    return content


def parse_yaml(path: Path) -> Any:
    """Returns the content of a YAML file."""
    try:
        import yaml
    except ImportError as error:
        raise ImportError(
            f"{path} is YAML, and pyyaml is not installed. Install it with: pip install "
            "'towers[yaml]', or write TOML."
        ) from error
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def arguments_of(content: Mapping[str, Any], parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yields a file's content as the arguments of a command line."""
    actions = {action.dest: action for action in parser._actions if action.dest not in ("help",)}
    keys = {long_name(action): action for action in actions.values()}
    check_spellings(content)
    for key in sorted(content, key=lambda key: key != "recipe"):  # Before lists of any length.
        value = content[key]
        if key == FIELDS_TABLE:
            yield from field_arguments(value)
            continue
        action = keys.get(str(key).replace("_", "-"))
        if action is None:
            raise ValueError(
                f"there is no option {key!r}.{nearest(str(key), keys)} A field of the recipe "
                f"belongs below a line [{FIELDS_TABLE}]."
            )
        if action.dest in COMMAND_LINE_ONLY:
            raise ValueError(f"{key!r} belongs on the command line. Leave it out of the file.")
        yield from option_arguments(key, value, action)


def check_spellings(content: Mapping[str, Any]) -> None:
    """Raises ValueError if two keys are one, such as run-dir and run_dir."""
    found: dict[str, str] = {}
    for key in map(str, content):
        other = found.setdefault(key.replace("_", "-"), key)
        if other != key:
            raise ValueError(f"{other!r} and {key!r} are one option: give it once")


def long_name(action: argparse.Action) -> str:
    """Returns the key of an option in a file."""
    names = [name for name in action.option_strings if name.startswith("--")]
    return names[0][2:] if names else action.dest


def field_arguments(fields: Any) -> Iterator[str]:
    """Yields the recipe's fields as arguments."""
    if not isinstance(fields, dict):
        raise ValueError(f"[{FIELDS_TABLE}] must hold lines FIELD = VALUE, not {fields!r:.60}")
    check_spellings(fields)
    for name, value in fields.items():
        values = value if isinstance(value, list) else [value]
        yield f"--set={name}={','.join(text_of(name, one) for one in values)}"


def option_arguments(key: str, value: Any, action: argparse.Action) -> Iterator[str]:
    """Yields an option with its value as arguments."""
    name = long_name(action)
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise ValueError(f"{key} takes true or false, not {value!r}")
        wanted = f"--{name}" if value else f"--no-{name}"
        yield from [wanted] * (wanted in action.option_strings)  # Some are false without a word.
        return
    values = value if isinstance(value, list) else [value]
    if isinstance(value, list) and not value:
        raise ValueError(f"{key} is an empty list. Leave it out for the default.")
    texts = [text_of(key, one) for one in values]
    if not action.option_strings:
        yield from texts
    elif action.nargs == "+":
        yield from [f"--{name}", *(f"./{text}" if text[:1] == "-" else text for text in texts)]
    else:
        yield f"--{name}={','.join(texts)}"


def text_of(key: str, value: Any) -> str:
    """Returns a value of a file as the command line has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise ValueError(f"{key} takes a text, a number, true or false, or a list of one kind")
    return str(value)


def merged(file: argparse.Namespace, line: argparse.Namespace) -> argparse.Namespace:
    """Returns the options of a file and of a command line, which wins."""
    before, now = dict(vars(file)), vars(line)
    overridden = {one.partition("=")[0].strip().replace("-", "_") for one in overrides_of(line)}
    for name in {*now, *overridden}:
        before.pop(INSTEAD.get(name, ""), None)
    for name in overridden.intersection(FLAGS):
        before.pop(name, None)
    values = {**before, **now}
    if overrides := [*overrides_of(file), *overrides_of(line)]:
        values["overrides"] = overrides
    return argparse.Namespace(**values)


def overrides_of(options: argparse.Namespace) -> list[str]:
    """Returns the `--set` texts of a command line or of a file."""
    return list(getattr(options, "overrides", ()))
