"""The Transformer: token by token as all at once, padding without effect, gradients, positions."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models.answer_models import step_by_step
from towers.models.decoding import Decoding, decode
from towers.models.multi_head import MultiHeadAttention, rotate
from towers.models.transformer import Transformer

VOCABULARY, START, END, FORBIDDEN = 30, 1, 2, (0, 1, 3)
QUESTION = np.array([[4, 9, 17, 5, 8], [6, 29, 0, 0, 0], [7, 0, 0, 0, 0]], np.int32)
ANSWER = np.array([[1, 12, 13, 4], [1, 5, 0, 0], [1, 21, 22, 0]], np.int32)
OPTIONS = [{}, {"tied_output": False, "heads": 1, "encoder_layers": 1, "decoder_layers": 3}]
EACH = pytest.mark.parametrize("options", OPTIONS, ids=str)


def model_of(**options):
    """Returns a model all of whose variables are random, so that nothing is nearly zero."""
    model = Transformer(VOCABULARY, **{"size": 8, "heads": 2, "feed_forward_size": 12, **options})
    random = np.random.default_rng(4)
    for variable in model.trainable_variables:
        variable.assign(random.normal(scale=0.5, size=variable.shape))
    return model


@EACH
def test_step_by_step_is_as_all_at_once(options):
    keras.config.set_dtype_policy("float64")
    model = model_of(**options)
    logits = model((QUESTION, ANSWER))
    assert logits.shape == (3, 4, VOCABULARY) and logits.dtype == tf.float64
    np.testing.assert_allclose(step_by_step(model, QUESTION, ANSWER), logits, rtol=1e-9)


@EACH
def test_attention_weights_are_means_of_those_that_the_answers_are_made_of(options, monkeypatch):
    keras.config.set_dtype_policy("float64")
    model = model_of(**options)
    seen = []
    for _, cross, _ in model.decoder:
        weights_of = cross.part.weights_of
        monkeypatch.setattr(cross.part, "weights_of", recording(weights_of, seen))
    model((QUESTION, ANSWER))
    expected = np.mean(seen, axis=(0, 2))
    weights = model.attention_weights(tf.constant(QUESTION), tf.constant(ANSWER)).numpy()
    np.testing.assert_allclose(weights, expected, rtol=1e-9)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-9)
    np.testing.assert_array_equal(weights[1:, :, 2:], 0)


def recording(function, seen):
    def call(*arguments):
        seen.append(function(*arguments))
        return seen[-1]

    return call


def test_padding_changes_nothing():
    model = model_of()
    logits = model((QUESTION, ANSWER))
    padded = model((np.pad(QUESTION, [(0, 2), (0, 3)]), np.pad(ANSWER, [(0, 2), (0, 1)])))
    np.testing.assert_allclose(padded[:3, :4], logits, rtol=0, atol=1e-6 * np.abs(logits).max())
    assert np.isfinite(padded).all()
    alone = model((QUESTION[1:2, :2], ANSWER[1:2, :2]))
    np.testing.assert_allclose(alone[0], logits[1, :2], rtol=0, atol=1e-6 * np.abs(logits).max())


def test_no_token_sees_a_later_one():
    model = model_of()
    changed = ANSWER.copy()
    changed[:, 2:] = 11
    one, other = model((QUESTION, ANSWER)), model((QUESTION, changed))
    np.testing.assert_array_equal(one[:, :2], other[:, :2])
    assert np.any(one[:, 2:] != other[:, 2:])


def test_order_counts():
    model = model_of()
    one, other = (
        model((question, ANSWER)) for question in (QUESTION, QUESTION[:, [1, 0, 2, 3, 4]])
    )
    assert np.abs(one[0] - other[0]).max() > 1e-3


@EACH
def test_every_variable_has_a_gradient(options):
    model = model_of(**options)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.sin(model((QUESTION, ANSWER))))
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.path
        assert np.any(tf.convert_to_tensor(gradient) != 0), variable.path


def test_variables_have_names_of_their_own():
    paths = [variable.path for variable in model_of().variables]
    assert len(set(paths)) == len(paths) == len(model_of().trainable_variables)


def test_attention_is_that_of_the_paper():
    """Two heads without positions, by NumPy."""
    keras.config.set_dtype_policy("float64")
    layer = MultiHeadAttention(8, 2, rotary=False)
    layer.build()
    random = np.random.default_rng(1)
    x, y = random.normal(size=(2, 3, 8)), random.normal(size=(2, 5, 8))
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)
    actual = layer(tf.constant(x), layer.remember(tf.constant(y)), mask[:, None, None, :])
    weights = [one.kernel.numpy() for one in (layer.query, layer.key, layer.value)]
    outputs = []
    for head in (slice(0, 4), slice(4, 8)):
        query, key, value = (
            part @ kernel[:, head] for part, kernel in zip((x, y, y), weights, strict=True)
        )
        scores = np.where(mask[:, None], query @ key.transpose(0, 2, 1) / 2, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        outputs.append(shares / shares.sum(-1, keepdims=True) @ value)
    expected = np.concatenate(outputs, -1) @ layer.output_layer.kernel.numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_rotated_scores_depend_on_the_distance_alone():
    random = np.random.default_rng(2)
    query, key = random.normal(size=(2, 1, 1, 1, 6))
    scores = {
        (place, other): float(tf.reduce_sum(rotate(query, place) * rotate(key, other)))
        for place in (0, 3, 9)
        for other in (0, 2)
    }
    np.testing.assert_allclose(
        float(tf.reduce_sum(rotate(query, 3 + 40) * rotate(key, 40))), scores[3, 0], rtol=1e-9
    )
    assert len({round(score, 9) for score in scores.values()}) == len(scores)
    np.testing.assert_array_equal(rotate(query, 0), query)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_in_16_bits_a_far_position_is_rotated_as_exactly_as_a_near_one(dtype):
    vectors = tf.cast(tf.random.stateless_normal([1, 1, 1000, 8], [1, 2]), dtype)
    exact = rotate(tf.cast(vectors, tf.float64))
    np.testing.assert_allclose(tf.cast(rotate(vectors), tf.float64), exact, atol=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("decoding", [Decoding(max_length=6), Decoding(max_length=6, beam_size=4)])
def test_decoding_in_a_graph_is_that_of_one_question_alone(decoding):
    model = model_of()

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def answer(questions):
        return decode(
            model.step, model.start(questions), decoding, start=START, end=END,
            forbidden=FORBIDDEN, batch_size=tf.shape(questions)[0],
            seed=tf.constant([0, 0], tf.int64),
        )  # fmt: skip

    together = answer(tf.constant(QUESTION))
    for row, question in enumerate(QUESTION):
        alone = answer(tf.constant(question[None, question > 0]))
        length = int(alone.lengths[0, 0])
        assert length == int(together.lengths[row, 0])
        np.testing.assert_array_equal(alone.ids[0, 0, :length], together.ids[row, 0, :length])
        np.testing.assert_allclose(alone.scores[0], together.scores[row], rtol=1e-4)


@pytest.mark.parametrize("beam_size", [1, 2])
def test_questions_of_known_length_are_decoded_in_a_graph(beam_size):
    model, decoding = model_of(), Decoding(max_length=3, beam_size=beam_size)

    def answer():
        return decode(
            model.step, model.start(tf.constant(QUESTION)), decoding, start=START, end=END,
            forbidden=FORBIDDEN, batch_size=len(QUESTION), seed=tf.constant([0, 0], tf.int64),
        ).ids  # fmt: skip

    np.testing.assert_array_equal(tf.function(answer, autograph=False)(), answer())


@pytest.mark.parametrize(
    ("options", "beams"),
    [
        (OPTIONS[0], 4),
        pytest.param(OPTIONS[1], 1, marks=pytest.mark.slow),
        pytest.param(OPTIONS[0], 1, marks=pytest.mark.slow),
        pytest.param(OPTIONS[1], 4, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_decoding_with_a_cache_is_decoding_without(options, beams):
    """Without one, the whole answer so far runs through the model for each next token."""
    keras.config.set_dtype_policy("float64")
    model, question = model_of(**options), tf.constant(QUESTION)
    # A model that learned nothing would say one word again and again.
    decoding = Decoding(max_length=8, beam_size=beams, n_best=beams, no_repeat_ngram=1)
    ways = [
        (model.step, model.start(question)),
        (without_cache(model), (question, question[:, :0])),
    ]
    cached, plain = (
        decode(
            step, state, decoding, start=START, end=END, forbidden=FORBIDDEN,
            batch_size=len(QUESTION), seed=tf.constant([0, 0], tf.int64),
        )
        for step, state in ways
    )  # fmt: skip
    assert len(np.unique(plain.ids)) > 4
    np.testing.assert_array_equal(cached.ids, plain.ids)
    np.testing.assert_array_equal(cached.lengths, plain.lengths)
    np.testing.assert_allclose(cached.scores, plain.scores, rtol=1e-6)


def without_cache(model):
    def step(tokens, state):
        question, before = state
        answer_inputs = tf.concat([before, tokens[:, None]], 1)
        return model((question, answer_inputs))[:, -1], (question, answer_inputs)

    return step


def test_a_float64_model_scales_its_vectors_in_float64():
    keras.config.set_dtype_policy("float64")
    model = model_of(size=6, heads=1)
    vectors = model._embed(tf.constant(QUESTION), training=False)
    np.testing.assert_allclose(vectors, model.embedding(QUESTION) * np.sqrt(6), rtol=1e-15)


def test_dropout_is_drawn_in_training_alone():
    without, model = model_of(), model_of(dropout_rate=0.5)
    drawn = [model((QUESTION, ANSWER), training=True).numpy() for _ in range(2)]
    assert np.abs(drawn[0] - drawn[1]).max() > 1e-3
    np.testing.assert_array_equal(
        model((QUESTION, ANSWER)), without((QUESTION, ANSWER), training=True)
    )


def test_narrow_numbers_give_float32_logits_near_those_of_float32():
    expected = model_of()((QUESTION, ANSWER)).numpy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = model_of()
    logits = model((QUESTION, ANSWER))
    assert logits.dtype == tf.float32
    np.testing.assert_allclose(logits, expected, rtol=0, atol=0.1 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 7}, r"size must be an even multiple of heads. Received size=7 and hea"),
        ({"size": 6}, r"size=6 and heads=2"),
        ({"heads": 0}, "heads must be a whole number of at least 1"),
        ({"feed_forward_size": 0}, "feed_forward_size must be a whole number of at least 1"),
        ({"decoder_layers": 0}, "decoder_layers must be a whole number of at least 1"),
        ({"dropout_rate": 1.0}, r"dropout_rate must be in \[0, 1\)"),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        model_of(**wrong)
