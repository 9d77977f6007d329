"""The decoder-only Transformer: its window, its memory, its grouped heads, against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from towers.models.grouped_attention import GroupedAttention
from towers.models.language_model import sentences, streams
from towers.models.transformer_lm import TransformerLanguageModel

VOCABULARY, SIZE, HEADS, WINDOW = 13, 8, 4, 5


def make_model(**options):
    options = {"size": SIZE, "heads": HEADS, "window": WINDOW, "dropout_rate": 0.0, **options}
    return TransformerLanguageModel(
        VOCABULARY, key_value_heads=2, feed_forward_size=12, num_layers=2, **options
    )


def some_tokens(shape):
    return tf.constant(np.random.default_rng(0).integers(1, VOCABULARY, shape), tf.int32)


def rotated(vector, position):
    half = len(vector) // 2
    angles = position * 10000.0 ** -(np.arange(half) / half)
    pairs = (vector[:half] + 1j * vector[half:]) * np.exp(1j * angles)
    return np.concatenate([pairs.real, pairs.imag])


def test_attention_is_that_of_numpy_head_by_head():
    layer = GroupedAttention(SIZE, HEADS, 2, window=2)
    layer.build()
    x = np.random.default_rng(1).normal(size=(1, 6, SIZE)).astype("float32")
    query, key, value, output = (weight.numpy().astype(float) for weight in layer.weights)
    size = SIZE // HEADS
    expected = np.zeros((6, SIZE))
    for head in range(HEADS):
        own, shared = (slice(n * size, (n + 1) * size) for n in (head, head // 2))
        for place in range(6):
            seen = range(max(0, place - 2), place + 1)  # Itself and the window before it.
            q = rotated(x[0, place] @ query[:, own], place)
            scores = [q @ rotated(x[0, at] @ key[:, shared], at) / np.sqrt(size) for at in seen]
            weights = np.exp(scores) / np.exp(scores).sum()
            values = [x[0, at] @ value[:, shared] for at in seen]
            expected[place, own] = weights @ np.array(values)
    actual, memory = layer(x)
    np.testing.assert_allclose(actual[0], expected @ output, rtol=0, atol=1e-5)
    np.testing.assert_allclose(memory["keys"][0], (x[0] @ key)[-2:], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "feed_forward, lengths",
    [("gelu", (3, 4, 4)), ("swiglu", (1, 9, 1)), ("swiglu", (7, 2, 2))],
)
def test_a_text_in_pieces_gives_the_numbers_of_the_text_at_once(lengths, feed_forward):
    """Also where a piece is shorter or longer than the window."""
    model = make_model(feed_forward=feed_forward)
    token_ids = some_tokens((2, 11))
    whole, last = model.hidden(token_ids)
    parts, state = [], model.zero_state(2)
    for part in tf.split(token_ids, lengths, axis=1):
        hidden, state = model.hidden(part, state)
        parts.append(hidden)
    np.testing.assert_allclose(tf.concat(parts, 1), whole, rtol=0, atol=1e-5)
    for one, other in zip(tf.nest.flatten(state), tf.nest.flatten(last), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_token_by_token_gives_the_logits_of_the_text_at_once():
    model = make_model()
    token_ids = some_tokens((3, 8))
    at_once, state = model(token_ids), model.zero_state(3)
    for place in range(8):
        logits, state = model.step(token_ids[:, place], state)
        np.testing.assert_allclose(logits, at_once[:, place], rtol=0, atol=1e-5)


def test_no_token_sees_a_later_one_or_one_before_all_windows():
    model = make_model()
    token_ids = some_tokens((1, 14)).numpy()
    before = model(token_ids).numpy()
    token_ids[0, -1] = token_ids[0, -1] % 12 + 1
    np.testing.assert_array_equal(model(token_ids)[:, :-1], before[:, :-1])
    token_ids[0, 0] = token_ids[0, 0] % 12 + 1
    after = model(token_ids).numpy()
    reach = 2 * WINDOW + 1  # Each of the two layers looks one window further back.
    assert np.abs(after[0, reach - 1] - before[0, reach - 1]).max() > 1e-5
    np.testing.assert_array_equal(after[0, reach:-1], before[0, reach:-1])


def test_rows_where_a_stream_begins_forget_what_came_before():
    model = make_model()
    inputs, targets = some_tokens((2, 4)), some_tokens((2, 4))
    _, state = model.hidden(some_tokens((2, 9)))
    broken = tf.nest.map_structure(lambda part: part * np.nan, state)
    begin = tf.constant([True, True])
    loss, *_ = streams(model, training=False)((inputs, targets, begin), broken)
    expected, *_ = sentences(model, training=False)((inputs, targets))
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    carried, *_ = streams(model, training=False)((inputs, targets, ~begin), state)
    assert abs(float(carried) - float(expected)) > 1e-3


def test_weights_are_tied_and_keys_are_shared_by_groups():
    model = make_model()
    shapes = {variable.path: tuple(variable.shape) for variable in model.weights}
    assert sum(shape == (VOCABULARY, SIZE) for shape in shapes.values()) == 1
    keys = [shape for path, shape in shapes.items() if path.endswith("/key/kernel")]
    assert keys == [(SIZE, SIZE // 2)] * 2


@pytest.mark.parametrize("policy, dtype", [("float64", "float64"), ("mixed_bfloat16", "bfloat16")])
def test_the_state_has_the_dtype_of_the_layers(policy, dtype):
    keras.config.set_dtype_policy(policy)
    model = make_model()
    _, state = model.hidden(some_tokens((2, 3)), model.zero_state(2))
    specs = tf.nest.flatten(model.state_specs())
    for spec, part in zip(specs, tf.nest.flatten(state), strict=True):
        assert spec.dtype == part.dtype == dtype
        assert part.shape[1:] == spec.shape


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"heads": 3}, "size must be an even multiple of heads"),
        ({"feed_forward": "relu"}, "feed_forward must be one of gelu, swiglu"),
        ({"window": 0}, "window must be a whole number of at least 1"),
        ({"dropout_rate": 1.0}, "dropout_rate must be in"),
    ],
)
def test_wrong_arguments_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        make_model(**wrong)


def test_before_training_all_tokens_are_about_as_likely():
    """The loss is that of as many equally likely tokens, also where the input token comes again."""
    keras.utils.set_random_seed(0)
    model = TransformerLanguageModel(1000, size=64, feed_forward_size=64, num_layers=2, window=9)
    tokens = tf.random.stateless_uniform([8, 20], [1, 2], 0, 1000, tf.int32)
    logits = model.projection(model.hidden(tokens)[0])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.roll(tokens, -1, 1), logits)
    assert abs(float(tf.reduce_mean(losses)) - np.log(1000)) < 0.1
