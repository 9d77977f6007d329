"""Reranked answers against every possible answer, scored in NumPy."""

import functools
import itertools

import keras
import numpy as np
import pytest

from towers.data.text import TextCodec, TextSettings, Vocabulary
from towers.data.text.vocabulary import Unit
from towers.ground.special_ids import END, START, UNKNOWN
from towers.models.decoding import Decoding
from towers.models.seq2seq import Seq2Seq
from towers.models.transformer import Transformer
from towers.scripts.chatbot.answerer import Answer, Answerer
from towers.scripts.chatbot.ranking import AnswerRanker
from towers.scripts.chatbot.reranking import Reranker, SecondModel, distinct_texts

WORDS = ["yes", "no", "tea"]
TEXT = TextCodec(TextSettings("en", "spaces"), Vocabulary(map(Unit, WORDS)))
LONGEST = 3  # Tokens of an answer, its end included.
QUESTIONS = [["yes tea", "no no"], ["tea"]]
LONGEST_QUESTION = 9


def model_of(seed, make, **sizes):
    """Returns a model with large random weights, so that its answers differ in probability."""
    keras.utils.set_random_seed(seed)
    model = make(len(TEXT.vocabulary), **sizes)
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(random.normal(scale=0.8, size=variable.shape))
    return model


@pytest.fixture(scope="module")
def models():
    """A chatbot and a second model."""
    return (
        model_of(1, Seq2Seq, embedding_size=4, hidden_size=6),
        model_of(2, Transformer, size=8, heads=2, feed_forward_size=8, encoder_layers=1),
    )


@functools.cache
def log_probability(model, question, ids):
    """Returns the log probability of ids after a question, by NumPy."""
    inputs = np.array([[START, *ids[:-1]]], np.int32)
    logits = model((np.array([question], np.int32), inputs)).numpy()[0].astype(np.float64)
    log_softmax = logits - np.log(np.sum(np.exp(logits), 1, keepdims=True))
    return log_softmax[np.arange(len(ids)), ids].sum()


def ids_of(text):
    return (*TEXT.encode(text), END)


def exhaustive(models, turns, direction, weight, reward):
    """Returns (score, text) of every answer of at most two words, the best first."""
    chatbot, second = models
    question = tuple(TEXT.encode_question(turns).ids)
    scored = []
    for length in range(LONGEST):
        for words in itertools.product(WORDS, repeat=length):
            text = " ".join(words)
            ids = ids_of(text)
            if direction == "backward":
                gain = log_probability(second, ids_of(text)[:-1] or (UNKNOWN,), ids_of(turns[-1]))
            else:
                gain = -log_probability(second, (UNKNOWN,), ids)
            score = log_probability(chatbot, question, ids) + weight * gain + reward * len(ids)
            scored.append((score, text))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize(
    ("direction", "weight", "reward"),
    [
        pytest.param("backward", 3.0, 0.2, marks=pytest.mark.slow),
        ("answers", 0.4, -0.3),
        pytest.param("backward", 0.5, 0.0, marks=pytest.mark.slow),
        pytest.param("answers", 2.0, 1.0, marks=pytest.mark.slow),
    ],
)
def test_the_best_are_those_of_an_exhaustive_search(models, direction, weight, reward):
    """In a beam that holds every answer."""
    chatbot, second = models
    wide = Decoding(max_length=LONGEST, beam_size=40, n_best=40)
    reranker = Reranker(
        Answerer(chatbot, TEXT, wide, LONGEST_QUESTION),
        AnswerRanker(chatbot, TEXT, LONGEST_QUESTION),
        SecondModel(AnswerRanker(second, TEXT, LONGEST_QUESTION), direction),
        weight=weight,
        length_reward=reward,
        n_best=40,
    )
    for turns, answers in zip(QUESTIONS, reranker.answer(QUESTIONS), strict=True):
        expected = exhaustive(models, turns, direction, weight, reward)
        # The search also holds answers of the greatest length, which have not ended.
        ended = [answer for answer in answers if len(answer.tokens) < LONGEST]
        assert [answer.text for answer in ended] == [text for _, text in expected]
        scores = [answer.score for answer in ended]
        np.testing.assert_allclose(scores, [score for score, _ in expected], rtol=1e-4)


@pytest.mark.slow
def test_candidates_are_scored_once_for_all_weights(models):
    chatbot, second = models

    def reranker(weight, length_reward):
        return Reranker(
            Answerer(
                chatbot, TEXT, Decoding(max_length=2, beam_size=4, n_best=4), LONGEST_QUESTION
            ),
            AnswerRanker(chatbot, TEXT, LONGEST_QUESTION),
            SecondModel(AnswerRanker(second, TEXT, LONGEST_QUESTION), "answers"),
            weight=weight,
            length_reward=length_reward,
            n_best=2,
        )

    first, direct = reranker(0.5, 0.0), reranker(2.0, 1.0)
    candidates = first.candidates(QUESTIONS)
    expected = direct.answer(QUESTIONS)
    assert first.weighted(2.0, 1.0).choose(candidates) == expected
    assert first.choose(candidates) == first.answer(QUESTIONS) != expected


def test_weights_change_the_order(models):
    best = {
        exhaustive(models, QUESTIONS[0], direction, weight, 0.0)[0][1]
        for direction in ("backward", "answers")
        for weight in (0.0, 1.0, 3.0)
    }
    assert len(best) > 1


def test_each_text_that_was_found_is_a_candidate_once():
    answers = [
        Answer("yes", ["yes"], -1.0),
        Answer("yes", ["y", "es"], -2.0),
        Answer("no", ["no"], -3.0),
        Answer("", [], -float("inf")),
    ]
    assert distinct_texts(answers) == [answers[0], answers[2]]
