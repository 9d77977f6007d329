"""The catalogue of recipes: which there are, and one of them by name with fields of the user's."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pathlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from towers.scripts.options.setting import values_of
from towers.scripts.training.fields import parse_overrides, replace_fields
from towers.scripts.training.options import FLAGS, RecipeOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.wrong_input import nearest

DATA_SETS = pathlib.Path("datasets")  # `towers download` puts the data sets here.
CACHE = DATA_SETS / "prepared"
RECIPES_FOLDER = pathlib.Path(__file__).parents[1] / "recipes"
OF_PROGRAMS = "towers.fit"  # In the place of the recipe in the record of a run.


def chosen_recipe(options: RecipeOptions) -> Recipe:
    """Returns the recipe that options name, its fields set by the flags and `--set`.

    Raises:
        ValueError: there is no such recipe or field, or a value is outside of its bounds.
    """
    recipe, given, overrides = find_recipe(options.recipe), values_of(options), options.overrides
    if given.get("xla") and hasattr(recipe.fields, "fixed_shapes"):
        overrides = ("fixed_shapes=true", *overrides)  # XLA compiles a step for each shape.
    values = parse_overrides(type(recipe.fields), overrides)
    for flag in FLAGS:
        if flag in given and not hasattr(recipe.fields, flag):
            raise ValueError(f"Recipe {recipe.name} has no field for --{flag}; leave it out.")
    return with_fields(recipe, {**values, **{one: given[one] for one in FLAGS if one in given}})


def check_contradictions(given: Mapping[str, Any]) -> None:
    """Raises ValueError if options say one thing twice: steps and epochs, or a field by two.

    The last of several values for one option counts, as everywhere.
    """
    texts = [one for one in given.get("overrides", ()) if "=" in one]
    fields = {one.partition("=")[0].strip().replace("-", "_"): f"--set {one}" for one in texts}
    flags = {name: f"--{name.replace('_', '-')} {given[name]}" for name in FLAGS if name in given}
    both = [(flags[name], fields[name]) for name in flags if name in fields]
    if "steps" in given and "epochs" in {**fields, **flags}:
        both.append((f"--steps {given['steps']}", {**fields, **flags}["epochs"]))
    for one, other in both:
        raise ValueError(f"{one} and {other} contradict each other: give one of them.")


def restore_recipe(name: str, fields: dict[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    """Returns a recipe with the fields that a run recorded; texts such as `part=test` win."""
    recipe = find_recipe(name)
    known = {field.name for field in dataclasses.fields(recipe.fields)}
    unknown = sorted(set(fields) - known)
    if unknown:
        raise ValueError(
            f"The run has fields that recipe {name} does not know: {', '.join(unknown)}. Expected "
            "a run of this version of towers; use the one that trained it, as run.json says."
        )
    overridden = parse_overrides(type(recipe.fields), overrides)
    return with_fields(with_recorded(recipe, fields), overridden)


def with_recorded(recipe: Recipe, fields: dict[str, Any]) -> Recipe:
    """Returns the recipe with some fields as run.json has them."""
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
    return with_fields(recipe, values)


def with_fields(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    """Returns the recipe with other values of some fields."""
    return dataclasses.replace(recipe, fields=replace_fields(recipe.fields, values))


def find_recipe(name: str) -> Recipe:
    """Returns the recipe of this name, its fields as its module sets them."""
    return import_recipe(name).RECIPE


def describe_recipe(name: str) -> str:
    """Returns the description of a recipe: the paper, the commands, the expected result."""
    return inspect.getdoc(import_recipe(name)) or ""


def import_recipe(name: str) -> ModuleType:
    """Returns the module of a recipe; raises ValueError that suggests the nearest name."""
    names = recipe_names()
    if name == OF_PROGRAMS:
        raise ValueError(
            f"A run of {name} belongs to your own program, not to a recipe; call towers.evaluate, "
            "towers.predict or model.export there."
        )
    if name not in names:
        raise ValueError(f"There is no recipe {name!r}.{nearest(name, names)}")
    return importlib.import_module(f"towers.scripts.recipes.{name}")


def recipe_names() -> list[str]:
    """Returns the names of all recipes."""
    return sorted(path.stem for path in RECIPES_FOLDER.glob("[a-z]*.py"))


def summaries() -> dict[str, str]:
    """Returns the first line of each recipe's docstring, by name."""
    return {name: describe_recipe(name).partition("\n")[0] for name in recipe_names()}
