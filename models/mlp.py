"""Fully connected networks for small images."""

from __future__ import annotations

import keras
from keras import layers

from towers.ground.arguments import check_at_least, check_fraction
from towers.models.input_shape import check_input_shape


def softmax_regression(input_shape: tuple[int, int, int], num_classes: int) -> keras.Model:
    """Returns the linear classifier: images [batch, *input_shape] to logits [batch, num_classes].

    Args:
        input_shape: (height, width, channels).
        num_classes: at least 2.
    """
    check_input_shape(input_shape)
    check_at_least(2, num_classes=num_classes)
    images = keras.Input(input_shape, name="images")
    pixels = layers.Flatten(name="flatten")(images)
    logits = layers.Dense(num_classes, name="logits")(pixels)
    return keras.Model(images, logits, name="softmax_regression")


def mlp(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    hidden_size: int = 256,
    dropout_rate: float = 0.0,
) -> keras.Model:
    """Returns a network with one hidden ReLU layer: images to logits [batch, num_classes].

    Args:
        input_shape: (height, width, channels).
        num_classes: at least 2.
        hidden_size: units of the hidden layer.
        dropout_rate: fraction of the hidden units that dropout removes in training.
    """
    check_input_shape(input_shape)
    check_at_least(2, num_classes=num_classes)
    check_at_least(1, hidden_size=hidden_size)
    check_fraction(dropout_rate=dropout_rate)
    images = keras.Input(input_shape, name="images")
    x = layers.Flatten(name="flatten")(images)
    x = layers.Dense(hidden_size, activation="relu", name="hidden")(x)
    if dropout_rate:
        x = layers.Dropout(dropout_rate, name="dropout")(x)
    logits = layers.Dense(num_classes, name="logits")(x)
    return keras.Model(images, logits, name="mlp")
