"""The data of a model that preprocesses its samples itself, as the tasks of KerasHub do."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from towers.compiled.data import Data, read_data

METHODS = ("fit", "evaluate", "predict")
PREPROCESS, BATCH_SIZE = "preprocess_samples", 32


def read_samples(
    model: keras.Model,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None = None,
    **options: Any,
) -> Data:
    """Returns data as `read_data` does, each batch of it preprocessed by a model that does so.

    Such a model takes arrays, in their order, or a `tf.data.Dataset`, as in KerasHub.

    Args:
        model: the model.
        x, y, sample_weight, batch_size, options: as for `read_data`.
    """
    if x is not None and preprocesses(model):
        if not isinstance(x, tf.data.Dataset):
            rows = keras.utils.pack_x_y_sample_weight(x, y, sample_weight)
            x, y, sample_weight = batches_of(model, rows, batch_size or BATCH_SIZE), None, None
        preprocess = getattr(model, PREPROCESS)
        x, batch_size = x.map(preprocess, num_parallel_calls=tf.data.AUTOTUNE), None
    return read_data(x, y, sample_weight, batch_size=batch_size, **options)


def sliceable(model: keras.Model, x: Any) -> Any:
    """Returns inputs that Keras can slice: texts that a model preprocesses as tensors."""
    return keras.tree.map_structure(tf.convert_to_tensor, x) if preprocesses(model) else x


def preprocesses(model: keras.Model) -> bool:
    """Returns whether a model has methods of its own that preprocess and then call Keras's.

    They are taken for such if one class has all of them and `preprocess_samples` besides.
    """
    owners = {next(kind for kind in type(model).__mro__ if name in vars(kind)) for name in METHODS}
    return PREPROCESS in vars(owners.pop()) and not owners and not set(METHODS) & set(vars(model))


def batches_of(model: keras.Model, rows: Any, batch_size: int) -> tf.data.Dataset:
    """Returns batches of arrays, or of lists of texts, in their order."""
    try:
        return tf.data.Dataset.from_tensor_slices(rows).batch(batch_size)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{type(model).__name__} preprocesses its samples, which must be arrays with equally "
            f"many rows, or a tf.data.Dataset of batches. Received {type(rows).__name__}."
        ) from error
