"""Shows the examples of docstrings as code: lines that begin with `>>>`, and what they print."""

from __future__ import annotations

from typing import Any

import griffe


class DocstringExamples(griffe.Extension):
    """Puts a fence around each example, which Markdown would take for a quotation."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of an object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = with_fences(obj.docstring.value)


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
