"""`towers runs`: all runs in a folder, or several side by side.

Lists the runs in a folder and its subfolders, or compares several: the settings that differ, and
    the last metrics side by side. TensorBoard shows their curves.

    towers runs
    towers runs compare runs/shapes runs/again
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from towers.scripts.options.setting import NOT_BLANK, Flag
from towers.scripts.shown import show, show_json, table
from towers.scripts.training.config import parse_file
from towers.scripts.training.overview import TEST, TRAIN, Overview, find_runs, read_overview
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.wrong_input import WrongInputError, wrong_input

USAGE = "towers runs [FOLDER] [--json]\n       towers runs compare RUN RUN [...] [--json]"
COMPARE = "compare"
SETTINGS = ("recipe", "seed", "precision", "batch_norm", "updates", "data", "init_from")
OPTIONS = ("steps", "accumulate", "xla", "tf32", "early-stopping", "evaluate-every")
COLUMNS = ("run", "recipe", "state", "processes", "starts", "step", "result", "changed", "size")


@dataclasses.dataclass(frozen=True)
class RunsOptions:
    """The runs to show.

    Attributes:
        paths: the folder of the runs (default: runs), or `compare` and two or more run
            directories.
        json: print one JSON object instead of the table.
    """

    paths: Annotated[tuple[str, ...], NOT_BLANK, "FOLDER", Flag(is_argument=True, nargs="*")] = ()
    json: bool = False


def run(options: RunsOptions) -> int:
    """Prints a table of runs, or a comparison, or with --json one object of data."""
    if options.paths[:1] == (COMPARE,):
        runs = compared_runs(options.paths[1:])
        lines = comparison(runs)
    else:
        runs = listed_runs(options.paths)
        lines = table([COLUMNS, *map(row_of, runs)])
    if options.json:
        show_json({"runs": [{**one.summary(), "settings": settings_of(one)} for one in runs]})
    else:
        show("\n".join(lines))
    return 0


def listed_runs(paths: Sequence[str]) -> list[Overview]:
    """Returns the runs below a folder; WrongInputError if there is none."""
    if len(paths) > 1:
        hint = f"To compare runs, write: towers runs {COMPARE} {shlex.join(paths)}"
        if not os.path.dirname(paths[0]) and not os.path.exists(paths[0]):  # A word.
            hint = "It only lists and compares runs; move or remove a run like any folder."
        raise WrongInputError(
            f"`towers runs` takes one folder. Received {len(paths)}: {', '.join(paths)}. {hint}"
        )
    folder = Path(paths[0] if paths else "runs")
    runs = list(find_runs(folder))
    if not runs:
        raise WrongInputError(
            f"There is no run in {folder}. Give a folder that holds run directories; by default "
            "`towers train` makes them in runs/."
        )
    return runs


def compared_runs(paths: Sequence[str]) -> list[Overview]:
    """Returns the runs to compare; WrongInputError if they are too few, or not there."""
    if len(paths) < 2:
        raise WrongInputError(
            f"`towers runs {COMPARE}` takes two or more run directories. Received {len(paths)}; "
            "`towers runs` lists them."
        )
    with wrong_input():
        return [read_overview(Path(path)) for path in paths]


def row_of(run: Overview) -> tuple[str, ...]:
    """Returns the line of a run in the table."""
    changed = f"{run.changed:%Y-%m-%d %H:%M}"
    result = run.result.partition(" at ")[0] or "-"
    size = f"{run.size / 1e6:.1f} MB"
    starts = (str(run.num_processes), str(len(run.record["starts"])))
    own = (str(run.path), run.record["recipe"], run.state, *starts)
    return (*own, str(run.step), result, changed, size)


def comparison(runs: Sequence[Overview]) -> list[str]:
    """Returns lines with the settings that differ, and the results of all runs."""
    paths = [str(run.path) for run in runs]
    different = [row for row in side_by_side(map(settings_of, runs)) if len(set(row[1:])) > 1]
    settings = table([("setting", *paths), *different]) if different else ["the same settings"]
    return [*settings, "", *table([("result", *paths), *side_by_side(map(results_of, runs))])]


def side_by_side(columns: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Returns a row for each key of any column, with the values; what is absent is a dash."""
    columns = list(columns)
    names = dict.fromkeys(name for column in columns for name in column)
    values = {name: [column.get(name) for column in columns] for name in names}
    return [
        (name, *("-" if value is None else str(value) for value in row))
        for name, row in values.items()
    ]


def settings_of(run: Overview) -> dict[str, Any]:
    """Returns the settings of a run by name."""
    record = run.record
    num_towers = len(record["starts"][-1]["devices"]) if record["starts"] else 0
    own = {name: record.get(name) for name in SETTINGS} | options_of(run)
    return {**own, **record["fields"], "towers": num_towers, "processes": run.num_processes}


def options_of(run: Overview) -> dict[str, Any]:
    """Returns the options of a run's last start that change its results, if they can be read."""
    with contextlib.suppress(OSError, ValueError):
        content = parse_file(RunDirectory(run.path).config)
        return {name: content.get(name) for name in OPTIONS}
    return {}


def results_of(run: Overview) -> dict[str, Any]:
    """Returns the state and the last metrics of a run by name."""
    metrics = {
        f"{part} {name}": f"{value:.5g}"
        for kind, part in ((TRAIN, TRAIN), (TEST, run.evaluated))
        for name, value in run.last(kind).items()
        if name not in ("step", "epoch")
    }
    return {"state": run.state, "step": run.step, "result": run.result or None, **metrics}
