"""What a run says of itself: in run.json, in TensorBoard, and to the other processes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import keras
import tensorflow as tf

from towers.scripts.training.options import TrainOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.run_directory import package_versions


def describe_run(recipe: Recipe, options: TrainOptions) -> dict[str, Any]:
    """Returns the contents of run.json, without the devices."""
    engine = options.engine
    return {
        "recipe": recipe.name,
        "fields": dataclasses.asdict(recipe.fields),
        "seed": options.seed,
        "precision": engine.precision,
        "batch_norm": engine.batch_norm,
        "updates": engine.updates,
        "data": options.data,
        "parameters": options.devices.parameters,
        "init_from": options.init_from,
        "best_metric": recipe.best_metric,
    }


def shared_settings(record: dict[str, Any], options: TrainOptions) -> dict[str, Any]:
    """Returns what must be equal in all processes, by name; the data is compared by its content."""
    fields = {f"--set {name}": value for name, value in record["fields"].items()}
    own = ("fields", "data", "parameters")
    engine = dataclasses.asdict(options.engine)
    return {
        **{name: value for name, value in record.items() if name not in own},
        **fields,
        **engine,
        "steps": options.steps,
        "checkpoint-every": options.periods.checkpoint_every,
        "versions": package_versions(),
    }


def hyperparameters(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a run's settings by name, as TensorBoard shows them."""
    names = ("recipe", "seed", "precision", "batch_norm", "updates", "parameters")
    return {**{name: record[name] for name in names}, **record["fields"]}


def describe_model(model: keras.Model) -> str:
    """Returns the size of a model, and the versions of what it runs on, in one line."""
    count = sum(math.prod(variable.shape) for variable in model.variables)
    size = sum(math.prod(v.shape) * tf.as_dtype(v.dtype).size for v in model.variables)
    return (
        f"model | {len(model.variables)} variables | {count:,} numbers | {size / 1e6:.1f} MB | "
        f"tensorflow {tf.__version__} | keras {keras.__version__}"
    )
