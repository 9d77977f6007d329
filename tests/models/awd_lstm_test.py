"""The AWD-LSTM against NumPy: its state, its tied weights, and what its dropout drops."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from towers.models.awd_lstm import AWDLanguageModel, WeightDroppedLSTM
from towers.models.language_model import sentences

VOCABULARY, SIZE, UNITS = 13, 4, 6


def make_model(**options):
    return AWDLanguageModel(VOCABULARY, embedding_size=SIZE, hidden_size=UNITS, **options)


def some_tokens(shape):
    return np.random.default_rng(0).integers(1, VOCABULARY, shape).astype("int32")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def in_numpy(model, token_ids):
    """Returns the logits, token by token in float64."""
    table = model.embedding.table.numpy().astype(float)
    x = table[token_ids]
    for layer in model.lstm_layers:
        kernel, recurrent, bias = (variable.numpy().astype(float) for variable in layer.weights)
        h, c = np.zeros((2, len(x), layer.units))
        outputs = []
        for step in range(x.shape[1]):
            i, f, new, o = np.split(x[:, step] @ kernel + h @ recurrent + bias, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(new)
            h = sigmoid(o) * np.tanh(c)
            outputs.append(h)
        x = np.stack(outputs, axis=1)
    return x @ table.T + model.projection.bias.numpy()


def test_logits_are_those_of_numpy_and_the_output_is_the_table():
    model = make_model(num_layers=3)
    token_ids = some_tokens((3, 5))
    np.testing.assert_allclose(model(token_ids), in_numpy(model, token_ids), rtol=0, atol=1e-6)
    assert [layer.units for layer in model.lstm_layers] == [UNITS, UNITS, SIZE]
    shapes = [tuple(variable.shape) for variable in model.trainable_variables]
    assert shapes.count((VOCABULARY, SIZE)) == 1


def test_a_text_in_pieces_gives_the_numbers_of_the_text_at_once():
    model = make_model()
    token_ids = tf.constant(some_tokens((2, 7)))
    whole, last = model.hidden(token_ids)
    first, state = model.hidden(token_ids[:, :3])
    second, after = model.hidden(token_ids[:, 3:], state)
    np.testing.assert_allclose(tf.concat([first, second], 1), whole, rtol=0, atol=1e-6)
    for one, other in zip(tf.nest.flatten(after), tf.nest.flatten(last), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    state = model.zero_state(2)
    for place in range(7):
        logits, state = model.step(token_ids[:, place], state)
    np.testing.assert_allclose(logits, model(token_ids)[:, -1], rtol=0, atol=1e-6)


def test_dropout_drops_the_same_numbers_at_every_token_of_a_row():
    dropout = make_model(input_dropout_rate=0.5).input_dropout
    dropped = dropout(tf.ones([3, 6, 40]), training=True).numpy()
    assert (dropped == dropped[:, :1]).all()
    assert len({row.tobytes() for row in dropped}) == 3
    assert set(np.unique(dropped)) == {0, 2}


def test_recurrent_weights_are_dropped_in_training_alone():
    """With a kernel and a bias of zeros, only what recurs makes rows with other states differ."""
    layer = WeightDroppedLSTM(5, 0.999)
    layer.build((None, None, 2))
    inputs, state = tf.ones([1, 1, 2]), {"h": tf.fill([1, 5], 9.0), "c": tf.zeros([1, 5])}
    none = {**state, "h": tf.zeros([1, 5])}
    kept, _ = layer(inputs, state)
    dropped, _ = layer(inputs, state, training=True)
    without, _ = layer(inputs, none)
    assert np.abs(kept - without).max() > 0.1
    assert np.isclose(dropped, without, atol=1e-6).mean() >= 0.6  # One of 100 weights may stay.


def test_the_penalties_of_the_outputs_are_those_of_numpy():
    """In training alone, and of counted tokens alone; dropout of a half doubles the squares."""
    penalties = {"activation_penalty": 2.0, "temporal_penalty": 1.0}
    keras.config.set_dtype_policy("float64")
    model = make_model(output_dropout_rate=0.5, **penalties)
    random = np.random.default_rng(1)
    hidden, counted = random.normal(size=(2, 5, SIZE)), np.array([[1] * 5, [1, 1, 1, 0, 0]], bool)
    found = model.penalty(tf.constant(hidden), tf.constant(counted))
    rows = [row[:length] for row, length in zip(hidden, (5, 3), strict=True)]
    sizes = [(token**2).mean() for row in rows for token in row]
    changes = [(change**2).mean() for row in rows for change in np.diff(row, axis=0)]
    np.testing.assert_allclose(found, 2 * sum(sizes) + 0.5 * sum(changes), rtol=1e-12)
    assert make_model().penalty(tf.constant(hidden), tf.constant(counted)) is None


def test_the_training_loss_has_the_penalties_and_that_of_an_evaluation_has_not():
    rates = ("dropout_rate", "input_dropout_rate", "output_dropout_rate", "weight_dropout_rate")
    model = make_model(word_dropout_rate=0.0, **dict.fromkeys(rates, 0.0))
    tokens = some_tokens((2, 6))
    batch = (tokens[:, :-1], tokens[:, 1:])
    losses = {}
    for training in (False, True):
        losses[training, 0] = sentences(model, training=training)(batch)[0]
        model.activation_penalty = 3.0
        losses[training, 3] = sentences(model, training=training)(batch)[0]
        model.activation_penalty = 0.0
    squares = tf.reduce_sum(tf.reduce_mean(tf.square(model.hidden(batch[0])[0]), -1))
    np.testing.assert_allclose(losses[True, 3] - losses[True, 0], 3 * squares, rtol=1e-4)
    assert losses[False, 3] == losses[False, 0]


def test_words_are_dropped_whole_and_the_same_ones_everywhere():
    model = make_model(
        word_dropout_rate=0.5, input_dropout_rate=0.0, dropout_rate=0.0, weight_dropout_rate=0.0
    )
    seen = model.word_dropout(tf.ones([VOCABULARY, 1]), training=True).numpy()
    assert set(np.unique(seen)) == {0, 2}
    same = tf.constant([[5] * 4, [5] * 4])
    hidden, _ = model.hidden(same, training=True)
    assert hidden.shape == (2, 4, SIZE)


@pytest.mark.parametrize(
    "wrong",
    [{"weight_dropout_rate": 1.0}, {"word_dropout_rate": -0.1}, {"activation_penalty": -1.0}],
)
def test_a_number_outside_of_its_bounds_is_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must (be in|not be negative)"):
        make_model(**wrong)
