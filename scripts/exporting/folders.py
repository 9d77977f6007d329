"""What every export holds: a SavedModel that any device runs, and the weights for Keras."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from towers.ground.private_apis import flatten_layers

WEIGHTS = "model.weights.h5"


def write_model(
    model: keras.Model, signatures: dict[str, Callable[..., Any]], folder: Path
) -> None:
    """Writes `model/`, a SavedModel, and `model.weights.h5`, into a new folder.

    Args:
        model: the trained model.
        signatures: `tf.function`s with an input signature. Each is an attribute of the loaded
            model and a signature of its name; the first is also the default one of TensorFlow
            Serving.
        folder: it must not exist.
    """
    leave_out_cudnn(model)
    module = tf.Module()
    module.weights = [variable.value for variable in model.variables]
    for name, function in signatures.items():
        setattr(module, name, function)
    default = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    named = {**signatures, default: next(iter(signatures.values()))}
    folder.mkdir(parents=True)  # Its error says more than TensorFlow's.
    tf.saved_model.save(module, str(folder / "model"), signatures=named)
    with warnings.catch_warnings():  # Keras converts its variables in a way that NumPy deprecates.
        warnings.simplefilter("ignore", DeprecationWarning)
        model.save_weights(folder / WEIGHTS)


def write_settings(settings: dict[str, Any], folder: Path) -> None:
    """Writes `settings.json`."""
    text = json.dumps(settings, indent=2) + "\n"
    (folder / "settings.json").write_text(text, encoding="utf-8")


def leave_out_cudnn(model: keras.Model) -> None:
    """Makes the recurrent layers use ops that every device has.

    Where there is a GPU, Keras builds their graph of cuDNN's kernels, which no CPU can run.
    """
    for layer in flatten_layers(model):
        if hasattr(layer, "use_cudnn"):
            layer.use_cudnn = False
