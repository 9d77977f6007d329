"""What a recipe is: its fields, its data, its model; how it is found and its fields are set."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import difflib
import importlib
import math
import pathlib
import typing
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, NamedTuple, Protocol

DATA_SETS = pathlib.Path("datasets")  # Where `towers download` puts what it gets.
RECIPES_FOLDER = pathlib.Path(__file__).parents[1] / "recipes"
# Fields that have a flag of their own on the command line.
FLAGS = ("batch_size", "epochs", "language", "kind", "encoding", "context")


@dataclasses.dataclass(frozen=True)
class Fields:
    """The numbers of a recipe that can be set by name; a recipe adds its own.

    Attributes:
        batch_size: examples in one update, over all towers.
        epochs: passes over the training data.
        optimizer: sgd, momentum, nesterov, adagrad, adam, adamw or lazy_adam.
        learning_rate: at its peak.
        momentum: of the momentum and nesterov optimizers.
        optimizer_weight_decay: decoupled decay of adamw.
        schedule: constant, exponential, piecewise or cosine.
        warmup_steps: steps in which the learning rate rises to its peak.
        warmup_power: of the rise: 1 is linear, 2 slower at first.
        decay_epochs: epochs between two steps of the exponential schedule.
        decay_rate: factor of each of them.
        boundaries: epochs, or parts of one, after which the piecewise schedule multiplies by
            decay_rate.
        base_batch_size: if not 0, the learning rate is scaled by batch_size / base_batch_size.
        clip_norm: norm to which the averaged gradient is clipped; 0 for none.
    """

    batch_size: int = 128
    epochs: int = 10
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    optimizer_weight_decay: float = 4e-3
    schedule: str = "constant"
    warmup_steps: int = 0
    warmup_power: float = 1.0
    decay_epochs: float = 10.0
    decay_rate: float = 0.1
    boundaries: tuple[float, ...] = ()
    base_batch_size: int = 0
    clip_norm: float = 0.0


class Data(NamedTuple):
    """The data of a recipe.

    Attributes:
        train: `train(epoch, first_step)` with `steps_per_epoch` and `num_examples`.
        test: the same for the test data; its epoch 0 has every test example once.
        text: of a recipe with text, what turns it into ids and back.
        corpus: of a recipe with a corpus of the user's, what the batches were made from.
        key: a digest that changes with the content of the data; a run goes on only with the same.
    """

    train: Any
    test: Any
    text: Any = None
    corpus: Any = None
    key: str | None = None


class Recipe(NamedTuple):
    """A recipe as its module defines it.

    Attributes:
        name: the module's name.
        fields: the `Fields` of this run.
        data_set: the name under which its data is downloaded, None if it carries its data.
        make_data: `make_data(fields, folder, seed) -> Data`; a list of paths instead of a folder
            if the recipe takes files.
        make_model: `make_model(fields, data) -> keras.Model`; of the data only `text` is used.
        make_tower_fn: `make_tower_fn(fields, model, training) -> tower_fn`.
        takes_files: whether `--data` takes files and folders of the user's.
        best_metric: the metric that says which checkpoint is the best.
        maximize: whether more of it is better.
        unit: what the loss is a mean over.
        command: that which makes the model speak, chat or generate.
        derive_metrics: `derive_metrics(metrics, data) -> dict` of further metrics, such as the
            perplexity, from the means over the test data.
        to_keras: `to_keras(*batch)` of a batch as `fit` takes it, `(inputs, labels, weights)`.
        make_carried: `make_carried(fields, model) -> specs` of a state that the towers carry, or
            None; with a state the batches say their `num_rows`.
        prepare: `prepare(fields, paths, processes=None, write=print)` makes the data's cache ahead.
        load_text: `load_text(folder)` of what a run saved of its data's `text`.
        make_examiner: `make_examiner(fields, model, data) -> Examiner`, who looks at what the
            model says.
    """

    name: str
    fields: Any
    data_set: str | None
    make_data: Callable
    make_model: Callable
    make_tower_fn: Callable
    takes_files: bool = False
    best_metric: str = "accuracy"
    maximize: bool = True
    unit: str = "examples"
    command: str = "chat"
    derive_metrics: Callable | None = None
    to_keras: Callable | None = None
    make_carried: Callable | None = None
    prepare: Callable | None = None
    load_text: Callable | None = None
    make_examiner: Callable | None = None


class Examiner(Protocol):
    """Looks at what a model says, where a loss alone does not tell."""

    def show(self, write: Callable[[str], None]) -> None:
        """Writes a few examples, and warns of what looks wrong."""

    def examine(self, write: Callable[[str], None]) -> dict[str, float]:
        """Returns further metrics over the whole test data, and writes some examples."""


def chosen_recipe(options: argparse.Namespace) -> Recipe:
    """Returns the recipe that a command line names, its fields set by the flags and `--set`."""
    flags = {name: getattr(options, name, None) for name in FLAGS}
    return load_recipe(options.recipe, options.overrides, **flags)


def load_recipe(name: str, overrides: Sequence[str] = (), **flags: Any) -> Recipe:
    """Returns a recipe by name, with fields from `field=value` texts and from flags.

    Args:
        name: as `towers recipes` lists it.
        overrides: texts such as `learning_rate=0.01`.
        flags: fields whose value is not None win over the overrides.
    """
    module = import_recipe(name)
    values = parse_overrides(module.Fields, overrides)
    given = {key: value for key, value in flags.items() if value is not None}
    for flag in given:
        if flag not in typing.get_type_hints(module.Fields):
            raise ValueError(f"Recipe {name} takes no --{flag}: it has no such field.")
    values.update(given)
    return make_recipe(name, module, module.Fields(**values))


def restore_recipe(name: str, fields: dict[str, Any]) -> Recipe:
    """Returns a recipe with the fields that a run recorded."""
    module = import_recipe(name)
    known = {field.name for field in dataclasses.fields(module.Fields)}
    unknown = sorted(set(fields) - known)
    if unknown:
        raise ValueError(
            f"The run was made with fields that recipe {name} does not have (any more): "
            f"{', '.join(unknown)}."
        )
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    return make_recipe(name, module, module.Fields(**values))


def make_recipe(name: str, module: ModuleType, fields: Any) -> Recipe:
    """Returns the recipe of a module."""
    check_fields(fields)
    return Recipe(
        name,
        fields,
        module.DATA_SET,
        module.make_data,
        module.make_model,
        module.make_tower_fn,
        takes_files=getattr(module, "TAKES_FILES", False),
        best_metric=getattr(module, "BEST_METRIC", "accuracy"),
        maximize=getattr(module, "MAXIMIZE", True),
        unit=getattr(module, "UNIT", "examples"),
        command=getattr(module, "COMMAND", "chat"),
        derive_metrics=getattr(module, "derive_metrics", None),
        to_keras=getattr(module, "to_keras", None),
        make_carried=getattr(module, "make_carried", None),
        prepare=getattr(module, "prepare", None),
        load_text=getattr(module, "load_text", None),
        make_examiner=getattr(module, "make_examiner", None),
    )


def import_recipe(name: str) -> ModuleType:
    """Returns the module of a recipe; a wrong name is an error that suggests the nearest."""
    check_name(name)
    return importlib.import_module(f"towers.scripts.recipes.{name}")


def check_name(name: str) -> None:
    """Raises ValueError if there is no such recipe."""
    names = recipe_names()
    if name not in names:
        raise ValueError(f"There is no recipe {name!r}.{nearest(name, names)}")


def recipe_names() -> list[str]:
    """Returns the names of all recipes."""
    return sorted(path.stem for path in RECIPES_FOLDER.glob("[a-z]*.py"))


def summaries() -> dict[str, str]:
    """Returns the first line of each recipe's docstring, by name, without importing it."""
    lines = {}
    for name in recipe_names():
        source = (RECIPES_FOLDER / f"{name}.py").read_text(encoding="utf-8")
        lines[name] = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    return lines


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns a suggestion to put behind an error about an unknown name."""
    names = sorted(names)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else f" There are: {', '.join(names)}."


def parse_overrides(fields_class: type, overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the values of `field=value` texts, each of its field's type."""
    types = typing.get_type_hints(fields_class)
    values = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise ValueError(f"--set takes FIELD=VALUE. Received {override!r}.")
        if name not in types:
            raise ValueError(f"The recipe has no field {name!r}.{nearest(name, types)}")
        values[name] = parse_value(name, text.strip(), types[name])
    return values


def parse_value(name: str, text: str, kind: Any) -> Any:
    """Returns a field's value from its text."""
    try:
        if typing.get_origin(kind) is tuple:
            element = typing.get_args(kind)[0]
            return tuple(element(part) for part in text.split(",") if part.strip())
        if kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError) as error:
        names = {int: "a whole number", float: "a number", bool: "true or false"}
        expected = names.get(kind, "values such as 1,2")
        raise ValueError(f"Field {name} takes {expected}. Received {text!r}.") from error


POSITIVE = (
    "batch_size",
    "epochs",
    "learning_rate",
    "warmup_power",
    "decay_epochs",
    "decay_rate",
    "exam_questions",
)
NOT_NEGATIVE = (
    "optimizer_weight_decay",
    "warmup_steps",
    "base_batch_size",
    "clip_norm",
    "weight_decay",
)
SHARES = ("momentum", "dropout_rate", "label_smoothing")
EPOCHS = ("decay_epochs", "boundaries")
MOST_EPOCHS = 10**9
LARGEST_LOSS = 700.0  # Whose exponential is a number.


def perplexity(loss: float) -> float:
    """Returns the exponential of a mean loss in nats, infinite where it is too large to tell."""
    return math.exp(loss) if loss < LARGEST_LOSS else math.inf


def check_fields(fields: Any) -> None:
    """Raises ValueError for a field outside of its range."""
    for name, value in dataclasses.asdict(fields).items():
        if name in POSITIVE and not 0 < value < float("inf"):
            raise ValueError(f"Field {name} must be above 0. Received {value}.")
        if name in NOT_NEGATIVE and not 0 <= value < float("inf"):
            raise ValueError(f"Field {name} must not be negative. Received {value}.")
        epochs = value if isinstance(value, tuple) else (value,)
        if name in EPOCHS and not all(0 <= epoch < MOST_EPOCHS for epoch in epochs):
            raise ValueError(f"Field {name} must be from 0 to {MOST_EPOCHS:,}. Received {value}.")
        if name in SHARES and not 0 <= value < 1:
            raise ValueError(f"Field {name} must be in [0, 1). Received {value}.")
