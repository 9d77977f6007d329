"""Micro-batches: a shard's parts are those of a split, and their sums have the bits of a tree."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.step.micro_batches import starts_and_sizes, sum_one_by_one
from towers.travel.gradients import add_gradients
from towers.travel.pairs import add_in_pairs, part_sizes


@pytest.mark.parametrize("count", [2, 3, 4, 6, 7, 12])
def test_rows_are_cut_as_a_batch_is_split(count):
    for num_rows in range(2 * count + 3):
        sizes = part_sizes(num_rows, count)
        starts, found = (
            part.numpy().tolist() for part in starts_and_sizes(tf.constant(num_rows), count)
        )
        assert found == sizes
        assert starts == [sum(sizes[:index]) for index in range(count)]


def numbers(count):
    """Numbers of very different sizes: every other order of their sum has other bits."""
    random = np.random.default_rng(count)
    return (random.normal(size=(count, 5)) * 10.0 ** random.integers(-3, 4, (count, 1))).astype("f")


def add(first, second):
    """Adds nests of dense tensors, sparse ones and None."""
    pairs = zip(first, second, strict=True)
    return [add_gradients(*pair) for pair in pairs]


@pytest.mark.parametrize("in_pairs", [True, False])
@pytest.mark.parametrize(
    "count", [3, *(pytest.param(count, marks=pytest.mark.slow) for count in (4, 7, 8)), 13]
)
@pytest.mark.usefixtures("sums_as_written")
def test_the_sums_of_a_loop_have_the_bits_of_the_unrolled_graph(count, in_pairs):
    values = tf.constant(numbers(count))

    @tf.function(autograph=False)
    def total(in_loop, width):
        def run(index):
            row, num_rows = values[index], tf.minimum(index + 1, width)
            sparse = tf.IndexedSlices(row[:num_rows, None], tf.range(num_rows))
            return [row, None, sparse]

        dense, none, sparse = sum_one_by_one(run, count, add, in_pairs=in_pairs, in_loop=in_loop)
        assert none is None
        return dense, sparse

    found, expected = (
        tf.nest.flatten(total(way, tf.constant(5)), expand_composites=True) for way in (True, False)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    rows = list(values.numpy())
    of_rows = add_in_pairs(np.add, rows) if in_pairs else np.add.accumulate(rows)[-1]
    np.testing.assert_array_equal(found[0], of_rows)


def graph_size(accumulate, *, in_pairs, monkeypatch):
    monkeypatch.setattr("towers.step.tower.sums_stay_nested", lambda: in_pairs)
    keras.utils.set_random_seed(3)
    model = helpers.dense_model()
    step, _ = helpers.build_step(
        helpers.classify(model),
        model,
        keras.optimizers.SGD(0.1),
        helpers.dense_batches([8]),
        1,
        accumulate=accumulate,
        probe=False,
    )
    definition = step.graph.as_graph_def()
    return len(definition.node) + sum(len(one.node_def) for one in definition.library.function)


@pytest.mark.parametrize("in_pairs", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_step_has_the_same_size_for_any_number_of_micro_batches(in_pairs, monkeypatch):
    """But for the few ops that halve the rows once more."""
    sizes = {
        count: graph_size(count, in_pairs=in_pairs, monkeypatch=monkeypatch) for count in (1, 3, 96)
    }
    assert sizes[96] - sizes[3] < 0.5 * sizes[1]
    assert sizes[3] < 5 * sizes[1]


class Wrapped(keras.layers.Layer):
    """A dense layer that is called through a function of it."""

    def __init__(self, wrap):
        super().__init__()
        self.dense = keras.layers.Dense(5, activation="tanh")
        self.wrap = wrap

    def build(self, shape):
        self.dense.build(shape)

    def call(self, inputs):
        return self.wrap(self.dense)(inputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrap", "options"),
    [
        (lambda layer: layer, {"compiled": True}),
        (towers.steps.recompute, {}),
        (keras.remat, {}),
        (tf.recompute_grad, {"parameters": "replicated"}),
    ],
    ids=["xla", "recompute", "remat", "recompute_grad"],
)
def test_micro_batches_in_a_loop_may_be_compiled_or_recomputed(wrap, options):
    trained = []
    for num_towers in (None, 2):
        keras.utils.set_random_seed(3)
        inputs = keras.Input((5,))
        hidden = Wrapped(wrap if num_towers else lambda layer: layer)(inputs)
        model = keras.Model(inputs, keras.layers.Dense(3)(hidden))
        arguments = (
            helpers.classify(model),
            model,
            keras.optimizers.SGD(0.3),
            helpers.dense_batches([8, 7]),
        )
        if num_towers is None:
            trained.append(helpers.train_plainly(*arguments)[0])
        else:
            weights, _ = helpers.train_on_towers(*arguments, num_towers, accumulate=3, **options)
            trained.append(weights)
    helpers.assert_same_weights(*trained)


@pytest.mark.parametrize(("policy", "size"), [("bfloat16", 1.0), ("float16", 500.0)])
def test_gradients_of_16_bits_neither_stop_growing_nor_overflow(policy, size):
    """In bfloat16 a sum of ones stops at 256; one in float16 overflows at 65,504."""
    count, parts = 1024, 512
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, dtype=policy)])
    model.set_weights([np.zeros([1, 1]), np.zeros([1])])
    batches = [np.full([count, 1], size, "float32")]

    def tower_fn(x):
        return tf.reduce_sum(tf.cast(model(x), tf.float32)), tf.size(x), {}

    scale = towers.steps.LossScale(initial=1.0) if policy == "float16" else None
    optimizer = keras.optimizers.SGD(1 / size)
    weights, (results,) = helpers.train_on_towers(
        tower_fn, model, optimizer, batches, 2, accumulate=parts, loss_scale=scale
    )
    assert bool(results.finite)
    np.testing.assert_allclose(weights[0].astype("float32"), [[-1.0]], rtol=1e-2)
