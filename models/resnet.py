"""Residual networks for CIFAR-sized images."""

from __future__ import annotations

from typing import NamedTuple

import keras
from keras import layers
from keras.regularizers import L2

from towers.ground.arguments import check_at_least, check_choice, check_fraction, check_not_negative
from towers.models.batch_norm import FusedBatchNormalization
from towers.models.input_shape import check_input_shape

SHORTCUTS = ("identity", "projection")


def cifar_resnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    depth: int = 20,
    shortcut: str = "identity",
    batch_norm_momentum: float = 0.9,
    weight_decay: float = 1e-4,
) -> keras.Model:
    """Returns a residual network of 6n + 2 layers: images to logits [batch, num_classes].

    He et al. 2015, "Deep Residual Learning for Image Recognition", section 4.2: a convolution,
    three stages of n blocks with 16, 32 and 64 filters, average pooling and a dense layer.

    Args:
        input_shape: (height, width, channels); 32 x 32 x 3 in the paper.
        num_classes: at least 2.
        depth: 6n + 2 with n of at least 1: 20, 32, 44, 56 and 110 in the paper.
        shortcut: between stages, `identity` (the paper's option A: every other pixel, new
            channels zero) or `projection` (option B: a 1x1 convolution).
        batch_norm_momentum: factor of the old moving average in each step.
        weight_decay: of all kernels; its gradient is `weight_decay * weights`.
    """
    check_input_shape(input_shape)
    check_at_least(2, num_classes=num_classes)
    check_fraction(batch_norm_momentum=batch_norm_momentum)
    check_not_negative(weight_decay=weight_decay)
    check_choice("shortcut", shortcut, SHORTCUTS)
    # The gradient of L2(c) is 2c * weights; the paper uses weight_decay * weights.
    decay = L2(weight_decay / 2) if weight_decay else None
    build = Parts(batch_norm_momentum, decay, shortcut)
    images = keras.Input(input_shape, name="images")
    x = build.conv(images, 16, name="conv1")
    x = build.normalized(x, name="conv1", activated=True)
    for stage, filters in enumerate((16, 32, 64), start=1):
        for block in range(1, blocks_per_stage(depth) + 1):
            strides = 2 if stage > 1 and block == 1 else 1
            x = build.block(x, filters, strides, name=f"stage{stage}_block{block}")
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    logits = layers.Dense(
        num_classes, kernel_initializer="he_normal", kernel_regularizer=build.decay, name="logits"
    )(x)
    return keras.Model(images, logits, name=f"cifar_resnet{depth}")


def blocks_per_stage(depth: int) -> int:
    """Returns n for a depth of 6n + 2."""
    check_at_least(1, depth=depth)
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        nearest = [str(6 * n + 2) for n in (blocks, blocks + 1) if n >= 1]
        raise ValueError(
            f"depth must be 6n + 2 with n of at least 1. Received {depth}; the nearest is "
            f"{' or '.join(nearest)}."
        )
    return blocks


class Parts(NamedTuple):
    """The layers of a residual network, with the options that all of them share."""

    batch_norm_momentum: float
    decay: L2 | None
    shortcut: str

    def block(
        self, x: keras.KerasTensor, filters: int, strides: int, *, name: str
    ) -> keras.KerasTensor:
        """Returns relu(x + F(x)), where F is two 3x3 convolutions."""
        residual = self.conv(x, filters, strides=strides, name=f"{name}_conv1")
        residual = self.normalized(residual, name=f"{name}_conv1", activated=True)
        residual = self.conv(residual, filters, name=f"{name}_conv2")
        residual = self.normalized(residual, name=f"{name}_conv2", activated=False)
        if x.shape[-1] != filters:
            x = self.between_stages(x, filters, strides, name=f"{name}_shortcut")
        x = layers.Add(name=f"{name}_add")([x, residual])
        return layers.Activation("relu", name=f"{name}_relu")(x)

    def conv(
        self, x: keras.KerasTensor, filters: int, *, size: int = 3, strides: int = 1, name: str
    ) -> keras.KerasTensor:
        """Returns a convolution without bias; the normalisation after it has one."""
        return layers.Conv2D(
            filters,
            size,
            strides=strides,
            padding="same",
            use_bias=False,
            kernel_initializer="he_normal",
            kernel_regularizer=self.decay,
            name=name,
        )(x)

    def normalized(self, x: keras.KerasTensor, *, name: str, activated: bool) -> keras.KerasTensor:
        """Returns the normalised convolution, with a ReLU if `activated`."""
        x = FusedBatchNormalization(momentum=self.batch_norm_momentum, name=f"{name}_norm")(x)
        return layers.Activation("relu", name=f"{name}_relu")(x) if activated else x

    def between_stages(
        self, x: keras.KerasTensor, filters: int, strides: int, *, name: str
    ) -> keras.KerasTensor:
        """Returns x in the next stage's shape."""
        if self.shortcut == "identity":
            return identity_shortcut(x, filters, strides, name=name)
        x = self.conv(x, filters, size=1, strides=strides, name=name)
        return self.normalized(x, name=name, activated=False)


def identity_shortcut(
    x: keras.KerasTensor, filters: int, strides: int, *, name: str
) -> keras.KerasTensor:
    """Returns every `strides`-th pixel, with channels of zeros up to `filters` (option A)."""
    pooled = layers.AveragePooling2D(1, strides, padding="same", name=name)  # A slice is slower.
    return keras.ops.pad(pooled(x), [[0, 0], [0, 0], [0, 0], [0, filters - x.shape[-1]]])
