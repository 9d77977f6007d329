"""Law 6 for all states: the `aggregation` of a variable says how its values become one."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers

WAYS = {"towers": {}, "micro-batches": {"accumulate": 2}, "first": {"batch_norm": "first"}}


class Counters(keras.layers.Layer):
    """Passes its inputs on, and counts rows and calls in states of every aggregation."""

    def __init__(self):
        super().__init__()
        self.rows = self.counter("rows", "sum", "int32")
        self.sums = self.counter("sums", "sum", "float32")
        self.calls = self.counter("calls", "only_first_replica", "int32")
        self.last = self.counter("last", "only_first_replica", "float32")
        self.seen = self.counter("seen", "none", "bool")

    def counter(self, name, aggregation, dtype):
        return self.add_weight(
            shape=(), initializer="zeros", dtype=dtype, trainable=False, aggregation=aggregation,
            name=name, autocast=False,
        )  # fmt: skip

    def call(self, inputs):
        self.rows.assign_add(tf.shape(inputs)[0])
        self.sums.assign_add(tf.reduce_sum(tf.ones_like(inputs[:, 0])))
        self.calls.assign_add(1)
        self.last.assign(inputs[0, 0])
        self.seen.assign(True)
        return inputs


def counting_model():
    counters = Counters()
    inputs = keras.Input((5,))
    return keras.Model(inputs, keras.layers.Dense(3)(counters(inputs))), counters


TELLING = [(2, "first"), (3, "towers"), (2, "micro-batches")]


@pytest.mark.parametrize(
    ("num_towers", "way"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] * (case not in TELLING))
        for case in itertools.product((1, 2, 3), WAYS)
    ],
)
def test_states_are_merged_by_their_aggregation(num_towers, way):
    """24 rows are 24, not 12, whatever the number of towers and of micro-batches."""
    model, counters = counting_model()
    batches = helpers.dense_batches([8, 7, 1, 8])
    options = WAYS[way]
    helpers.train_on_towers(
        helpers.classify(model), model, keras.optimizers.SGD(0.1), batches, num_towers, **options
    )
    assert int(counters.rows) == int(counters.sums) == 24
    assert int(counters.calls) == 4
    assert bool(counters.seen.value)
    assert float(counters.last) == batches[-1][0][0, 0]


def test_a_copy_on_every_tower_has_the_same_states():
    with helpers.tower_placement(2, "replicated").scope():
        model, counters = counting_model()
    batches = helpers.dense_batches([8, 7])
    optimizer = keras.optimizers.SGD(0.1)
    step, shards = helpers.build_step(
        helpers.classify(model), model, optimizer, batches, 2, parameters="replicated"
    )
    for number, parts in enumerate(shards, 1):
        step(parts, number)
    step.check_copies()
    assert int(counters.rows) == 15


class OtherProcess(towers.processes.Processes):
    """The second of two processes; adds what the first one would have."""

    def __init__(self, shares):
        super().__init__(count=2, index=1)
        self.shares = shares

    def sum(self, nest):
        *rest, states, weight = nest
        self.shares.extend(states)
        return *rest, states, weight


def test_only_the_first_process_gives_the_values_of_the_first_replica():
    model, counters = counting_model()
    shares = []
    counters.calls.assign(5)
    batches = helpers.dense_batches([8])
    step, (shards,) = helpers.build_step(
        helpers.classify(model), model, keras.optimizers.SGD(0.1), batches, 2,
        processes=OtherProcess(shares),
    )  # fmt: skip
    step(shards, 1)
    assert len(shares) == 5
    assert int(counters.calls) == 0  # Zeros here: the other process adds its value.
    assert int(counters.rows) == 8


@pytest.mark.parametrize("kind", ["towers", "parallel"])
def test_metrics_of_a_layer_count_every_example_once(kind):
    class Measured(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.mean = keras.metrics.Mean(name="mean")
            self.logits = keras.layers.Dense(3)

        def call(self, inputs, training=False):
            self.mean.update_state(inputs[:, 0])
            return self.logits(inputs)

    layer = Measured()
    layer(np.zeros((1, 5), "float32"))
    layer.mean.reset_state()
    batches = helpers.dense_batches([8, 7])
    if kind == "towers":
        optimizer = keras.optimizers.SGD(0.1)
        helpers.train_on_towers(helpers.classify(layer), layer, optimizer, batches, 2)
    else:
        for inputs, _ in batches:
            towers.steps.parallel(layer, helpers.tower_devices(2), inputs=inputs)
    values = np.concatenate([inputs[:, 0] for inputs, _ in batches])
    np.testing.assert_allclose(float(layer.mean.result()), values.mean(), rtol=1e-6)
    assert float(layer.mean.count) == 15


def test_float16_averages_are_weighed_without_overflow():
    """A variance of 15,000 times 8 examples is more than float16 can hold."""
    keras.config.set_dtype_policy("float16")
    inputs = keras.Input((5,))
    norm = keras.layers.BatchNormalization(momentum=0.0, name="norm")
    model = keras.Model(inputs, keras.layers.Dense(3)(norm(inputs)))
    ((values, labels),) = helpers.dense_batches([16])
    values = (130 * values).astype("float16")
    optimizer = keras.optimizers.SGD(0.0)
    helpers.train_on_towers(
        helpers.classify(model, training=True), model, optimizer, [(values, labels)], 2
    )
    halves = values.astype("float32").reshape(2, 8, 5)
    expected = halves.var(axis=1).mean(axis=0)
    assert (expected * 8).max() > 65504
    np.testing.assert_allclose(norm.moving_variance.numpy(), expected, rtol=1e-2)


class LogOfRow(keras.layers.Layer):
    """A state that is infinite where the last row is zero."""

    def __init__(self):
        super().__init__()
        self.log = self.add_weight(
            shape=(), initializer="zeros", trainable=False, name="log", autocast=False
        )

    def call(self, inputs):
        self.log.assign(tf.math.log(tf.abs(inputs[-1, 0])))
        return inputs


def test_what_is_infinite_in_an_empty_shard_does_not_reach_the_state():
    layer = LogOfRow()
    inputs = keras.Input((5,))
    model = keras.Model(inputs, keras.layers.Dense(3)(layer(inputs)))
    ((values, labels),) = helpers.dense_batches([3])
    values[:, 0] = 1.0, np.e, 1.0
    step, (shards,) = helpers.build_step(
        helpers.classify(model), model, keras.optimizers.SGD(0.1), [(values, labels)], 4
    )
    assert [int(shard.size) for shard in shards] == [1, 1, 1, 0]
    empty = shards[3]._replace(batch=tf.nest.map_structure(tf.zeros_like, shards[3].batch))
    step((*shards[:3], empty), 1)
    np.testing.assert_allclose(float(layer.log), 1 / 3, rtol=1e-6)


def test_what_was_built_is_what_runs():
    """The step of a GAN's generator never moves the discriminator's averages."""
    inputs = keras.Input((5,))
    norm = keras.layers.BatchNormalization(name="norm")
    discriminator = keras.Model(inputs, keras.layers.Dense(1)(norm(inputs)), name="discriminator")
    generator = keras.Sequential([keras.Input((5,)), keras.layers.Dense(5)], name="generator")

    def tower_fn(batch):
        scores = discriminator(generator(batch[0]), training=True)
        return tf.reduce_sum(scores), tf.shape(scores)[0], {}

    variables = [*generator.variables, *discriminator.variables]
    discriminator.trainable = False
    batches, optimizer = helpers.dense_batches([8, 8]), keras.optimizers.SGD(0.1)
    step, shards = helpers.build_step(tower_fn, variables, optimizer, batches, 2)
    discriminator.trainable = True
    before = [variable.numpy() for variable in discriminator.variables]
    for number, parts in enumerate(shards, 1):
        step(parts, number)
    for old, variable in zip(before, discriminator.variables, strict=True):
        np.testing.assert_array_equal(old, variable.numpy())


@pytest.mark.parametrize("build", ["evaluation", "asynchronous"])
def test_every_step_is_traced_when_it_is_built(build):
    model, calls = helpers.dense_model(), []

    def tower_fn(batch):
        calls.append(1)
        return helpers.classify(model)(batch)

    dataset, placement = helpers.dataset_of(helpers.dense_batches([4])), helpers.tower_placement(2)
    if build == "evaluation":
        step = towers.build_evaluation_step(tower_fn, model, placement, dataset)
    else:
        optimizer = keras.optimizers.SGD(0.1)
        step = towers.steps.build_async_step(tower_fn, model, optimizer, placement, dataset)
    traced = len(calls)
    assert traced == 1 + 2
    if build == "evaluation":
        step(next(iter(towers.engine.split(dataset, 2))), 1)
    else:
        step(1, next(iter(towers.engine.split(dataset, 1))), 1)
    assert len(calls) == traced + 1  # The probe asks once.
