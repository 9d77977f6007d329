"""The reference pages that are generated from the code when the documentation is built.

MkDocs calls `on_files` (see `hooks` in mkdocs.yml). The command line reference is what
`towers COMMAND --help` prints, the recipes are what `towers recipes` prints, and the API names are
those of `towers/__init__.pyi`, whose docstrings mkdocstrings renders.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 96  # Characters of a line of help.
FIELD = re.compile(r"^  (\w+)=(.*?)  (\S.*)$", re.MULTILINE)
# The page of the API has a section for each of these packages of the engine.
SECTIONS = {
    "compiled": "Compiled models",
    "step": "Steps",
    "loop": "Training loop",
    "run": "Devices, processes and checkpoints",
    "optimize": "Optimizers and schedules",
}
# They come first in their sections: what most programs use.
FIRST = (
    "fit",
    "build_train_step",
    "StepOptions",
    "Placement",
    "build_evaluation_step",
    "evaluate",
    "build_async_step",
    "Trainer",
    "SynchronousUpdates",
    "AsynchronousUpdates",
    "batches_from",
    "StepReport",
    "select_devices",
    "enable_determinism",
)


def on_files(files: Any, *, config: Any) -> Any:
    """Adds the generated pages to the files of the documentation; a hook of MkDocs."""
    from mkdocs.structure.files import File

    for path, make_page in PAGES.items():
        files.append(File.generated(config, path, content=make_page()))
    return files


def command_line_page() -> str:
    """Returns the page with every command's help."""
    parts = [
        "# Command line",
        "`towers COMMAND --help-all` prints the text of a command. The exit code is 0, 1 if the "
        "command failed, or 2 for wrong input.",
    ]
    for name, parser in command_parsers().items():
        with mock.patch.dict(os.environ, {"COLUMNS": str(WIDTH)}):
            parts.append(
                f"## towers {name}\n\n```text\n{parser.format_help(all_options=True).rstrip()}\n```"
            )
    return "\n\n".join(parts) + "\n"


def command_parsers() -> dict[str, Any]:
    """Returns the parser of each command by name, in the order of `towers --help`."""
    from towers.scripts.main import build_parser

    (commands,) = (
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return dict(commands.choices)


def recipes_page() -> str:
    """Returns the page with every recipe and its fields."""
    parts = [
        "# Recipes",
        "`towers recipes RECIPE` prints what stands here. Set a field with "
        "`--set FIELD=VALUE`; a list is written as `1,2`.",
    ]
    for name in recipe_names():
        description, _, _ = described(name).partition("\n\nFields ")
        summary, _, header = description.partition("\n\n")
        parts += [f"## {name}", summary, f"```text\n{header.strip()}\n```"]
        rows = [
            f"| `{field}` | {f'`{default}`' if default else ''} | {escaped(meaning)} |"
            for field, default, meaning in recipe_fields(name)
        ]
        parts.append("\n".join(["| Field | Default | Meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def recipe_names() -> list[str]:
    """Returns the names of all recipes."""
    return [line.split()[0] for line in printed("recipes").splitlines()]


def recipe_fields(name: str) -> list[tuple[str, str, str]]:
    """Returns (name, default, meaning) of each field of a recipe."""
    return FIELD.findall(described(name))


def described(name: str) -> str:
    """Returns what `towers recipes NAME` prints."""
    return printed("recipes", name)


def printed(*arguments: str) -> str:
    """Returns what a `towers` command prints; RuntimeError if it fails."""
    from towers.scripts.main import main

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = main(arguments)
    if code:
        raise RuntimeError(f"towers {' '.join(arguments)} ended with exit code {code}.")
    return output.getvalue().strip()


def escaped(text: str) -> str:
    """Returns the text as a cell of a Markdown table."""
    return text.replace("|", "\\|")


def api_page() -> str:
    """Returns the page with a directive of mkdocstrings for every exported name."""
    names = exported_names()
    ordered = sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    parts = ["# Python API", "Every name below is imported from `towers`, as in `towers.Trainer`."]
    for package, title in SECTIONS.items():
        parts.append(f"## {title}")
        for name in ordered:
            if names[name].split(".")[1] == package:
                heading = f"    options:\n      heading: towers.{name}\n      toc_label: {name}"
                parts.append(f"::: {names[name]}.{name}\n{heading}")
    return "\n\n".join(parts) + "\n"


def exported_names() -> dict[str, str]:
    """Returns the names that `towers` exports, each with the module that defines it."""
    tree = ast.parse((ROOT / "towers" / "__init__.pyi").read_text(encoding="utf-8"))
    return {
        alias.name: f"towers.{node.module}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


PAGES = {
    "reference/command-line.md": command_line_page,
    "reference/recipes.md": recipes_page,
    "reference/api.md": api_page,
}
