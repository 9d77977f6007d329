"""A convolutional network that learns CIFAR-10 in ten epochs, and the parts that make it fast.

Jordan 2024, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (arXiv:2404.00498). Its parts are
layers and an initializer of their own, for other networks too. Two are left out: freezing the first
bias after three epochs, and lookahead, of which an optimizer's `ema_overwrite_frequency` is a kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from keras.initializers import VarianceScaling
from keras.regularizers import L2

from towers.ground.arguments import check_at_least, check_not_negative
from towers.models.batch_norm import FusedBatchNormalization
from towers.models.input_shape import check_input_shape

WHITENED_IMAGES, SMALLEST_VARIANCE = 5000, 5e-4  # Section 3.2 and the program of the paper.
BIAS_RATE, MOMENTUM, LOGIT_SCALE = 64.0, 0.6, 1 / 9  # Section 3.4, and the program.


def fast_cnn(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    widths: Sequence[int] = (64, 256, 256),
    depth: int = 2,
    weight_decay: float = 0.00133,
) -> keras.Model:
    """Returns the network of arXiv:2404.00498: images to logits [batch, num_classes].

    A frozen convolution of 2x2 patches (`whiten` gives it its kernel), three blocks of two 3x3
    convolutions, of which the first is pooled, each normalised without a scale, maximum pooling, a
    dense layer without bias, and scaled logits (section 3.1 there). The variant for 96 % adds a
    third convolution to each block, and what entered the second one to its output.

    Args:
        input_shape: (height, width, channels), at least 9 x 9; 32 x 32 x 3 in the paper.
        num_classes: at least 2.
        widths: filters of the three blocks.
        depth: convolutions of each block, 2 or 3.
        weight_decay: of what is trained; its gradient is `weight_decay * weights`. The paper's, by
            its learning rate for a mean loss.
    """
    check_input_shape(input_shape, smallest_side=9)
    check_at_least(2, num_classes=num_classes)
    check_not_negative(weight_decay=weight_decay)
    if len(widths) != 3 or min(widths) < 1:
        raise ValueError(f"widths must be three numbers of at least 1. Received {widths!r}.")
    if depth not in (2, 3):
        raise ValueError(f"depth, the convolutions of a block, must be 2 or 3. Received {depth!r}.")
    decay = L2(weight_decay / 2) if weight_decay else None  # The gradient of L2(c) is 2c * weights.
    images = keras.Input(input_shape, name="images")
    filters = 2 * 2 * 2 * input_shape[-1]  # Each eigenvector of a patch with both signs.
    # Never in half precision: the smallest differences of pixels are made as large as the others.
    full = {"trainable": False, "dtype": keras.config.dtype_policy().variable_dtype}
    x = layers.Conv2D(filters, 2, use_bias=False, name="whitening", **full)(images)
    x = Bias(regularizer=decay, name="whitening_bias")(x)
    x = layers.Activation("gelu", name="whitening_gelu")(x)
    options: dict[str, Any] = {"use_bias": False, "kernel_regularizer": decay}
    for block, width in enumerate(widths, start=1):
        outputs: list[Any] = []
        for number in range(1, depth + 1):
            name = f"block{block}_conv{number}"
            conv = layers.Conv2D(
                width, 3, padding="same", kernel_initializer=Dirac(), name=name, **options
            )
            x = conv(x)
            if number == 1:
                x = layers.MaxPooling2D(2, name=f"block{block}_pool")(x)
            x = FusedBatchNormalization(
                momentum=MOMENTUM, epsilon=1e-5, center=False, scale=False, name=f"{name}_norm"
            )(x)
            x = Bias(BIAS_RATE, regularizer=decay, name=f"{name}_bias")(x)
            if number == 3:
                x = layers.Add(name=f"block{block}_sum")([x, outputs[0]])
            x = layers.Activation("gelu", name=f"{name}_gelu")(x)
            outputs.append(x)
    x = layers.GlobalMaxPooling2D(name="pool")(x)
    x = layers.Dense(num_classes, kernel_initializer=fan_in_uniform(), name="dense", **options)(x)
    return keras.Model(images, layers.Rescaling(LOGIT_SCALE, name="logits")(x), name="fast")


def whiten(layer: layers.Conv2D, batches: Iterable[tf.Tensor]) -> None:
    """Gives a convolution the kernel after which patches of images are white, with both signs.

    Section 3.2 of arXiv:2404.00498, after Page 2018: the eigenvectors of the patches' second
    moments, each divided by the root of its eigenvalue, in descending order, and their negatives.

    Args:
        layer: a built convolution with twice as many filters as a patch has numbers.
        batches: images as the layer sees them, [batch, height, width, channels], at least one
            batch; the first 5,000 images or so count.

    Raises:
        ValueError: there are no images.
    """
    height, width, channels, _ = layer.kernel.shape
    size = height * width * channels
    moments, num_images, num_patches = np.zeros([size, size]), 0, 0
    for images in batches:
        found = tf.image.extract_patches(
            tf.cast(images, tf.float32), [1, height, width, 1], [1] * 4, [1] * 4, "VALID"
        )
        patches = np.reshape(found, [-1, size]).astype(np.float64)
        moments += patches.T @ patches
        num_images, num_patches = num_images + len(images), num_patches + len(patches)
        if num_images >= WHITENED_IMAGES:
            break
    if not num_patches:
        raise ValueError(
            f"whiten takes batches of images of at least {height} x {width} pixels. Received "
            f"{num_images} images without a patch of that size; pass some of the training data."
        )
    values, vectors = np.linalg.eigh(moments / num_patches)
    kernel = (vectors / np.sqrt(values + SMALLEST_VARIANCE))[:, ::-1]
    layer.kernel.assign(np.reshape(np.concatenate([kernel, -kernel], 1), layer.kernel.shape))


def fan_in_uniform() -> VarianceScaling:
    """Returns the initializer that is uniform within 1 / sqrt(inputs of a unit)."""
    return VarianceScaling(1 / 3, "fan_in", "uniform")


@keras.saving.register_keras_serializable(package="towers")
class Dirac(keras.initializers.Initializer):
    """Lets the first filters of a convolution pass its inputs on, as far as there are so many.

    Section 3.3 of arXiv:2404.00498, after Zagoruyko and Komodakis 2017; the other filters are
    uniform within 1 / sqrt(inputs of a filter).
    """

    def __init__(self) -> None:
        self._others = fan_in_uniform()

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> tf.Tensor:
        """Returns a kernel [height, width, inputs, filters]."""
        height, width, inputs, filters = shape
        passed = np.zeros([height, width, inputs, filters])
        same = np.arange(min(inputs, filters))
        passed[height // 2, width // 2, same, same] = 1
        others = self._others(shape, dtype)
        return tf.where(np.arange(filters) < inputs, tf.cast(passed, others.dtype), others)


@keras.saving.register_keras_serializable(package="towers")
class Bias(layers.Layer):
    """Adds a bias to each channel, which gradient descent changes `rate` times as fast.

    The layer adds sqrt(rate) times a weight, so that a step of plain or momentum gradient descent
    moves the bias by `rate` times its gradient, whatever the optimizer's learning rate.

    Args:
        rate: above 0.
        regularizer: of the weight.
        options: of every Keras layer.
    """

    def __init__(self, rate: float = 1.0, *, regularizer: Any = None, **options: Any):
        super().__init__(**options)
        self.rate = rate
        self.regularizer = keras.regularizers.get(regularizer)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Makes the weight, zeros [channels]."""
        self.bias = self.add_weight(
            shape=[input_shape[-1]], initializer="zeros", regularizer=self.regularizer, name="bias"
        )

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns `x`, [..., channels], with the bias."""
        return x + tf.constant(self.rate**0.5, x.dtype) * tf.cast(self.bias, x.dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        own = {"rate": self.rate, "regularizer": keras.regularizers.serialize(self.regularizer)}
        return {**super().get_config(), **own}
