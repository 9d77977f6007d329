"""The networks of `keras.applications` with a head of their own, from scratch or pretrained."""

from __future__ import annotations

import difflib
import inspect
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
from keras import layers

from towers.ground.arguments import check_at_least, check_fraction
from towers.models.input_shape import check_input_shape

PUBLISHED = "imagenet"
FAILURE = re.compile(r"fetch failure on \S*/(\S+): .* -- (.*)")


def application(
    name: str,
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    weights: str | Path | None = None,
    frozen: bool = False,
    dropout_rate: float = 0.0,
) -> keras.Model:
    """Returns a network of `keras.applications`: pixels, 0 to 255, to logits [batch, num_classes].

    The pixels are prepared in the network, as its `preprocess_input` does, so that pretrained
    weights see what they were trained with.

    Args:
        name: as `application_names` lists it.
        input_shape: (height, width, 3).
        num_classes: at least 2.
        weights: `imagenet` for those that Keras publishes, downloaded into its cache; a file of the
            body's weights, as Keras publishes them (`..._notop.h5`) or as `save_weights` of a
            network without its top writes them; None for random ones.
        frozen: whether only the head is trained; BatchNorm then keeps its averages.
        dropout_rate: before the head.

    Raises:
        ValueError: there is no such network, or the file or the input does not fit it.
        FileNotFoundError: there is no such file, or the weights cannot be downloaded.
    """
    make = find_application(name)
    check_input_shape(input_shape)
    if input_shape[2] != 3:
        raise ValueError(
            "Networks of keras.applications take images of 3 channels. Received input_shape="
            f"{input_shape!r}; repeat the channel of grey images."
        )
    check_at_least(2, num_classes=num_classes)
    check_fraction(dropout_rate=dropout_rate)
    options = {"include_top": False, "input_shape": input_shape, "pooling": "avg"}
    body = published(make, options) if weights == PUBLISHED else make(weights=None, **options)
    if weights not in (None, PUBLISHED):
        load_body(body, Path(weights))
    body.trainable = not frozen
    images = keras.Input(input_shape, name="images")
    prepare = sys.modules[make.__module__].preprocess_input
    x = body(prepare(images, data_format="channels_last"))
    if dropout_rate:
        x = layers.Dropout(dropout_rate, name="dropout")(x)
    logits = layers.Dense(num_classes, name="logits")(x)
    return keras.Model(images, logits, name=name.lower())


def application_names() -> list[str]:
    """Returns the names of the networks in `keras.applications`."""
    return sorted(
        name
        for name, one in vars(keras.applications).items()
        if inspect.isfunction(one) and "include_top" in inspect.signature(one).parameters
    )


def find_application(name: str) -> Callable[..., keras.Model]:
    """Returns the function of this name; ValueError that suggests the nearest."""
    names = application_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
        raise ValueError(f"keras.applications has no network {name!r}. Did you mean {near[0]!r}?")
    return getattr(keras.applications, name)


def published(make: Callable[..., keras.Model], options: dict[str, Any]) -> keras.Model:
    """Returns a network with the weights that Keras publishes for it.

    Raises:
        FileNotFoundError: they are not in Keras's cache, and cannot be downloaded.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # That an input's size is not the usual.
            return make(weights=PUBLISHED, **options)
    except Exception as error:  # Keras raises no narrower one.
        failure = FAILURE.search(str(error))
        if failure is None:
            raise
        raise FileNotFoundError(
            f"The weights that Keras publishes cannot be downloaded ({failure[2]}). Put "
            f"{failure[1]} into ~/.keras/models, or $KERAS_HOME/models, yourself, or give a file "
            "of weights."
        ) from error


def load_body(body: keras.Model, path: Path) -> None:
    """Loads the weights of a network without its top.

    Raises:
        ValueError: the file holds those of another network, or of one with its top.
        FileNotFoundError: there is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no weights file {path}.")
    try:
        with warnings.catch_warnings():
            # Keras warns where layers keep their random weights.
            warnings.simplefilter("error", UserWarning)
            body.load_weights(path)
    except (ValueError, OSError, KeyError, UserWarning) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{path} does not hold the weights of {body.name} without its top ({reason}). "
            "Expected a file such as ..._notop.h5 from Keras, or one that save_weights wrote for "
            "a keras.applications network with include_top=False."
        ) from error
