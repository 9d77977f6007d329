"""`towers runs`: all runs in a folder, and the comparison of some of them."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from towers.scripts.commands.options import add_json_option, read_options
from towers.scripts.shown import show
from towers.scripts.training.metrics_file import TEST, TRAIN
from towers.scripts.training.overview import Overview, find_runs, read_overview
from towers.scripts.training.text_plot import MARKS, plot, table
from towers.scripts.wrong_input import WrongInputError, wrong_input

COMPARE = "compare"
SETTINGS = ("recipe", "seed", "precision", "batch_norm", "engine", "updates", "data", "init_from")
COLUMNS = ("run", "recipe", "state", "step", "best", "changed", "size")


@dataclasses.dataclass(frozen=True)
class RunsOptions:
    """The runs to show.

    Attributes:
        paths: a folder, or `compare` and run directories.
        json: whether the last line is one JSON object.
    """

    paths: tuple[str, ...] = ()
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
    parser.add_argument("paths", nargs="*", metavar="FOLDER",
                        help="default: runs; or `compare` and two or more run "
                             "directories")  # fmt: skip
    add_json_option(parser)


def run(given: argparse.Namespace) -> int:
    """Prints a table of runs, or a comparison."""
    options = read_options(RunsOptions, given)
    if options.paths[:1] == (COMPARE,):
        runs = compared_runs(options.paths[1:])
        lines = list(comparison(runs))
    else:
        runs = listed_runs(options.paths)
        lines = table([COLUMNS, *map(row_of, runs)])
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
    if not 2 <= len(paths) <= len(MARKS):
        raise WrongInputError(
            f"`towers runs {COMPARE}` takes 2 to {len(MARKS)} run directories. Received "
            f"{len(paths)}; `towers runs` lists them."
        )
    with wrong_input():
        return [read_overview(Path(path)) for path in paths]


def row_of(run: Overview) -> tuple[str, ...]:
    """Returns the line of a run in the table."""
    changed = f"{run.changed:%Y-%m-%d %H:%M}"
    best = run.best_value.partition(" at ")[0] or "-"
    size = f"{run.size / 1e6:.1f} MB"
    return (str(run.path), run.record["recipe"], run.state, str(run.step), best, changed, size)


def comparison(runs: Sequence[Overview]) -> Iterator[str]:
    """Yields the lines of a comparison."""
    names = [f"{mark}: {run.path}" for mark, run in zip(MARKS, runs, strict=False)]
    different = [row for row in map(strings, setting_rows(runs)) if len(set(row[1:])) > 1]
    if different:
        yield from table([("setting", *names), *different])
    else:
        yield from ("the same settings", *names)
    yield ""
    yield from table([("result", *names), *map(strings, result_rows(runs))])
    for kind, name in compared_curves(runs):
        yield from ("", f"{kind} {name} over steps")
        yield from plot([run.curve(kind, name) for run in runs])


def strings(row: tuple[str, list[Any]]) -> tuple[str, ...]:
    """Returns a row of cells; what is absent is a dash."""
    name, values = row
    return (name, *("-" if value is None else str(value) for value in values))


def setting_rows(runs: Sequence[Overview]) -> Iterator[tuple[str, list[Any]]]:
    """Yields every setting with its value in each run."""
    for name in SETTINGS:
        yield name, [run.record.get(name) for run in runs]
    for name in merged_names([run.record["fields"] for run in runs]):
        yield name, [run.record["fields"].get(name) for run in runs]
    devices = [run.record["starts"][-1]["devices"] if run.record["starts"] else [] for run in runs]
    yield "towers", [len(found) for found in devices]


def result_rows(runs: Sequence[Overview]) -> Iterator[tuple[str, list[Any]]]:
    """Yields the state and the last metrics of each run."""
    yield "state", [run.state for run in runs]
    yield "step", [run.step for run in runs]
    yield "best", [run.best_value or None for run in runs]
    for kind in (TRAIN, TEST):
        lasts = [run.last(kind) for run in runs]
        for name in merged_names(lasts):
            if name not in ("step", "epoch"):
                cells = [f"{last[name]:.5g}" if name in last else None for last in lasts]
                yield f"{kind} {name}", cells


def compared_curves(runs: Sequence[Overview]) -> Iterator[tuple[str, str]]:
    """Yields the curves worth a picture: the loss, and the metric that decides."""
    deciding = runs[0].record.get("best_metric")
    for kind, name in [(TRAIN, "loss"), (TEST, deciding)]:
        if name and sum(len(run.curve(kind, name)) for run in runs) > len(runs):
            yield kind, name


def merged_names(values: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the keys of all dictionaries, each once, in order."""
    return list(dict.fromkeys(name for one in values for name in one))
