"""The house in numbers: `python -m tests.house` prints them.

With `--batch` it also counts the files that a batch of the chatbot enters between the disk and the
applied update, the trace of the step counted, and how often it comes back to a room it had left.
Of the batches that are assembled ahead, the first is counted.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
import os
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

PRODUCT = ("towers", "models", "data", "scripts")
PRIVATE = re.compile(r"(keras\.src|tensorflow\.(python|core|compiler))\b")


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


@functools.cache
def product_name(path: str) -> str | None:
    """Returns the path of a product's file in the repository; None for others."""
    real = Path(path).resolve()
    is_product = real.is_relative_to(ROOT) and real.relative_to(ROOT).parts[0] in PRODUCT
    return str(real.relative_to(ROOT)) if is_product else None


class Visits:
    """The product's files in the order in which calls enter them.

    Attributes:
        files: each file that is entered from another one.
    """

    def __init__(self) -> None:
        self.files: list[str] = []
        self._lock = threading.RLock()

    def __call__(self, frame: Any, event: str, argument: object) -> None:
        """Notes a call; a function for `sys.setprofile`."""
        name = product_name(frame.f_code.co_filename) if event == "call" else None
        if name is not None and self.files[-1:] != [name]:
            self.files.append(name)

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function, whose calls are noted."""

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            with self._lock:  # `tf.data` calls functions in threads of its own.
                before = sys.getprofile()
                sys.setprofile(self)
                try:
                    return function(*args, **options)
                finally:
                    sys.setprofile(before)

        return call

    def rooms_entered_again(self) -> int:
        """Returns how often a room is entered that was left before."""
        rooms = [room for room, _ in itertools.groupby(map(os.path.dirname, self.files))]
        return len(rooms) - len(set(rooms))


def visits_of_a_batch() -> Visits:
    """Returns the way of a batch of the chatbot: assembly, split, trace and step."""
    import tensorflow as tf

    import towers
    from towers.loop.updates import SynchronousUpdates
    from towers.scripts.main import main

    visits, assembled = Visits(), tf.numpy_function

    def numpy_function(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        functions = itertools.chain([visits.of(function)], itertools.repeat(function))
        return assembled(lambda *arrays: next(functions)(*arrays), *args, **options)

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as patches:
        patch = patches.enter_context(pytest.MonkeyPatch.context()).setattr
        patch(tf, "numpy_function", numpy_function)
        patch(towers.engine.TrainStep, "_step", visits.of(towers.engine.TrainStep._step))
        patch(SynchronousUpdates, "_open_shards", visits.of(SynchronousUpdates._open_shards))
        patch(SynchronousUpdates, "_call", visits.of(SynchronousUpdates._call))
        towers_and_steps = ["--cpu-towers", "2", "--steps", "1", "--evaluate-every", "9"]
        run = ["--language", "en", "--run-dir", f"{folder}/run", "--quiet"]
        main(["train", "chatbot", *towers_and_steps, *run])
    return visits


if __name__ == "__main__":
    for what, number in numbers().items():
        print(f"{number:>10,} {what}")
    if "--batch" in sys.argv:
        way = visits_of_a_batch()
        entered = sorted(set(way.files))
        print(f"{len(entered):>10,} files that a batch enters: {', '.join(entered)}")
        print(f"{way.rooms_entered_again():>10,} times it comes back to a room that it had left")
