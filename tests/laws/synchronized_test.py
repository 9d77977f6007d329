"""Synchronised BatchNorm: N towers train as one device does with ordinary BatchNorm."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.step.options import LossScale


def norm(name, *, synchronized, **options):
    return keras.layers.BatchNormalization(
        momentum=0.9, synchronized=synchronized, name=name, **options
    )


def two_norms(*, synchronized):
    """Two normalised layers before and after trained ones, the second in a nested model."""
    nested_inputs = keras.Input((6,))
    nested = keras.layers.Dense(4, activation="tanh", name="inner")(nested_inputs)
    nested = keras.Model(nested_inputs, norm("second", synchronized=synchronized)(nested))
    inputs = keras.Input((5,))
    hidden = keras.layers.Dense(6, activation="tanh", name="hidden")(inputs)
    hidden = nested(norm("first", synchronized=synchronized)(hidden))
    return keras.Model(inputs, keras.layers.Dense(3, name="logits")(hidden))


def train(batches, num_towers, make_model=two_norms, tower_fn=None, **options):
    """Returns weights and losses; without towers, of a plain loop with ordinary BatchNorm."""
    keras.utils.set_random_seed(3)
    model = make_model(synchronized=num_towers is not None)
    tower_fn = (tower_fn or helpers.classify)(model, training=True)
    optimizer = keras.optimizers.SGD(0.3, momentum=0.9)
    if num_towers is None:
        return helpers.train_plainly(tower_fn, model, optimizer, batches)
    weights, results = helpers.train_on_towers(
        tower_fn, model, optimizer, batches, num_towers, **options
    )
    return weights, [float(result.loss) for result in results]


BATCHES = helpers.dense_batches([8, 7, 1, 8, 2], dtype="float64")


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("num_towers", "parameters"),
    [
        (3, "replicated"),
        pytest.param(3, "cpu", marks=pytest.mark.slow),
        pytest.param(1, "cpu", marks=pytest.mark.slow),
        pytest.param(2, "cpu", marks=pytest.mark.slow),
        pytest.param(4, "replicated", marks=pytest.mark.slow),
        pytest.param(3, "nccl", marks=pytest.mark.slow),
    ],
)
def test_towers_with_synchronized_batch_norm_match_one_device(num_towers, parameters):
    """Weights, moving averages and losses, also with shards without rows."""
    expected, losses = train(BATCHES, None)
    actual, others = train(BATCHES, num_towers, parameters=parameters)
    helpers.assert_same_weights(actual, expected, float64=True)
    np.testing.assert_allclose(others, losses, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_without_it_the_weights_differ():
    """The test of the test."""

    def ordinary(**_):
        return two_norms(synchronized=False)

    expected, _ = train(BATCHES, None)
    actual, _ = train(BATCHES, 2, ordinary)
    assert max(np.abs(one - other).max() for one, other in zip(actual, expected, strict=True)) > 0.1


def twice(model, *, training):
    """A loss of two labels for each row, whose shapes and numbers the graph checks."""

    def tower_fn(batch):
        features, labels = batch
        logits = tf.debugging.check_numerics(model(features, training=training), "logits")
        logits = tf.stack([logits] * 2, 1)
        pairs = tf.stack([labels] * 2, 1)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(pairs, logits)
        return tf.reduce_sum(losses), tf.size(labels), {}

    return tower_fn


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("accumulate", "tower_fn"),
    [
        pytest.param(2, None, marks=pytest.mark.slow),
        pytest.param(4, None, marks=pytest.mark.slow),
        pytest.param(2, twice, marks=pytest.mark.slow),
        (4, twice),
    ],
)
def test_micro_batches_are_normalised_over_all_towers(accumulate, tower_fn):
    """The rows of a micro-batch of each of two towers, as one device would take them at once."""
    ((inputs, labels),) = batches = helpers.dense_batches([16], dtype="float64")
    rows = np.arange(16).reshape(2, accumulate, -1)  # By tower and micro-batch.
    order = rows.swapaxes(0, 1).ravel()
    options = {"accumulate": accumulate, "tower_fn": tower_fn}
    alone, _ = train([(inputs[order], labels[order])], 1, **options)
    actual, _ = train(batches, 2, **options)
    helpers.assert_same_weights(actual, alone, float64=True)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_several_losses_and_a_second_pass_for_their_denominators():
    def two_losses(model, *, training):
        once = helpers.classify(model, training=training)

        def tower_fn(batch):
            loss, weight, _ = once(batch)
            logits = model(batch[0], training=training)  # Each layer is called twice.
            masked = tf.cast(batch[1] > 0, loss.dtype)
            squares = tf.reduce_sum(tf.reduce_mean(logits**2, axis=1) * masked)
            positive = tf.reduce_sum(tf.cast(logits[:, 0] > 0, loss.dtype))
            return (loss, squares), (weight, tf.stop_gradient(positive) + weight), {}

        return tower_fn

    def one_loss(model, *, training):
        several = two_losses(model, training=training)

        def tower_fn(batch):
            losses, weights, _ = several(batch)
            means = [loss / weight for loss, weight in zip(losses, weights, strict=True)]
            return sum(means) * weights[0], weights[0], {}

        return tower_fn

    batches = helpers.dense_batches([8, 7], dtype="float64")
    expected, _ = train(batches, None, tower_fn=one_loss)
    actual, _ = train(batches, 3, tower_fn=two_losses)
    helpers.assert_same_weights(actual, expected, float64=True)


@pytest.mark.parametrize(
    "recompute",
    [towers.steps.recompute, pytest.param(keras.remat, marks=pytest.mark.slow)],
)
@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_recomputed_layers_sum_again(recompute):
    class Block(keras.layers.Layer):
        def __init__(self, *, synchronized):
            super().__init__()
            self.dense = keras.layers.Dense(5, activation="tanh")
            self.norm = norm("norm", synchronized=synchronized)

        def build(self, shape):
            self.dense.build(shape)
            self.norm.build(shape)

        def call(self, inputs, training=False):
            wrap = recompute if self.norm.synchronized else (lambda function: function)
            return wrap(lambda inputs: self.norm(self.dense(inputs), training=training))(inputs)

    def make_model(*, synchronized):
        inputs = keras.Input((5,))
        hidden = Block(synchronized=synchronized)(inputs)
        return keras.Model(inputs, keras.layers.Dense(3)(hidden))

    expected, _ = train(BATCHES, None, make_model)
    actual, _ = train(BATCHES, 2, make_model)
    helpers.assert_same_weights(actual, expected, float64=True)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("float16", 0.02)])
def test_the_loss_scale_is_that_of_each_tower(precision, tolerance):
    """Shards of different weights have different factors; float32 shows that they cancel."""
    batches = helpers.dense_batches([5, 5, 3])
    expected, _ = train(batches, None)
    try:
        keras.config.set_dtype_policy("mixed_float16" if precision == "float16" else "float32")
        actual, _ = train(batches, 2, loss_scale=LossScale(initial=1024.0))
    finally:
        keras.config.set_dtype_policy("float32")
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance)


@pytest.mark.slow
def test_an_evaluation_in_training_mode_sums_over_the_towers():
    keras.utils.set_random_seed(3)
    model = two_norms(synchronized=True)
    tower_fn = helpers.classify(model, training=True)
    dataset = helpers.dataset_of(helpers.dense_batches([8, 7, 1]))
    results = [
        towers.evaluate_step(
            towers.build_evaluation_step(
                tower_fn, model, helpers.tower_placement(count), dataset
            ),
            dataset,
        )
        for count in (1, 3)
    ]  # fmt: skip
    assert results[1]["loss"] == pytest.approx(results[0]["loss"], rel=1e-5)


def test_layers_called_in_another_order_are_an_error():
    calls = itertools.count()
    inputs = keras.Input((5,))
    model = keras.Model(inputs, keras.layers.Dense(3, name="logits")(inputs))
    norms = [norm(name, synchronized=True) for name in ("first", "second")]
    for layer in norms:
        layer.build((None, 5))

    def tower_fn(batch):
        # The first calls gather the variables; towers 0 and 1 differ.
        ordered = norms if next(calls) % 2 else norms[::-1]
        hidden = batch[0]
        for layer in ordered:
            hidden = layer(hidden, training=True)
        loss = tf.reduce_sum(model(hidden) ** 2)
        return loss, tf.shape(hidden)[0], {}

    variables = [*model.variables, *norms[0].variables, *norms[1].variables]
    batches = helpers.dense_batches([8])
    with pytest.raises(RuntimeError, match=r"in the same order\. Tower 0 asks for \S*(first|sec)"):
        helpers.build_step(tower_fn, variables, keras.optimizers.SGD(0.1), batches, 2)


class Reduced(keras.layers.Layer):
    """A layer that asks for something of all replicas."""

    def __init__(self, ask):
        super().__init__()
        self.kernel = self.add_weight(shape=(5,))
        self.ask = ask

    def call(self, inputs):
        replicas = tf.distribute.get_replica_context()
        return inputs * self.kernel * tf.stop_gradient(self.ask(replicas, inputs))


def mean_over_replicas(replicas, inputs):
    return replicas.all_reduce("mean", tf.reduce_sum(inputs))


def gathered(replicas, inputs):
    return tf.reduce_sum(replicas.all_gather(inputs, axis=0))


def rows_summed(replicas, inputs):
    return replicas.all_reduce("sum", inputs)


def in_a_branch(replicas, inputs):
    total = tf.reduce_sum(inputs)
    return tf.cond(total > 0, lambda: replicas.all_reduce("sum", total), lambda: total)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (mean_over_replicas, "Expected a sum"),
        (gathered, "towers do not"),
        (rows_summed, r"of shape \(None, 5\)"),
        (in_a_branch, "in a loop or a branch"),
    ],
)
def test_what_cannot_be_added_is_refused_by_name(ask, message):
    layer = Reduced(ask)

    def tower_fn(batch):
        return tf.reduce_sum(layer(batch[0])), tf.shape(batch[0])[0], {}

    batches = helpers.dense_batches([8])
    with pytest.raises(RuntimeError, match=message):
        helpers.build_step(
            tower_fn, layer.variables, keras.optimizers.SGD(0.1), batches, 2, probe=False
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processes": helpers.OneOfTwo()}, "not possible between processes"),
        pytest.param(
            {"compiled": True}, "not possible in towers that XLA compiles", marks=pytest.mark.slow
        ),
    ],
)
def test_processes_and_xla_are_refused_by_name(options, message):
    with pytest.raises(RuntimeError, match=message):
        train(helpers.dense_batches([8]), 2, **options)
