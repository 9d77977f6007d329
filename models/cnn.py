"""Convolutional networks: LeNet for digits, and the CIFAR-10 network of the TensorFlow tutorial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import layers
from keras.initializers import Constant, TruncatedNormal
from keras.regularizers import L2

from towers.ground.arguments import check_at_least, check_fraction, check_not_negative
from towers.models.input_shape import check_input_shape
from towers.models.precision import at_least_float32


def lenet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    filters: Sequence[int] = (20, 50),
    hidden_size: int = 500,
    dropout_rate: float = 0.0,
) -> keras.Model:
    """Returns two convolutions and two dense layers: images to logits [batch, num_classes].

    LeCun et al. 1998, "Gradient-Based Learning Applied to Document Recognition", in its
    present form: ReLU, maximum pooling, and full connections between the maps.

    Args:
        input_shape: (height, width, channels), at least 16 x 16.
        num_classes: at least 2.
        filters: of the first and the second 5x5 convolution.
        hidden_size: units of the hidden dense layer.
        dropout_rate: fraction of the hidden units that dropout removes in training.
    """
    check_input_shape(input_shape, smallest_side=16)
    check_at_least(2, num_classes=num_classes)
    if len(filters) != 2:
        raise ValueError(
            "filters must be two numbers, one for each convolution, such as (20, 50). "
            f"Received {filters!r}."
        )
    first, second = filters
    check_at_least(1, first_filters=first, second_filters=second, hidden_size=hidden_size)
    check_fraction(dropout_rate=dropout_rate)
    images = keras.Input(input_shape, name="images")
    x = layers.Conv2D(first, 5, activation="relu", name="conv1")(images)
    x = layers.MaxPooling2D(2, name="pool1")(x)
    x = layers.Conv2D(second, 5, activation="relu", name="conv2")(x)
    x = layers.MaxPooling2D(2, name="pool2")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dense(hidden_size, activation="relu", name="hidden")(x)
    if dropout_rate:
        x = layers.Dropout(dropout_rate, name="dropout")(x)
    logits = layers.Dense(num_classes, name="logits")(x)
    return keras.Model(images, logits, name="lenet")


def cifar_cnn(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    weight_decay: float = 0.004,
    response_normalization: bool = True,
) -> keras.Model:
    """Returns the network of the TensorFlow CIFAR-10 tutorial: images to logits.

    It derives from Krizhevsky's cuda-convnet (Krizhevsky 2009, "Learning Multiple Layers of
    Features from Tiny Images"; Krizhevsky et al. 2012 for the normalisation); sizes, initial
    values and weight decay follow `cifar10.py` of the tutorial.

    Args:
        input_shape: (height, width, channels); the tutorial crops 24 x 24 from 32 x 32.
        num_classes: at least 2.
        weight_decay: of the two hidden dense layers; its gradient is `weight_decay * weights`.
        response_normalization: whether to normalise after each convolution.
    """
    check_input_shape(input_shape)
    check_at_least(2, num_classes=num_classes)
    check_not_negative(weight_decay=weight_decay)
    images = keras.Input(input_shape, name="images")
    x = tutorial_conv(images, bias=0.0, name="conv1")
    x = layers.MaxPooling2D(3, strides=2, padding="same", name="pool1")(x)
    if response_normalization:
        x = LocalResponseNormalization(name="norm1")(x)
    x = tutorial_conv(x, bias=0.1, name="conv2")
    if response_normalization:
        x = LocalResponseNormalization(name="norm2")(x)
    x = layers.MaxPooling2D(3, strides=2, padding="same", name="pool2")(x)
    x = layers.Flatten(name="flatten")(x)
    x = tutorial_dense(x, 384, weight_decay, name="local3")
    x = tutorial_dense(x, 192, weight_decay, name="local4")
    logits = layers.Dense(
        num_classes, kernel_initializer=TruncatedNormal(stddev=1 / 192), name="logits"
    )(x)
    return keras.Model(images, logits, name="cifar_cnn")


def tutorial_conv(x: keras.KerasTensor, *, bias: float, name: str) -> keras.KerasTensor:
    """Returns the output of a 5x5 convolution of the tutorial's network."""
    return layers.Conv2D(
        64,
        5,
        padding="same",
        activation="relu",
        kernel_initializer=TruncatedNormal(stddev=5e-2),
        bias_initializer=Constant(bias),
        name=name,
    )(x)


def tutorial_dense(
    x: keras.KerasTensor, units: int, weight_decay: float, *, name: str
) -> keras.KerasTensor:
    """Returns the output of a hidden dense layer of the tutorial's network."""
    return layers.Dense(
        units,
        activation="relu",
        kernel_initializer=TruncatedNormal(stddev=0.04),
        bias_initializer=Constant(0.1),
        # The tutorial decays by weight_decay * l2_loss, which has a factor of one half.
        kernel_regularizer=L2(weight_decay / 2) if weight_decay else None,
        name=name,
    )(x)


@keras.saving.register_keras_serializable(package="towers")
class LocalResponseNormalization(layers.Layer):
    """Divides each activation by `(bias + alpha * squares of its neighbours)^0.75`.

    Neighbours are the channels at a distance of at most `radius`, itself included (Krizhevsky et
    al. 2012, "ImageNet Classification with Deep Convolutional Neural Networks", section 3.3).
    Unlike `tf.nn.local_response_normalization` it works in every floating-point dtype.

    Args:
        radius: of the window over the channels.
        bias: added to the scaled squares, above 0.
        alpha: factor of the squares.
        options: of every Keras layer.
    """

    def __init__(
        self, *, radius: int = 4, bias: float = 1.0, alpha: float = 0.001 / 9, **options: Any
    ):
        super().__init__(**options)
        self.radius = radius
        self.bias = bias
        self.alpha = alpha

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns `x`, [batch, height, width, channels], normalised."""
        wide = at_least_float32(x)
        ones = tf.ones([x.shape[-1], x.shape[-1]], wide.dtype)
        band = tf.linalg.band_part(ones, self.radius, self.radius)
        scale = self.bias + self.alpha * tf.tensordot(tf.square(wide), band, 1)
        # scale^-0.75 by roots, since tf.pow takes twice the time.
        inverse_root = tf.math.rsqrt(scale)
        return tf.cast(wide * inverse_root * tf.sqrt(inverse_root), x.dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        own = {"radius": self.radius, "bias": self.bias, "alpha": self.alpha}
        return {**super().get_config(), **own}
