"""The sequence-to-sequence model: step by step as at once, padding without effect, gradients."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models.answer_models import step_by_step
from towers.models.attention import KINDS
from towers.models.decoding import Decoding, decode
from towers.models.seq2seq import CELLS, Seq2Seq

VOCABULARY, START, END, FORBIDDEN = 30, 1, 2, (0, 1, 3)
QUESTION = np.array([[4, 9, 17, 5, 8], [6, 29, 0, 0, 0], [7, 0, 0, 0, 0]], np.int32)
ANSWER = np.array([[1, 12, 13, 4], [1, 5, 0, 0], [1, 21, 22, 0]], np.int32)
SIZES = {"embedding_size": 6, "hidden_size": 8}

SHAPES = [
    {"cell": cell, "attention": attention, "input_feeding": fed, "tied_output": tied}
    for cell, attention, fed, tied in itertools.product(CELLS, KINDS, (False, True), (False, True))
]
DEEP = [
    {"encoder_layers": 2, "decoder_layers": 3, "residual": residual, "input_feeding": fed}
    for residual, fed in itertools.product((False, True), (False, True))
]
# Each cell, attention and depth, with and without the rest.
TELLING = [SHAPES[9], SHAPES[19], DEEP[2]]
EACH_SHAPE = pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, id=str(options), marks=[pytest.mark.slow] * (options not in TELLING))
        for options in SHAPES + DEEP
    ],
)

NARROW = [("lstm", False, True), ("gru", True, False)]


def model_of(**options):
    """Returns a model all of whose variables are random, so that nothing is nearly zero."""
    model = Seq2Seq(VOCABULARY, **{**SIZES, **options})
    random = np.random.default_rng(4)
    for variable in model.trainable_variables:
        variable.assign(random.normal(scale=0.5, size=variable.shape))
    return model


@EACH_SHAPE
def test_step_by_step_is_as_all_at_once(options):
    keras.config.set_dtype_policy("float64")
    model = model_of(**options)
    logits = model((QUESTION, ANSWER))
    assert logits.shape == (3, 4, VOCABULARY) and logits.dtype == tf.float64
    np.testing.assert_allclose(step_by_step(model, QUESTION, ANSWER), logits, rtol=1e-9)


@EACH_SHAPE
def test_attention_weights_are_those_that_the_answers_are_made_of(options, monkeypatch):
    keras.config.set_dtype_policy("float64")
    model = model_of(**options)
    weights_of, seen = model.attention.weights_of, []

    def record(queries, memory):
        seen.append(weights_of(queries, memory))
        return seen[-1]

    monkeypatch.setattr(model.attention, "weights_of", record)
    model((QUESTION, ANSWER))
    expected = tf.concat(seen, 1)
    weights = model.attention_weights(tf.constant(QUESTION), tf.constant(ANSWER)).numpy()
    np.testing.assert_allclose(weights, expected, rtol=1e-9)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-9)
    np.testing.assert_array_equal(weights[1:, :, 2:], 0)


@EACH_SHAPE
def test_padding_changes_nothing(options):
    model = model_of(**options)
    logits = model((QUESTION, ANSWER))
    longer = np.pad(QUESTION, [(0, 2), (0, 3)])
    more = np.pad(ANSWER, [(0, 2), (0, 1)])
    padded = model((longer, more))
    np.testing.assert_allclose(padded[:3, :4], logits, rtol=0, atol=1e-6 * np.abs(logits).max())
    assert np.isfinite(padded).all()
    alone = model((QUESTION[1:2, :2], ANSWER[1:2, :2]))
    np.testing.assert_allclose(alone[0], logits[1, :2], rtol=0, atol=1e-6 * np.abs(logits).max())
    empty = model((np.zeros((1, 1), "int32"), ANSWER[:1]))
    longer_empty = model((np.zeros((1, 4), "int32"), ANSWER[:1]))
    np.testing.assert_allclose(longer_empty, empty, rtol=0, atol=1e-6 * np.abs(empty).max())


@EACH_SHAPE
def test_every_variable_has_a_gradient(options):
    check_gradients(model_of(**options), gradients_of)


@pytest.mark.parametrize(
    "options", [pytest.param(SHAPES[0], marks=pytest.mark.slow), SHAPES[-1]], ids=str
)
def test_every_variable_has_a_gradient_in_a_graph(options):
    check_gradients(model_of(**options), tf.function(gradients_of, autograph=False))


def gradients_of(model):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model((QUESTION, ANSWER)) ** 2)
    return tape.gradient(loss, [variable.value for variable in model.trainable_variables])


def check_gradients(model, take):
    """Every gradient is there, and that of a table that is only looked up is sparse."""
    looked_up = [] if model.output_size == model.embedding.size else [model.embedding.table]
    for variable, gradient in zip(model.trainable_variables, take(model), strict=True):
        assert gradient is not None, variable.path
        sparse = isinstance(gradient, tf.IndexedSlices)
        assert sparse == any(variable is one for one in looked_up), variable.path
        values = gradient.values.numpy() if sparse else gradient.numpy()
        assert np.isfinite(values).all() and np.any(values != 0), variable.path


@pytest.mark.parametrize(
    "options",
    [*(pytest.param(SHAPES[n], marks=pytest.mark.slow) for n in (0, 9)), SHAPES[-1]],
    ids=str,
)
def test_gradients_are_those_of_finite_differences(options):
    keras.config.set_dtype_policy("float64")
    model = model_of(**options)

    def total():
        return tf.reduce_sum(tf.sin(model((QUESTION, ANSWER))))

    variables = model.trainable_variables
    with tf.GradientTape() as tape:
        loss = total()
    gradients = [
        tf.convert_to_tensor(one).numpy()
        for one in tape.gradient(loss, [variable.value for variable in variables])
    ]
    before = [variable.numpy() for variable in variables]
    random = np.random.default_rng(6)
    nudges = [random.normal(size=one.shape) for one in before]
    sides = []
    for factor in (1e-6, -1e-6):
        for variable, value, nudge in zip(variables, before, nudges, strict=True):
            variable.assign(value + factor * nudge)
        sides.append(total().numpy())
    slope = sum(np.sum(one * nudge) for one, nudge in zip(gradients, nudges, strict=True))
    np.testing.assert_allclose((sides[0] - sides[1]) / 2e-6, slope, rtol=1e-6)


@pytest.mark.parametrize(
    ("cell", "fed", "tied"),
    [
        pytest.param(*way, marks=[pytest.mark.slow] * (way not in NARROW))
        for way in itertools.product(CELLS, (False, True), (False, True))
    ],
)
def test_narrow_numbers_give_float32_logits_near_those_of_float32(cell, fed, tied):
    options = {"cell": cell, "input_feeding": fed, "tied_output": tied, "attention": "bahdanau"}
    expected = model_of(**options)((QUESTION, ANSWER)).numpy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = model_of(**options)
    assert {variable.dtype for variable in model.trainable_variables} == {"float32"}
    logits = model((QUESTION, ANSWER))
    assert logits.dtype == tf.float32
    np.testing.assert_allclose(logits, expected, rtol=0, atol=0.1 * np.abs(expected).max())
    stepped = step_by_step(model, QUESTION, ANSWER)
    assert stepped.dtype == np.float32
    np.testing.assert_allclose(stepped, expected, rtol=0, atol=0.1 * np.abs(expected).max())


@pytest.mark.parametrize(
    "options",
    [
        {"input_feeding": True},
        *[pytest.param(options, marks=pytest.mark.slow) for options in ({}, *DEEP)],
    ],
    ids=str,
)
def test_dropout_is_drawn_in_training_alone(options):
    without, model = model_of(**options), model_of(**options, dropout_rate=0.5)
    drawn = [model((QUESTION, ANSWER), training=True).numpy() for _ in range(2)]
    assert np.abs(drawn[0] - drawn[1]).max() > 1e-3
    expected = without((QUESTION, ANSWER), training=True).numpy()
    np.testing.assert_array_equal(model((QUESTION, ANSWER)), expected)
    stepped = step_by_step(model, QUESTION, ANSWER)
    np.testing.assert_allclose(stepped, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("fed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_dropout_layer_has_an_effect(fed):
    """With one layer's rate alone above zero, the outputs still change."""
    model = model_of(encoder_layers=2, decoder_layers=2, dropout_rate=0.5, input_feeding=fed)
    expected = model((QUESTION, ANSWER)).numpy()
    for dropout in model.dropouts:
        dropout.rate = 0.0
    for dropout in model.dropouts:
        dropout.rate = 0.5
        assert np.any(model((QUESTION, ANSWER), training=True) != expected), dropout.name
        dropout.rate = 0.0


@pytest.mark.parametrize("fed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_silent_second_layer_is_passed_by_a_residual_connection(fed):
    """Where the layer above says zero, the deep residual model is the shallow one."""
    deep = model_of(decoder_layers=2, residual=True, input_feeding=fed)
    shallow = model_of(input_feeding=fed)
    silence(deep.decoder_layers[1], *deep.bridges[1])
    copy_weights(deep, shallow)
    np.testing.assert_allclose(
        deep((QUESTION, ANSWER)), shallow((QUESTION, ANSWER)), rtol=0, atol=1e-5
    )
    plain = model_of(decoder_layers=2, input_feeding=fed)
    silence(plain.decoder_layers[1], *plain.bridges[1])
    assert np.abs(plain((QUESTION, ANSWER)) - shallow((QUESTION, ANSWER))).max() > 0.1


def test_the_memory_passes_a_silent_second_encoder_layer_by():
    deep, shallow = model_of(encoder_layers=2, residual=True), model_of()
    silence(deep.forward_layers[1], deep.backward_layers[1])
    copy_weights(deep, shallow)
    np.testing.assert_array_equal(
        deep.start(QUESTION).memory.values, shallow.start(QUESTION).memory.values
    )


def silence(*layers):
    for variable in itertools.chain(*(layer.weights for layer in layers)):
        variable.assign(tf.zeros(variable.shape))


def copy_weights(source, target):
    by_path = {variable.path: variable for variable in source.trainable_variables}
    for variable in target.trainable_variables:
        variable.assign(by_path[variable.path])


def decoded_by(model, options):
    @tf.function(autograph=False)
    def graph(question):
        return decode(
            model.step, model.start(question), options, start=START, end=END,
            forbidden=FORBIDDEN, batch_size=tf.shape(question)[0],
            seed=tf.constant([0, 0], tf.int64),
        )  # fmt: skip

    return graph(QUESTION)


def greedily(model, question, max_length):
    """Returns the likeliest tokens of one question and their log probability."""
    state, tokens, score = model.start(question[None]), [START], 0.0
    while tokens[-1] != END and len(tokens) <= max_length:
        logits, state = model.step(tf.constant(tokens[-1:]), state)
        logits = np.where(np.isin(np.arange(VOCABULARY), FORBIDDEN), -np.inf, logits[0].numpy())
        tokens.append(int(np.argmax(logits)))
        score += np.max(logits) - np.logaddexp.reduce(logits)
    return tokens[1:], score


@pytest.mark.parametrize(
    "options",
    [
        SHAPES[-4],
        *[pytest.param(options, marks=pytest.mark.slow) for options in (DEEP[1], *SHAPES[::5])],
    ],
    ids=str,
)
def test_greedy_decoding_is_a_loop_over_steps(options):
    model = model_of(**options)
    decoded = decoded_by(model, Decoding(max_length=6))
    for row, question in enumerate(QUESTION):
        tokens, score = greedily(model, question, 6)
        length = int(decoded.lengths[row, 0])
        assert decoded.ids[row, 0, :length].numpy().tolist() == tokens
        np.testing.assert_allclose(decoded.scores[row, 0], score, rtol=1e-4)


def test_a_wider_beam_finds_nothing_less_likely():
    model = model_of(cell="gru", attention="luong_scaled", input_feeding=True)
    greedy = decoded_by(model, Decoding(max_length=6, length_penalty=0.0))
    wide = decoded_by(model, Decoding(max_length=6, length_penalty=0.0, beam_size=200, n_best=2))
    assert np.all(wide.scores[:, 0] >= greedy.scores[:, 0] - 1e-4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"vocabulary_size": 0}, "vocabulary_size must be a whole number of at least 1"),
        ({"embedding_size": 0}, "embedding_size must be a whole number of at least 1"),
        ({"hidden_size": -2}, "hidden_size must be a whole number of at least 1"),
        ({"hidden_size": 7}, "hidden_size must be even, half for each direction. Received 7"),
        ({"encoder_layers": 0}, "encoder_layers must be a whole number of at least 1"),
        ({"decoder_layers": 1.5}, "decoder_layers must be a whole number of at least 1"),
        ({"cell": "rnn"}, "cell must be one of lstm, gru. Received 'rnn'"),
        ({"attention": "dot"}, "attention must be one of luong, luong_scaled, bahdanau. Received"),
        ({"dropout_rate": 1.0}, r"dropout_rate must be in \[0, 1\). Received 1.0"),
    ],
)
def test_wrong_arguments_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Seq2Seq(**{"vocabulary_size": VOCABULARY, **SIZES, **wrong})
