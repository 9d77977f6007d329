"""LSTM and GRU are those of Keras: outputs, states, gradients, in every precision and shape."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from towers.models.recurrent import GRU, LSTM

UNITS, SIZE = 5, 3
PAIRS = {"LSTM": (LSTM, keras.layers.LSTM), "GRU": (GRU, keras.layers.GRU)}


@pytest.fixture(params=PAIRS)
def kinds(request):
    """Our layer and that of Keras."""
    return PAIRS[request.param]


def make(kind, **options):
    """Returns a built layer with fixed values, the same for every kind."""
    layer = kind(UNITS, return_sequences=True, return_state=True, **options)
    layer.build((None, None, SIZE))
    for index, variable in enumerate(layer.trainable_variables):
        values = np.random.default_rng(index).normal(size=variable.shape)
        variable.assign(values.astype("float32"))
    return layer


def inputs(rows, length, dtype="float32"):
    """Returns tokens, and the two states of an LSTM before them."""
    random = np.random.default_rng(9)
    shapes = [(rows, length, SIZE), (rows, UNITS), (rows, UNITS)]
    return [tf.constant(random.normal(size=shape), dtype) for shape in shapes]


def state_of(layer, states):
    """Returns as many of the states as the layer has."""
    return list(states[: 2 if isinstance(layer, keras.layers.LSTM) else 1])


def computed(layer, given, jit_compile=False):
    """Returns outputs, states, and the gradients of inputs, states and variables."""

    @tf.function(
        input_signature=[tf.TensorSpec([None] * (one.ndim - 1) + one.shape[-1:], one.dtype)
                         for one in given],
        jit_compile=jit_compile,
    )  # fmt: skip
    def run(x, *states):
        states = state_of(layer, states)
        values = [(own, tf.identity(own.value)) for own in layer.trainable_variables]
        with keras.StatelessScope(state_mapping=values), tf.GradientTape() as tape:
            sources = [x, *states, *(value for _, value in values)]
            tape.watch(sources)
            results = layer(x, initial_state=states)
            loss = tf.add_n([weighted_sum(one) for one in results])
        return results, tape.gradient(loss, sources)

    return tf.nest.flatten(run(*given))


def weighted_sum(values):
    """Returns a sum in which each number counts differently."""
    row = tf.reshape(tf.cast(values, tf.float64), [-1])
    return tf.reduce_sum(row * tf.cos(tf.cast(tf.range(tf.size(row)), tf.float64)))


@pytest.mark.parametrize("rows, length", [(1, 1), (2, 1), (4, 7)])
@pytest.mark.parametrize("jit_compile", [False, True], ids=["", "XLA"])
def test_it_is_the_layer_of_keras(kinds, rows, length, jit_compile):
    own, of_keras = kinds
    keras.config.set_dtype_policy("float64")
    given = inputs(rows, length, "float64")
    expected = computed(make(of_keras), given)
    found = computed(make(own), given, jit_compile)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * np.abs(other).max())


@pytest.mark.parametrize("policy, tolerance", [("mixed_float16", 5e-3), ("mixed_bfloat16", 4e-2)])
def test_it_is_the_layer_of_keras_in_half_precision(kinds, policy, tolerance):
    own, of_keras = kinds
    keras.config.set_dtype_policy(policy)
    given = inputs(4, 7, keras.config.dtype_policy().compute_dtype)
    expected = computed(make(of_keras), given)
    for one, other in zip(computed(make(own), given), expected, strict=True):
        one, other = tf.cast(one, tf.float64), tf.cast(other, tf.float64)
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())


def test_its_products_are_outside_of_the_loops(kinds):
    layer = make(kinds[0])

    @tf.function(autograph=False)
    def run(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x)[0])
        return tape.gradient(loss, [variable.value for variable in layer.trainable_variables])

    graph = run.get_concrete_function(tf.TensorSpec([None, None, SIZE])).graph
    loops = [op for op in graph.get_operations() if op.type in ("While", "StatelessWhile")]
    assert len(loops) == 2
    for loop in loops:
        body = graph._get_function(loop.get_attr("body").name).graph
        assert [op.type for op in body.get_operations()].count("MatMul") == 1


@pytest.mark.parametrize(
    "options",
    [{"go_backwards": True}, {"unroll": True}, {"activation": "relu"}, {"use_bias": False},
     {"recurrent_dropout": 0.5}, {"recurrent_activation": keras.layers.ReLU()}],
    ids=str,
)  # fmt: skip
def test_what_it_does_not_compute_itself_is_left_to_keras(kinds, options):
    x = inputs(2, 3)[0]
    for one, other in zip(*(make(kind, **options)(x) for kind in kinds), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_reset_gate_before_the_product_is_left_to_keras():
    x = inputs(2, 3)[0]
    ours, theirs = (make(kind, reset_after=False)(x) for kind in PAIRS["GRU"])
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_masked_tokens_are_left_to_keras(kinds):
    x, mask = inputs(2, 3)[0], tf.constant([[True, True, False], [True, False, False]])
    for one, other in zip(*(make(kind)(x, mask=mask) for kind in kinds), strict=True):
        np.testing.assert_array_equal(one, other)


def test_only_the_last_output_is_returned_on_request(kinds):
    x = inputs(2, 3)[0]
    layer = make(kinds[0])
    outputs, h, *_ = layer(x)
    layer.return_sequences = False
    np.testing.assert_array_equal(layer(x)[0], outputs[:, -1])
    np.testing.assert_array_equal(layer(x)[0], h)


def test_its_gradient_has_a_gradient(kinds):
    keras.config.set_dtype_policy("float64")
    (x, *_), layers = inputs(2, 3, "float64"), list(map(make, kinds))

    def second(layer):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(layer(x)[0] ** 2)
            squares = tf.reduce_sum(inner.gradient(loss, x) ** 2)
        return outer.gradient(squares, x)

    found, expected = (second(layer) for layer in layers)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_the_gradient_of_a_stateful_layer_is_that_of_the_state_before(kinds):
    tokens, *_ = inputs(2, 3)
    found = []
    for kind in kinds:
        keras.utils.set_random_seed(0)
        layer = kind(UNITS, return_sequences=True, stateful=True, recurrent_initializer="ones")
        for _ in range(2):
            with tf.GradientTape() as tape:
                tape.watch(tokens)
                loss = weighted_sum(layer(tokens))
            found.append(tape.gradient(loss, tokens))
    np.testing.assert_allclose(found[:2], found[2:], atol=1e-6)
