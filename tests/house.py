"""The size of the house in numbers: `python -m tests.house` prints them, `house_test.py` holds some.

`python -m tests.house --batch` also counts the files that one batch of the chatbot enters between the
disk and the applied update, and how often it comes back to a room that it had left.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

from tests.paths import ROOT

PRODUCT = ("towers", "models", "data", "scripts")
PRIVATE = re.compile(r"(keras\.src|tensorflow\.(python|core|compiler|types))\b")


def product_files() -> list[Path]:
    """Returns the Python files that are installed; the folders linked into towers/ count once."""
    found = itertools.chain.from_iterable((ROOT / room).rglob("*.py") for room in PRODUCT)
    return sorted(path for path in found if path.resolve() == path)


def numbers() -> dict[str, float]:
    """Returns the house's numbers by name."""
    files = product_files()
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    engine = [path for path in files if path.relative_to(ROOT).parts[0] == "towers"]
    trees = {path: ast.parse(text) for path, text in texts.items()}
    code = {path: code_lines(texts[path], trees[path]) for path in files}
    imports = sum(import_lines(tree) for tree in trees.values())
    pages = list((ROOT / "docs").rglob("*.md"))
    return {
        "lines": sum(len(text.splitlines()) for text in texts.values()),
        "code lines": sum(code.values()),
        "files": len(files),
        "engine lines": sum(len(texts[path].splitlines()) for path in engine),
        "files in the largest room of the engine": max(
            Counter(path.parent for path in engine).values()
        ),
        "imports, % of code lines": round(100 * imports / sum(code.values()), 1),
        "names at the top": len(top_names()),
        "files with private APIs": sum(uses_private_names(tree) for tree in trees.values()),
        "pages": len(pages),
        "words": sum(len(page.read_text(encoding="utf-8").split()) for page in pages),
    }


def code_lines(text: str, tree: ast.Module) -> int:
    """Returns the number of lines that are neither blank, nor comments, nor docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    within: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            within.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    stripped = [line.strip() for line in text.splitlines()]
    return sum(
        bool(line) and not line.startswith("#") and number not in within
        for number, line in enumerate(stripped, 1)
    )


def import_lines(tree: ast.Module) -> int:
    """Returns the number of lines of import statements."""
    found = (node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
    return sum(node.end_lineno - node.lineno + 1 for node in found)


def uses_private_names(tree: ast.Module) -> bool:
    """Returns whether a module imports what Keras or TensorFlow do not publish."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return any(map(PRIVATE.match, names))


def top_names() -> list[str]:
    """Returns the public names of `towers` that are no namespaces."""
    tree = ast.parse((ROOT / "towers" / "__init__.pyi").read_text(encoding="utf-8"))
    found = (node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module)
    return [alias.name for node in found for alias in node.names]


class Visits:
    """The product's files in the order in which calls enter them, in every thread.

    Attributes:
        files: by thread, each file that is entered from another one.
    """

    def __init__(self) -> None:
        self.files: dict[int, list[str]] = {}

    def __call__(self, frame: object, event: str, argument: object) -> None:
        """Notes a call; a function for `sys.setprofile`."""
        if event != "call":
            return
        path = os.path.realpath(frame.f_code.co_filename)  # type: ignore[attr-defined]
        if not path.startswith(str(ROOT)) or "/.venv/" in path:
            return
        name = os.path.relpath(path, ROOT)
        seen = self.files.setdefault(threading.get_ident(), [])
        if name.split(os.sep)[0] in PRODUCT and (not seen or seen[-1] != name):
            seen.append(name)

    def rooms_entered_again(self) -> int:
        """Returns how often a room is entered that was left before, over all threads."""
        again = 0
        for files in self.files.values():
            rooms = [room for room, _ in itertools.groupby(map(os.path.dirname, files))]
            again += len(rooms) - len(set(rooms))
        return again


def visits_of_a_batch() -> Visits:
    """Returns the way of the chatbot's second batch, with the trace of the step that takes it."""
    import towers
    from towers.scripts.main import main

    visits, taken = Visits(), towers.steps.SynchronousUpdates._run_step

    def run_step(updates: object, *arguments: object) -> object:
        if updates.position.step == 1:  # type: ignore[attr-defined]
            sys.setprofile(visits)
            threading.setprofile(visits)
        elif updates.position.step == 2:  # type: ignore[attr-defined]
            sys.setprofile(None)
            threading.setprofile(None)
        return taken(updates, *arguments)

    with tempfile.TemporaryDirectory() as folder:
        arguments = ["train", "chatbot", "--language", "en", "--cpu-towers", "2", "--steps", "3"]
        towers.steps.SynchronousUpdates._run_step = run_step
        try:
            main([*arguments, "--run-dir", f"{folder}/run", "--report-every", "1"])
        finally:
            towers.steps.SynchronousUpdates._run_step = taken
    return visits


if __name__ == "__main__":
    for what, number in numbers().items():
        print(f"{number:>10,} {what}")
    if "--batch" in sys.argv:
        way = visits_of_a_batch()
        entered = {name for names in way.files.values() for name in names}
        print(f"{len(entered):>10,} files that a batch enters: {', '.join(sorted(entered))}")
        print(f"{way.rooms_entered_again():>10,} rooms that it enters again")
