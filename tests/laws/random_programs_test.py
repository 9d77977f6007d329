"""Law 27 for programs drawn at random: layers, losses, masks, metrics, one or two optimizers."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from keras import layers, ops

import towers
from tests.kinds.comparison import afresh

SIZES = (5, 5, 4, 1)


class Centred(layers.Layer):
    """Couples rows by their mean."""

    def call(self, inputs):
        return inputs - 0.3 * ops.mean(inputs, axis=0, keepdims=True)


class Penalised(layers.Layer):
    """Adds a mean and a sum."""

    def call(self, inputs):
        self.add_loss(0.1 * ops.mean(inputs**2))
        self.add_loss(0.01 * ops.sum(ops.abs(inputs)))
        return inputs


class Counted(layers.Layer):
    """Keeps a running mean of its inputs."""

    def build(self, shape):
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)

    def call(self, inputs, training=False):
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * ops.mean(inputs, axis=0))
        return inputs + self.mean


LAYERS = {
    "dense": lambda: layers.Dense(4, "tanh"),
    "dense without bias": lambda: layers.Dense(4, "softplus", use_bias=False),
    "layer norm": layers.LayerNormalization,
    "centred": Centred,
    "penalised": Penalised,
    "counted": Counted,
    "softmax": layers.Softmax,
}
LOSSES = {
    "mean": lambda y, p, m: ops.mean((y - p) ** 2),
    "sum": lambda y, p, m: 0.1 * ops.sum(ops.abs(y - p)),
    "masked": lambda y, p, m: ops.sum(m * (y - p) ** 2) / (ops.sum(m) + 0.1),
    "hardest": lambda y, p, m: ops.max(ops.abs(y - p)),
    "pairs": lambda y, p, m: ops.mean(
        ops.softplus((p - ops.transpose(p)) * (ops.transpose(y) - y))
    ),
}
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01, global_clipnorm=1.0),
    "averages": lambda: keras.optimizers.SGD(0.05, use_ema=True),
}


class Drawn(keras.Model):
    """A body and a head, each with its optimizer; the head learns from the body as it is now."""

    def __init__(self, names, loss, optimizers, penalty):
        super().__init__()
        chosen = [LAYERS[name]() for name in names]
        self.body = keras.Sequential([keras.Input((4,)), *chosen, layers.Dense(4)])
        self.head = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
        self.loss_of, self.penalty = LOSSES[loss], penalty
        self.optimizers = [OPTIMIZERS[name]() for name in optimizers]
        self.mean = keras.metrics.Mean("mean")

    def call(self, inputs, training=False):
        return self.head(self.body(inputs, training=training), training=training)

    @property
    def metrics(self):
        return [self.mean]

    def train_step(self, data):
        x, y, mask = data
        parts = [self.body, self.head] if len(self.optimizers) > 1 else [self]
        for part, optimizer in zip(parts, self.optimizers, strict=True):
            with tf.GradientTape() as tape:
                hidden = self.body(x, training=True)
                with tf.GradientTape() as inner:
                    inner.watch(hidden)
                    outputs = self.head(hidden, training=True)
                loss = self.loss_of(y, outputs, mask) + sum(self.body.losses, start=0.0)
                if self.penalty:
                    loss += 0.1 * ops.mean(inner.gradient(outputs, hidden) ** 2)
            weights = part.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)
        self.mean.update_state(loss)
        return {"mean": self.mean.result(), "loss": loss}


def ended(program, num_towers):
    """Returns weights and History of a fresh program after two epochs."""
    with afresh():
        random = np.random.default_rng(1)
        x, y = random.normal(size=(15, 4)), random.normal(size=(15, 1))
        mask = (random.uniform(size=(15, 1)) < 0.6).astype("float64")
        ends = np.cumsum((0, *SIZES))
        parts = [slice(*pair) for pair in itertools.pairwise(ends)]
        spec = tuple(tf.TensorSpec([None, width], tf.float64) for width in (4, 1, 1))
        batches = tf.data.Dataset.from_generator(
            lambda: ((x[p], y[p], mask[p]) for p in parts), output_signature=spec
        ).apply(tf.data.experimental.assert_cardinality(len(parts)))
        model = Drawn(*program)
        model.compile(jit_compile=False)
        model(x[:1])
        fit = model.fit if num_towers is None else None
        if fit is None:
            options = {"shuffle": False, "towers": num_towers}
            history = towers.fit(model, batches, epochs=2, verbose=0, **options)
        else:
            history = fit(batches, epochs=2, verbose=0, shuffle=False)
        return [one.numpy() for one in model.variables], history.history


PROGRAMS = st.tuples(
    st.lists(st.sampled_from(sorted(LAYERS)), max_size=3),
    st.sampled_from(sorted(LOSSES)),
    st.lists(st.sampled_from(sorted(OPTIMIZERS)), min_size=1, max_size=2),
    st.booleans(),
)
OPTIONS = {
    "deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck),
    "phases": [Phase.generate],  # To shrink a failure would trace hundreds of programs.
}  # fmt: skip


def check(program, num_towers):
    (weights, history), (others, told) = ended(program, None), ended(program, num_towers)
    largest = max(np.abs(one).max() for one in weights)
    # Adam divides a gradient that is zero but for rounding, such as a bias's before its mean is
    # taken off, by itself.
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-10 * max(largest, 1.0))
    for name, values in history.items():
        np.testing.assert_allclose(told[name], values, rtol=1e-10)


@settings(max_examples=3, **OPTIONS)
@given(PROGRAMS, st.sampled_from([2, 3]))
def test_a_few_programs_drawn_at_random_end_as_on_one_device(program, num_towers):
    check(program, num_towers)


@pytest.mark.slow
@settings(max_examples=200, **OPTIONS)
@given(PROGRAMS, st.sampled_from([2, 3]))
def test_programs_drawn_at_random_end_as_on_one_device(program, num_towers):
    check(program, num_towers)
