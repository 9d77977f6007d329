"""`towers runs`: all runs in a folder, and the comparison of some of them."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from towers.scripts.options.flags import add_flags, read_options
from towers.scripts.options.setting import Flag
from towers.scripts.shown import show
from towers.scripts.wrong_input import WrongInputError, wrong_input

if TYPE_CHECKING:
    from towers.scripts.training.overview import Overview

COMPARE = "compare"
MOST = 8  # Runs in a comparison.


@dataclasses.dataclass(frozen=True)
class RunsOptions:
    """The runs to show.

    Attributes:
        paths: the folder of the runs (default: runs), or `compare` and two or more run
            directories.
        json: print one JSON object as the last line.
    """

    paths: Annotated[tuple[str, ...], "FOLDER", Flag(is_argument=True, nargs="*")] = ()
    json: bool = False


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.usage = (
        "towers runs [FOLDER] [--json]\n       towers runs compare RUN RUN [...] [--json]"
    )
    parser.description = (
        "Lists the runs at and below a folder, or compares some: the settings that differ, the "
        "metrics side by side, and the curves."
    )
    add_flags(parser, RunsOptions)


def run(given: argparse.Namespace) -> int:
    """Prints a table of runs, or a comparison."""
    from towers.scripts.training.comparison import comparison, listing

    options = read_options(RunsOptions, given)
    if options.paths[:1] == (COMPARE,):
        runs = compared_runs(options.paths[1:])
        lines = list(comparison(runs))
    else:
        runs = listed_runs(options.paths)
        lines = listing(runs)
    show("\n".join(lines))
    if options.json:
        show(json.dumps({"runs": [one.summary() for one in runs]}))
    return 0


def listed_runs(paths: Sequence[str]) -> list[Overview]:
    """Returns the runs below a folder; WrongInputError if there is none."""
    if len(paths) > 1:
        raise WrongInputError(
            f"`towers runs` takes one folder. Received {len(paths)}: {', '.join(paths)}. To "
            f"compare runs, write: towers runs {COMPARE} {' '.join(paths)}"
        )
    from towers.scripts.training.overview import find_runs

    folder = Path(paths[0] if paths else "runs")
    runs = list(find_runs(folder))
    if not runs:
        raise WrongInputError(
            f"There is no run in {folder}. Give the folder of run directories; `towers train` "
            "makes them in runs/ by default."
        )
    return runs


def compared_runs(paths: Sequence[str]) -> list[Overview]:
    """Returns the runs to compare; WrongInputError if they are too few, too many, or not there."""
    from towers.scripts.training.overview import read_overview

    if not 2 <= len(paths) <= MOST:
        raise WrongInputError(
            f"`towers runs {COMPARE}` takes 2 to {MOST} run directories. Received "
            f"{len(paths)}; `towers runs` lists them."
        )
    with wrong_input():
        return [read_overview(Path(path)) for path in paths]
