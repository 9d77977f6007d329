"""Loops of a user's own, eager and traced, with Keras's layers in them."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.kinds.generative import BINARY, discriminator, generator
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


class Loop:
    """A loop over batches; `step(batch)` returns {name: number}."""

    def fit(self, data, epochs=1):
        """Returns {name: the mean over the steps of each epoch}."""
        history = {}
        for _ in range(epochs):
            results = [self.step(batch) for batch in data]
            for name in results[0]:
                mean = np.mean([float(result[name]) for result in results])
                history.setdefault(name, []).append(mean)
        return history


class Eager(Loop):
    """The loop of the guide: a tape, a metric, an optimizer, nothing traced."""

    def __init__(self):
        self.model, self.optimizer = dense(5, 8, 3), sgd()
        self.loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.accuracy = keras.metrics.SparseCategoricalAccuracy()

    def step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            logits = self.model(x, training=True)
            loss = self.loss(y, logits) + sum(self.model.losses)
        gradients = tape.gradient(loss, self.model.trainable_weights)
        self.optimizer.apply(gradients, self.model.trainable_weights)
        self.accuracy.update_state(y, logits)
        return {"loss": loss, "accuracy": self.accuracy.result()}


@kind("loop")
def eager_loop() -> Program:
    return Program(Eager(), batches((vectors(5), labels(3))), {"epochs": 2})


class Traced(Eager):
    """The same, with `tf.function` around its step."""

    def __init__(self):
        super().__init__()
        self.optimizer.build(self.model.trainable_weights)
        self.step = tf.function(super().step)


@kind("loop")
def traced_loop() -> Program:
    return Program(Traced(), batches((vectors(5), labels(3))), {"epochs": 2})


class Distributed(Eager):
    """Several steps in one traced loop over the data set."""

    def __init__(self):
        super().__init__()
        self.optimizer.build(self.model.trainable_weights)
        self.total = tf.Variable(0.0, dtype="float64", trainable=False)

    @tf.function
    def epoch(self, data):
        for batch in data:
            self.total.assign_add(self.step(batch)["loss"])

    def fit(self, data, epochs=1):
        for _ in range(epochs):
            self.epoch(data)
        return {"total": [float(self.total)]}


@kind("loop")
def loop_within_a_traced_function() -> Program:
    return Program(Distributed(), batches((vectors(5), labels(3))), {"epochs": 2})


class GanLoop(Loop):
    """The DCGAN of TensorFlow's tutorial: two tapes, two optimizers, one traced step."""

    def __init__(self):
        self.generator, self.judge = generator(), discriminator()
        self.optimizers = adam(), adam()
        self.optimizers[0].build(self.generator.trainable_variables)
        self.optimizers[1].build(self.judge.trainable_variables)
        self.loss, self.seeds = BINARY(from_logits=True), keras.random.SeedGenerator(1)

    @tf.function
    def step(self, real):
        noise = keras.random.normal((ops.shape(real)[0], 4), seed=self.seeds)
        with tf.GradientTape() as g_tape, tf.GradientTape() as d_tape:
            fake = self.generator(noise, training=True)
            real_judged, judged = self.judge(real, training=True), self.judge(fake, training=True)
            g_loss = self.loss(ops.ones_like(judged), judged)
            d_loss = self.loss(ops.ones_like(real_judged), real_judged)
            d_loss += self.loss(ops.zeros_like(judged), judged)
        weights = self.generator.trainable_variables
        self.optimizers[0].apply_gradients(
            zip(g_tape.gradient(g_loss, weights), weights, strict=True)
        )
        weights = self.judge.trainable_variables
        self.optimizers[1].apply_gradients(
            zip(d_tape.gradient(d_loss, weights), weights, strict=True)
        )
        return {"g_loss": g_loss, "d_loss": d_loss}


@kind("loop")
def gan_loop() -> Program:
    return Program(GanLoop(), batches(pictures(4)), {"epochs": 2})


class Reptile(Loop):
    """A few steps for each task, then weights move a part of the way, outside of an optimizer."""

    def __init__(self):
        self.model, self.optimizer = dense(5, 8, 3), keras.optimizers.SGD(0.1)

    def step(self, task):
        before = self.model.get_weights()
        x, y = task
        for _ in range(3):
            with tf.GradientTape() as tape:
                losses = keras.losses.sparse_categorical_crossentropy(
                    y, self.model(x), from_logits=True
                )
                loss = ops.mean(losses)
            weights = self.model.trainable_weights
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        moved = [b + 0.5 * (a - b) for b, a in zip(before, self.model.get_weights(), strict=True)]
        self.model.set_weights(moved)
        return {"loss": loss}


@kind("loop")
def reptile() -> Program:
    return Program(Reptile(), batches((vectors(5), labels(3))), {"epochs": 2})


class Style(Loop):
    """A picture is what is trained; frozen features tell how far it is from two others."""

    def __init__(self):
        inputs = keras.Input((6, 6, 1))
        first = layers.Conv2D(3, 3, activation="tanh")(inputs)
        self.features = keras.Model(inputs, [first, layers.Conv2D(3, 3, activation="tanh")(first)])
        self.picture = tf.Variable(pictures(6)[:1])
        self.optimizer = keras.optimizers.SGD(0.1)

    def step(self, batch):
        content, style = batch[:1], -batch[-1:]
        both = ops.concatenate
        with tf.GradientTape() as tape:
            low, high = self.features(both([content, style, self.picture], 0))
            style_loss = ops.mean((self.gram(low[1]) - self.gram(low[2])) ** 2)
            content_loss = ops.mean((high[0] - high[2]) ** 2)
            shifts = self.picture[:, 1:] - self.picture[:, :-1]
            loss = content_loss + 0.1 * style_loss + 0.01 * ops.mean(shifts**2)
        self.optimizer.apply_gradients([(tape.gradient(loss, self.picture), self.picture)])
        return {"loss": loss}

    def gram(self, features):
        flat = ops.reshape(features, (-1, 3))
        return ops.matmul(ops.transpose(flat), flat)


@kind("loop")
def style_transfer() -> Program:
    loop = Style()
    loop.optimizer.build([loop.picture])
    return Program(loop, batches(pictures(6)), {"epochs": 2})


class Dream(Loop):
    """Ascent of a batch of pictures, whose gradient by the inputs is normalised."""

    def __init__(self):
        self.features = keras.Sequential(
            [keras.Input((6, 6, 1)), layers.Conv2D(3, 3, activation="tanh")]
        )
        self.picture = tf.Variable(pictures(6)[:8])

    @tf.function
    def slopes(self, pictures):
        with tf.GradientTape() as tape:
            tape.watch(pictures)
            loss = ops.mean(self.features(pictures)[:, 1:-1] ** 2)
        found = tape.gradient(loss, pictures)
        return loss, found / ops.maximum(ops.mean(ops.abs(found)), 1e-6)

    def step(self, batch):
        rows = batch.shape[0]
        loss, found = self.slopes(self.picture[:rows] + 0.0 * batch)
        self.picture[:rows].assign(self.picture[:rows] + 0.05 * found)
        return {"loss": loss}


@kind("loop")
def deep_dream() -> Program:
    return Program(Dream(), batches(pictures(6)), {"epochs": 2})


class ActorCritic(Loop):
    """Episodes of several lengths, a call for each state, one update after each episode."""

    def __init__(self):
        inputs = keras.Input((4,))
        common = layers.Dense(6, "relu")(inputs)
        self.model = keras.Model(
            inputs, [layers.Dense(2, "softmax")(common), layers.Dense(1)(common)]
        )
        self.optimizer, self.huber = adam(), keras.losses.Huber()

    def step(self, states):
        with tf.GradientTape() as tape:
            logs, values = [], []
            for place in range(states.shape[0]):
                chances, value = self.model(states[place : place + 1])
                logs.append(ops.log(chances[0, place % 2]))
                values.append(value[0, 0])
            returns = np.cos(np.arange(len(logs)))
            actor = [
                -log * (back - value)
                for log, value, back in zip(logs, values, returns, strict=True)
            ]
            critic = [
                self.huber(ops.reshape(value, (1,)), ops.reshape(back, (1,)))
                for value, back in zip(values, returns, strict=True)
            ]
            loss = sum(actor) + sum(critic)
        weights = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


@kind("loop")
def actor_critic() -> Program:
    return Program(ActorCritic(), batches(vectors(4)))


class Ddpg(Loop):
    """Four networks: actor and critic, and slow copies of both; a traced update."""

    def __init__(self):
        self.actor, self.critic = dense(3, 6, 1), dense(4, 6, 1)
        self.slow_actor = keras.models.clone_model(self.actor)
        self.slow_critic = keras.models.clone_model(self.critic)
        self.slow_actor.set_weights(self.actor.get_weights())
        self.slow_critic.set_weights(self.critic.get_weights())
        self.actor_optimizer, self.critic_optimizer = adam(), adam()
        self.actor_optimizer.build(self.actor.trainable_variables)
        self.critic_optimizer.build(self.critic.trainable_variables)

    def judged(self, critic, states, actions):
        return critic(ops.concatenate([states, actions], -1), training=True)

    @tf.function
    def step(self, batch):
        states, actions, rewards, following = batch
        with tf.GradientTape() as tape:
            target = rewards + 0.9 * self.judged(
                self.slow_critic, following, self.slow_actor(following, training=True)
            )
            critic_loss = ops.mean((target - self.judged(self.critic, states, actions)) ** 2)
        weights = self.critic.trainable_variables
        self.critic_optimizer.apply(tape.gradient(critic_loss, weights), weights)
        with tf.GradientTape() as tape:
            actor_loss = -ops.mean(
                self.judged(self.critic, states, self.actor(states, training=True))
            )
        weights = self.actor.trainable_variables
        self.actor_optimizer.apply(tape.gradient(actor_loss, weights), weights)
        for slow, fast in ((self.slow_actor, self.actor), (self.slow_critic, self.critic)):
            for mean, now in zip(slow.weights, fast.weights, strict=True):
                mean.assign(0.95 * mean + 0.05 * now)
        return {"critic_loss": critic_loss, "actor_loss": actor_loss}


@kind("loop")
def ddpg() -> Program:
    x = vectors(8)
    return Program(Ddpg(), batches((x[:, :3], x[:, 3:4], x[:, 4:5], x[:, 5:])), {"epochs": 2})


class Ppo(Loop):
    """Clipped ratios to the policy of before, until the divergence is too large."""

    def __init__(self):
        self.actor, self.critic = dense(4, 6, 2), dense(4, 6, 1)
        self.policy_optimizer, self.value_optimizer = adam(0.03), adam(0.03)
        self.policy_optimizer.build(self.actor.trainable_variables)
        self.value_optimizer.build(self.critic.trainable_variables)

    def logs(self, states, actions):
        return ops.sum(ops.one_hot(actions, 2) * ops.log_softmax(self.actor(states)), -1)

    @tf.function
    def improve_policy(self, states, actions, before, advantages):
        with tf.GradientTape() as tape:
            ratio = ops.exp(self.logs(states, actions) - before)
            clipped = ops.clip(ratio, 0.8, 1.2) * advantages
            loss = -ops.mean(ops.minimum(ratio * advantages, clipped))
        weights = self.actor.trainable_variables
        self.policy_optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        return ops.mean(before - self.logs(states, actions))

    @tf.function
    def improve_value(self, states, returns):
        with tf.GradientTape() as tape:
            loss = ops.mean((returns - self.critic(states)[:, 0]) ** 2)
        weights = self.critic.trainable_variables
        self.value_optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        return loss

    def step(self, batch):
        states, actions, returns = batch
        before = self.logs(states, actions)
        advantages = returns - self.critic(states)[:, 0]
        for _ in range(3):
            divergence = self.improve_policy(states, actions, before, advantages)
            if divergence > 0.015:
                break
        for _ in range(2):
            loss = self.improve_value(states, returns)
        return {"divergence": divergence, "value_loss": loss}


@kind("loop")
def ppo() -> Program:
    return Program(Ppo(), batches((vectors(4), labels(2), vectors(1)[:, 0])))


class DeepQ(Loop):
    """One call for an action, one batch of a memory for an update, a target network."""

    def __init__(self):
        self.model, self.target = dense(4, 6, 2), dense(4, 6, 2)
        self.optimizer = keras.optimizers.Adam(0.01, epsilon=1e-3, clipnorm=1.0)
        self.huber, self.count = keras.losses.Huber(), 0

    def step(self, batch):
        states, actions, rewards, following = batch
        best = ops.max(self.target.predict(following, verbose=0), 1)
        chosen = ops.argmax(self.model(states[:1], training=False)[0])
        with tf.GradientTape() as tape:
            values = ops.sum(self.model(states) * ops.one_hot(actions, 2), 1)
            loss = self.huber(rewards + 0.9 * best, values)
        weights = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.count += 1
        if self.count % 3 == 0:
            self.target.set_weights(self.model.get_weights())
        return {"loss": loss, "chosen": chosen}


@kind("loop")
def deep_q_learning() -> Program:
    data = (vectors(4), labels(2), vectors(1)[:, 0], vectors(4)[::-1])
    return Program(DeepQ(), batches(data), {"epochs": 2})


class Steps(Loop):
    """`train_on_batch`, the loop of the oldest GANs, with a frozen part in a joint model."""

    def __init__(self):
        self.generator, self.judge = generator(), discriminator()
        self.judge.compile(adam(), BINARY(from_logits=True), jit_compile=False)
        noise = keras.Input((4,))
        self.joint = keras.Model(noise, self.judge(self.generator(noise)))
        self.joint.compile(sgd(), BINARY(from_logits=True), jit_compile=False)
        self.draw = np.random.default_rng(3)

    def step(self, real):
        rows = real.shape[0]
        noise = self.draw.normal(size=(rows, 4))
        fake = self.generator(noise)
        both = np.concatenate([real, fake])
        targets = np.concatenate([np.ones((rows, 1)), np.zeros((rows, 1))])
        d_loss = self.judge.train_on_batch(both, targets)
        g_loss = self.joint.train_on_batch(noise, np.ones((rows, 1)))
        return {"d_loss": d_loss, "g_loss": g_loss}


@kind("loop")
def train_on_batch() -> Program:
    return Program(Steps(), batches(pictures(4)))


class Privacy(Loop):
    """The gradient of each row by itself, clipped: a vectorised map over single rows."""

    def __init__(self):
        self.model, self.optimizer = dense(5, 6, 1), sgd()

    def step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            losses = ops.sum((y - self.model(x)) ** 2, -1)
        weights = self.model.trainable_variables
        slopes = tape.jacobian(losses, weights)
        norms = ops.sqrt(sum(ops.sum(ops.reshape(s, (s.shape[0], -1)) ** 2, 1) for s in slopes))
        shares = ops.minimum(1.0, 0.5 / norms)
        clipped = [
            ops.mean(ops.reshape(shares, (-1,) + (1,) * (s.ndim - 1)) * s, 0) for s in slopes
        ]
        self.optimizer.apply(clipped, weights)
        return {"loss": ops.mean(losses)}


@kind("loop")
def gradients_of_each_row() -> Program:
    return Program(Privacy(), batches((vectors(5), random().normal(size=(24, 1)))))
