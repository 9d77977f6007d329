"""Networks for pictures, in the manner of Keras's published examples and the papers named."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.laws.zoo.members import Batch, Member, classified, pictures, regressed


class Patches(layers.Layer):
    """Cuts pictures into patches, projects them and adds a position to each."""

    def __init__(self, size: int, width: int):
        super().__init__()
        self.project = layers.Conv2D(width, size, size)
        self.width = width

    def build(self, shape):
        self.project.build(shape)
        _, rows, columns, _ = self.project.compute_output_shape(shape)
        self.positions = self.add_weight(shape=(rows * columns, self.width), name="positions")

    def call(self, images):
        found = self.project(images)
        return ops.reshape(found, (-1, *self.positions.shape)) + self.positions


def vision_transformer() -> keras.Model:
    """Dosovitskiy et al. 2021."""
    inputs = keras.Input((8, 8, 3))
    hidden = Patches(4, 8)(inputs)
    for _ in range(2):
        normed = layers.LayerNormalization()(hidden)
        hidden = hidden + layers.MultiHeadAttention(2, 4)(normed, normed)
        normed = layers.LayerNormalization()(hidden)
        hidden = hidden + layers.Dense(8)(layers.Dense(16, activation="gelu")(normed))
    hidden = layers.Flatten()(layers.LayerNormalization()(hidden))
    return keras.Model(inputs, layers.Dense(4)(hidden))


def mlp_mixer() -> keras.Model:
    """Tolstikhin et al. 2021."""
    inputs = keras.Input((8, 8, 3))
    hidden = Patches(4, 8)(inputs)
    for _ in range(2):
        across = layers.Permute((2, 1))(layers.LayerNormalization()(hidden))
        across = layers.Dense(4)(layers.Dense(6, activation="gelu")(across))
        hidden = hidden + layers.Permute((2, 1))(across)
        normed = layers.LayerNormalization()(hidden)
        hidden = hidden + layers.Dense(8)(layers.Dense(16, activation="gelu")(normed))
    return keras.Model(inputs, layers.Dense(4)(layers.GlobalAveragePooling1D()(hidden)))


class SpatialGate(layers.Layer):
    """The gate of gMLP: one half of the channels, mixed over positions, times the other."""

    def build(self, shape):
        self.mix = layers.Dense(shape[1], bias_initializer="ones")
        self.norm = layers.LayerNormalization()
        self.norm.build((*shape[:-1], shape[-1] // 2))
        self.mix.build((shape[0], shape[-1] // 2, shape[1]))

    def call(self, inputs):
        kept, gate = ops.split(inputs, 2, axis=-1)
        gate = self.mix(ops.transpose(self.norm(gate), (0, 2, 1)))
        return kept * ops.transpose(gate, (0, 2, 1))


def gated_mlp() -> keras.Model:
    """Liu et al. 2021, "Pay Attention to MLPs"."""
    inputs = keras.Input((8, 8, 3))
    hidden = Patches(4, 8)(inputs)
    for _ in range(2):
        inner = layers.Dense(16, activation="gelu")(layers.LayerNormalization()(hidden))
        hidden = hidden + layers.Dense(8)(SpatialGate()(inner))
    return keras.Model(inputs, layers.Dense(4)(layers.GlobalAveragePooling1D()(hidden)))


def conv_mixer() -> keras.Model:
    """Trockman and Kolter 2022."""
    inputs = keras.Input((8, 8, 3))
    hidden = layers.Conv2D(6, 2, 2, activation="gelu")(inputs)
    for _ in range(2):
        mixed = layers.DepthwiseConv2D(3, padding="same", activation="gelu")(hidden)
        hidden = layers.BatchNormalization()(mixed + hidden)
        hidden = layers.BatchNormalization()(layers.Conv2D(6, 1, activation="gelu")(hidden))
    return keras.Model(inputs, layers.Dense(4)(layers.GlobalAveragePooling2D()(hidden)))


def u_net() -> keras.Model:
    """Ronneberger et al. 2015: a label for each pixel."""
    inputs = keras.Input((8, 8, 3))
    outer = layers.SeparableConv2D(4, 3, padding="same", activation="relu")(inputs)
    inner = layers.Conv2D(8, 3, padding="same", activation="relu")(layers.MaxPooling2D()(outer))
    raised = layers.Conv2DTranspose(4, 3, 2, padding="same")(inner)
    joined = layers.Concatenate()([outer, raised, layers.UpSampling2D()(inner)])
    return keras.Model(inputs, layers.Conv2D(3, 1)(joined))


def segmented(random: np.random.Generator, rows: int) -> Batch:
    """Data: pictures and a label for each pixel."""
    images = random.normal(size=(rows, 8, 8, 3))
    return {"x": images, "y": random.integers(0, 3, (rows, 8, 8))}


def pixels_classified(model: keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """The mean over the pixels."""
    return tf.reduce_mean(classified(model, batch), [1, 2])


def super_resolution() -> keras.Model:
    """Shi et al. 2016: channels become pixels."""
    inputs = keras.Input((4, 4, 1))
    hidden = layers.Conv2D(8, 3, padding="same", activation="tanh")(inputs)
    hidden = layers.Conv2D(4, 3, padding="same")(hidden)
    return keras.Model(inputs, layers.Lambda(lambda x: tf.nn.depth_to_space(x, 2))(hidden))


def squeeze_and_excite() -> keras.Model:
    """Hu et al. 2018, in a residual block with L2."""
    inputs = keras.Input((8, 8, 3))
    hidden = layers.Conv2D(6, 3, padding="same", kernel_regularizer="l2")(inputs)
    inner = layers.GroupNormalization(3)(layers.Conv2D(6, 3, padding="same")(hidden))
    shares = layers.Dense(6, activation="sigmoid")(
        layers.Dense(2, activation="relu")(layers.GlobalAveragePooling2D(keepdims=True)(inner))
    )
    hidden = layers.ReLU()(hidden + inner * shares)
    return keras.Model(inputs, layers.Dense(4)(layers.GlobalMaxPooling2D()(hidden)))


def detector() -> keras.Model:
    """A detector's two heads: classes and boxes of each cell."""
    inputs = keras.Input((8, 8, 3))
    hidden = layers.Conv2D(8, 3, 2, padding="same", activation="swish")(inputs)
    outputs = {"classes": layers.Conv2D(3, 1)(hidden), "boxes": layers.Conv2D(4, 1)(hidden)}
    return keras.Model(inputs, outputs)


def boxes(random: np.random.Generator, rows: int) -> Batch:
    """Data: pictures, the classes and the boxes of their cells."""
    classes = np.eye(3)[random.integers(0, 3, (rows, 4, 4))]
    images = random.normal(size=(rows, 8, 8, 3))
    return {"x": images, "classes": classes, "boxes": random.normal(size=(rows, 4, 4, 4))}


def detected(model: keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """Focal loss of the classes (Lin et al. 2017) and Huber loss of the boxes."""
    found = model(batch["x"])
    focal = keras.losses.categorical_focal_crossentropy(
        batch["classes"], tf.nn.softmax(found["classes"])
    )
    return tf.reduce_mean(focal + keras.losses.huber(batch["boxes"], found["boxes"]), [1, 2])


class Distilled(keras.Model):
    """Hinton et al. 2015: a student learns from a frozen teacher."""

    def __init__(self):
        super().__init__()
        self.teacher = keras.Sequential([layers.Flatten(), layers.Dense(4)])
        self.teacher.trainable = False
        self.student = keras.Sequential(
            [layers.Flatten(), layers.Dense(5, activation="elu"), layers.Dense(4)]
        )

    def call(self, inputs):
        return self.student(inputs), self.teacher(inputs)


def distilled(model: keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """The true labels, and the teacher's softened ones."""
    student, teacher = model(batch["x"])
    hard = keras.losses.sparse_categorical_crossentropy(batch["y"], student, from_logits=True)
    soft = keras.losses.kl_divergence(tf.nn.softmax(teacher / 3), tf.nn.softmax(student / 3))
    return hard + 9 * soft


class Siamese(keras.Model):
    """One embedding for three pictures."""

    def __init__(self):
        super().__init__()
        self.embedding = keras.Sequential(
            [layers.Conv2D(4, 3, activation="relu"), layers.Flatten(), layers.Dense(5)]
        )

    def call(self, pictures):
        return [layers.UnitNormalization()(self.embedding(one)) for one in pictures]


def triplets(random: np.random.Generator, rows: int) -> Batch:
    """Data: an anchor, a picture of its kind and one of another."""
    names = ("anchor", "same", "other")
    return {name: random.normal(size=(rows, 6, 6, 1)) for name in names}


def triplet_losses(model: keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """Schroff et al. 2015."""
    anchor, same, other = model([batch["anchor"], batch["same"], batch["other"]])
    near = tf.reduce_sum(tf.square(anchor - same), -1)
    far = tf.reduce_sum(tf.square(anchor - other), -1)
    return tf.maximum(near - far + 0.5, 0.0)


def finer(random: np.random.Generator, rows: int) -> Batch:
    """Data: small pictures and their larger versions."""
    return {"x": random.normal(size=(rows, 4, 4, 1)), "y": random.normal(size=(rows, 8, 8, 1))}


MEMBERS = {
    "vision_transformer": Member(vision_transformer, pictures(8), classified),
    "mlp_mixer": Member(mlp_mixer, pictures(8), classified),
    "gated_mlp": Member(gated_mlp, pictures(8), classified),
    "conv_mixer": Member(conv_mixer, pictures(8), classified),
    "u_net": Member(u_net, segmented, pixels_classified),
    "super_resolution": Member(super_resolution, finer, regressed),
    "squeeze_and_excite": Member(squeeze_and_excite, pictures(8), classified),
    "detector": Member(detector, boxes, detected),
    "distillation": Member(Distilled, pictures(6, 1), distilled),
    "siamese": Member(Siamese, triplets, triplet_losses),
}
