"""Models with train steps of their own: on towers, under MirroredStrategy, on one device.

    python -m benchmarks.own_steps --steps 20 [--eager]

Each way trains the same model on the same batches; their steps take turns.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import towers

import keras  # isort: skip
import numpy as np
import tensorflow as tf
from keras import layers

from towers.scripts.options.flags import Parser, reader
from towers.scripts.options.setting import Count, Parts, setting_of

BATCH, SIZE = 64, 32
WAYS = ("plain", "mirrored", "towers")


class Vae(keras.Model):
    """A variational autoencoder of pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = encoder(64)
        self.decoder = decoder(32)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.encoder(x)

    def train_step(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            mean, spread = tf.split(self.encoder(x, training=True), 2, axis=1)
            noise = tf.random.normal(tf.shape(mean))
            again = self.decoder(mean + tf.exp(0.5 * spread) * noise, training=True)
            distance = tf.exp(spread) + mean**2 - 1 - spread
            loss = tf.reduce_mean((x - again) ** 2) + 1e-3 * tf.reduce_mean(distance)
        return self.learn(tape, loss)

    def learn(self, tape: tf.GradientTape, loss: tf.Tensor) -> dict[str, tf.Tensor]:
        """Applies the gradients of a loss, which counts as a part in each replica."""
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


class SimClr(Vae):
    """Contrast between two views of each picture."""

    def __init__(self) -> None:
        keras.Model.__init__(self)
        self.encoder = encoder(64)
        self.head = keras.Sequential(
            [keras.Input((64,)), layers.Dense(64, "relu"), layers.Dense(64)]
        )

    def train_step(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            views = (x, tf.reverse(x, [2]) + 0.1 * tf.random.normal(tf.shape(x)))
            one, other = (
                tf.math.l2_normalize(self.head(self.encoder(v, training=True), training=True), 1)
                for v in views
            )
            likeness = tf.matmul(one, other, transpose_b=True) / 0.1
            rows = tf.range(tf.shape(likeness)[0])
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=rows, logits=likeness)
            )
        return self.learn(tape, loss)


class Dcgan(keras.Model):
    """A generator and a discriminator of pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.judge = encoder(1)
        self.painter = decoder(64)
        self.judge_optimizer = keras.optimizers.Adam(1e-4)
        self.painter_optimizer = keras.optimizers.Adam(1e-4)
        self.judge_optimizer.build(self.judge.trainable_variables)
        self.painter_optimizer.build(self.painter.trainable_variables)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.judge(x)

    def train_step(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        noise = tf.random.normal((tf.shape(x)[0], 64))
        fake = self.painter(noise, training=True)
        both = tf.concat([x, fake], axis=0)
        labels = tf.concat([tf.ones_like(x[:, :1, 0, 0]), tf.zeros_like(fake[:, :1, 0, 0])], axis=0)
        with tf.GradientTape() as tape:
            loss = distance(labels, self.judge(both, training=True))
        weights = self.judge.trainable_variables
        self.judge_optimizer.apply(tape.gradient(loss, weights), weights)
        with tf.GradientTape() as tape:
            scores = self.judge(self.painter(noise, training=True), training=True)
            deceived = distance(tf.ones_like(scores), scores)
        weights = self.painter.trainable_variables
        self.painter_optimizer.apply(tape.gradient(deceived, weights), weights)
        return {"judge": loss, "painter": deceived}


def distance(labels: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Returns the mean cross entropy of scores."""
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=scores))


def encoder(size: int) -> keras.Model:
    """Returns the layers from a picture to a vector."""
    return keras.Sequential([
        keras.Input((SIZE, SIZE, 3)),
        *[layers.Conv2D(channels, 4, 2, "same", activation="relu") for channels in (32, 64)],
        layers.Flatten(), layers.Dense(size),
    ])  # fmt: skip


def decoder(size: int) -> keras.Model:
    """Returns the layers from a vector to a picture."""
    side = SIZE // 4
    return keras.Sequential([
        keras.Input((size,)),
        layers.Dense(side * side * 64, "relu"), layers.Reshape((side, side, 64)),
        *[layers.Conv2DTranspose(channels, 4, 2, "same", activation="sigmoid")
          for channels in (32, 3)],
    ])  # fmt: skip


MODELS: dict[str, Callable[[], keras.Model]] = {"dcgan": Dcgan, "sim_clr": SimClr, "vae": Vae}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the milliseconds of a step of each model and way."""
    parser = Parser(prog="python -m benchmarks.own_steps", description=__doc__)
    parser.add_argument("--towers", type=reader(setting_of(Parts)), default=2)
    parser.add_argument("--steps", type=reader(setting_of(Count)), default=20)
    parser.add_argument("--eager", action="store_true", help="loops without graphs")
    options = parser.parse_args(arguments)
    with parser.refusing():
        devices = list(towers.select_devices(options.towers).towers)
    pictures = keras.random.normal((4 * BATCH, SIZE, SIZE, 3), seed=0).numpy()
    for name, make in MODELS.items():
        times = measure(make, devices, pictures, options.steps, eager=options.eager)
        print(name, *(f"{way} {1000 * value:.1f} ms" for way, value in times.items()), sep="  ")


def measure(
    make: Callable[[], keras.Model],
    devices: Sequence[str],
    pictures: np.ndarray,
    steps: int,
    *,
    eager: bool = False,
) -> dict[str, float]:
    """Returns the median seconds of an epoch's step in each way; replicas need graphs."""
    batches = tf.data.Dataset.from_tensor_slices(pictures).batch(BATCH).repeat().take(steps)
    ways = [way for way in WAYS if way != "mirrored" or not eager]
    runs = {way: runner(way, make, devices, eager=eager) for way in ways}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for run in runs.values():
        run(batches.take(3))
    for _ in range(5):
        for way, run in runs.items():
            begin = time.perf_counter()
            run(batches)
            seconds[way].append((time.perf_counter() - begin) / steps)
    return {way: statistics.median(each) for way, each in seconds.items()}


def runner(
    way: str, make: Callable[[], keras.Model], devices: Sequence[str], *, eager: bool = False
) -> Callable[[tf.data.Dataset], Any]:
    """Returns a function that trains a fresh model in one way for an epoch."""
    scope: Any = contextlib.nullcontext()
    if way == "mirrored":  # Collective ops of two optimizers wait for each other on CPUs.
        reduction = tf.distribute.ReductionToOneDevice()
        scope = tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction).scope()
    with scope:
        model = make()
        model.compile(keras.optimizers.Adam(1e-4), jit_compile=False, run_eagerly=eager)

    def run(batches: tf.data.Dataset) -> Any:
        if way == "towers":
            return towers.fit(model, batches, towers=devices, verbose=0)
        return model.fit(batches, verbose=0)

    return run


if __name__ == "__main__":
    main()
