"""Runs as text: the table of many, and the comparison of a few."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from towers.scripts.training.metrics_file import TEST, TRAIN
from towers.scripts.training.overview import Overview
from towers.scripts.training.text_plot import MARKS, plot, table

SETTINGS = ("recipe", "seed", "precision", "batch_norm", "engine", "updates", "data", "init_from")
COLUMNS = ("run", "recipe", "state", "step", "best", "changed", "size")


def listing(runs: Sequence[Overview]) -> list[str]:
    """Returns a table of runs."""
    return table([COLUMNS, *map(row_of, runs)])


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
