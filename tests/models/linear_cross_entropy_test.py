"""The chunked loss against NumPy and against the plain formula with automatic gradients."""

import functools
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_callbacks

from towers.models.linear_cross_entropy import (
    Chunk,
    cut,
    joined,
    less_at,
    linear_cross_entropy,
    log_probabilities,
    token_losses,
)

TOKENS, UNITS, VOCABULARY = 11, 3, 7
MODULE = sys.modules[linear_cross_entropy.__module__]


def some_tokens(dtype="float64", *, weights=None):
    """Returns (hidden, kernel, bias), labels and weights."""
    random = np.random.default_rng(5)
    sources = [
        tf.constant(random.normal(size=shape), dtype)
        for shape in [(TOKENS, UNITS), (VOCABULARY, UNITS), (VOCABULARY,)]
    ]
    labels = tf.constant(random.integers(0, VOCABULARY, TOKENS), tf.int32)
    weights = random.uniform(0.5, 2.0, TOKENS) if weights is None else np.full(TOKENS, weights)
    weights[[1, 4, 10]] = 0
    return sources, labels, tf.constant(weights, "float64" if dtype == "float64" else "float32")


def in_numpy(sources, labels, weights, smoothing=0.0):
    """Returns (loss, correct) and the loss's gradients, token by token."""
    hidden, kernel, bias = (source.numpy().astype(np.float64) for source in sources)
    loss, correct, gradients = 0.0, 0.0, [np.zeros_like(one) for one in (hidden, kernel, bias)]
    for token, (label, weight) in enumerate(zip(labels.numpy(), weights.numpy(), strict=True)):
        logits = kernel @ hidden[token] + bias
        log_likely = logits - np.logaddexp.reduce(logits)
        likely = np.exp(log_likely)
        target = (1 - smoothing) * np.eye(VOCABULARY)[label] + smoothing / VOCABULARY
        loss -= weight * target @ log_likely
        correct += weight * (np.argmax(logits) == label)
        gradients[0][token] = weight * (likely - target) @ kernel
        gradients[1] += weight * np.outer(likely - target, hidden[token])
        gradients[2] += weight * (likely - target)
    return (loss, correct), gradients


def in_chunks(sources, labels, weights, *, factor=1.0, **options):
    """Returns the sums and the gradients of `factor` times the loss."""
    with tf.GradientTape() as tape:
        tape.watch(sources)
        sums = linear_cross_entropy(*sources, labels, weights, training=True, **options)
        loss = factor * sums.loss
    return sums, [tf.convert_to_tensor(one) for one in tape.gradient(loss, sources)]


def test_chunks_are_equal_and_hold_every_token_once():
    for num_tokens in range(12):
        tokens = Chunk(
            hidden=tf.reshape(tf.range(1.0, 2 * num_tokens + 1), [num_tokens, 2]),
            labels=tf.range(num_tokens),
            weights=tf.ones([num_tokens]),
        )
        chunks = cut(tokens, 4)
        count, size = chunks.labels.shape
        assert size <= 4 and count == max(1, -(-num_tokens // 4))
        assert count * size - num_tokens < max(count, 2)
        assert tf.reduce_sum(chunks.weights) == num_tokens
        assert np.array_equal(joined(chunks.hidden, tokens.hidden), tokens.hidden)


def assert_all_close(actual, expected, **tolerance):
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one, np.float64), other, **tolerance)


WAYS = {
    "eager": lambda run: run,
    "graph": functools.partial(tf.function, autograph=False),
    "compiled": functools.partial(tf.function, autograph=False, jit_compile=True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk_size", [1, 2, 8, 1000])
def test_sums_and_gradients_are_those_of_numpy(chunk_size, smoothing, way):
    run = WAYS[way](in_chunks)
    sums, gradients = run(*some_tokens(), chunk_size=chunk_size, label_smoothing=smoothing)
    expected, expected_gradients = in_numpy(*some_tokens(), smoothing)
    assert_all_close(sums, expected, rtol=1e-12)
    assert_all_close(gradients, expected_gradients, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_evaluation_gives_the_same_sums(smoothing):
    tokens = some_tokens()
    expected, _ = in_chunks(*tokens, chunk_size=2, label_smoothing=smoothing)
    sources, labels, weights = tokens
    sums = linear_cross_entropy(
        *sources, labels, weights, training=False, chunk_size=3, label_smoothing=smoothing
    )
    assert_all_close(sums, expected, rtol=1e-12)


def test_gradients_follow_what_is_made_of_the_loss():
    _, expected = in_numpy(*some_tokens())
    _, gradients = in_chunks(*some_tokens(), chunk_size=2, factor=-2.5)
    assert_all_close(gradients, [-2.5 * one for one in expected], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("way", WAYS)
def test_the_label_of_a_token_without_weight_does_not_matter(way):
    run = WAYS[way](in_chunks)
    sources, labels, weights = some_tokens()
    strange = tf.where(weights > 0, labels, VOCABULARY + 5)
    expected, expected_gradients = run(sources, labels, weights)
    sums, gradients = run(sources, strange, weights)
    assert_all_close(sums, expected, rtol=0)
    assert_all_close(gradients, expected_gradients, rtol=0)
    assert np.all(gradients[0].numpy()[[1, 4, 10]] == 0)


def test_a_weight_below_0_counts_and_one_that_is_no_number_is_seen():
    sources, labels, weights = some_tokens()
    plus, minus, nan = (
        linear_cross_entropy(*sources, labels, factor * weights, training=False).loss
        for factor in (1, -1, float("nan"))
    )
    assert_all_close([minus], [-plus])
    assert np.isnan(nan)


@pytest.mark.parametrize("way", WAYS)
def test_no_tokens_at_all_give_zeros(way):
    run = WAYS[way](in_chunks)
    sources, labels, weights = some_tokens("float32", weights=0.0)
    for tokens in [
        (sources, labels, weights),
        ([sources[0][:0], *sources[1:]], labels[:0], weights[:0]),
    ]:
        sums, gradients = run(*tokens, chunk_size=2)
        assert_all_close(sums, [0, 0])
        assert_all_close(gradients, [np.zeros(source.shape) for source in tokens[0]])
        evaluated = linear_cross_entropy(*tokens[0], *tokens[1:], training=False)
        assert_all_close(evaluated, [0, 0])


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_plain_formula_with_automatic_gradients_gives_the_same(smoothing):
    sources, labels, weights = some_tokens("float32")
    with tf.GradientTape() as tape:
        tape.watch(sources)
        hidden, kernel, bias = sources
        likely = tf.nn.log_softmax(tf.matmul(hidden, kernel, transpose_b=True) + bias)
        targets = (1 - smoothing) * tf.one_hot(labels, VOCABULARY) + smoothing / VOCABULARY
        loss = -tf.reduce_sum(weights[:, None] * targets * likely)
    expected = tape.gradient(loss, sources)
    sums, gradients = in_chunks(sources, labels, weights, chunk_size=4, label_smoothing=smoothing)
    np.testing.assert_allclose(sums.loss, loss, rtol=1e-5)
    assert_all_close(gradients, expected, rtol=1e-5, atol=1e-5)


def test_large_logits_give_finite_numbers():
    (hidden, kernel, bias), labels, weights = some_tokens("float32")
    tokens = [hidden * 1e4, kernel, bias], labels, weights
    sums, gradients = in_chunks(*tokens, chunk_size=2, label_smoothing=0.1)
    assert_all_close(sums, in_numpy(*tokens, 0.1)[0], rtol=1e-5)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 2e-2), ("float16", 3e-3)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_narrow_numbers_give_a_float32_loss_and_narrow_gradients(dtype, tolerance, smoothing):
    tokens = some_tokens(dtype)
    sums, gradients = in_chunks(*tokens, chunk_size=2, factor=2.5, label_smoothing=smoothing)
    assert sums.loss.dtype == sums.correct.dtype == tf.float32
    assert [gradient.dtype.name for gradient in gradients] == [dtype] * 3
    (loss, _), expected = in_numpy(*tokens, smoothing)
    np.testing.assert_allclose(sums.loss, loss, rtol=tolerance)
    assert_all_close(gradients, [2.5 * one for one in expected], rtol=0, atol=10 * tolerance)


@pytest.mark.parametrize("num_tokens", [1, 1024, 2500])
def test_log_probabilities_in_chunks_are_those_of_numpy(num_tokens):
    random = np.random.default_rng(num_tokens)
    logits = random.normal(0, 5, (num_tokens, 7)).astype(np.float32)
    labels = random.integers(0, 7, num_tokens).astype(np.int32)
    log_softmax = logits - np.log(np.sum(np.exp(logits.astype(np.float64)), 1, keepdims=True))
    expected = log_softmax[np.arange(num_tokens), labels]
    kernel, bias = tf.eye(7), tf.zeros([7])
    actual = log_probabilities(tf.constant(logits), kernel, bias, tf.constant(labels))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_logits_exist_for_one_chunk_at_a_time(training):
    """Every tensor that TensorFlow makes outside of a graph, counted in rows of logits."""
    sources, labels, weights = some_tokens()
    rows = []

    def note(op_type, inputs, attributes, outputs, op_name=None, graph=None):
        shapes = [tuple(output.shape) for output in outputs]
        rows.extend(shape[0] for shape in shapes if len(shape) == 2 and shape[1] == VOCABULARY)

    op_callbacks.add_op_callback(note)
    try:
        if training:
            in_chunks(sources, labels, weights, chunk_size=3)
        else:
            linear_cross_entropy(*sources, labels, weights, training=False, chunk_size=3)
    finally:
        op_callbacks.remove_op_callback(note)
    assert max(rows) == 3


def test_no_logits_leave_the_loop_over_chunks():
    graph = tf.function(in_chunks, autograph=False)
    graph = graph.get_concrete_function(*some_tokens(), chunk_size=3).graph
    shapes = [output.shape for op in graph.get_operations() for output in op.outputs]
    outside = {tuple(shape) for shape in shapes if shape.rank == 2}
    assert (None, UNITS) in outside
    assert (None, VOCABULARY) not in outside
    bodies = [one for one in graph.as_graph_def().library.function if "while" in one.signature.name]
    assert bodies
    kept = {node.op for body in bodies for node in body.node_def if "TensorList" in node.op}
    assert kept == {"TensorListSetItem"}  # The gradients of hidden; no activations are stacked.


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_losses_are_those_of_the_fused_kernel_up_to_rounding(scale, smoothing):
    logits = tf.constant(np.random.default_rng(3).normal(size=(TOKENS, VOCABULARY)) * scale)
    labels = tf.cast(tf.range(TOKENS) % VOCABULARY, tf.int64)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        targets = (1 - smoothing) * tf.one_hot(labels, VOCABULARY, dtype=tf.float64)
        expected = tf.nn.softmax_cross_entropy_with_logits(targets + smoothing / VOCABULARY, logits)
    losses, of_logits, best = token_losses(logits, labels, smoothing)
    np.testing.assert_array_equal(best, np.argmax(logits, 1))
    np.testing.assert_allclose(losses, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(of_logits, tape.gradient(expected, logits), rtol=1e-12, atol=1e-14)


def test_a_confident_token_keeps_the_digits_of_its_small_gradient():
    """Half precision may not take the softmax before one is taken from it at the label."""
    logits = tf.constant([[12.0, 0.0, 1.0]])
    _, of_logits, _ = token_losses(logits, tf.constant([0], tf.int64), 0.0)
    exact = np.exp([0.0, -12.0, -11.0]) / np.sum(np.exp([0.0, -12.0, -11.0])) - [1, 0, 0]
    np.testing.assert_allclose(of_logits[0], exact, rtol=5e-3)


def test_what_takes_the_place_of_the_scatter_gives_the_same(monkeypatch):
    values, columns = tf.random.normal([TOKENS, VOCABULARY]), tf.range(TOKENS) % VOCABULARY
    expected = less_at(values, columns, 0.9)
    monkeypatch.setattr(MODULE, "is_op_determinism_enabled", lambda: True)
    monkeypatch.setattr(MODULE, "may_run_on_gpu", lambda tensor: True)
    np.testing.assert_array_equal(less_at(values, columns, 0.9), expected)


@pytest.mark.parametrize("label", [-1, VOCABULARY])
def test_a_wrong_label_is_seen(label):
    """CPUs refuse to look it up. GPUs find 0 there, as XLA finds another label's value."""
    sources, labels, weights = some_tokens("float32", weights=1.0)
    labels = tf.tensor_scatter_nd_update(labels, [[0]], [label])
    with pytest.raises(tf.errors.InvalidArgumentError):
        in_chunks(sources, labels, weights)
    sums, gradients = WAYS["compiled"](in_chunks)(sources, labels, weights)
    assert np.isnan(sums.loss)
    assert all(np.isnan(gradient).any() for gradient in gradients)


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 8e-3), ("float16", 1e-3)])
def test_gradients_of_weights_in_half_precision_are_as_exact_in_many_chunks(dtype, tolerance):
    """A sum in bfloat16 would stop growing at 256 times its parts."""
    random, count = np.random.default_rng(1), 600
    hidden = tf.constant(random.normal(1.0, 0.1, (count, UNITS)), dtype)
    kernel, bias = tf.zeros([VOCABULARY, UNITS], dtype), tf.zeros([VOCABULARY], dtype)
    labels, weights = tf.zeros([count], tf.int32), tf.ones([count])
    given = [hidden, kernel, bias]
    _, found = in_chunks(given, labels, weights, chunk_size=1)
    _, expected = in_numpy(given, labels, weights)
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert one.dtype == dtype
        scale = np.abs(other).max()
        np.testing.assert_allclose(tf.cast(one, tf.float64), other, atol=tolerance * scale)
