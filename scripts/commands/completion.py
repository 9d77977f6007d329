"""`towers completion`: a script with which your shell completes `towers` commands.

Prints a script for your shell. Save it where the shell looks for completions, or evaluate it when
the shell starts.

    eval "$(towers completion bash)"
    towers completion fish > ~/.config/fish/completions/towers.fish
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from typing import Annotated, Any, Literal

from towers.ground.extras import import_extra
from towers.scripts.shown import show
from towers.scripts.training.catalogue import recipe_names
from towers.scripts.wrong_input import wrong_input

PATHS = {"FILE", "PATH", "FOLDER"}
FOLDERS = {"DIR", "RUN_DIR"}


@dataclasses.dataclass(frozen=True)
class CompletionOptions:
    """The shell."""

    shell: Annotated[Literal["bash", "zsh", "fish"], "bash|zsh|fish"]


def run(options: CompletionOptions) -> int:
    """Prints the script, made from the options of all commands."""
    with wrong_input():
        shtab = import_extra(
            "shtab", "completion", ("`towers completion` writes the script with a library")
        )
    from towers.scripts.main import build_parser

    parser = build_parser()
    kinds: dict[Any, Any] = dict.fromkeys(PATHS, shtab.FILE)
    kinds |= dict.fromkeys(FOLDERS, shtab.DIRECTORY)
    (commands,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    for action in itertools.chain(*(one._actions for one in commands.choices.values())):
        if action.metavar == "RECIPE":
            action.choices = recipe_names()
        elif action.metavar in kinds:
            action.complete = kinds[action.metavar]
    show(shtab.complete(parser, shell=options.shell))
    return 0
