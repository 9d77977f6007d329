"""All variables that the training of a model may change, wherever it holds them."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from towers.ground.private_apis import global_seed_generator
from towers.saving.checkpoint_files import Groups, tensorflow_variable

HOLDERS = (
    keras.Layer, keras.optimizers.Optimizer, keras.losses.Loss, keras.metrics.Metric,
    keras.random.SeedGenerator, tf.Module,
)  # fmt: skip


def groups_of(model: keras.Model) -> Groups:
    """Returns all variables that training may change, by group name: wherever a model holds them.

    That is in attributes of it, of its layers, optimizers, losses, metrics and modules, and in
    lists and dicts there; and the state of what `keras.random` draws without a seed.
    """
    groups: dict[str, dict[int, Any]] = {"variables": {}, "optimizer": {}}
    seen: set[int] = set()

    def visit(value: Any, group: str) -> None:
        if isinstance(value, (keras.Variable, tf.Variable)):
            stored = tensorflow_variable(value)
            is_number = stored.dtype not in (tf.string, tf.resource)
            if is_number and all(id(stored) not in found for found in groups.values()):
                groups[group][id(stored)] = value
        elif isinstance(value, (dict, list, tuple, *HOLDERS)) and id(value) not in seen:
            seen.add(id(value))
            group = "optimizer" if isinstance(value, keras.optimizers.Optimizer) else group
            is_holder = isinstance(value, HOLDERS)
            parts = vars(value) if is_holder else value
            for part in parts.values() if isinstance(parts, dict) else parts:
                visit(part, group)

    for variable in model.variables:
        visit(variable, "variables")
    visit([model, global_seed_generator()], "variables")
    return {name: list(found.values()) for name, found in groups.items()}
