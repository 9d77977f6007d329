"""A recipe's outline: its description and its fields, read without TensorFlow.

A recipe's module is run with everything heavy that it imports replaced by a `Blank`, which its
functions would need but its fields do not.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from types import ModuleType
from typing import Any, NamedTuple

from towers.scripts.training.catalogue import (
    RECIPES_FOLDER,
    check_name,
    describe_recipe,
    find_recipe,
)
from towers.scripts.training.fields import Fields

HEAVY = ("keras", "tensorflow", "towers.data", "towers.models", "towers.scripts.chatbot")
RECIPES = "towers.scripts.recipes"


class Outline(NamedTuple):
    """What a recipe says of itself.

    Attributes:
        description: the paper, the commands, the expected result.
        fields: with the values that the recipe gives them.
    """

    description: str
    fields: Fields


class Blank:
    """Stands for a module, a function or a class that is not imported."""

    def __init__(self, *_: Any, **__: Any):
        pass

    def __getattr__(self, name: str) -> Blank:
        if name.startswith("__"):
            raise AttributeError(name)
        return Blank()

    def __call__(self, *_: Any, **__: Any) -> Blank:
        return Blank()


def read_outline(name: str) -> Outline:
    """Returns the outline of a recipe; raises ValueError that suggests the nearest name.

    A recipe whose fields need what is heavy is imported as a whole.
    """
    check_name(name)
    try:
        module = light_module(name)
        fields = module.RECIPE.fields
        if isinstance(fields, Fields):
            return Outline(inspect.getdoc(module) or "", fields)
    except Exception:  # Whatever a recipe does with a `Blank`; the recipe itself can do it.
        pass
    return Outline(describe_recipe(name), find_recipe(name).fields)


def takes_files(name: str) -> bool:
    """Returns whether a recipe's `--data` takes files; False if only the recipe itself can say."""
    try:
        return light_module(name).RECIPE.takes_files is True
    except Exception:  # As above; also where there is no such recipe.
        return False


def light_module(name: str) -> ModuleType:
    """Returns a recipe's module without what is heavy, under a name of its own."""
    own_name = f"{RECIPES}.{name}:outline"
    if own_name in sys.modules:
        return sys.modules[own_name]
    path = RECIPES_FOLDER / f"{name}.py"
    module = ModuleType(own_name)
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": light_import}
    sys.modules[own_name] = module  # Where dataclasses look up the types of their fields.
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[own_name]
        raise
    return module


def light_import(
    name: str,
    others: Any = None,
    local: Any = None,
    names: tuple[str, ...] | None = (),
    level: int = 0,
) -> Any:
    """Imports as `__import__` does, but a `Blank` for what is heavy, and outlines of recipes."""
    if any(f"{name}.".startswith(f"{heavy}.") for heavy in HEAVY):
        return Blank()
    if name == RECIPES:
        package = ModuleType(name)
        for recipe in names or ():
            setattr(package, recipe, light_module(recipe))
        return package
    if name.startswith(f"{RECIPES}."):
        return light_module(name.removeprefix(f"{RECIPES}."))
    return builtins.__import__(name, others, local, names or (), level)
