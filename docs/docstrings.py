"""Docstrings as the API reference shows them: examples as code, one parameter per entry."""

from __future__ import annotations

import re
from typing import Any

import griffe

JOINT_ENTRY = re.compile(r"( {4,})(\w+(?:, \w+)+): (.*)")


class Docstrings(griffe.Extension):
    """Rewrites what Markdown and griffe would read otherwise."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of an object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = with_fences(with_single_entries(obj.docstring.value))


def with_single_entries(docstring: str) -> str:
    """Returns the docstring with an entry for each of several parameters that share one."""
    lines = docstring.splitlines()
    written: list[str] = []
    place = 0
    while place < len(lines):
        match = JOINT_ENTRY.fullmatch(lines[place])
        if match is None:
            written.append(lines[place])
            place += 1
            continue
        indent, names, text = match.groups()
        end = place + 1
        while end < len(lines) and lines[end].startswith(f"{indent} "):
            end += 1
        for name in names.split(", "):
            written += [f"{indent}{name}: {text}", *lines[place + 1 : end]]
        place = end
    return "\n".join(written)


def with_fences(docstring: str) -> str:
    """Returns the docstring with a fence around each example, which ends at a blank line."""
    lines: list[str] = []
    is_example = False
    for line in docstring.splitlines():
        if not is_example and line.lstrip().startswith(">>> "):
            lines.append("```pycon")
            is_example = True
        elif is_example and not line.strip():
            lines.append("```")
            is_example = False
        lines.append(line)
    return "\n".join([*lines, "```"] if is_example else lines)
