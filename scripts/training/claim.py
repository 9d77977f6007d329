"""The claim of a run directory: it holds a run that goes on, or is free."""

from __future__ import annotations

import json
from typing import Any

from towers.scripts.training.run_directory import IDENTITY, RunDirectory
from towers.scripts.wrong_input import as_many_as_fit

SHOWN = 100  # Characters of the differences that an error lists.


def find_run(
    directory: RunDirectory, record: dict[str, Any], *, overwrite: bool = False
) -> dict[str, Any] | None:
    """Returns what the run of a directory recorded if it goes on, or None where one may begin.

    A run that saved no checkpoint gives way to another.

    Raises:
        ValueError: the directory holds another run, or other files.
    """
    if not directory.exists:
        directory.check_free()
        return None
    if overwrite:
        return None
    try:
        before = directory.read()
        check_same(before, record, directory)
    except ValueError:
        if directory.is_unsaved:
            return None
        raise
    return before


def check_same(before: dict[str, Any], now: dict[str, Any], directory: RunDirectory) -> None:
    """Raises ValueError that lists what differs between the run of a directory and this one."""
    differences = []
    for key in IDENTITY:
        if key == "fields":
            is_same = before["recipe"] == now["recipe"]
            differences += different_fields(before[key], now[key]) if is_same else []
        elif before[key] != now[key]:
            differences.append(f"{key}: {before[key]} before, {now[key]} now")
    is_other = "data_key" in now and before.get("data_key") != now["data_key"]
    if is_other:
        differences.append("the content of the data, or how it is prepared")
    grown = f", with --init-from {directory.path} if the data grew" * is_other
    if differences:
        raise ValueError(
            f"{directory.path} holds a run that cannot continue with these settings: "
            f"{as_many_as_fit(differences, '; ', SHOWN)}. Use the earlier settings, choose "
            f"another directory (--run-dir {directory.free_name}{grown}), or replace that run with "
            "--overwrite."
        )


def different_fields(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Returns the differences between two runs' fields; only `epochs` may differ."""
    return [
        f"{name}: {before.get(name, 'absent')} before, {now.get(name, 'absent')} now"
        for name in {**before, **now}
        if name != "epochs" and before.get(name) != json.loads(json.dumps(now.get(name)))
    ]
