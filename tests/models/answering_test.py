"""The loss of answers: which tokens count, and that it is the plain masked cross-entropy."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from towers.ground.special_ids import PAD, START, UNKNOWN
from towers.models.answering import answering, decoder_inputs
from towers.models.seq2seq import Seq2Seq

VOCABULARY = 30
QUESTION = np.array([[4, 9, 3, 5], [6, 29, 0, 0], [7, 0, 0, 0]], np.int32)
ANSWER = np.array([[12, 3, 13, 2], [5, 2, 0, 0], [3, 3, 2, 0]], np.int32)
COUNTED = np.array([[1, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 0]], bool)
SHARD = (tf.constant(QUESTION), tf.constant(ANSWER))
# Each part of the loss with its other parts.
TELLING = [(True, 0.1, True), (False, 0.0, True), (False, 0.1, False)]


def model_of(**options):
    """Returns a model all of whose variables are random."""
    model = Seq2Seq(VOCABULARY, embedding_size=6, hidden_size=8, **options)
    random = np.random.default_rng(4)
    for variable in model.trainable_variables:
        variable.assign(random.normal(scale=0.5, size=variable.shape))
    return model


def plain_sums(model, *, label_smoothing=0.0, training=False):
    """Returns loss, weight and how many predictions were right, from all logits at once."""
    logits = model((QUESTION, decoder_inputs(SHARD[1])), training=training)
    targets = tf.one_hot(ANSWER, VOCABULARY, dtype=logits.dtype)
    targets = (1 - label_smoothing) * targets + label_smoothing / VOCABULARY
    losses = -tf.reduce_sum(targets * tf.nn.log_softmax(logits), -1)
    correct = np.argmax(logits, -1) == ANSWER
    return tf.reduce_sum(losses[COUNTED]), COUNTED.sum(), np.sum(correct & COUNTED)


def test_the_decoder_reads_the_start_and_all_but_the_last_token():
    inputs = decoder_inputs(SHARD[1])
    assert inputs.dtype == tf.int32
    expected = [[START, 12, 3, 13], [START, 5, 2, 0], [START, 3, 3, 2]]
    np.testing.assert_array_equal(inputs, expected)


def test_the_weight_counts_tokens_that_are_neither_padding_nor_unknown():
    _, weight, _ = answering(model_of(), training=True)(SHARD)
    assert weight == COUNTED.sum() == 6


@pytest.mark.parametrize(
    ("tied", "smoothing", "training"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] * (case not in TELLING))
        for case in itertools.product((True, False), (0.0, 0.1), (True, False))
    ],
)
def test_the_loss_is_the_plain_masked_cross_entropy(tied, smoothing, training):
    keras.config.set_dtype_policy("float64")
    model = model_of(tied_output=tied)
    tower_fn = answering(model, training=training, label_smoothing=smoothing)
    loss, weight, metrics = tower_fn(SHARD)
    expected = plain_sums(model, label_smoothing=smoothing)
    assert loss.dtype == weight.dtype == tf.float64
    np.testing.assert_allclose([loss, weight, metrics["accuracy"]], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("tied", "fed"),
    [
        (True, True),
        (False, False),
        *(pytest.param(tied, not tied, marks=pytest.mark.slow) for tied in (True, False)),
    ],
)
def test_gradients_are_those_of_the_plain_formula(tied, fed):
    keras.config.set_dtype_policy("float64")
    model = model_of(tied_output=tied, input_feeding=fed, cell="gru")
    with tf.GradientTape(persistent=True) as tape:
        loss, _, _ = answering(model, training=True)(SHARD)
        expected_loss, _, _ = plain_sums(model)
    sources = [variable.value for variable in model.trainable_variables]
    gradients, expected = tape.gradient(loss, sources), tape.gradient(expected_loss, sources)
    for variable, one, other in zip(sources, gradients, expected, strict=True):
        assert isinstance(one, tf.IndexedSlices) == isinstance(other, tf.IndexedSlices)
        np.testing.assert_allclose(
            tf.convert_to_tensor(one),
            tf.convert_to_tensor(other),
            rtol=1e-9,
            atol=1e-12,
            err_msg=variable.name,
        )


@pytest.mark.parametrize("never", [PAD, UNKNOWN])
def test_a_model_never_learns_to_say_unknown_or_padding(never):
    """Without smoothing, each step only makes such a token less likely."""
    model = model_of()
    with tf.GradientTape() as tape:
        loss, _, _ = answering(model, training=True)(SHARD)
    gradient = tape.gradient(loss, model.projection.bias.value)
    logits = model((QUESTION, decoder_inputs(SHARD[1])))
    shares = tf.nn.softmax(logits).numpy()[COUNTED]
    np.testing.assert_allclose(gradient[never], shares[:, never].sum(), rtol=1e-5)
    assert gradient[2] < shares[:, 2].sum() - 2.9  # The end token is three times the target.


def test_answers_of_unknown_tokens_alone_weigh_nothing():
    model = model_of()
    shard = (SHARD[0], tf.fill([3, 4], UNKNOWN))
    for training in (True, False):
        with tf.GradientTape() as tape:
            loss, weight, metrics = answering(model, training=training)(shard)
        assert loss == weight == metrics["accuracy"] == 0
    with tf.GradientTape() as tape:
        loss, _, _ = answering(model, training=True)(shard)
    for gradient in tape.gradient(loss, [one.value for one in model.trainable_variables]):
        assert np.all(tf.convert_to_tensor(gradient).numpy() == 0)


@pytest.mark.parametrize(
    "policy", [pytest.param("mixed_bfloat16", marks=pytest.mark.slow), "mixed_float16"]
)
def test_narrow_numbers_give_a_float32_loss_and_gradients_of_the_variables_dtype(policy):
    expected, _, _ = plain_sums(model_of())
    keras.config.set_dtype_policy(policy)
    model = model_of()
    with tf.GradientTape() as tape:
        loss, weight, _ = answering(model, training=True)(SHARD)
    gradients = tape.gradient(loss, [one.value for one in model.trainable_variables])
    assert loss.dtype == weight.dtype == tf.float32
    np.testing.assert_allclose(loss, expected, rtol=0.05)
    assert {gradient.dtype for gradient in gradients} == {tf.float32}


def test_dropout_is_on_in_training_alone():
    model = model_of(dropout_rate=0.5)
    training, evaluating = (answering(model, training=training) for training in (True, False))
    assert training(SHARD)[0] != training(SHARD)[0]
    assert evaluating(SHARD)[0] == evaluating(SHARD)[0]


def test_a_smoothing_of_one_is_refused():
    with pytest.raises(ValueError, match=r"label_smoothing must be in \[0, 1\). Received 1.0"):
        answering(model_of(), training=True, label_smoothing=1.0)
