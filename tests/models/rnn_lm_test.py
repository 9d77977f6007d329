"""The language model against NumPy: its LSTM, its state, what counts in its loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from towers.models import language_model, rnn_lm

VOCABULARY, UNITS = 13, 5


def make_model(**options):
    options = {"hidden_size": UNITS, "initial_scale": 0.5, **options}
    return rnn_lm.RNNLanguageModel(VOCABULARY, **options)


def some_tokens(shape, seed=0):
    return np.random.default_rng(seed).integers(1, VOCABULARY, shape).astype("int32")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def in_numpy(model, token_ids, states=None):
    """Returns the logits [batch, length, vocabulary] and (h, c) of each layer, token by token."""
    x = model.embedding.table.numpy().astype(float)[token_ids]
    after = []
    for index, layer in enumerate(model.lstm_layers):
        kernel, recurrent, bias = (variable.numpy().astype(float) for variable in layer.weights)
        h, c = states[index] if states else np.zeros((2, len(x), UNITS))
        outputs = []
        for step in range(x.shape[1]):
            gates = x[:, step] @ kernel + h @ recurrent + bias
            i, f, new, o = np.split(gates, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(new)
            h = sigmoid(o) * np.tanh(c)
            outputs.append(h)
        x = np.stack(outputs, axis=1)
        after.append((h, c))
    return x @ model.kernel.numpy().T + model.bias.numpy(), after


def losses_in_numpy(logits, targets):
    """Returns the cross-entropy of each target, [batch, length]."""
    log_sums = np.log(np.exp(logits).sum(-1))
    return log_sums - np.take_along_axis(logits, targets[..., None], -1)[..., 0]


def pairs_of(state):
    return [(layer["h"].numpy(), layer["c"].numpy()) for layer in state]


def assert_same_state(state, expected, atol=1e-6):
    for own, other in zip(pairs_of(state), expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=0, atol=atol)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_logits_and_state_are_those_of_numpy(num_layers):
    model = make_model(num_layers=num_layers)
    token_ids = some_tokens((3, 6))
    expected, states = in_numpy(model, token_ids)
    np.testing.assert_allclose(model(token_ids), expected, rtol=0, atol=1e-5)
    assert_same_state(model.hidden(tf.constant(token_ids))[1], states)


def test_step_by_step_is_the_same_as_all_at_once():
    model = make_model()
    token_ids = some_tokens((3, 4))
    at_once, expected = model(token_ids), model.hidden(tf.constant(token_ids))[1]
    state = model.zero_state(3)
    for step in range(4):
        logits, state = model.step(tf.constant(token_ids[:, step]), state)
        np.testing.assert_allclose(logits, at_once[:, step], rtol=0, atol=1e-6)
    assert_same_state(state, pairs_of(expected))


def test_parameters_are_uniform_and_each_drawn_for_itself():
    model = rnn_lm.RNNLanguageModel(50, hidden_size=40, initial_scale=0.05)
    for variable in model.weights:
        values = variable.numpy()
        assert -0.05 <= values.min() < -0.03 and 0.03 < values.max() < 0.05, variable.path
        assert np.std(values) == pytest.approx(0.1 / np.sqrt(12), rel=0.2), variable.path
    lstm = [layer.weights[part].numpy() for layer in model.lstm_layers for part in (0, 1)]
    assert len({array.tobytes() for array in lstm}) == 4


# The loss.


def stream_batch(rows=3, steps=4, seed=0):
    text = some_tokens((rows, steps + 1), seed)
    return text[:, :-1], text[:, 1:].copy(), np.zeros(rows, bool)


def run_streams(model, batch, state, training=False):
    return language_model.streams(model, training=training)(tuple(map(tf.constant, batch)), state)


@pytest.mark.parametrize("training", [False, True])
def test_loss_is_summed_over_the_targets_that_are_not_padding(training):
    model = make_model()
    inputs, targets, starts = stream_batch()
    targets[1, 2:] = 0
    loss, weight, metrics, _ = run_streams(
        model, (inputs, targets, starts), model.zero_state(3), training
    )
    logits, _ = in_numpy(model, inputs)
    counted = targets != 0
    expected = losses_in_numpy(logits, targets)[counted].sum()
    np.testing.assert_allclose(float(loss), expected, rtol=1e-6)
    assert float(weight) == counted.sum() == 10
    assert float(metrics["accuracy"]) == (logits.argmax(-1) == targets)[counted].sum()


def test_the_state_goes_on_from_batch_to_batch():
    model = make_model()
    text = some_tokens((2, 13))
    state, total = model.zero_state(2), 0.0
    for start in (0, 4, 8):
        inputs, targets = text[:, start : start + 4], text[:, start + 1 : start + 5]
        loss, _, _, state = run_streams(model, (inputs, targets, np.zeros(2, bool)), state)
        total += float(loss)
    logits, states = in_numpy(model, text[:, :-1])
    np.testing.assert_allclose(total, losses_in_numpy(logits, text[:, 1:]).sum(), rtol=1e-6)
    assert_same_state(state, states)


def test_rows_where_a_stream_begins_forget_what_came_before():
    model = make_model()
    _, _, _, state = run_streams(model, stream_batch(), model.zero_state(3))
    inputs, targets, _ = stream_batch(seed=1)
    starts = np.array([True, False, True])
    loss, _, _, after = run_streams(model, (inputs, targets, starts), state)
    before = [
        tuple(np.where(starts[:, None], 0, part) for part in pair) for pair in pairs_of(state)
    ]
    logits, expected = in_numpy(model, inputs, before)
    np.testing.assert_allclose(float(loss), losses_in_numpy(logits, targets).sum(), rtol=1e-6)
    assert_same_state(after, expected)


def test_a_state_that_is_not_finite_is_forgotten_too():
    model = make_model()
    broken = tf.nest.map_structure(lambda part: part * np.nan, model.zero_state(3))
    inputs, targets, _ = stream_batch()
    loss, *_ = run_streams(model, (inputs, targets, np.ones(3, bool)), broken)
    assert np.isfinite(float(loss))


def sentence_rows(lengths=(4, 1, 3)):
    """Returns sentences as (inputs, targets) of their own lengths."""
    text = some_tokens((len(lengths), max(lengths) + 1))
    rows = zip(text, lengths, strict=True)
    return [(row[None, :length], row[None, 1 : length + 1]) for row, length in rows]


def padded(rows, length):
    parts = [[np.pad(part, ((0, 0), (0, length - part.shape[1]))) for part in row] for row in rows]
    return tuple(tf.constant(np.concatenate(side)) for side in zip(*parts, strict=True))


@pytest.mark.parametrize("length", [4, 9])
def test_padding_changes_nothing_for_sentences(length):
    model = make_model()
    rows = sentence_rows()
    tower_fn = language_model.sentences(model, training=False)
    loss, weight, metrics = tower_fn(padded(rows, length))
    alone = [tower_fn(tuple(map(tf.constant, row))) for row in rows]
    np.testing.assert_allclose(float(loss), sum(float(one[0]) for one in alone), rtol=1e-6)
    assert float(weight) == 8
    assert float(metrics["accuracy"]) == sum(float(one[2]["accuracy"]) for one in alone)


def test_sentences_are_streams_that_begin_anew():
    model = make_model()
    inputs, targets = padded(sentence_rows(), 4)
    state = tf.nest.map_structure(lambda part: part + 7.0, model.zero_state(3))
    streamed = run_streams(model, (inputs, targets, np.ones(3, bool)), state)
    loss, weight, _ = language_model.sentences(model, training=False)((inputs, targets))
    np.testing.assert_allclose(float(loss), float(streamed[0]), rtol=1e-6)
    assert float(weight) == float(streamed[1])


# Dropout and dtypes.


def test_dropout_is_on_what_goes_up_and_never_on_what_goes_on():
    """With nearly all dropped, the state of the first layer is that of inputs of zeros."""
    model = make_model(dropout_rate=0.999, num_layers=1)
    token_ids = tf.constant(some_tokens((4, 6)))
    given = tf.nest.map_structure(lambda part: part + 0.3, model.zero_state(4))
    hidden, state = model.hidden(token_ids, given, training=True)
    layer = model.lstm_layers[0]
    nothing = tf.zeros([4, 6, UNITS])
    _, h, c = layer(nothing, initial_state=[given[0]["h"], given[0]["c"]])
    rows = np.isclose(state[0]["h"], h, atol=1e-6).all(axis=1)
    assert rows.sum() >= 3  # One of 120 numbers may have stayed.
    assert np.abs(c).min() > 0.01
    assert (hidden.numpy() == 0).mean() > 0.9


def test_dropout_draws_anew_for_every_token_and_is_off_without_training():
    model = make_model(dropout_rate=0.5)
    same = tf.fill([2, 8], 3)
    dropped = model.dropouts[0](model.embedding(same), training=True).numpy()
    assert len({token.tobytes() for row in dropped for token in row}) > 8
    np.testing.assert_array_equal(model(same), model(same))


@pytest.mark.parametrize(
    "policy, state_dtype, loss_dtype",
    [
        ("float64", "float64", "float64"),
        ("mixed_bfloat16", "bfloat16", "float32"),
        ("mixed_float16", "float16", "float32"),
    ],
)
def test_the_state_has_the_dtype_of_the_layers_and_the_loss_at_least_float32(
    policy, state_dtype, loss_dtype
):
    keras.config.set_dtype_policy(policy)
    model = make_model()
    loss, _, _, state = run_streams(model, stream_batch(), model.zero_state(3))
    assert loss.dtype == loss_dtype
    specs = tf.nest.flatten(model.state_specs())
    for spec, part in zip(specs, tf.nest.flatten(state), strict=True):
        assert spec.dtype == part.dtype == state_dtype
    assert model(some_tokens((2, 3))).dtype == loss_dtype


# An ordinary Keras model.


@pytest.mark.slow
def test_keras_fits_the_model():
    model = make_model()
    text = np.tile(np.arange(1, 5, dtype="int32"), (16, 3))
    model.compile(
        keras.optimizers.Adam(0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    history = model.fit(text[:, :-1], text[:, 1:], epochs=15, verbose=0).history["loss"]
    assert history[-1] < 0.6 * history[0]


def test_the_gradient_of_the_embedding_stays_sparse():
    model = make_model()
    with tf.GradientTape() as tape:
        loss, *_ = run_streams(model, stream_batch(), model.zero_state(3), training=True)
    gradient = tape.gradient(loss, model.embedding.table.value)
    assert isinstance(gradient, tf.IndexedSlices)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"hidden_size": 0}, "hidden_size must be a whole number of at least 1. Received 0"),
        ({"num_layers": 1.5}, "num_layers must be a whole number"),
        ({"dropout_rate": 1.0}, r"dropout_rate must be in \[0, 1\). Received 1.0"),
        ({"initial_scale": 0.0}, "initial_scale must be above 0 and finite. Received 0.0"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_model(**options)
