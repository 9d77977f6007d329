"""Generators of pictures: autoencoders, adversaries, diffusion, flows, each with its own step."""

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
    told,
    vectors,
)

BINARY = keras.losses.BinaryCrossentropy


def generator(noise: int = 4) -> keras.Sequential:
    """Noise [rows, 4] to pictures [rows, 4, 4, 1]."""
    return keras.Sequential(
        [
            keras.Input((noise,)), layers.Dense(8), layers.Reshape((2, 2, 2)),
            layers.Conv2DTranspose(3, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2), layers.Conv2D(1, 3, padding="same"),
            layers.Activation("tanh"),
        ]
    )  # fmt: skip


def discriminator(channels: int = 1) -> keras.Sequential:
    """Pictures [rows, 4, 4, channels] to logits [rows, 1]."""
    return keras.Sequential(
        [
            keras.Input((4, 4, channels)), layers.Conv2D(3, 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2), layers.Flatten(), layers.Dense(1),
        ]
    )  # fmt: skip


def kl_divergence(mean, log_variance):
    return -0.5 * ops.sum(1 + log_variance - ops.square(mean) - ops.exp(log_variance), 1)


class Vae(keras.Model):
    """Draws between the encoder and the decoder, in its step."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = dense(6, 8, 4), dense(2, 8, 6)
        self.seeds = keras.random.SeedGenerator(11)
        names = ("loss", "reconstruction_loss", "kl_loss")
        self.trackers = [keras.metrics.Mean(name=name) for name in names]

    @property
    def metrics(self):
        return self.trackers

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_variance = ops.split(self.encoder(data), 2, -1)
            noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
            decoded = self.decoder(mean + ops.exp(0.5 * log_variance) * noise)
            reconstruction = ops.mean(ops.sum(ops.square(data - decoded), -1))
            divergence = ops.mean(kl_divergence(mean, log_variance))
            total = reconstruction + divergence
        gradients = tape.gradient(total, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        for tracker, value in zip(self.trackers, (total, reconstruction, divergence), strict=True):
            tracker.update_state(value)
        return {tracker.name: tracker.result() for tracker in self.trackers}


@kind("own step")
def vae() -> Program:
    model = Vae()
    model.compile(adam())
    return Program(model, batches(vectors(6)), {"epochs": 2})


class Sampling(layers.Layer):
    """Draws in a layer, with the divergence as an added loss."""

    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(7)

    def call(self, inputs):
        mean, log_variance = ops.split(inputs, 2, -1)
        self.add_loss(0.1 * ops.mean(kl_divergence(mean, log_variance)))
        noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
        return mean + ops.exp(0.5 * log_variance) * noise


@kind(random_inside=True)
def vae_with_a_sampling_layer() -> Program:
    model = keras.Sequential([dense(6, 8, 4), Sampling(), dense(2, 8, 6)])
    model.compile(adam(), "mse")
    return Program(model, batches((vectors(6), vectors(6))))


class VectorQuantizer(layers.Layer):
    """The nearest row of a codebook, straight through; the commitment is an added loss."""

    def __init__(self, codes, width):
        super().__init__()
        self.codes, self.width = codes, width

    def build(self, _):
        self.book = self.add_weight(shape=(self.codes, self.width), initializer="uniform")

    def call(self, inputs):
        flat = ops.reshape(inputs, (-1, self.width))
        distances = (
            ops.sum(flat**2, 1, keepdims=True)
            + ops.sum(self.book**2, 1)
            - 2 * ops.matmul(flat, ops.transpose(self.book))
        )
        chosen = ops.take(self.book, ops.argmin(distances, 1), 0)
        chosen = ops.reshape(chosen, ops.shape(inputs))
        self.add_loss(0.25 * ops.mean((ops.stop_gradient(chosen) - inputs) ** 2))
        self.add_loss(ops.mean((chosen - ops.stop_gradient(inputs)) ** 2))
        return inputs + ops.stop_gradient(chosen - inputs)


class VqVae(keras.Model):
    """Divides the reconstruction by the data's variance and adds the quantizer's losses."""

    def __init__(self, variance):
        super().__init__()
        self.variance = variance
        self.vqvae = keras.Sequential(
            [
                keras.Input((4, 4, 1)), layers.Conv2D(3, 3, padding="same", activation="relu"),
                VectorQuantizer(5, 3), layers.Conv2DTranspose(1, 3, padding="same"),
            ]
        )  # fmt: skip
        self.total, self.error = keras.metrics.Mean("loss"), keras.metrics.Mean("error")

    @property
    def metrics(self):
        return [self.total, self.error]

    def train_step(self, x):
        with tf.GradientTape() as tape:
            error = ops.mean((x - self.vqvae(x)) ** 2) / self.variance
            total = error + sum(self.vqvae.losses)
        gradients = tape.gradient(total, self.vqvae.trainable_variables)
        self.optimizer.apply(gradients, self.vqvae.trainable_variables)
        self.total.update_state(total)
        self.error.update_state(error)
        return {"loss": self.total.result(), "error": self.error.result()}


@kind("own step")
def vq_vae() -> Program:
    x = pictures(4)
    model = VqVae(float(np.var(x)))
    model.compile(adam())
    return Program(model, batches(x), {"epochs": 2})


class Gan(keras.Model):
    """Turns: the discriminator on generated and real pictures together, then the generator."""

    def __init__(self):
        super().__init__()
        self.discriminator, self.generator = discriminator(), generator()
        self.seeds = keras.random.SeedGenerator(1337)
        self.d_loss, self.g_loss = keras.metrics.Mean("d_loss"), keras.metrics.Mean("g_loss")

    def compile(self, d_optimizer, g_optimizer, loss, **options):
        super().compile(**options)
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss

    @property
    def metrics(self):
        return [self.d_loss, self.g_loss]

    def noise(self, real):
        return keras.random.normal((ops.shape(real)[0], 4), seed=self.seeds)

    def train_step(self, real):
        rows = ops.shape(real)[0]
        both = ops.concatenate([self.generator(self.noise(real)), real], 0)
        targets = ops.concatenate([ops.ones((rows, 1)), ops.zeros((rows, 1))], 0)
        targets += 0.05 * keras.random.uniform(ops.shape(targets), seed=self.seeds)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(targets, self.discriminator(both))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, weights), weights, strict=True))
        noise = self.noise(real)
        with tf.GradientTape() as tape:
            judged = self.discriminator(self.generator(noise))
            g_loss = self.loss_fn(ops.zeros((rows, 1)), judged)
        weights = self.generator.trainable_weights
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights, strict=True))
        self.d_loss.update_state(d_loss)
        self.g_loss.update_state(g_loss)
        return {"d_loss": self.d_loss.result(), "g_loss": self.g_loss.result()}


@kind("own step")
def dcgan() -> Program:
    model = Gan()
    model.compile(adam(), adam(), BINARY(from_logits=True))
    return Program(model, batches(pictures(4)), {"epochs": 2})


class WganGp(keras.Model):
    """Two critic steps for each of the generator; the gradient's norm is a second derivative."""

    def __init__(self):
        super().__init__()
        self.critic, self.generator = discriminator(), generator()
        self.seeds, self.d_steps = keras.random.SeedGenerator(2), 2

    def compile(self, d_optimizer, g_optimizer):
        super().compile()
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer

    def penalty(self, real, fake):
        share = keras.random.uniform((ops.shape(real)[0], 1, 1, 1), seed=self.seeds)
        between = real + share * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(between)
            judged = self.critic(between, training=True)
        slopes = tape.gradient(judged, between)
        norm = ops.sqrt(ops.sum(ops.square(slopes), axis=[1, 2, 3]) + 1e-12)
        return ops.mean((norm - 1.0) ** 2)

    def train_step(self, real):
        shape = (ops.shape(real)[0], 4)
        for _ in range(self.d_steps):
            noise = keras.random.normal(shape, seed=self.seeds)
            with tf.GradientTape() as tape:
                fake = self.generator(noise, training=True)
                cost = ops.mean(self.critic(fake, training=True))
                cost -= ops.mean(self.critic(real, training=True))
                d_loss = cost + 10.0 * self.penalty(real, fake)
            weights = self.critic.trainable_variables
            self.d_optimizer.apply(tape.gradient(d_loss, weights), weights)
        noise = keras.random.normal(shape, seed=self.seeds)
        with tf.GradientTape() as tape:
            g_loss = -ops.mean(self.critic(self.generator(noise, training=True), training=True))
        weights = self.generator.trainable_variables
        self.g_optimizer.apply(tape.gradient(g_loss, weights), weights)
        return {"d_loss": d_loss, "g_loss": g_loss}


@kind("own step")
def wgan_gp() -> Program:
    model = WganGp()
    model.compile(adam(), adam())
    return Program(model, batches(pictures(4)))


def translator() -> keras.Sequential:
    """Pictures [rows, 4, 4, 1] to pictures."""
    return keras.Sequential(
        [
            keras.Input((4, 4, 1)), layers.Conv2D(3, 3, padding="same", activation="relu"),
            layers.Conv2D(1, 3, padding="same", activation="tanh"),
        ]
    )  # fmt: skip


class CycleGan(keras.Model):
    """Two generators and two discriminators, one tape, four optimizers at once."""

    PARTS = ("forth", "back", "judge_x", "judge_y")

    def __init__(self):
        super().__init__()
        self.forth, self.back = translator(), translator()
        self.judge_x, self.judge_y = discriminator(), discriminator()

    def compile(self, **optimizers):
        super().compile()
        self.optimizers = {part: optimizers[part] for part in self.PARTS}
        self.mae, self.mse = keras.losses.MeanAbsoluteError(), keras.losses.MeanSquaredError()

    def fools(self, judged):
        return self.mse(ops.ones_like(judged), judged)

    def tells(self, real, fake):
        return 0.5 * (self.fools(real) + self.mse(ops.zeros_like(fake), fake))

    def train_step(self, pair):
        x, y = pair
        with tf.GradientTape(persistent=True) as tape:
            fake_y, fake_x = self.forth(x, training=True), self.back(y, training=True)
            cycle = self.mae(x, self.back(fake_y, training=True))
            cycle += self.mae(y, self.forth(fake_x, training=True))
            identity = self.mae(y, self.forth(y)), self.mae(x, self.back(x))
            judged_x, judged_fake_x = self.judge_x(x), self.judge_x(fake_x)
            judged_y, judged_fake_y = self.judge_y(y), self.judge_y(fake_y)
            losses = {
                "forth": self.fools(judged_fake_y) + 10.0 * cycle + 5.0 * identity[0],
                "back": self.fools(judged_fake_x) + 10.0 * cycle + 5.0 * identity[1],
                "judge_x": self.tells(judged_x, judged_fake_x),
                "judge_y": self.tells(judged_y, judged_fake_y),
            }
        weights = {part: getattr(self, part).trainable_variables for part in self.PARTS}
        gradients = {part: tape.gradient(losses[part], weights[part]) for part in self.PARTS}
        for part in self.PARTS:
            self.optimizers[part].apply_gradients(zip(gradients[part], weights[part], strict=True))
        return losses


@kind("own step")
def cycle_gan() -> Program:
    model = CycleGan()
    model.compile(forth=adam(), back=adam(), judge_x=adam(), judge_y=adam())
    x = pictures(4, 2)
    return Program(model, batches((x[..., :1], x[..., 1:])))


class StyleGan(tf.Module):
    """A network of raw variables: a style scales what a constant picture becomes."""

    def __init__(self):
        super().__init__()
        draw = np.random.default_rng(9).normal
        self.constant = tf.Variable(draw(size=(1, 4, 4, 3)))
        self.kernel = tf.Variable(0.3 * draw(size=(3, 3, 3, 1)))
        self.style = tf.Variable(0.5 * draw(size=(4, 3)))

    def __call__(self, noise):
        scales = 1.0 + tf.matmul(noise, self.style)
        styled = self.constant * scales[:, None, None]
        return tf.tanh(tf.nn.conv2d(styled, self.kernel, 1, "SAME"))


class StyleGanTrainer(keras.Model):
    """Weights of the generator are raw variables, with an average of them beside."""

    def __init__(self):
        super().__init__()
        self.judge, self.mapping = discriminator(), dense(4, 6, 4)
        self.synthesis, self.average = StyleGan(), StyleGan()
        self.seeds = keras.random.SeedGenerator(3)

    def compile(self, d_optimizer, g_optimizer):
        super().compile()
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer

    def train_step(self, real):
        noise = keras.random.normal((ops.shape(real)[0], 4), seed=self.seeds)
        weights = [
            *self.mapping.trainable_variables,
            self.synthesis.constant, self.synthesis.kernel, self.synthesis.style,
        ]  # fmt: skip
        with tf.GradientTape() as g_tape, tf.GradientTape() as d_tape:
            judged = self.judge(self.synthesis(self.mapping(noise)))
            g_loss = ops.mean(ops.softplus(-judged))
            d_loss = ops.mean(ops.softplus(judged)) + ops.mean(ops.softplus(-self.judge(real)))
        rate = 0.05
        for weight, slope in zip(weights, g_tape.gradient(g_loss, weights), strict=True):
            weight.assign(weight - rate * slope)
        self.d_optimizer.apply(
            d_tape.gradient(d_loss, self.judge.trainable_variables), self.judge.trainable_variables
        )
        for mean, now in zip(self.average.variables, self.synthesis.variables, strict=True):
            mean.assign(0.9 * mean + 0.1 * now)
        return {"d_loss": d_loss, "g_loss": g_loss}


@kind("own step")
def style_gan() -> Program:
    model = StyleGanTrainer()
    model.compile(adam(), adam())
    return Program(model, batches(pictures(4)))


class ConditionalGan(Gan):
    """Labels are joined to noise, and to pictures as channels."""

    def __init__(self):
        super().__init__()
        self.discriminator, self.generator = discriminator(4), generator(7)

    def train_step(self, data):
        real, classes = data
        rows, one_hot = ops.shape(real)[0], ops.one_hot(classes, 3)
        planes = ops.repeat(ops.repeat(one_hot[:, None, None], 4, 1), 4, 2)
        noise = ops.concatenate([self.noise(real), one_hot], 1)
        fake = ops.concatenate([self.generator(noise), planes], -1)
        both = ops.concatenate([fake, ops.concatenate([real, planes], -1)], 0)
        targets = ops.concatenate([ops.ones((rows, 1)), ops.zeros((rows, 1))], 0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(targets, self.discriminator(both))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, weights), weights, strict=True))
        noise = ops.concatenate([self.noise(real), one_hot], 1)
        with tf.GradientTape() as tape:
            fake = ops.concatenate([self.generator(noise), planes], -1)
            g_loss = self.loss_fn(ops.zeros((rows, 1)), self.discriminator(fake))
        weights = self.generator.trainable_weights
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights, strict=True))
        self.d_loss.update_state(d_loss)
        self.g_loss.update_state(g_loss)
        return {"d_loss": self.d_loss.result(), "g_loss": self.g_loss.result()}


@kind("own step")
def conditional_gan() -> Program:
    model = ConditionalGan()
    model.compile(adam(), adam(), BINARY(from_logits=True))
    return Program(model, batches((pictures(4), labels(3))))


class Spade(layers.Layer):
    """Instance normalisation whose scale and shift a segmentation gives."""

    def __init__(self, width):
        super().__init__()
        self.scale, self.shift = (layers.Conv2D(width, 3, padding="same") for _ in range(2))

    def call(self, inputs, segments):
        mean, variance = ops.moments(inputs, (1, 2), keepdims=True)
        normal = (inputs - mean) / ops.sqrt(variance + 1e-5)
        return normal * (1 + self.scale(segments)) + self.shift(segments)


class GauGan(keras.Model):
    """An encoder's style, a generator from segments, feature matching and a hinge loss."""

    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([layers.Flatten(), layers.Dense(4)])
        self.first, self.spade = layers.Dense(4 * 4 * 3), Spade(3)
        self.last = layers.Conv2D(1, 3, padding="same", activation="tanh")
        inputs = keras.Input((4, 4, 3))
        features = layers.Conv2D(3, 3, padding="same", activation="tanh")(inputs)
        judged = layers.Conv2D(1, 3, padding="same")(features)
        self.judge = keras.Model(inputs, [features, judged])
        self.seeds = keras.random.SeedGenerator(4)

    def compile(self, g_optimizer, d_optimizer):
        super().compile()
        self.g_optimizer, self.d_optimizer = g_optimizer, d_optimizer

    def call(self, inputs):
        style, segments = inputs
        hidden = ops.reshape(self.first(style), (-1, 4, 4, 3))
        return self.last(ops.leaky_relu(self.spade(hidden, segments)))

    def train_step(self, data):
        picture, segments = data
        mean, log_variance = ops.split(self.encoder(picture), 2, -1)
        noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
        fake = self((mean + ops.exp(0.5 * log_variance) * noise, segments))
        weights = self.judge.trainable_variables
        with tf.GradientTape() as tape:
            real_judged = self.judge(ops.concatenate([segments, picture], -1))[1]
            fake_judged = self.judge(ops.concatenate([segments, fake], -1))[1]
            d_loss = ops.mean(ops.relu(1 - real_judged)) + ops.mean(ops.relu(1 + fake_judged))
        self.d_optimizer.apply(tape.gradient(d_loss, weights), weights)
        weights = [v for v in self.trainable_variables if all(v is not w for w in weights)]
        with tf.GradientTape() as tape:
            mean, log_variance = ops.split(self.encoder(picture), 2, -1)
            style = mean + ops.exp(0.5 * log_variance) * noise
            fake = self((style, segments))
            real_features, _ = self.judge(ops.concatenate([segments, picture], -1))
            features, judged = self.judge(ops.concatenate([segments, fake], -1))
            matching = ops.mean(ops.abs(real_features - features))
            divergence = 0.1 * ops.sum(kl_divergence(mean, log_variance))
            g_loss = divergence + 10.0 * matching - ops.mean(judged)
        self.g_optimizer.apply(tape.gradient(g_loss, weights), weights)
        return {"d_loss": d_loss, "g_loss": g_loss, "kl_loss": divergence}


@kind("own step")
def gau_gan() -> Program:
    model = GauGan()
    model.compile(adam(), adam())
    segments = np.eye(2)[labels(2, 4, 4)]
    return Program(model, batches((pictures(4), segments)))


class Pix2Pix(keras.Model):
    """A discriminator of pairs, and an absolute error beside it; both updates from one tape."""

    def __init__(self):
        super().__init__()
        self.translate, self.judge = translator(), discriminator(2)
        self.cross_entropy = BINARY(from_logits=True)

    def compile(self, g_optimizer, d_optimizer):
        super().compile()
        self.g_optimizer, self.d_optimizer = g_optimizer, d_optimizer

    def train_step(self, data):
        source, target = data
        with tf.GradientTape() as g_tape, tf.GradientTape() as d_tape:
            made = self.translate(source, training=True)
            real = self.judge(ops.concatenate([source, target], -1), training=True)
            fake = self.judge(ops.concatenate([source, made], -1), training=True)
            fooled = self.cross_entropy(ops.ones_like(fake), fake)
            g_loss = fooled + 100.0 * ops.mean(ops.abs(target - made))
            d_loss = self.cross_entropy(ops.ones_like(real), real)
            d_loss += self.cross_entropy(ops.zeros_like(fake), fake)
        for optimizer, tape, loss, part in (
            (self.g_optimizer, g_tape, g_loss, self.translate),
            (self.d_optimizer, d_tape, d_loss, self.judge),
        ):
            weights = part.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"g_loss": g_loss, "d_loss": d_loss}


@kind("own step")
def pix2pix() -> Program:
    model = Pix2Pix()
    model.compile(adam(), adam())
    x = pictures(4, 2)
    return Program(model, batches((x[..., :1], x[..., 1:])))


def denoiser() -> keras.Model:
    """Noisy pictures [rows, 4, 4, 1] and times [rows, 1] to noise."""
    picture, time = keras.Input((4, 4, 1)), keras.Input((1,))
    waves = layers.Dense(3, "tanh")(time)
    hidden = layers.Conv2D(3, 3, padding="same")(picture)
    hidden = layers.Activation("silu")(layers.Add()([hidden, layers.Reshape((1, 1, 3))(waves)]))
    return keras.Model([picture, time], layers.Conv2D(1, 3, padding="same")(hidden))


class Ddpm(keras.Model):
    """Noise of a random step of a schedule is guessed; a second network is the average."""

    def __init__(self):
        super().__init__()
        self.network, self.average = denoiser(), denoiser()
        self.average.set_weights(self.network.get_weights())
        self.kept = np.cumprod(1 - np.linspace(1e-2, 0.3, 10))
        self.seeds = keras.random.SeedGenerator(5)

    def train_step(self, images):
        rows = ops.shape(images)[0]
        steps = keras.random.randint((rows,), 0, 10, seed=self.seeds)
        noise = keras.random.normal(ops.shape(images), seed=self.seeds)
        kept = ops.take(ops.cast(self.kept, images.dtype), steps)[:, None, None, None]
        mixed = ops.sqrt(kept) * images + ops.sqrt(1 - kept) * noise
        with tf.GradientTape() as tape:
            times = ops.cast(steps, images.dtype)[:, None] / 10
            guessed = self.network([mixed, times], training=True)
            loss = self.loss(noise, guessed)
        weights = self.network.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        for weight, mean in zip(self.network.weights, self.average.weights, strict=True):
            mean.assign(0.9 * mean + 0.1 * weight)
        return told(self, loss)


@kind("own step")
def ddpm() -> Program:
    model = Ddpm()
    model.compile(adam(), keras.losses.MeanSquaredError())
    return Program(model, batches(pictures(4)), {"epochs": 2})


class Ddim(keras.Model):
    """Continuous times, a normalizer adapted before, a test step that asks the average."""

    def __init__(self, images):
        super().__init__()
        self.normalizer = layers.Normalization()
        self.normalizer.adapt(images)
        self.network = denoiser()
        self.average = keras.models.clone_model(self.network)
        self.seeds = keras.random.SeedGenerator(6)
        self.noise_loss = keras.metrics.Mean("n_loss")
        self.image_loss = keras.metrics.Mean("i_loss")

    @property
    def metrics(self):
        return [self.noise_loss, self.image_loss]

    def denoised(self, images, network, training):
        images = self.normalizer(images, training=training)
        noise = keras.random.normal(ops.shape(images), seed=self.seeds)
        times = keras.random.uniform((ops.shape(images)[0], 1, 1, 1), seed=self.seeds)
        angles = 0.3 + times
        mixed = ops.cos(angles) * images + ops.sin(angles) * noise
        guessed = network([mixed, ops.sin(angles)[:, :, 0, 0] ** 2], training=training)
        found = (mixed - ops.sin(angles) * guessed) / ops.cos(angles)
        return self.loss(noise, guessed), self.loss(images, found)

    def train_step(self, images):
        with tf.GradientTape() as tape:
            noise_loss, image_loss = self.denoised(images, self.network, True)
        weights = self.network.trainable_weights
        gradients = tape.gradient(noise_loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        for weight, mean in zip(self.network.weights, self.average.weights, strict=True):
            mean.assign(0.9 * mean + 0.1 * weight)
        return self.told(noise_loss, image_loss)

    def test_step(self, images):
        return self.told(*self.denoised(images, self.average, False))

    def told(self, noise_loss, image_loss):
        self.noise_loss.update_state(noise_loss)
        self.image_loss.update_state(image_loss)
        return {metric.name: metric.result() for metric in self.metrics}


@kind("own step")
def ddim() -> Program:
    images = pictures(4)
    model = Ddim(images)
    model.compile(adam(), keras.losses.MeanAbsoluteError())
    return Program(model, batches(images), {"validation_data": batches(images)})


class RealNvp(keras.Model):
    """A flow of masked affine couplings, trained by its likelihood."""

    def __init__(self):
        super().__init__()
        self.masks = np.array([[0.0, 1.0], [1.0, 0.0]])
        self.scales = [dense(2, 6, 2) for _ in self.masks]
        self.shifts = [dense(2, 6, 2) for _ in self.masks]
        self.tracker = keras.metrics.Mean("loss")

    @property
    def metrics(self):
        return [self.tracker]

    def call(self, x, training=False):
        log_det = 0.0
        for mask, scale, shift in zip(self.masks, self.scales, self.shifts, strict=True):
            kept = x * mask
            s, t = ops.tanh(scale(kept)) * (1 - mask), shift(kept) * (1 - mask)
            x = kept + (1 - mask) * (x * ops.exp(s) + t)
            log_det += ops.sum(s, 1)
        return x, log_det

    def loss_of(self, x):
        latent, log_det = self(x, training=True)
        return -ops.mean(log_det - 0.5 * ops.sum(latent**2, 1))

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.loss_of(data)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    def test_step(self, data):
        self.tracker.update_state(self.loss_of(data))
        return {"loss": self.tracker.result()}


@kind("own step")
def real_nvp() -> Program:
    model = RealNvp()
    model.compile(adam())
    return Program(
        model, batches(vectors(2)), {"epochs": 2, "validation_data": batches(vectors(2))}
    )


class MaskedConvolution(layers.Layer):
    """A convolution that sees only pixels before its own."""

    def __init__(self, width, own):
        super().__init__()
        self.conv, self.own = layers.Conv2D(width, 3, padding="same"), own

    def build(self, input_shape):
        self.conv.build(input_shape)
        mask = np.zeros(self.conv.kernel.shape)
        mask[0], mask[1, : 1 + self.own] = 1.0, 1.0
        self.mask = mask

    def call(self, inputs):
        self.conv.kernel.assign(self.conv.kernel * self.mask)
        return self.conv(inputs)


@kind()
def pixel_cnn_with_a_kernel_assigned_in_call() -> Program:
    model = keras.Sequential(
        [
            keras.Input((4, 4, 1)), MaskedConvolution(3, 0), layers.Activation("relu"),
            MaskedConvolution(3, 1), layers.Conv2D(1, 1, activation="sigmoid"),
        ]
    )  # fmt: skip
    model.compile(adam(), "binary_crossentropy")
    x = (pictures(4) > 0).astype("float64")
    return Program(model, batches((x, x)))


class Adain(keras.Model):
    """Statistics of a style's features move those of a content; a frozen encoder judges."""

    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential(
            [keras.Input((4, 4, 1)), layers.Conv2D(3, 3, padding="same", activation="relu")]
        )
        self.encoder.trainable = False
        self.decoder = keras.Sequential(
            [keras.Input((4, 4, 3)), layers.Conv2D(1, 3, padding="same")]
        )

    def train_step(self, data):
        content, style = self.encoder(data[0]), self.encoder(data[1])
        mean, deviation = self.statistics(content)
        to_mean, to_deviation = self.statistics(style)
        target = (content - mean) / deviation * to_deviation + to_mean
        with tf.GradientTape() as tape:
            found = self.encoder(self.decoder(target))
            content_loss = self.loss(target, found)
            mean, deviation = self.statistics(found)
            style_loss = self.loss(to_mean, mean) + self.loss(to_deviation, deviation)
            total = content_loss + 4.0 * style_loss
        weights = self.decoder.trainable_variables
        self.optimizer.apply(tape.gradient(total, weights), weights)
        return {"content_loss": content_loss, "style_loss": style_loss}

    def statistics(self, features):
        mean, variance = ops.moments(features, (1, 2), keepdims=True)
        return mean, ops.sqrt(variance + 1e-5)


@kind("own step")
def adain() -> Program:
    model = Adain()
    model.compile(adam(), keras.losses.MeanSquaredError())
    x = pictures(4, 2)
    return Program(model, batches((x[..., :1], x[..., 1:])))


class MelGan(keras.Model):
    """A generator of waves whose discriminator's features are matched; hinge losses."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential(
            [keras.Input((4, 3)), layers.Conv1DTranspose(1, 4, strides=2, padding="same")]
        )
        wave = keras.Input((8, 1))
        features = layers.Conv1D(3, 3, padding="same", activation="tanh")(wave)
        self.judge = keras.Model(wave, [features, layers.Conv1D(1, 3, padding="same")(features)])

    def compile(self, g_optimizer, d_optimizer):
        super().compile()
        self.g_optimizer, self.d_optimizer = g_optimizer, d_optimizer

    def train_step(self, data):
        wave, spectrum = data
        with tf.GradientTape() as g_tape, tf.GradientTape() as d_tape:
            made = self.generator(spectrum, training=True)
            real_features, real = self.judge(wave)
            fake_features, fake = self.judge(made)
            g_loss = -ops.mean(fake) + 10.0 * ops.mean(ops.abs(real_features - fake_features))
            d_loss = ops.mean(ops.relu(1 - real)) + ops.mean(ops.relu(1 + fake))
        weights = self.generator.trainable_weights
        self.g_optimizer.apply(g_tape.gradient(g_loss, weights), weights)
        weights = self.judge.trainable_weights
        self.d_optimizer.apply(d_tape.gradient(d_loss, weights), weights)
        return {"g_loss": g_loss, "d_loss": d_loss}


@kind("own step")
def mel_gan() -> Program:
    model = MelGan()
    model.compile(adam(), adam())
    data = (vectors(8)[..., None], vectors(12).reshape(24, 4, 3))
    return Program(model, batches(data))


class AdaptiveGan(Gan):
    """The share of augmented pictures is a variable that the discriminator's accuracy moves."""

    def __init__(self):
        super().__init__()
        self.share = tf.Variable(0.5, dtype="float64", trainable=False)

    def augmented(self, images):
        draw = keras.random.uniform((ops.shape(images)[0], 1, 1, 1), seed=self.seeds)
        return ops.where(draw < self.share, images[:, :, ::-1], images)

    def train_step(self, real):
        noise = self.noise(real)
        with tf.GradientTape(persistent=True) as tape:
            fake = self.generator(noise, training=True)
            judged = (
                self.discriminator(self.augmented(real)),
                self.discriminator(self.augmented(fake)),
            )
            g_loss = ops.mean(ops.softplus(-judged[1]))
            d_loss = ops.mean(ops.softplus(-judged[0])) + ops.mean(ops.softplus(judged[1]))
        for optimizer, loss, part in (
            (self.g_optimizer, g_loss, self.generator),
            (self.d_optimizer, d_loss, self.discriminator),
        ):
            weights = part.trainable_weights
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        accuracy = ops.mean(ops.cast(judged[0] > 0, "float64"))
        self.share.assign(tf.clip_by_value(self.share + (accuracy - 0.6) / 10, 0.0, 1.0))
        self.d_loss.update_state(d_loss)
        self.g_loss.update_state(g_loss)
        return {"d_loss": self.d_loss.result(), "share": self.share}


@kind("own step")
def adaptive_gan() -> Program:
    model = AdaptiveGan()
    model.compile(adam(), adam(), None)
    return Program(model, batches(pictures(4)))
