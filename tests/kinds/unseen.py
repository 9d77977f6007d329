"""Hidden effects: in backward passes, attributes, callbacks, optimizers, loops of ops."""

from __future__ import annotations

import dataclasses
from typing import Any

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
    random,
    sgd,
    tokens,
    told,
    vectors,
)


def regressed(model, x=None, optimizer=None, **options) -> Program:
    model.compile(optimizer or sgd(0.05), "mse", metrics=["mae"])
    data = batches((vectors(5) if x is None else x, vectors(1)))
    return Program(model, data, {"epochs": 2, **options})


def around(*middle) -> keras.Sequential:
    """Returns dense layers with others between them."""
    return keras.Sequential([keras.Input((5,)), layers.Dense(4, "tanh"), *middle, layers.Dense(1)])


class Opened(keras.callbacks.Callback):
    """Opens a gate, which is closed in the first epoch."""

    def __init__(self, layer):
        super().__init__()
        self.gate = layer.gate

    def on_epoch_begin(self, epoch, logs=None):
        self.gate.assign(0.05 * epoch)


class OfWidth(layers.Layer):
    """A layer of so many inputs and outputs."""

    def __init__(self, width=4):
        super().__init__()
        self.width = width


class Gated(OfWidth):
    def __init__(self, width=4):
        super().__init__(width)
        self.gate = self.add_weight(shape=(), initializer="zeros", trainable=False)


class AnnealedSum(Gated):
    def call(self, x, training=False):
        self.add_loss(self.gate * ops.sum(x**2))
        return x


@kind()
def added_sum_annealed_from_zero() -> Program:
    layer = AnnealedSum()
    return regressed(around(layer), callbacks=[Opened(layer)])


class ShiftedByTheMean(Gated):
    def call(self, x, training=False):
        return x + self.gate * ops.mean(x, 0)


@kind(couples=True)
def coupling_that_a_callback_opens() -> Program:
    layer = ShiftedByTheMean()
    return regressed(around(layer), callbacks=[Opened(layer)])


class ByTheLargest(OfWidth):
    def call(self, x, training=False):
        return x / ops.max(ops.abs(x))


@kind(couples=True)
def scaling_by_a_maximum_that_parts_share() -> Program:
    """As of pictures, each of which has a white pixel; the last are darker."""
    x = np.clip(vectors(5), -1, 1)
    x[:, 0] = 1.0
    x[16:] *= np.linspace(0.2, 0.9, 8)[:, None]
    model = keras.Sequential([keras.Input((5,)), ByTheLargest(), layers.Dense(4, "tanh")])
    model.add(layers.Dense(1))
    return regressed(model, x)


class ClippedBackwards(OfWidth):
    def call(self, x, training=False):
        return clipped_backwards(x)


@tf.custom_gradient
def clipped_backwards(x):
    return tf.identity(x), lambda gradient: tf.clip_by_norm(gradient, 0.05)


@kind(couples=True)
def gradient_clipped_within_the_model() -> Program:
    return regressed(around(ClippedBackwards()))


class Counted(OfWidth):
    """Counts its calls as code of TensorFlow's layers does."""

    def __init__(self, width=4):
        super().__init__(width)
        self.calls = tf.Variable(0.0, dtype="float64", trainable=False)

    def call(self, x, training=False):
        if training:
            self.calls.assign_add(1.0)
        return x * (1.0 + 0.1 * self.calls)


@kind()
def calls_counted_in_a_tensorflow_variable() -> Program:
    return regressed(around(Counted()))


class Remade(keras.callbacks.Callback):
    """Freezes a layer in a later epoch, and has Keras follow."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.model.layers[0].trainable = False
            self.model.make_train_function(force=True)


@kind()
def train_function_remade_by_a_callback() -> Program:
    return regressed(dense(5, 6, 1), callbacks=[Remade()])


class Lookahead(keras.optimizers.Optimizer):
    """Lookahead around another optimizer: slow weights follow fast ones every second update."""

    def __init__(self, inner):
        super().__init__(0.1)
        self.inner = inner

    def build(self, variables):
        super().build(variables)
        self.inner.build(variables)
        self.slow = [keras.Variable(one.numpy(), trainable=False) for one in variables]

    def apply(self, gradients, variables=None):
        self.inner.apply(gradients, variables)
        self.iterations.assign_add(1)
        follows = ops.equal(self.iterations % 2, 0)
        for slow, fast in zip(self.slow, variables, strict=True):
            slow.assign(ops.where(follows, 0.5 * (slow + fast), slow))
            fast.assign(ops.where(follows, slow, fast))


@kind()
def lookahead_around_another_optimizer() -> Program:
    model, optimizer = dense(5, 6, 1), Lookahead(adam())
    optimizer.build(model.trainable_variables)
    return regressed(model, optimizer=optimizer)


class OwnStep(keras.Model):
    """A step of its own around a network; `outputs_and_loss(x)` is what is trained."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def call(self, x):
        return self.network(x)

    def outputs_and_loss(self, x) -> tuple[Any, Any]:
        return self.network(x, training=True), 0.0

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            outputs, other = self.outputs_and_loss(x)
            loss = self.compute_loss(x, y, outputs) + other
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return told(self, loss, y, outputs)


class Recomputed(OfWidth):
    """Keeps no activations for the gradient."""

    def __init__(self, width=4):
        super().__init__(width)
        self.network = dense(width, 6, width)

    def call(self, x, training=False):
        return tf.recompute_grad(lambda one: self.network(one))(x)


@kind("own step")
def activations_recomputed_for_the_gradient() -> Program:
    return regressed(OwnStep(around(Recomputed())))


class Tangent(OwnStep):
    """Keeps what changes along a direction small, by derivatives in forward mode."""

    def outputs_and_loss(self, x):
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as forward:
            outputs = self.network(x)
        return outputs, 0.1 * tf.reduce_mean(forward.jvp(outputs) ** 2)


@kind("own step")
def derivatives_in_forward_mode() -> Program:
    return regressed(Tangent(dense(5, 6, 1)))


class Scanned(OwnStep):
    """Three steps of a network on a state, by `tf.scan`, which asks for its shape."""

    def __init__(self):
        super().__init__(dense(5, 6, 5))
        self.head = dense(5, 1)

    def call(self, x):
        states = tf.scan(lambda state, _: self.network(state), tf.range(3), initializer=x)
        return self.head(states[-1])

    def outputs_and_loss(self, x):
        return self.call(x), 0.0


@kind("own step")
def network_scanned_over_its_state() -> Program:
    return regressed(Scanned())


class Hooked(OfWidth):
    """Keeps activations in a list and a dict that its owner empties, as hooks do."""

    def __init__(self, width=4):
        super().__init__(width)
        self.hidden, self.squares, self.last = layers.Dense(width, "tanh"), [], {}

    def build(self, shape):
        self.hidden.build(shape)

    def call(self, x, training=False):
        self.last["hidden"] = self.hidden(x)
        self.squares.append(ops.mean(self.last["hidden"] ** 2, -1))
        return self.last["hidden"]


class WithHooks(OwnStep):
    def __init__(self):
        super().__init__(around(Hooked()))
        self.hooked = self.network.layers[1]

    def outputs_and_loss(self, x):
        self.hooked.squares.clear()
        outputs = self.network(x)
        return outputs, 0.1 * ops.mean(self.hooked.squares[0]) + ops.mean(
            self.hooked.last["hidden"] ** 4
        )


@kind("own step")
def activations_kept_in_a_list_and_a_dict() -> Program:
    return regressed(WithHooks())


@dataclasses.dataclass
class Outputs:
    values: Any
    hidden: Any


class Encoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.body, self.head = dense(5, 6, 4), dense(4, 1)
        self.built = True

    def call(self, x):
        hidden = self.body(x)
        return Outputs(self.head(hidden), hidden)


class WithEncoder(OwnStep):
    def call(self, x):
        return self.network(x).values

    def outputs_and_loss(self, x):
        outputs = self.network(x)
        return outputs.values, 0.1 * ops.mean(outputs.hidden**2)


@kind("own step")
def outputs_in_a_dataclass() -> Program:
    return regressed(WithEncoder(Encoder()))


class ActNorm(OfWidth):
    """Begins with the mean and deviation of its first batch (Glow)."""

    def build(self, shape):
        self.shift = self.add_weight(shape=shape[-1:], initializer="zeros")
        self.scale = self.add_weight(shape=shape[-1:], initializer="ones")
        self.begun = False

    def call(self, x, training=False):
        if not self.begun:
            self.begun = True
            self.shift.assign(-ops.mean(x, 0))
            self.scale.assign(1 / (ops.std(x, 0) + 0.1))
        return (x + self.shift) * self.scale


class Flow:
    """An eager loop, in which a flag of Python is set once."""

    def __init__(self):
        self.model, self.optimizer = around(ActNorm()), sgd()
        self.model.layers[1].begun = False

    def fit(self, data):
        losses = []
        for x, y in data:
            with tf.GradientTape() as tape:
                losses.append(tf.reduce_mean((self.model(x) - y) ** 2))
            weights = self.model.trainable_weights
            self.optimizer.apply(tape.gradient(losses[-1], weights), weights)
        return {"loss": [float(loss) for loss in losses]}


@kind("loop")
def normalisation_that_begins_with_the_first_batch() -> Program:
    return Program(Flow(), batches((vectors(5), vectors(1))))


class Tagger(keras.Model):
    """A conditional random field whose transitions its loss reads."""

    def __init__(self):
        super().__init__()
        self.words, self.scores = layers.Embedding(9, 4), layers.Dense(3)
        self.transitions = self.add_weight(shape=(3, 3), initializer="normal")

    def call(self, ids):
        return self.scores(self.words(ids))

    def loss_of(self, tags, scores):
        tags, moves = ops.cast(tags, "int32"), ops.convert_to_tensor(self.transitions)
        pairs = tf.gather_nd(moves, tf.stack([tags[:, :-1], tags[:, 1:]], -1))
        own = ops.sum(ops.one_hot(tags, 3, dtype=scores.dtype) * scores, (1, 2))
        total = scores[:, 0]
        for place in range(1, 5):
            total = ops.logsumexp(total[:, :, None] + moves, 1) + scores[:, place]
        return ops.logsumexp(total, -1) - own - ops.sum(pairs, 1)


@kind()
def random_field_with_transitions_in_the_loss() -> Program:
    model = Tagger()
    model.compile(sgd(0.05), model.loss_of)
    return Program(model, batches((tokens(5, 9), labels(3, 5))), {"epochs": 2})


class Messages(keras.Model):
    """Passes messages between the atoms of several molecules, which are one graph."""

    def __init__(self):
        super().__init__()
        self.atoms, self.bonds = layers.Dense(4, "tanh"), layers.Dense(4, "tanh")
        self.head = layers.Dense(1)

    def call(self, inputs):
        atoms, pairs, molecule = inputs
        hidden = self.atoms(atoms)
        sent = self.bonds(tf.gather(hidden, pairs[:, 1]))
        hidden += tf.math.unsorted_segment_sum(sent, pairs[:, 0], tf.shape(atoms)[0])
        return self.head(tf.math.segment_mean(hidden, molecule))


@kind(couples=True)
def molecules_joined_in_one_graph() -> Program:
    """Atoms, bonds and molecules of a batch differ in number."""
    drawn, graphs = random(), []
    for count in (5, 4, 2):
        molecule = np.repeat(np.arange(count), drawn.integers(2, 5, count)).astype("int32")
        pairs = drawn.integers(0, len(molecule), (2 * len(molecule), 2)).astype("int32")
        inputs = drawn.normal(size=(len(molecule), 3)), pairs, molecule
        graphs.append((inputs, drawn.normal(size=(count, 1))))
    spec = tf.nest.map_structure(
        lambda one: tf.TensorSpec([None, *one.shape[1:]], one.dtype), graphs[0]
    )
    model = Messages()
    model.compile(sgd(0.05), "mse")
    data = tf.data.Dataset.from_generator(lambda: iter(graphs), output_signature=spec)
    counted = data.apply(tf.data.experimental.assert_cardinality(len(graphs)))
    return Program(model, counted, {"epochs": 2})
