"""The examples in docstrings print what they say."""

import doctest
import importlib

from tests.paths import ROOT

ROOMS = ("towers", "models", "data", "scripts")


def modules_with_examples():
    """Returns the installed names of the modules whose docstrings hold examples."""
    names = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if ">>> " not in path.read_text(encoding="utf-8"):
                continue
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            names.append(name.removesuffix(".__init__"))
    return [name if name.startswith("towers.") else f"towers.{name}" for name in names]


def test_examples_of_docstrings_print_what_they_say():
    attempted, failed = 0, []
    for name in dict.fromkeys(modules_with_examples()):
        results = doctest.testmod(importlib.import_module(name))
        attempted += results.attempted
        failed += [name] * bool(results.failed)
    assert not failed
    assert attempted > 10
