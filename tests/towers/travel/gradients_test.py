"""Laws 2 and 3: true weights, one division, and sparse gradients that stay sparse."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import towers
from tests import helpers
from towers.travel.gradients import (
    clip_factor,
    global_norm,
    norm_of_sums,
    sum_gradients,
    sum_repeated_rows,
)


def rows(values, indices, num_rows=5):
    values = np.asarray(values, "float32")
    return tf.IndexedSlices(
        tf.constant(values),
        tf.constant(indices, tf.int64),
        tf.constant([num_rows, *values.shape[1:]], tf.int64),
    )


def dense(gradient):
    return tf.convert_to_tensor(gradient).numpy()


def test_cifar10_nesting_is_averaged_by_the_true_weights():
    towers_gradients = [
        [tf.constant([[2.0, 4.0]]), tf.constant(3.0)],
        [tf.constant([[6.0, 0.0]]), tf.constant(9.0)],
    ]
    matrix, scalar = towers.steps.average_gradients(towers_gradients, [tf.constant(1.0), 3.0])
    np.testing.assert_array_equal(matrix, [[2.0, 1.0]])
    assert float(scalar) == 3.0


@pytest.mark.parametrize("weights", [(2, 6), (2.0, 6.0), (np.float64(2), np.int32(6))])
def test_weights_may_be_any_numbers(weights):
    (average,) = towers.steps.average_gradients(
        [[tf.constant([4.0])], [tf.constant([4.0])]], weights
    )
    assert average.dtype == tf.float32
    assert average.numpy().tolist() == [1.0]


def test_float64_gradients_are_divided_in_float64():
    one = tf.constant([1.0], tf.float64)
    (average,) = towers.steps.average_gradients([[one], [one]], [3, 4])
    np.testing.assert_allclose(average, [2 / 7], rtol=1e-15)


def test_a_tower_without_gradient_adds_nothing():
    first, second, third = [tf.constant([3.0]), None], [None, None], [tf.constant([1.0]), None]
    averages = towers.steps.average_gradients([first, second, third], [1.0, 1.0, 2.0])
    assert averages[0].numpy().tolist() == [1.0]
    assert averages[1] is None


def test_a_tower_of_weight_zero_adds_nothing():
    gradients = [[tf.constant([3.0])], [tf.constant([0.0])]]
    assert towers.steps.average_gradients(gradients, [2.0, 0.0])[0].numpy().tolist() == [1.5]
    assert towers.steps.average_gradients(gradients, [0.0, 0.0])[0].numpy().tolist() == [0.0]


@pytest.mark.parametrize("num_towers", [1, 2, 3])
def test_sparse_gradients_stay_sparse_with_each_row_once(num_towers):
    gradients = [[rows([[1.0], [2.0], [4.0]], [3, 0, 3])] for _ in range(num_towers)]
    (average,) = towers.steps.average_gradients(gradients, [2.0] * num_towers)
    assert isinstance(average, tf.IndexedSlices)
    assert sorted(average.indices.numpy()) == [0, 3]
    np.testing.assert_array_equal(dense(average)[:, 0], [1.0, 0, 0, 2.5, 0])


def test_dense_and_sparse_together_are_dense():
    (average,) = towers.steps.average_gradients(
        [[tf.ones((5, 1))], [None], [rows([[1.0], [2.0]], [1, 1])]], [1.0, 0.0, 1.0]
    )
    assert isinstance(average, tf.Tensor)
    np.testing.assert_array_equal(average[:, 0], [0.5, 2.0, 0.5, 0.5, 0.5])


@pytest.mark.parametrize("num_gradients, num_weights", [(2, 1), (1, 2), (0, 0)])
def test_one_weight_per_tower_is_needed(num_gradients, num_weights):
    gradients = [[tf.constant(1.0)]] * num_gradients
    with pytest.raises(ValueError, match=f"{num_gradients} towers and {num_weights} weights"):
        towers.steps.average_gradients(gradients, [1.0] * num_weights)


def test_towers_with_different_numbers_of_gradients_are_refused():
    with pytest.raises(ValueError, match=r"one gradient \(or None\) per variable.*\[2, 1\]"):
        sum_gradients([[tf.constant(1.0), None], [tf.constant(1.0)]])


sparse_gradients = st.lists(
    st.tuples(st.integers(0, 4), st.integers(-8, 8)), min_size=1, max_size=8
).map(lambda pairs: rows([[value] for _, value in pairs], [row for row, _ in pairs]))


@settings(max_examples=50, deadline=None)
@given(sparse_gradients)
def test_summing_repeated_rows_changes_no_sum(gradient):
    summed = sum_repeated_rows(gradient)
    assert len(set(summed.indices.numpy())) == len(summed.indices)
    np.testing.assert_array_equal(dense(summed), dense(gradient))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(sparse_gradients, st.integers(1, 9)), min_size=1, max_size=4))
def test_average_is_the_sum_over_the_weights(towers_of_one):
    gradients, weights = zip(*towers_of_one, strict=True)
    (average,) = towers.steps.average_gradients([[gradient] for gradient in gradients], weights)
    expected = sum(dense(gradient).astype(float) for gradient in gradients) / sum(weights)
    np.testing.assert_allclose(dense(average), expected, rtol=1e-6)


def test_repeated_rows_leaves_dense_gradients_and_none_alone():
    gradient = tf.constant([1.0])
    assert sum_repeated_rows(gradient) is gradient
    assert sum_repeated_rows(None) is None


def test_global_norm_counts_dense_and_sparse_entries():
    gradients = [tf.constant([3.0, 4.0]), None, rows([[12.0]], [2])]
    assert float(global_norm(gradients)) == 13.0
    assert float(global_norm([None], tf.float64)) == 0.0


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_global_norm_is_not_finite_when_one_entry_is_not(bad):
    assert not np.isfinite(global_norm([tf.ones(3), rows([[1.0], [bad]], [0, 1])]))


def test_global_norm_of_half_precision_does_not_overflow():
    assert float(global_norm([tf.constant([300.0, 400.0], tf.float16)])) == 500.0


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 1e6, width=32), st.floats(0.125, 1e3, width=32))
def test_clipped_norm_is_at_most_clip_norm_and_small_ones_are_left(norm, clip_norm):
    factor = float(clip_factor(tf.constant(norm), clip_norm))
    assert norm * factor <= clip_norm * (1 + 1e-6)
    assert factor == 1.0 or norm > clip_norm


def test_clip_factor_is_one_without_clipping_and_at_norm_zero():
    assert float(clip_factor(tf.constant(7.0), None)) == 1.0
    assert float(clip_factor(tf.constant(0.0), 0.5)) == 1.0
    assert float(clip_factor(tf.constant(0.01, tf.float64), 0.1)) == 1.0


class Recorder(keras.optimizers.SGD):
    """Keeps what reaches `apply`: the kind of each gradient, and the rows of sparse ones."""

    def __init__(self):
        super().__init__(0.1)
        self.kinds = {}
        self.rows = []

    def apply(self, grads, trainable_variables=None):
        for gradient, variable in zip(grads, trainable_variables, strict=True):
            self.kinds[variable.name] = type(gradient)
            if isinstance(gradient, tf.IndexedSlices):
                tf.numpy_function(self.rows.append, [gradient.indices], [])
        super().apply(grads, trainable_variables)


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, marks=pytest.mark.slow), {"accumulate": 3, "clip_norm": 0.1}],
    ids=str,
)
def test_lookup_gradients_are_sparse_up_to_the_optimizer(options):
    token_ids = keras.Input((None,), dtype="int32")
    logits = keras.layers.Dense(3)(helpers.LookupTable()(token_ids))
    model, optimizer = keras.Model(token_ids, logits), Recorder()
    batches = helpers.token_batches([8, 5])
    helpers.train_on_towers(helpers.tag(model), model, optimizer, batches, 2, **options)
    assert optimizer.kinds.pop("table") is tf.IndexedSlices
    assert tf.IndexedSlices not in optimizer.kinds.values()
    assert len(optimizer.rows) == 2
    for indices, (token_ids, _) in zip(optimizer.rows, batches, strict=True):
        assert sorted(indices) == sorted(set(token_ids.ravel()))


def test_gradient_of_a_tied_embedding_is_dense():
    class Tied(keras.Model):
        def build(self, input_shape):
            self.table = self.add_weight(shape=(helpers.VOCABULARY_SIZE, 4), name="table")

        def call(self, token_ids):
            return tf.gather(self.table.value, token_ids) @ tf.transpose(self.table.value)

    model, optimizer = Tied(), Recorder()
    batches = helpers.token_batches([4])
    helpers.train_on_towers(helpers.tag(model), model, optimizer, batches, 2)
    assert issubclass(optimizer.kinds["table"], tf.Tensor)
    assert optimizer.rows == []


@pytest.mark.parametrize("num_towers", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_the_averaged_gradient_is_clipped_and_its_unclipped_norm_reported(num_towers):
    model = helpers.dense_model()
    tower_fn = helpers.classify(model)
    (batch,) = batches = helpers.dense_batches([7])
    with tf.GradientTape() as tape:
        loss_sum, weight, _ = tower_fn(tf.nest.map_structure(tf.constant, batch))
        loss = loss_sum / weight
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    norm = float(tf.linalg.global_norm(gradients))
    before = helpers.weights_of(model)
    after, (result,) = helpers.train_on_towers(
        tower_fn, model, keras.optimizers.SGD(1.0), batches, num_towers, clip_norm=norm / 3
    )
    np.testing.assert_allclose(result.gradient_norm, norm, rtol=1e-5)
    for old, new, gradient in zip(before, after, gradients, strict=True):
        np.testing.assert_allclose(old - new, gradient / 3, atol=1e-6)


@pytest.mark.parametrize(
    ("entries", "factor", "expected"),
    [
        ([3.0, 4.0], 2.0, 10.0),
        ([3e30, 4e30], 1.0, 5e30),  # Their squares are infinite.
        ([3e30, 4e30], 0.0, 0.0),
        ([0.0, 0.0], 1.0, 0.0),
        ([1.0, np.inf], 1.0, None),
        ([1.0, np.nan], 1.0, None),
        ([3e38, 3e38], 2.0, None),
        ([1.0], np.nan, None),
    ],
)
def test_the_norm_of_finite_sums_is_finite_and_no_other(entries, factor, expected):
    norm, finite, _ = norm_of_sums([None, tf.constant(entries)], tf.constant(factor), "/CPU:0")
    assert bool(finite) == bool(np.isfinite(norm)) == (expected is not None)
    if expected is not None:
        np.testing.assert_allclose(norm, expected, rtol=1e-6)


def test_the_host_asks_a_gpu_once_whether_a_gradient_is_finite():
    """Norm and factor travel together; a branch takes the gradient where it is."""

    @tf.function(autograph=False)
    def run(gradient, factor):
        with tf.device("/GPU:0"):
            return norm_of_sums([gradient * 1], factor * 1, "/CPU:0")

    graph = run.get_concrete_function(tf.TensorSpec([3]), tf.TensorSpec([])).graph
    read = {
        tensor.name: tensor
        for op in graph.get_operations()
        if op.device.endswith("CPU:0") and "If" not in op.type
        for tensor in op.inputs
        if tensor.op.device.endswith("GPU:0")
    }
    assert [tensor.op.type for tensor in read.values()] == ["Pack"]
