"""Dynamic evaluation against the paper's formulas in NumPy, and the trained weights after it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from towers.data.batches.texts import stream_batches
from towers.models.awd_lstm import AWDLanguageModel
from towers.models.dynamic_evaluation import EPSILON, DynamicEvaluation

VOCABULARY, RATE, DECAY = 17, 0.01, 0.3


@pytest.fixture
def model():
    """A network in float64 whose dropout and penalties would show."""
    keras.config.set_dtype_policy("float64")
    penalties = {"activation_penalty": 2.0, "temporal_penalty": 1.0}
    yield AWDLanguageModel(VOCABULARY, embedding_size=6, hidden_size=5, **penalties)
    keras.config.set_dtype_policy("float32")


def batches(num_rows, num_steps, *, length=60, seed=0):
    tokens = np.random.default_rng(seed).integers(4, VOCABULARY, length)
    return stream_batches(tokens, num_rows, num_steps, drop_tail=False)(0, 0)


def loss_and_gradients(model, batch, state):
    """Returns the mean loss of a batch, its tokens, the gradients and the state, by softmax."""
    inputs, targets, _ = batch
    with tf.GradientTape() as tape:
        hidden, state = model.hidden(inputs, state)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, model.projection(hidden))
        counted = tf.cast(targets != 0, losses.dtype)
        mean = tf.reduce_sum(losses * counted) / tf.reduce_sum(counted)
    weights = [weight.value for weight in model.trainable_variables]
    gradients = [tf.convert_to_tensor(one).numpy() for one in tape.gradient(mean, weights)]
    return float(mean), float(tf.reduce_sum(counted)), gradients, state


def in_numpy(model, trained_on, text):
    """Returns the mean loss over the tokens of a text, and the weights in the end."""
    start, squares, state = [one.numpy() for one in model.trainable_variables], [], None
    for batch in trained_on:
        *_, gradients, state = loss_and_gradients(model, batch, state)
        squares.append([gradient**2 for gradient in gradients])
    roots = [np.sqrt(np.mean(own, axis=0)) for own in zip(*squares, strict=True)]
    mean = np.mean(np.concatenate([root.ravel() for root in roots]))
    total, tokens, state = 0.0, 0.0, None
    for batch in text:
        loss, weight, gradients, state = loss_and_gradients(model, batch, state)
        total, tokens = total + loss * weight, tokens + weight
        for variable, first, root, gradient in zip(
            model.trainable_variables, start, roots, gradients, strict=True
        ):
            value = variable.numpy()
            pull = np.minimum(DECAY * root / mean, 1) * (first - value)
            variable.assign(value + pull - RATE * gradient / (root + EPSILON))
    end = [one.numpy() for one in model.trainable_variables]
    for variable, first in zip(model.trainable_variables, start, strict=True):
        variable.assign(first)
    return total / tokens, end


@pytest.mark.parametrize("num_rows", [1, 2])
def test_its_loss_is_that_of_the_formulas_and_the_trained_weights_come_back(model, num_rows):
    trained_on, text = batches(4, 7, seed=1), batches(num_rows, 5, length=58)
    expected, end = in_numpy(model, trained_on, text)
    before = [one.numpy() for one in model.trainable_variables]
    assert any(np.abs(now - then).max() > 0.01 for now, then in zip(end, before, strict=True))
    evaluation = DynamicEvaluation(model, trained_on, learning_rate=RATE, decay=DECAY)
    heard = []
    for _ in range(2):  # The second is not moved by the first.
        loss, _, tokens = evaluation.evaluate(text, lambda: heard.append(1))
        assert loss == pytest.approx(expected, rel=1e-12) and tokens == 58
        for now, then in zip(model.trainable_variables, before, strict=True):
            np.testing.assert_array_equal(now.numpy(), then)
    assert len(heard) == 2 * len(list(text))


def test_the_trained_weights_come_back_after_an_error_too(model):
    evaluation = DynamicEvaluation(model, batches(4, 7), learning_rate=RATE)
    before = [one.numpy() for one in model.trainable_variables]

    def fail():
        raise InterruptedError("stop")

    with pytest.raises(InterruptedError):
        evaluation.evaluate(batches(1, 5), fail)
    for now, then in zip(model.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(now.numpy(), then)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"learning_rate": 0.1, "decay": -1.0}, "decay must not be negative"),
    ],
)
def test_numbers_out_of_range_are_refused(model, options, expected):
    with pytest.raises(ValueError, match=expected):
        DynamicEvaluation(model, batches(4, 7), **options)


def test_no_text_to_learn_the_sizes_of_gradients_from_is_refused(model):
    with pytest.raises(ValueError, match="needs batches of the training text"):
        DynamicEvaluation(model, [], learning_rate=RATE)
