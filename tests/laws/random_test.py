"""Law 9: random numbers are a function of (seed, step, micro-batch, tower, generator)."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.step.micro_batches import seed_states
from towers.variables.own_draws import fold_in
from towers.variables.shared_variables import SharedVariables

UNITS = 16


class Masks(keras.layers.Layer):
    """A weight and three dropouts: one layer drawn twice, then another one."""

    def __init__(self):
        super().__init__()
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.twice = keras.layers.Dropout(0.5, seed=1)
        self.once = keras.layers.Dropout(0.5, seed=1)

    def call(self, inputs):
        ones = tf.ones((1, UNITS)) * self.scale
        draws = [self.twice(ones, training=True), self.twice(ones, training=True)]
        return [*draws, self.once(ones, training=True)]


def masks_of(seed=0, accumulate=1, num_steps=2):
    """Returns masks bool [step, tower, micro-batch, draw, UNITS], as the towers drew them."""
    layer = Masks()
    layer.build(None)
    layer(None)
    drawn = []

    def tower_fn(batch):
        inputs, _ = batch
        drops = tf.concat(layer(inputs), axis=0)
        tf.numpy_function(lambda rows: drawn.append(rows > 0), [drops], [])
        return tf.reduce_sum(drops), 1.0, {}

    batches = helpers.dense_batches([4] * num_steps)
    optimizer = keras.optimizers.SGD(0.0)
    step, shards = helpers.build_step(
        tower_fn, layer, optimizer, batches, 2, seed=seed, accumulate=accumulate
    )
    before = [variable.numpy() for variable in step.update.copies.shared.seeds]
    for number, tuple_of_shards in enumerate(shards, 1):
        step(tuple_of_shards, number)
    after = [variable.numpy() for variable in step.update.copies.shared.seeds]
    np.testing.assert_array_equal(before, after)
    assert len(drawn) == num_steps * 2 * accumulate
    return np.array(drawn).reshape(num_steps, 2 * accumulate, 3, UNITS), step


@pytest.fixture(scope="module")
def masks():
    return masks_of(seed=5)[0]


def as_rows(masks):
    return {row.tobytes() for row in masks.reshape(-1, UNITS)}


def test_towers_steps_layers_and_draws_all_differ(masks):
    assert 0.2 < masks.mean() < 0.8
    assert len(as_rows(masks)) == 2 * 2 * 3


def test_micro_batches_draw_different_masks():
    drawn, _ = masks_of(seed=5, accumulate=2, num_steps=1)
    assert len(as_rows(drawn)) == 2 * 2 * 3


def test_a_freshly_built_step_draws_the_same_masks_again(masks):
    again, _ = masks_of(seed=5)
    for one, other in zip(masks, again, strict=True):  # The towers of a step run in any order.
        assert as_rows(one) == as_rows(other)


def test_another_seed_draws_other_masks(masks):
    others, _ = masks_of(seed=6)
    assert not as_rows(masks) & as_rows(others)


def unseeded_draws(seed):
    """Returns what towers draw by `keras.random` without a seed, [step * tower, UNITS]."""
    model, drawn = helpers.dense_model(), []

    def tower_fn(batch):
        numbers = keras.random.uniform((UNITS,))
        tf.numpy_function(drawn.append, [numbers], [])
        return helpers.classify(model)(batch)

    batches = helpers.dense_batches([4, 4])
    step, shards = helpers.build_step(
        tower_fn, model, keras.optimizers.SGD(0.1), batches, 2, seed=seed
    )
    for number, tuple_of_shards in enumerate(shards, 1):
        step(tuple_of_shards, number)
    return np.sort(drawn, axis=0)  # Towers draw in any order.


def test_what_is_drawn_without_a_seed_follows_from_that_of_the_step():
    draws = unseeded_draws(seed=5)
    assert len(np.unique(draws, axis=0)) == len(draws) == 4
    keras.random.uniform((UNITS,))
    np.testing.assert_array_equal(draws, unseeded_draws(seed=5))
    assert not np.isin(draws, unseeded_draws(seed=6)).any()


ONES = tf.ones((UNITS,))
OWN_DRAWS = {
    "dropout": lambda: tf.nn.dropout(ONES, 0.5, seed=3),
    "normal": lambda: tf.random.normal((UNITS,), 3.0, 2.0, seed=3),
    "truncated": lambda: tf.random.truncated_normal((UNITS,)),
    "integers": lambda: tf.random.uniform((UNITS,), -9, 9, tf.int64, seed=3),
    "shuffle": lambda: tf.random.shuffle(tf.range(UNITS), seed=3),
}


def own_draws(draw, num_towers, accumulate):
    """Returns what towers draw in two steps, by an op with a state of its own, in any order."""
    model, drawn = helpers.dense_model(), []

    def tower_fn(batch):
        twice = tf.stack([draw(), tf.cond(tf.constant(True), draw, draw)])
        tf.numpy_function(drawn.extend, [twice], [])
        return helpers.classify(model)(batch)

    batches = helpers.dense_batches([8, 8])
    options = {"accumulate": accumulate, "probe": False}
    optimizer = keras.optimizers.SGD(0.1)
    step, shards = helpers.build_step(tower_fn, model, optimizer, batches, num_towers, **options)
    for number, tuple_of_shards in enumerate(shards, 1):
        step(tuple_of_shards, number)
    return {one.tobytes() for one in drawn}


@pytest.mark.parametrize("name", OWN_DRAWS)
def test_ops_with_a_state_of_their_own_draw_by_step_and_part(name):
    draws = own_draws(OWN_DRAWS[name], 2, 2)
    assert len(draws) == 2 * 4 * 2
    assert own_draws(OWN_DRAWS[name], 4, 1) == draws


class WithinControlFlow(keras.layers.Layer):
    """Draws and counts where it is told to."""

    def __init__(self, flow):
        super().__init__()
        self.flow, self.dropout = flow, keras.layers.Dropout(0.5, seed=1)
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, x):
        return self.flow(self, x * self.scale)

    def draw(self, x):
        return self.dropout(x, training=True)

    def add_one(self, x):
        self.count.assign_add(1.0)
        return x


def step_within(flow):
    layer = WithinControlFlow(flow)
    layer.build(None)

    def tower_fn(batch):
        rows = layer(tf.ones([1, 64]))
        return tf.reduce_sum(rows), 1.0, {"rows": (rows, None)}

    batches = [np.ones([2, 1], "float32")]
    return helpers.build_step(tower_fn, layer, keras.optimizers.SGD(0.0), batches, 1)


def test_draws_in_branches_and_after_them_all_differ():
    def flow(layer, x):
        yes = tf.reduce_sum(x) > 0
        twice = lambda draw: tf.concat([draw(x), draw(x)], 0)  # noqa: E731
        inside = tf.cond(yes, lambda: twice(layer.draw), lambda: twice(tf.identity))
        return tf.concat([inside, layer.draw(x)], 0)

    step, (shards,) = step_within(flow)
    rows = step(shards, 1).metrics["rows"].numpy()
    assert len({tuple(row) for row in rows > 0}) == 3


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        (
            lambda layer, x: tf.while_loop(
                lambda i, x: i < 3, lambda i, x: (i + 1, layer.draw(x)), (0, x)
            )[1],
            "draws random numbers from .* within a loop, where each turn would draw the same ones",
        ),
        (
            lambda layer, x: tf.while_loop(
                lambda i, x: i < 3, lambda i, x: (i + 1, layer.add_one(x)), (0, x)
            )[1],
            "assigns '.*count' within a loop, and the value cannot leave it",
        ),
        (
            lambda layer, x: tf.cond(tf.reduce_sum(x) > 0, lambda: layer.add_one(x), lambda: x),
            r"assigns '.*count' within a branch \(tf.cond\), and the value cannot leave it",
        ),
    ],
    ids=["draws in a loop", "a state in a loop", "a state in a branch"],
)
def test_what_would_not_leave_control_flow_is_refused(flow, message):
    with pytest.raises(RuntimeError, match=message):
        step_within(flow)


def test_seed_states_are_no_part_of_a_checkpoint():
    layer = keras.layers.Dropout(0.5)
    layer.build((1,))
    shared = SharedVariables(layer.variables, [])
    assert len(shared.seeds) == 1
    assert shared.all == []


def test_a_generator_that_draws_often_never_meets_the_next_one():
    """A generator counts its second number up by one at each draw."""
    states = np.array(seed_states(tf.constant([3, 4], tf.int64), 3))
    drawn = {(state[0], state[1] + draw) for state in states for draw in range(100)}
    assert len(drawn) == 300


def test_folding_is_a_function_of_seed_and_number():
    seed = tf.constant([3, 4], tf.int64)
    seeds = [tuple(fold_in(seed, number).numpy()) for number in (0, 1, 2, 1)]
    assert seeds[1] == seeds[3]
    assert len(set(seeds)) == 3


def evaluation_masks(seed):
    """Returns the masks that two towers draw for three batches, in two evaluations."""
    layer, drawn = Masks(), []
    layer(None)

    def tower_fn(batch):
        inputs, _ = batch
        drops = tf.concat(layer(inputs), axis=0)
        tf.numpy_function(lambda rows: drawn.append(rows > 0), [drops], [])
        return tf.reduce_sum(drops), 1.0, {}

    dataset = helpers.dataset_of(helpers.dense_batches([4] * 3))
    placement = helpers.tower_placement(2)
    step = towers.build_evaluation_step(tower_fn, layer, placement, dataset, seed=seed)
    step.probe = None  # It would draw masks too.
    means = [towers.evaluate_step(step, dataset) for _ in range(2)]
    assert means[0] == means[1]
    return np.array(drawn[:6]), np.array(drawn[6:])


def test_batches_of_an_evaluation_draw_different_masks_and_every_evaluation_the_same():
    first, second = evaluation_masks(seed=3)
    assert len(as_rows(first)) == 3 * 2 * 3
    assert as_rows(first) == as_rows(second)
    assert not as_rows(first) & as_rows(evaluation_masks(seed=4)[0])
