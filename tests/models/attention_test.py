"""Attention against the formulas of the papers, in plain NumPy loops."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from towers.models.attention import KINDS, Attention

BATCH, QUERIES, LENGTH, UNITS = 3, 2, 5, 4
MASK = np.arange(LENGTH) < np.array([[5], [2], [1]])


def attention_of(kind):
    """Returns an attention in the present policy, all of whose variables are random."""
    attention = Attention(kind, UNITS)
    attention.build()
    random = np.random.default_rng(1)
    for variable in attention.weights:
        variable.assign(random.normal(size=variable.shape))
    return attention


def queries_and_values(dtype="float64"):
    random = np.random.default_rng(2)
    queries = random.normal(size=(BATCH, QUERIES, UNITS)).astype(dtype)
    return queries, random.normal(size=(BATCH, LENGTH, UNITS)).astype(dtype)


def score(attention, query, value):
    key = value @ attention.key.kernel.numpy()
    if attention.kind == "bahdanau":
        summed = key + query @ attention.query.kernel.numpy()
        return np.tanh(summed) @ attention.direction.numpy()[:, 0]
    return (attention.scale.numpy() if attention.kind == "luong_scaled" else 1) * (query @ key)


def plain_shares(attention, queries, values):
    shares = np.zeros([BATCH, QUERIES, LENGTH])
    for row in range(BATCH):
        for place in range(QUERIES):
            for position in range(LENGTH):
                if MASK[row, position]:
                    one = score(attention, queries[row, place], values[row, position])
                    shares[row, place, position] = np.exp(one)
            shares[row, place] /= shares[row, place].sum()
    return shares


@pytest.mark.parametrize("kind", KINDS)
def test_shares_and_contexts_are_those_of_the_paper(kind):
    keras.config.set_dtype_policy("float64")
    attention, (queries, values) = attention_of(kind), queries_and_values()
    memory = attention.remember(tf.constant(values), tf.constant(MASK))
    shares = plain_shares(attention, queries, values)
    np.testing.assert_allclose(attention.weights_of(queries, memory), shares, rtol=1e-10)
    contexts = np.array([one @ other for one, other in zip(shares, values, strict=True)])
    np.testing.assert_allclose(attention(queries, memory), contexts, rtol=1e-10)


@pytest.mark.parametrize("policy", ["float32", "float64", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_weighs_exactly_zero(kind, policy):
    keras.config.set_dtype_policy(policy)
    attention = attention_of(kind)
    queries, values = (tf.cast(one, attention.compute_dtype) for one in queries_and_values())
    memory = attention.remember(values, tf.constant(MASK))
    shares = attention.weights_of(queries, memory).numpy()
    assert np.all(shares[np.broadcast_to(~MASK[:, None], shares.shape)] == 0)
    assert np.all(shares[np.broadcast_to(MASK[:, None], shares.shape)] > 0)
    np.testing.assert_allclose(shares.sum(-1), 1, rtol=1e-6)
    contexts = attention(queries, memory)
    assert contexts.dtype == attention.compute_dtype
    other = tf.where(MASK[:, :, None], values, tf.constant(9, values.dtype))
    again = attention(queries, attention.remember(other, tf.constant(MASK)))
    np.testing.assert_array_equal(contexts, again)


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_of_padding_alone_gives_numbers(kind):
    attention, (queries, values) = attention_of(kind), queries_and_values("float32")
    memory = attention.remember(tf.constant(values), tf.zeros([BATCH, LENGTH], tf.bool))
    np.testing.assert_allclose(attention.weights_of(queries, memory), 1 / LENGTH, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_finite_differences(kind):
    keras.config.set_dtype_policy("float64")
    attention, (queries, values) = attention_of(kind), queries_and_values()

    def total():
        memory = attention.remember(tf.constant(values), tf.constant(MASK))
        return tf.reduce_sum(attention(queries, memory) ** 2)

    with tf.GradientTape() as tape:
        loss = total()
    gradients = tape.gradient(loss, [variable.value for variable in attention.weights])
    for variable, gradient in zip(attention.weights, gradients, strict=True):
        before = variable.numpy()
        nudge = np.random.default_rng(3).normal(size=before.shape)
        variable.assign(before + 1e-5 * nudge)
        above = total()
        variable.assign(before - 1e-5 * nudge)
        slope = (above - total()) / 2e-5
        variable.assign(before)
        np.testing.assert_allclose(slope, np.sum(gradient * nudge), rtol=1e-6)


def test_the_scale_begins_at_one():
    keras.config.set_dtype_policy("float64")
    plain, scaled = Attention("luong", UNITS), Attention("luong_scaled", UNITS)
    queries, values = queries_and_values()
    for attention in (plain, scaled):
        attention.build()
    scaled.key.kernel.assign(plain.key.kernel)
    one, other = (
        attention(queries, attention.remember(tf.constant(values), tf.constant(MASK)))
        for attention in (plain, scaled)
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_attention_is_made_again_from_its_config(kind):
    attention = attention_of(kind)
    again = Attention.from_config(attention.get_config())
    again.build()
    assert (again.kind, again.units, again.name) == (kind, UNITS, attention.name)
    assert [v.shape for v in again.weights] == [v.shape for v in attention.weights]


def test_an_unknown_kind_is_refused():
    message = "attention must be one of luong, luong_scaled, bahdanau. Received 'dot'"
    with pytest.raises(ValueError, match=message):
        Attention("dot", UNITS)
