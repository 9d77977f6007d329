"""Several updates over parts of the variables on each batch."""

import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.helpers import (
    assert_same_weights,
    dataset_of,
    tower_devices,
    tower_placement,
    weights_of,
)

pytestmark = pytest.mark.usefixtures("float64")
BATCHES = [
    (RANDOM.normal(size=(size, 3)), RANDOM.normal(size=(size, 2)))
    for RANDOM in [np.random.default_rng(5)]
    for size in (8, 7, 2)
]


class Game:
    """A generator and a discriminator, with a tower function and an optimizer for each."""

    def __init__(self, *, built=True):
        keras.utils.set_random_seed(1)
        head = [keras.Input((2,))] if built else []
        self.generator = keras.Sequential([*head, keras.layers.Dense(3, "tanh")])
        head = [keras.Input((3,))] if built else []
        self.discriminator = keras.Sequential([*head, keras.layers.Dense(4, "tanh"),
                                               keras.layers.Dense(1)])  # fmt: skip
        self.optimizers = keras.optimizers.Adam(0.05), keras.optimizers.SGD(0.2, momentum=0.9)

    def discriminate(self, batch):
        real, noise = batch
        scores = self.discriminator(tf.concat([real, self.generator(noise)], axis=0))
        labels = tf.concat([tf.ones_like(real[:, :1]), tf.zeros_like(real[:, :1])], axis=0)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, scores)
        rows = tf.cast(tf.shape(real)[0], losses.dtype)
        right = tf.cast((scores > 0) == (labels > 0), losses.dtype)
        return tf.reduce_sum(losses), rows, {"accuracy": tf.reduce_sum(right) / 2}

    def generate(self, batch):
        scores = self.discriminator(self.generator(batch[1]))
        losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.ones_like(scores), scores)
        return tf.reduce_sum(losses), tf.cast(tf.shape(batch[1])[0], losses.dtype), {}

    @property
    def parts(self):
        return {
            "discriminator": towers.steps.JointUpdate(
                self.discriminate, self.discriminator, self.optimizers[0]
            ),
            "generator": towers.steps.JointUpdate(
                self.generate, self.generator, self.optimizers[1]
            ),
        }

    def weights(self):
        return weights_of(self.generator) + weights_of(self.discriminator)

    def updates(self, num_towers, parameters="auto", order="alternating", **options):
        """Returns the updates of a joint step on towers."""
        dataset = dataset_of(BATCHES)
        placement = tower_placement(num_towers, parameters)
        step = towers.steps.build_joint_step(
            self.parts,
            placement,
            dataset,
            towers.StepOptions(**{"probe": False, **options}),
            order=order,
        )
        return towers.steps.SynchronousUpdates(step, towers.batches_from(dataset))


def train_plainly(game, order="alternating"):
    """Two tapes and two optimizers, whose updates alternate or wait. Returns the losses of both."""
    losses, waiting = [], []
    for batch in BATCHES:
        for update in game.parts.values():
            with tf.GradientTape() as tape:
                total, weight, _ = update.tower_fn(tuple(map(tf.constant, batch)))
                loss = total / weight
            variables = update.trains.trainable_variables
            gradients = tape.gradient(loss, [variable.value for variable in variables])
            waiting.append((update.optimizer, gradients, variables))
            losses.append(float(loss))
            if order == "alternating" or len(waiting) == len(game.parts):
                for optimizer, *pairs in waiting:
                    optimizer.apply(*pairs)
                waiting.clear()
    return np.reshape(losses, (-1, 2))


@pytest.mark.parametrize(
    ("num_towers", "options"),
    [
        (1, {}),
        (2, {"accumulate": 2}),
        (2, {"order": "simultaneous"}),
        pytest.param(1, {"order": "simultaneous"}, marks=pytest.mark.slow),
        pytest.param(3, {"order": "simultaneous"}, marks=pytest.mark.slow),
        pytest.param(
            2, {"order": "simultaneous", "parameters": "replicated"}, marks=pytest.mark.slow
        ),
        pytest.param(3, {}, marks=pytest.mark.slow),
        pytest.param(2, {"parameters": "replicated"}, marks=pytest.mark.slow),
        pytest.param(2, {"parameters": "nccl"}, marks=pytest.mark.slow),
    ],
)
def test_each_part_trains_its_own_variables(num_towers, options):
    plain, reports = Game(), []
    losses = train_plainly(plain, options.get("order", "alternating"))
    with tower_placement(num_towers, options.get("parameters", "auto")).scope():
        game = Game()
    updates = game.updates(num_towers, **options)
    towers.Trainer.making(updates, [reports.append]).train(epochs=1)
    assert_same_weights(game.weights(), plain.weights(), float64=True)
    for name, expected in zip(("discriminator", "generator"), losses.T, strict=True):
        actual = [float(report.results.metrics[f"{name}/loss"]) for report in reports]
        np.testing.assert_allclose(actual, expected, rtol=1e-12)
    np.testing.assert_allclose([float(r.results.loss) for r in reports], losses.sum(1), rtol=1e-12)
    assert "discriminator/accuracy" in reports[0].results.metrics
    assert all(variable.trainable for variable in game.generator.weights)


def test_a_resumed_game_matches_an_uninterrupted_one(tmp_path):
    whole, resumed = Game(), Game()
    trainer = towers.Trainer.making(whole.updates(2), run_dir=tmp_path / "whole")
    trainer.train(steps=4)
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    trainer.train(epochs=3)
    trainer = towers.Trainer.making(resumed.updates(2), run_dir=tmp_path / "stopped")
    trainer.train(epochs=3)
    assert trainer.position.step == 9
    for one, other in zip(resumed.weights(), whole.weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_models_that_are_not_built_are_built():
    game = Game(built=False)
    towers.Trainer.making(game.updates(1)).train(steps=1)
    assert game.generator.built and game.discriminator.built


def test_the_updates_draw_different_noise():
    seeds, drawn = keras.random.SeedGenerator(3), {}
    weight = keras.Variable(1.0, dtype="float64")
    other = keras.Variable(1.0, dtype="float64")

    def noisy(variable):
        def tower_fn(batch):
            noise = keras.random.normal((1,), dtype="float64", seed=seeds)[0]
            rows = tf.cast(tf.shape(batch)[0], "float64")
            return noise * variable.value * 0 + variable * rows, rows, {"noise": (noise, None)}

        return tower_fn

    updates = {
        name: towers.steps.JointUpdate(noisy(variable), [variable], keras.optimizers.SGD())
        for name, variable in (("one", weight), ("two", other))
    }
    dataset = tf.data.Dataset.from_tensor_slices(np.ones(4)).batch(4)
    step = towers.steps.build_joint_step(updates, tower_placement(1), dataset, others=[seeds.state])
    (shards,) = towers.engine.split(dataset, 1)
    drawn = {
        float(step(shards, number).metrics[f"{n}/noise"]) for number in (1, 2) for n in updates
    }
    assert len(drawn) == 4


def test_a_variable_of_two_updates_is_refused():
    game = Game()
    updates = game.parts
    updates["generator"] = towers.steps.JointUpdate(
        game.generate, game.discriminator, game.optimizers[1]
    )
    with pytest.raises(ValueError, match="in 'discriminator' and in 'generator'"):
        towers.steps.build_joint_step(
            updates, towers.Placement(tower_devices(1)), dataset_of(BATCHES)
        )


def test_the_orders_differ():
    """The test of the test; the updates of the first step are the same for the discriminator."""
    games = {order: Game() for order in ("alternating", "simultaneous")}
    losses = [train_plainly(game, order) for order, game in games.items()]
    assert abs(losses[0] - losses[1]).max() > 0.01


def test_an_unknown_order_is_refused():
    with pytest.raises(ValueError, match="order"):
        Game().updates(1, order="at once")


def test_a_loss_scale_is_refused():
    with pytest.raises(ValueError, match="no loss scale"):
        Game().updates(1, loss_scale=towers.steps.LossScale())
