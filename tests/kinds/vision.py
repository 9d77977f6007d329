"""Pictures: classifiers, segmentation, detection, super-resolution, what augments and explains."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.kinds.registry import (
    Program,
    adam,
    batches,
    dense,
    kind,
    labels,
    pictures,
    random,
    sgd,
    vectors,
)

CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy


def classifier(inputs, hidden, *, size=8, channels=1, **options) -> Program:
    """Returns a classifier of pictures by the mean of what the hidden layers make of them."""
    outputs = layers.Dense(3)(layers.GlobalAveragePooling2D()(hidden))
    model = keras.Model(inputs, outputs)
    model.compile(sgd(), CROSS_ENTROPY(from_logits=True), metrics=["accuracy"])
    return Program(model, batches((pictures(size, channels), labels(3))), {"epochs": 2, **options})


class Normalised(layers.Layer):
    """A convolution and its normalisation, which a functional model's `training` does not reach."""

    def __init__(self):
        super().__init__()
        self.conv, self.normal = layers.Conv2D(4, 3), layers.BatchNormalization()

    def call(self, x):
        return ops.relu(self.normal(self.conv(x), training=False))


@kind()
def batch_norm_in_inference_mode() -> Program:
    inputs = keras.Input((8, 8, 1))
    return classifier(inputs, Normalised()(inputs))


@kind()
def batch_norm_frozen_for_fine_tuning() -> Program:
    inputs = keras.Input((8, 8, 1))
    base = keras.Sequential([keras.Input((8, 8, 1)), layers.Conv2D(4, 3)])
    base.add(layers.BatchNormalization())
    base.trainable = False
    return classifier(inputs, layers.Conv2D(4, 3, activation="relu")(base(inputs, training=False)))


@kind()
def batch_norm_synchronized() -> Program:
    inputs = keras.Input((8, 8, 1))
    hidden = layers.Conv2D(4, 3)(inputs)
    hidden = layers.BatchNormalization(synchronized=True, epsilon=1e-2)(hidden)
    return classifier(inputs, layers.Activation("relu")(hidden))


@kind()
def small_res_net() -> Program:
    inputs = keras.Input((8, 8, 2))
    hidden = layers.Conv2D(4, 3, padding="same")(inputs)
    for stride in (1, 2):
        body = layers.GroupNormalization(2)(hidden)
        body = layers.Conv2D(4, 3, stride, padding="same", activation="relu")(body)
        hidden = layers.add([layers.Conv2D(4, 1, stride)(hidden), body])
    return classifier(inputs, hidden, channels=2)


@kind()
def small_xception() -> Program:
    inputs = keras.Input((8, 8, 1))
    hidden = layers.Rescaling(0.5)(inputs)
    hidden = layers.SeparableConv2D(4, 3, padding="same", activation="relu")(hidden)
    hidden = layers.DepthwiseConv2D(3, activation="relu")(layers.MaxPooling2D()(hidden))
    return classifier(inputs, hidden)


@kind()
def u_net_with_dice() -> Program:
    """A loss class that makes one number of the whole batch."""
    inputs = keras.Input((8, 8, 1))
    first = layers.Conv2D(3, 3, padding="same", activation="relu")(inputs)
    low = layers.Conv2D(4, 3, padding="same", activation="relu")(layers.MaxPooling2D()(first))
    up = layers.Conv2DTranspose(3, 2, strides=2)(low)
    joined = layers.Concatenate()([first, up])
    model = keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(joined))
    model.compile(adam(), keras.losses.Dice(), metrics=[keras.metrics.BinaryIoU()])
    return Program(model, batches((pictures(8), labels(2, 8, 8, 1).astype("float64"))))


@kind()
def pet_segmentation() -> Program:
    inputs = keras.Input((8, 8, 3))
    hidden = layers.SeparableConv2D(4, 3, strides=2, padding="same", activation="relu")(inputs)
    hidden = layers.UpSampling2D()(hidden)
    model = keras.Model(inputs, layers.Conv2D(3, 3, activation="softmax", padding="same")(hidden))
    metric = keras.metrics.MeanIoU(3, sparse_y_pred=False)
    model.compile(adam(), "sparse_categorical_crossentropy", metrics=[metric])
    return Program(model, batches((pictures(8, 3), labels(3, 8, 8))))


@kind()
def tversky_and_cross_entropy() -> Program:
    model = keras.Sequential(
        [keras.Input((4, 4, 1)), layers.Conv2D(1, 3, padding="same", activation="sigmoid")]
    )
    tversky = keras.losses.Tversky()

    def loss(y_true, y_pred):
        entropy = ops.mean(keras.losses.binary_crossentropy(y_true, y_pred))
        return entropy + tversky(y_true, y_pred)

    model.compile(sgd(), loss)
    return Program(model, batches((pictures(4), labels(2, 4, 4, 1).astype("float64"))))


class Patches(layers.Layer):
    """Pictures [rows, side, side, channels] to embedded patches with places."""

    def __init__(self, size, width):
        super().__init__()
        self.size, self.product = size, layers.Dense(width)

    def build(self, input_shape):
        self.count = (input_shape[1] // self.size) ** 2
        self.places = self.add_weight(shape=(self.count, self.product.units), name="places")
        self.product.build((None, self.size**2 * input_shape[-1]))

    def call(self, images):
        patches = ops.image.extract_patches(images, (self.size, self.size))
        width = self.size**2 * images.shape[-1]
        return self.product(ops.reshape(patches, (-1, self.count, width))) + self.places


@kind()
def vision_transformer() -> Program:
    inputs = keras.Input((8, 8, 1))
    hidden = Patches(4, 6)(inputs)
    for _ in range(2):
        normal = layers.LayerNormalization(epsilon=1e-6)(hidden)
        hidden = layers.Add()([layers.MultiHeadAttention(2, 3)(normal, normal), hidden])
        normal = layers.LayerNormalization(epsilon=1e-6)(hidden)
        hidden = layers.Add()([layers.Dense(6, "gelu")(normal), hidden])
    model = keras.Model(inputs, layers.Dense(3)(layers.Flatten()(hidden)))
    model.compile(
        keras.optimizers.AdamW(0.01, weight_decay=1e-3, epsilon=1e-3),
        CROSS_ENTROPY(from_logits=True),
        metrics=["accuracy", keras.metrics.SparseCategoricalCrossentropy(from_logits=True)],
    )
    return Program(model, batches((pictures(8), labels(3))))


@kind()
def mlp_mixer() -> Program:
    inputs = keras.Input((8, 8, 1))
    hidden = Patches(4, 6)(inputs)
    across = layers.Permute((2, 1))(layers.LayerNormalization()(hidden))
    across = layers.Permute((2, 1))(layers.Dense(4)(layers.Dense(5, "gelu")(across)))
    hidden = layers.Add()([hidden, across])
    hidden = layers.Add()([hidden, layers.Dense(6, "gelu")(layers.LayerNormalization()(hidden))])
    model = keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling1D()(hidden)))
    model.compile(adam(), CROSS_ENTROPY(from_logits=True), metrics=["accuracy"])
    return Program(model, batches((pictures(8), labels(3))))


@kind()
def perceiver() -> Program:
    """Latents that have no rows attend to each picture's patches."""

    class Latents(layers.Layer):
        def build(self, _):
            self.latents = self.add_weight(shape=(3, 6), initializer="glorot_uniform")

        def call(self, patches):
            return ops.tile(self.latents[None], (ops.shape(patches)[0], 1, 1))

    inputs = keras.Input((8, 8, 1))
    patches = Patches(4, 6)(inputs)
    latents = layers.MultiHeadAttention(2, 3)(Latents()(patches), patches)
    model = keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling1D()(latents)))
    model.compile(adam(), CROSS_ENTROPY(from_logits=True), metrics=["accuracy"])
    return Program(model, batches((pictures(8), labels(3))))


class ClassAttention(keras.Model):
    """A subclassed transformer whose class token is a weight, with a scale for each layer."""

    def __init__(self):
        super().__init__()
        self.patches, self.attention = Patches(4, 6), layers.MultiHeadAttention(2, 3)
        self.logits = layers.Dense(3)

    def build(self, _):
        self.token = self.add_weight(shape=(1, 1, 6), initializer="random_normal", name="token")
        self.scale = self.add_weight(shape=(6,), initializer="ones", name="scale")
        self.built = True

    def call(self, images, training=False):
        patches = self.patches(images)
        token = ops.repeat(self.token, ops.shape(images)[0], 0)
        both = ops.concatenate([token, patches], 1)
        attended, scores = self.attention(token, both, return_attention_scores=True)
        return self.logits(
            (token + self.scale * attended)[:, 0] + ops.mean(scores, (1, 2, 3))[:, None]
        )


@kind()
def class_attention() -> Program:
    model = ClassAttention()
    model.compile(adam(), CROSS_ENTROPY(from_logits=True), metrics=["accuracy"])
    return Program(model, batches((pictures(8), labels(3))))


class Involution(layers.Layer):
    """A kernel for each place, made of the place itself."""

    def __init__(self):
        super().__init__()
        self.maker = keras.Sequential([layers.Conv2D(2, 1, activation="relu"), layers.Conv2D(9, 1)])

    def call(self, x):
        kernels = self.maker(x)[..., None]
        windows = ops.image.extract_patches(x, (3, 3), strides=1, padding="same")
        windows = ops.reshape(
            windows, (*kernels.shape[:0], -1, x.shape[1], x.shape[2], 9, x.shape[3])
        )
        return ops.sum(kernels * windows, 3)


@kind()
def involution() -> Program:
    inputs = keras.Input((6, 6, 2))
    return classifier(inputs, Involution()(inputs), size=6, channels=2)


@kind()
def compact_convolutional_transformer() -> Program:
    class Pooling(layers.Layer):
        def __init__(self):
            super().__init__()
            self.attention = layers.Dense(1)

        def call(self, x):
            weights = ops.transpose(ops.softmax(self.attention(x), axis=1), (0, 2, 1))
            return ops.squeeze(ops.matmul(weights, x), -2)

    inputs = keras.Input((8, 8, 1))
    tokens = layers.Reshape((9, 4))(layers.Conv2D(4, 3, 2, activation="relu")(inputs))
    tokens = layers.Add()([tokens, layers.MultiHeadAttention(2, 2)(tokens, tokens)])
    model = keras.Model(inputs, layers.Dense(3)(Pooling()(tokens)))
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    model.compile(adam(), loss, metrics=["accuracy"])
    return Program(model, batches((pictures(8), np.eye(3)[labels(3)])))


class FocalBox(keras.losses.Loss):
    """Focal loss of classes and a smooth absolute error of boxes, over the matched anchors."""

    def call(self, y_true, y_pred):
        classes, boxes = ops.cast(y_true[..., 4], "int32"), y_true[..., :4]
        matched = ops.cast(classes >= 0, y_pred.dtype)
        target = ops.one_hot(ops.maximum(classes, 0), 2) * matched[..., None]
        chance = ops.sigmoid(y_pred[..., 4:])
        entropy = keras.ops.binary_crossentropy(target, y_pred[..., 4:], from_logits=True)
        focal = ops.sum(entropy * ops.abs(target - chance) ** 2, -1)
        apart = ops.abs(boxes - y_pred[..., :4])
        box = ops.sum(ops.where(apart < 1, 0.5 * apart**2, apart - 0.5), -1)
        return ops.sum(focal + box * matched, -1) / (ops.sum(matched, -1) + 1.0)


@kind()
def retina_net_like_detector() -> Program:
    inputs = keras.Input((8, 8, 1))
    low = layers.Conv2D(3, 3, 2, padding="same", activation="relu")(inputs)
    high = layers.Conv2D(3, 3, 2, padding="same", activation="relu")(low)
    head = layers.Conv2D(6, 3, padding="same")
    levels = [layers.Reshape((-1, 6))(head(level)) for level in (low, high)]
    model = keras.Model(inputs, layers.Concatenate(axis=1)(levels))
    model.compile(sgd(0.02), FocalBox())
    truth = np.concatenate([vectors(80).reshape(24, 20, 4), labels(3, 20, 1) - 1], -1)
    return Program(model, batches((pictures(8), truth)))


class Detector(keras.Model):
    """Several outputs, several losses, an own step that counts positives of the whole batch."""

    def __init__(self):
        super().__init__()
        self.body = keras.Sequential([layers.Conv2D(4, 3, 2, padding="same", activation="relu")])
        self.boxes, self.classes = layers.Conv2D(4, 1), layers.Conv2D(2, 1)
        names = ("loss", "box_loss", "class_loss")
        self.trackers = [keras.metrics.Mean(name=name) for name in names]

    @property
    def metrics(self):
        return self.trackers

    def call(self, images, training=False):
        features = self.body(images, training=training)
        return {"boxes": self.boxes(features), "classes": self.classes(features)}

    def losses_of(self, images, targets, training):
        found = self(images, training=training)
        positive = ops.cast(targets["classes"] > 0, "float64")
        count = ops.maximum(ops.sum(positive), 1.0)
        box = ops.sum(ops.abs(targets["boxes"] - found["boxes"]) * positive[..., None]) / count
        entropy = keras.losses.sparse_categorical_crossentropy(
            targets["classes"], found["classes"], from_logits=True
        )
        return box, ops.sum(entropy) / count

    def train_step(self, data):
        images, targets = data
        with tf.GradientTape() as tape:
            box, classes = self.losses_of(images, targets, True)
            total = box + 2.0 * classes
        gradients = tape.gradient(total, self.trainable_variables)
        gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return self.told(total, box, classes)

    def test_step(self, data):
        box, classes = self.losses_of(*data, False)
        return self.told(box + 2.0 * classes, box, classes)

    def told(self, *values):
        for tracker, value in zip(self.trackers, values, strict=True):
            tracker.update_state(value)
        return {tracker.name: tracker.result() for tracker in self.trackers}


@kind("own step")
def detector_with_an_own_step() -> Program:
    model = Detector()
    model.compile(sgd())
    targets = {"boxes": vectors(64).reshape(24, 4, 4, 4), "classes": labels(2, 4, 4)}
    data = batches((pictures(8), targets))
    return Program(model, data, {"validation_data": data})


@kind()
def keypoints() -> Program:
    inputs = keras.Input((8, 8, 1))
    hidden = layers.SeparableConv2D(4, 5, activation="relu")(inputs)
    outputs = layers.SeparableConv2D(4, 4, activation="sigmoid")(hidden)
    model = keras.Model(inputs, outputs)
    model.compile(adam(), "mse")
    return Program(model, batches((pictures(8), random().uniform(size=(24, 1, 1, 4)))))


@kind()
def super_resolution_by_sub_pixels() -> Program:
    inputs = keras.Input((None, None, 1))
    hidden = layers.Conv2D(4, 3, padding="same", activation="tanh")(inputs)

    class SubPixels(layers.Layer):
        def call(self, x):
            return tf.nn.depth_to_space(x, 2)

    model = keras.Model(inputs, SubPixels()(layers.Conv2D(4, 3, padding="same")(hidden)))
    model.compile(adam(), "mse")
    return Program(model, batches((pictures(4), pictures(8))))


class Restorer(keras.Model):
    """A perceptual loss: a frozen network looks at the truth and at what was restored."""

    def __init__(self):
        super().__init__()
        self.body = keras.Sequential([layers.Conv2D(3, 3, padding="same", activation="relu")])
        self.last = layers.Conv2D(1, 3, padding="same")
        self.judge = keras.Sequential(
            [keras.Input((6, 6, 1)), layers.Conv2D(3, 3, activation="relu")]
        )
        self.judge.trainable = False
        self.psnr = keras.metrics.Mean("psnr")

    def call(self, images):
        return images + self.last(self.body(images))

    @property
    def metrics(self):
        return [self.psnr]

    def train_step(self, data):
        poor, good = data
        with tf.GradientTape() as tape:
            made = self(poor, training=True)
            pixels = ops.mean(ops.sqrt((good - made) ** 2 + 1e-6))
            seen = ops.mean((self.judge(good) - self.judge(made)) ** 2)
            loss = pixels + 0.5 * seen
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.psnr.update_state(tf.image.psnr(good, made, 2.0))
        return {"loss": loss, "psnr": self.psnr.result()}


@kind("own step")
def restoration_with_a_perceptual_loss() -> Program:
    model = Restorer()
    model.compile(adam())
    x = pictures(6)
    return Program(model, batches((x + 0.1 * x[::-1], x)))


@kind()
def perceptual_loss_of_a_compiled_model() -> Program:
    """The same as a loss that `compile` is given: it calls a frozen network."""
    judge = keras.Sequential([keras.Input((6, 6, 1)), layers.Conv2D(3, 3, activation="relu")])
    judge.trainable = False

    def loss(y_true, y_pred):
        return ops.mean((judge(y_true) - judge(y_pred)) ** 2)

    model = keras.Sequential([keras.Input((6, 6, 1)), layers.Conv2D(1, 3, padding="same")])
    model.compile(adam(), loss)
    x = pictures(6)
    return Program(model, batches((x + 0.1 * x[::-1], x)))


class ZeroReference(keras.Model):
    """Light enhancement without truth: four losses of the picture and its curve."""

    def __init__(self):
        super().__init__()
        self.curve = keras.Sequential([layers.Conv2D(3, 3, padding="same", activation="tanh")])

    def compile(self, rate):
        super().compile()
        self.optimizer = adam(rate)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            curve = self.curve(data)
            lit = data + curve * (data**2 - data)
            means = ops.mean(lit, axis=(1, 2), keepdims=True)
            colour = ops.sqrt(
                ops.mean((means[..., 0] - means[..., 1]) ** 2)
                + ops.mean((means[..., 1] - means[..., 2]) ** 2)
            )
            exposure = ops.mean((ops.average_pool(ops.mean(lit, 3, keepdims=True), 2) - 0.6) ** 2)
            smooth = ops.mean((curve[:, 1:] - curve[:, :-1]) ** 2)
            losses = {"colour": colour, "exposure": exposure, "smooth": 20.0 * smooth}
            losses["total"] = sum(losses.values())
        weights = self.curve.trainable_weights
        self.optimizer.apply_gradients(
            zip(tape.gradient(losses["total"], weights), weights, strict=True)
        )
        return losses


@kind("own step")
def light_enhancement() -> Program:
    model = ZeroReference()
    model.compile(0.01)
    return Program(model, batches(random().uniform(size=(24, 4, 4, 3))))


@kind(random_inside=True)
def augmentation_in_the_model() -> Program:
    inputs = keras.Input((8, 8, 1))
    hidden = layers.RandomFlip("horizontal", seed=1)(inputs)
    hidden = layers.RandomContrast(0.2, value_range=(-1, 1), seed=2)(hidden)
    return classifier(inputs, layers.Conv2D(3, 3, activation="relu")(hidden))


@kind(random_inside=True)
def dropout_in_the_model() -> Program:
    inputs = keras.Input((8, 8, 1))
    hidden = layers.SpatialDropout2D(0.3, seed=1)(layers.Conv2D(4, 3, activation="relu")(inputs))
    return classifier(inputs, layers.Dropout(0.2)(hidden))


@kind()
def augmentation_that_draws_nothing() -> Program:
    """Resizing, cropping in the middle, normalisation with an adapted state."""
    images = pictures(8)
    normal = layers.Normalization()
    normal.adapt(images)
    inputs = keras.Input((8, 8, 1))
    hidden = layers.CenterCrop(6, 6)(layers.Resizing(9, 9)(normal(inputs)))
    return classifier(inputs, layers.Conv2D(3, 3, activation="relu")(hidden))


class Explained(keras.Model):
    """Attention to the evidence: the class's gradient by the features weighs them (Grad-CAM)."""

    def __init__(self):
        super().__init__()
        self.features = layers.Conv2D(4, 3, activation="softplus")
        self.logits = keras.Sequential([layers.GlobalAveragePooling2D(), dense(4, 5, 3)])

    def train_step(self, data):
        images, y = data
        with tf.GradientTape() as tape:
            features = self.features(images)
            with tf.GradientTape() as inner:
                inner.watch(features)
                logits = self.logits(features)
                score = ops.sum(logits * ops.one_hot(y, 3), -1)
            slopes = inner.gradient(score, features)
            heat = ops.sum(features * ops.mean(slopes, (1, 2), keepdims=True), -1)
            entropy = keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
            loss = ops.mean(entropy) + 0.1 * ops.mean(heat**2)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss, "heat": ops.mean(heat)}


@kind("own step")
def grad_cam_as_a_loss() -> Program:
    model = Explained()
    model.compile(sgd())
    return Program(model, batches((pictures(6), labels(3))))


@kind()
def point_clouds_with_an_orthogonal_regularizer() -> Program:
    class Orthogonal(keras.regularizers.Regularizer):
        def __call__(self, x):
            x = ops.reshape(x, (-1, 3, 3))
            product = ops.matmul(x, ops.transpose(x, (0, 2, 1)))
            return ops.sum(0.01 * (product - ops.eye(3)) ** 2)

    inputs = keras.Input((5, 3))
    features = layers.GlobalMaxPooling1D()(layers.Conv1D(4, 1, activation="relu")(inputs))
    transform = layers.Dense(9, activity_regularizer=Orthogonal())(features)
    moved = layers.Dot(axes=(2, 1))([inputs, layers.Reshape((3, 3))(transform)])
    outputs = layers.Dense(3)(layers.GlobalMaxPooling1D()(layers.Conv1D(4, 1)(moved)))
    model = keras.Model(inputs, outputs)
    model.compile(adam(), CROSS_ENTROPY(from_logits=True), metrics=["accuracy"])
    return Program(model, batches((vectors(15).reshape(24, 5, 3), labels(3))))


@kind()
def small_net_of_keras_applications() -> Program:
    model = keras.applications.MobileNet(
        input_shape=(32, 32, 3), alpha=0.25, weights=None, classes=3, dropout=0.0
    )
    for layer in model.layers:
        layer.trainable = not isinstance(layer, layers.BatchNormalization)
    model.compile(sgd(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return Program(model, batches((pictures(32, 3), labels(3))))
