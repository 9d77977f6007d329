"""The reference pages that are generated from the code when the documentation is built.

MkDocs calls `on_files` (see `hooks` in mkdocs.yml). The command line reference is what
`towers COMMAND --help` prints, the recipes are what `towers recipes` prints, and the API names are
those of the stubs (`towers/__init__.pyi` and one for each namespace), whose docstrings mkdocstrings
renders.
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
WIDTH = 82  # Characters of a line of help, which the site shows whole.
FIELD = re.compile(r"^  (\w+)=(.*?)  (\S.*)$", re.MULTILINE)
# The page of the API has a section for the names at the top, and one for each namespace.
NAMESPACES = (
    "", "actions", "checkpoints", "optimizers", "steps", "processes", "devices", "engine",
)  # fmt: skip
# They come first: what most programs use.
FIRST = (
    "fit",
    "evaluate",
    "predict",
    "build_train_step",
    "StepOptions",
    "Placement",
    "build_evaluation_step",
    "evaluate_step",
    "Trainer",
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
    """Returns the page with a directive of mkdocstrings for every public name."""
    parts = ["# Python API"]
    for namespace in NAMESPACES:
        where = f"towers.{namespace}".rstrip(".")
        names = public_names(namespace)
        parts.append(f"## {where}\n\n{docstring_of(namespace)}")
        for name in sorted(names, key=lambda one: FIRST.index(one) if one in FIRST else len(FIRST)):
            heading = f"    options:\n      heading: {where}.{name}\n      toc_label: {name}"
            parts.append(f"::: {names[name]}.{name}\n{heading}")
    return "\n\n".join(parts) + "\n"


def public_names(namespace: str = "") -> dict[str, str]:
    """Returns the names of a namespace of `towers`, each with the module that defines it."""
    stub = stub_of(namespace)
    package = f"towers.{namespace}" if stub.name == "__init__.pyi" and namespace else "towers"
    return {
        alias.name: f"{package}.{node.module}"
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def stub_of(namespace: str) -> Path:
    """Returns the file that lists the names of a namespace, or those at the top."""
    module = ROOT / "towers" / f"{namespace}.pyi"
    return module if namespace and module.exists() else ROOT / "towers" / namespace / "__init__.pyi"


def docstring_of(namespace: str) -> str:
    """Returns what a namespace says of itself."""
    tree = ast.parse(stub_of(namespace).with_suffix(".py").read_text(encoding="utf-8"))
    return ast.get_docstring(tree) or ""


PAGES = {
    "reference/command-line.md": command_line_page,
    "reference/recipes.md": recipes_page,
    "reference/api.md": api_page,
}
