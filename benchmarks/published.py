"""Counts which of other people's Keras programs train on towers with two lines, by their sources.

    git clone https://github.com/keras-team/keras-io
    python -m benchmarks.published keras-io/examples

Nothing is run. `tests/kinds` trains programs of each kind.
"""

from __future__ import annotations

import argparse
import ast
import collections
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

OTHER, UNTRAINED = "for another backend", "trains nothing"
# Each kind, how it trains on towers, and whether it did when only Keras's own step was cut.
KINDS = {
    "the step of Keras": ("towers.fit", True),
    "a loss that a layer or a model adds": ("towers.fit", False),
    "a compute_loss() of its own": ("towers.fit", False),
    "a train_step() of its own": ("towers.fit", False),
    "a loop of its own": ("towers.layers_on", False),
    "batches one by one": ("towers.layers_on", False),
    "devices that it chooses itself": ("without its strategy", False),
}  # fmt: skip
OWN_DEVICES = {"distribution", "distribute"}
LIBRARIES = {"jax", "torch"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the kinds of the programs in a folder, and which share of them trains on towers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="of Python sources")
    parser.add_argument("--names", action="store_true", help="print each program's kind")
    options = parser.parse_args(arguments)
    kinds = {
        path: kind_of(path.read_text("utf-8")) for path in sorted(options.folder.rglob("*.py"))
    }
    if not kinds:
        parser.error(f"there is no Python source in {options.folder}; give a folder that has some")
    if options.names:
        for path, kind in kinds.items():
            print(f"{path.relative_to(options.folder)}  {kind}")
    print(table(kinds.values()))


def table(kinds: Iterable[str]) -> str:
    """Returns how many programs there are of each kind, and which share trains on towers."""
    counts = collections.Counter(kinds)
    rows = [(name, counts[name], way, before) for name, (way, before) in KINDS.items()]
    lines = [f"{number:5}  {name}: {way}" for name, number, way, _ in rows if number]
    lines += [f"{counts[name]:5}  {name}" for name in (OTHER, UNTRAINED) if counts[name]]
    num_all = sum(number for _, number, *_ in rows) or 1
    two_lines = sum(number for _, number, way, _ in rows if way.startswith("towers."))
    own_step = sum(number for _, number, _, before in rows if before)
    lines.append(
        f"{two_lines / num_all:.0%} of those that train on TensorFlow do on towers with two lines; "
        f"{own_step / num_all:.0%} where only Keras's own step is cut"
    )
    return "\n".join(lines)


def kind_of(source: str) -> str:
    """Returns the kind of a program."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return UNTRAINED  # Of an older Python, or with lines for a notebook.
    methods = {
        one.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for one in node.body
        if isinstance(one, ast.FunctionDef)
    }
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    imported = set(imports_of(tree))
    is_fit = "fit" in used
    if is_for_other_backend(tree) or (imported & LIBRARIES and "tensorflow" not in imported):
        return OTHER
    if used & OWN_DEVICES and (is_fit or "GradientTape" in used):
        return "devices that it chooses itself"
    if "train_step" in methods and is_fit:
        return "a train_step() of its own"
    if is_fit:
        if "compute_loss" in methods:
            return "a compute_loss() of its own"
        adds = "add_loss" in used
        return "a loss that a layer or a model adds" if adds else "the step of Keras"
    if "GradientTape" in used and used & {"apply_gradients", "apply", "minimize"}:
        return "a loop of its own"
    return "batches one by one" if "train_on_batch" in used else UNTRAINED


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Yields the top names of the packages that a source imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name.split(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def is_for_other_backend(tree: ast.AST) -> bool:
    """Returns whether a source sets Keras's backend to another one than TensorFlow."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and "KERAS_BACKEND" in ast.unparse(node.targets[0]):
            return "tensorflow" not in ast.unparse(node.value)
    return False


if __name__ == "__main__":
    main()
