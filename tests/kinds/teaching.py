"""Own train steps that teach otherwise: teachers, adversaries, mixtures, second derivatives."""

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
    told,
    vectors,
)

CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy


def labelled(width: int = 5) -> tf.data.Dataset:
    return batches((vectors(width), labels(3)))


class Distiller(keras.Model):
    """A student follows labels and a teacher's softened outputs, by `compute_loss`."""

    def __init__(self):
        super().__init__()
        self.teacher, self.student = dense(5, 12, 3), dense(5, 4, 3)
        self.teacher.trainable = False

    def compile(self, optimizer, metrics):
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss, self.kl = CROSS_ENTROPY(from_logits=True), keras.losses.KLDivergence()

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        taught = self.teacher(x, training=False)
        distance = self.kl(ops.softmax(taught / 3.0), ops.softmax(y_pred / 3.0)) * 9.0
        return 0.1 * self.student_loss(y, y_pred) + 0.9 * distance

    def call(self, x):
        return self.student(x)


@kind("own step")
def distillation_by_compute_loss() -> Program:
    model = Distiller()
    model.compile(adam(), [keras.metrics.SparseCategoricalAccuracy()])
    return Program(model, labelled(), {"epochs": 2})


class StepDistiller(keras.Model):
    """The same in a `train_step`, with losses told apart."""

    def __init__(self):
        super().__init__()
        self.teacher, self.student = dense(5, 12, 3), dense(5, 4, 3)

    def train_step(self, data):
        x, y = data
        taught = self.teacher(x, training=False)
        with tf.GradientTape() as tape:
            logits = self.student(x, training=True)
            student_loss = self.compute_loss(y=y, y_pred=logits)
            softened = ops.softmax(taught / 2.0)
            distance = keras.losses.kl_divergence(softened, ops.softmax(logits / 2.0))
            loss = 0.3 * student_loss + 0.7 * ops.mean(distance)
        weights = self.student.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {**told(self, loss, y, logits), "student_loss": student_loss}


@kind("own step")
def distillation_by_a_train_step() -> Program:
    model = StepDistiller()
    model.compile(sgd(), CROSS_ENTROPY(from_logits=True), metrics=["accuracy"])
    return Program(model, labelled(), {"epochs": 2})


class Consistency(keras.Model):
    """A student sees noisy rows, its teacher clean ones; both losses are one."""

    def __init__(self):
        super().__init__()
        self.teacher, self.student = dense(5, 8, 3), dense(5, 8, 3)
        self.tracker = keras.metrics.Mean("total_loss")

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        clean, noisy = data
        x, y = clean
        with tf.GradientTape() as tape:
            outputs = self.student(ops.concatenate([x, noisy], 0), training=True)
            taught = ops.softmax(self.teacher(ops.concatenate([x, x], 0)) / 2.0)
            rows = ops.shape(x)[0]
            student = ops.mean(
                keras.losses.sparse_categorical_crossentropy(y, outputs[:rows], from_logits=True)
            )
            distance = ops.mean(keras.losses.kl_divergence(taught, ops.softmax(outputs / 2.0)))
            total = (student + distance) / 2
        weights = self.student.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(total, weights), weights, strict=True))
        self.tracker.update_state(total)
        return {"total_loss": self.tracker.result()}


@kind("own step")
def consistency_training() -> Program:
    model = Consistency()
    model.compile(adam())
    noisy = vectors(5) + 0.2 * vectors(5)[::-1]
    return Program(model, tf.data.Dataset.zip((labelled(), batches(noisy))))


class MeanTeacher(keras.Model):
    """The teacher is the student's moving average; labels of -1 are unknown."""

    def __init__(self):
        super().__init__()
        self.student = dense(5, 8, 3)
        self.teacher = keras.models.clone_model(self.student)
        self.teacher.set_weights(self.student.get_weights())
        self.teacher.trainable = False
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, x, training=False):
        return self.student(x, training=training)

    def train_step(self, data):
        x, y = data
        draws = [0.1 * keras.random.normal(ops.shape(x), seed=self.seeds) for _ in range(2)]
        known = ops.cast(y >= 0, "float64")
        taught = ops.softmax(self.teacher(x + draws[0]))
        with tf.GradientTape() as tape:
            logits = self(x + draws[1], training=True)
            losses = keras.losses.sparse_categorical_crossentropy(
                ops.maximum(y, 0), logits, from_logits=True
            )
            supervised = ops.sum(losses * known) / ops.maximum(ops.sum(known), 1.0)
            loss = supervised + ops.mean((taught - ops.softmax(logits)) ** 2)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        for mean, now in zip(self.teacher.weights, self.student.weights, strict=True):
            mean.assign(0.95 * mean + 0.05 * now)
        return {"loss": loss, "supervised": supervised}


@kind("own step")
def mean_teacher() -> Program:
    model = MeanTeacher()
    model.compile(sgd())
    return Program(model, batches((vectors(5), 2 - labels(4))), {"epochs": 2})


class ForwardForwardLayer(layers.Layer):
    """A dense layer with its own optimizer: goodness of positive rows rises, of negative falls."""

    def __init__(self, width):
        super().__init__()
        self.dense = layers.Dense(width, "relu")
        self.own = sgd(0.03)

    def call(self, x):
        return self.dense(x / (ops.norm(x, axis=-1, keepdims=True) + 1e-4))

    def goodness(self, x):
        return ops.mean(self(x) ** 2, 1)

    def train(self, positive, negative):
        with tf.GradientTape() as tape:
            margins = ops.concatenate(
                [1.5 - self.goodness(positive), self.goodness(negative) - 1.5], 0
            )
            loss = ops.mean(ops.softplus(margins))
        weights = self.dense.trainable_weights
        self.own.apply(tape.gradient(loss, weights), weights)
        return ops.stop_gradient(self(positive)), ops.stop_gradient(self(negative)), loss


class ForwardForward(keras.Model):
    """No backward pass through the network: each layer learns by itself."""

    def __init__(self):
        super().__init__()
        self.parts = [ForwardForwardLayer(6), ForwardForwardLayer(4)]
        self.tracker = keras.metrics.Mean("loss")

    @property
    def metrics(self):
        return [self.tracker]

    def call(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def train_step(self, data):
        x, y = data
        positive = ops.concatenate([x, ops.one_hot(y, 3)], -1)
        negative = ops.concatenate([x, ops.one_hot((y + 1) % 3, 3)], -1)
        for part in self.parts:
            positive, negative, loss = part.train(positive, negative)
            self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


@kind("own step")
def forward_forward() -> Program:
    model = ForwardForward()
    model(np.zeros((1, 8)))
    for part in model.parts:
        part.own.build(part.dense.trainable_weights)
    model.compile(jit_compile=False)
    return Program(model, labelled(), {"epochs": 2})


class Adversarial(keras.Model):
    """Inputs move by the sign of the loss's gradient, and both losses are added."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        moved = x + 0.1 * ops.sign(tape.gradient(loss, x))
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=outputs)
            loss += 0.5 * self.compute_loss(y=y, y_pred=self(moved, training=True))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return told(self, loss, y, outputs)


def subclassed(kind_of_model, loss=None, optimizer=None, **options):
    """Returns a functional model of a class with its own step, compiled."""
    body = dense(5, 8, 3)
    model = kind_of_model(body.inputs, body.outputs)
    model.compile(
        optimizer or sgd(), loss or CROSS_ENTROPY(from_logits=True), metrics=["accuracy"], **options
    )
    return model


@kind("own step")
def adversarial_training() -> Program:
    return Program(subclassed(Adversarial), labelled(), {"epochs": 2})


class SharpnessAware(keras.Model):
    """The gradient is taken where the loss is worst near by."""

    def train_step(self, data):
        x, y = data
        weights = self.trainable_variables
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, weights)
        norm = ops.sqrt(sum(ops.sum(slope**2) for slope in gradients))
        moves = [0.05 * slope / (norm + 1e-12) for slope in gradients]
        for weight, move in zip(weights, moves, strict=True):
            weight.assign_add(move)
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=outputs)
        gradients = tape.gradient(loss, weights)
        for weight, move in zip(weights, moves, strict=True):
            weight.assign_sub(move)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return told(self, loss, y, outputs)


@kind("own step")
def sharpness_aware_minimisation() -> Program:
    return Program(subclassed(SharpnessAware), labelled(), {"epochs": 2})


class Centralised(keras.optimizers.RMSprop):
    """An optimizer whose gradients are freed of their mean."""

    def apply(self, grads, trainable_variables=None):
        grads = [
            grad - ops.mean(grad, list(range(len(grad.shape) - 1)), keepdims=True)
            if len(grad.shape) > 1
            else grad
            for grad in grads
        ]
        return super().apply(grads, trainable_variables)


@kind()
def gradient_centralisation() -> Program:
    model = dense(5, 8, 3)
    optimizer = Centralised(0.01, epsilon=1e-3)
    model.compile(optimizer, CROSS_ENTROPY(from_logits=True), metrics=["accuracy"])
    return Program(model, labelled(), {"epochs": 2})


class Maml(keras.Model):
    """An inner step on half of the rows, by hand; the outer gradient goes through it."""

    def __init__(self):
        super().__init__()
        self.first, self.last = layers.Dense(6, "tanh"), layers.Dense(1)

    def call(self, x):
        return self.last(self.first(x))

    def train_step(self, data):
        (x, y), (asked, answers) = data
        weights = self.trainable_variables
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner_loss = ops.mean((y - self(x)) ** 2)
            kernel, bias, last_kernel, last_bias = (
                weight - 0.1 * slope
                for weight, slope in zip(weights, inner.gradient(inner_loss, weights), strict=True)
            )
            hidden = ops.tanh(ops.matmul(asked, kernel) + bias)
            loss = ops.mean((answers - ops.matmul(hidden, last_kernel) - last_bias) ** 2)
        self.optimizer.apply(outer.gradient(loss, weights), weights)
        return {"loss": loss, "inner_loss": inner_loss}


@kind("own step")
def maml_with_second_derivatives() -> Program:
    model = Maml()
    model(np.zeros((1, 5)))
    model.compile(sgd())
    x, y = vectors(5), vectors(1)
    data = tf.data.Dataset.zip((batches((x, y)), batches((x[::-1], y[::-1]))))
    return Program(model, data, {"epochs": 2})


class HeatEquation(keras.Model):
    """A physics-informed network: the loss is of second derivatives by its inputs."""

    def train_step(self, points):
        with tf.GradientTape() as tape:
            with tf.GradientTape() as second:
                second.watch(points)
                with tf.GradientTape() as first:
                    first.watch(points)
                    heat = self(points, training=True)
                slopes = first.gradient(heat, points)
                by_place = slopes[:, :1]
            curvature = second.gradient(by_place, points)[:, :1]
            loss = ops.mean((slopes[:, 1:] - curvature) ** 2) + ops.mean((heat - 1.0) ** 2)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return told(self, loss)


@kind("own step")
def physics_informed_network() -> Program:
    body = dense(2, 8, 1)
    model = HeatEquation(body.inputs, body.outputs)
    model.compile(adam())
    return Program(model, batches(vectors(2)), {"epochs": 2})


class MixUp(keras.Model):
    """Rows and labels of the whole batch are mixed in the step, each with the one before."""

    def train_step(self, data):
        x, y = data
        one_hot = ops.one_hot(y, 3)
        share = 0.7
        x = share * x + (1 - share) * ops.roll(x, 1, axis=0)
        one_hot = share * one_hot + (1 - share) * ops.roll(one_hot, 1, axis=0)
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compute_loss(y=one_hot, y_pred=outputs)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return told(self, loss, one_hot, outputs)


@kind("own step")
def mixup_in_the_step() -> Program:
    model = subclassed(MixUp, keras.losses.CategoricalCrossentropy(from_logits=True))
    return Program(model, labelled(), {"epochs": 2})


@kind()
def cutmix_in_the_data() -> Program:
    """A square of each picture is another's; labels by the share of the pixels."""
    x, y = pictures(6), np.eye(3)[labels(3)]
    other, other_y = x[::-1], y[::-1]
    mask = np.zeros((1, 6, 6, 1))
    mask[:, 1:4, 2:5] = 1.0
    x, y = x * (1 - mask) + other * mask, 0.75 * y + 0.25 * other_y
    model = keras.Sequential(
        [keras.Input((6, 6, 1)), layers.Conv2D(3, 3), layers.Flatten(), layers.Dense(3)]
    )
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    model.compile(sgd(), loss, metrics=["accuracy"])
    return Program(model, batches((x, y)), {"epochs": 2})


class AdaMatch(keras.Model):
    """Domain adaptation: logits of two domains meet, with a threshold of the batch's confidence."""

    def __init__(self):
        super().__init__()
        self.body = dense(5, 8, 3)

    def train_step(self, data):
        (source, y), target = data
        rows = ops.shape(source)[0]
        with tf.GradientTape() as tape:
            together = self.body(ops.concatenate([source, target], 0), training=True)
            alone = self.body(source, training=True)
            logits = 0.6 * together[:rows] + 0.4 * alone
            losses = keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
            soft = ops.softmax(together[rows:])
            balanced = ops.mean(ops.softmax(logits), 0) / ops.mean(soft, 0)
            soft = ops.stop_gradient(unit_sum(soft * balanced))
            threshold = 0.8 * ops.mean(ops.max(ops.softmax(alone), -1))
            sure = ops.cast(ops.max(soft, -1) >= threshold, losses.dtype)
            unlabelled = keras.losses.categorical_crossentropy(
                soft, self.body(target + 0.1, training=True), from_logits=True
            )
            loss = ops.mean(losses) + 0.5 * ops.mean(unlabelled * sure)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss, "sure": ops.mean(sure)}


def unit_sum(shares):
    return shares / ops.sum(shares, -1, keepdims=True)


@kind("own step")
def domain_adaptation() -> Program:
    model = AdaMatch()
    model.compile(adam())
    return Program(model, tf.data.Dataset.zip((labelled(), batches(vectors(5)[::-1] + 0.5))))


class Accumulating(keras.Model):
    """Gradients of two batches are gathered in variables before an update."""

    def __init__(self):
        super().__init__()
        self.body = dense(5, 8, 3)
        self.sums = [
            tf.Variable(tf.zeros(w.shape, tf.float64), trainable=False) for w in self.body.weights
        ]
        self.count = tf.Variable(0, trainable=False)

    def call(self, x, training=False):
        return self.body(x, training=training)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=outputs)
        weights = self.body.trainable_variables
        for total, slope in zip(self.sums, tape.gradient(loss, weights), strict=True):
            total.assign_add(slope)
        self.count.assign_add(1)
        tf.cond(tf.equal(self.count % 2, 0), self.update, lambda: None)
        return told(self, loss, y, outputs)

    def update(self):
        self.optimizer.apply([total / 2 for total in self.sums], self.body.trainable_variables)
        for total in self.sums:
            total.assign(tf.zeros_like(total))


@kind("own step")
def gradients_accumulated_by_hand() -> Program:
    model = Accumulating()
    model.compile(keras.optimizers.SGD(0.2), CROSS_ENTROPY(from_logits=True), metrics=["accuracy"])
    model.optimizer.build(model.body.trainable_variables)
    return Program(model, labelled(), {"epochs": 2})


class Renderer(keras.Model):
    """A radiance field: many points along each row's ray go through the network as rows."""

    def __init__(self):
        super().__init__()
        self.field = dense(3, 8, 4)
        self.psnr = keras.metrics.Mean("psnr")

    def train_step(self, data):
        colours, rays = data
        rows = ops.shape(rays)[0]
        points = rays[:, None] * ops.reshape(ops.linspace(0.1, 1.0, 5), (1, 5, 1))
        with tf.GradientTape() as tape:
            raw = ops.reshape(self.field(ops.reshape(points, (-1, 3))), (rows, 5, 4))
            alpha = 1 - ops.exp(-ops.relu(raw[..., 3]) * 0.2)
            light = ops.exp(ops.cumsum(ops.log(1 - alpha + 1e-6), -1))
            found = ops.sum((alpha * light)[..., None] * ops.sigmoid(raw[..., :3]), 1)
            loss = self.loss(colours, found)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.psnr.update_state(tf.image.psnr(colours[:, None], found[:, None], 1.0))
        return {"loss": loss, "psnr": self.psnr.result()}

    @property
    def metrics(self):
        return [self.psnr]


@kind("own step")
def radiance_field() -> Program:
    model = Renderer()
    model.compile(adam(), keras.losses.MeanSquaredError())
    return Program(model, batches((random().uniform(size=(24, 3)), vectors(3))))
