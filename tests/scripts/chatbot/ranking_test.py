"""The scores of given answers against sums of log probabilities in NumPy, and who wins by them."""

import numpy as np
import pytest

from towers.data.text import TextCodec, TextSettings, build_vocabulary
from towers.ground.special_ids import END, PAD, UNKNOWN
from towers.models.answering import decoder_inputs
from towers.models.seq2seq import Seq2Seq
from towers.scripts.chatbot.ranking import (
    BATCH_TOKENS,
    AnswerRanker,
    Rows,
    batches_by_length,
    draw_candidates,
    fraction_of_hits,
)

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "plus"]
QUESTIONS = [["one plus two"], ["three"], ["four plus", "five six"], ["☃"]] * 3
ANSWERS = ["three", "one two three four", "nine", "ten ☃ one", "", "six six", *WORDS[:6]]
LONGEST = 4


@pytest.fixture(scope="module", params=[False, True], ids=["", "input_feeding"])
def model(request):
    return Seq2Seq(
        len(text_of_words().vocabulary),
        embedding_size=6,
        hidden_size=8,
        tied_output=True,
        input_feeding=request.param,
        dropout_rate=0.5,
    )


@pytest.fixture(scope="module")
def ranker(model):
    return AnswerRanker(model, text_of_words(), LONGEST)


def text_of_words():
    counts = dict.fromkeys(WORDS, 9)
    settings = TextSettings("en", tokenizer="spaces")
    return TextCodec(settings, build_vocabulary(counts, 200))


def expected_score(model, turns, answer):
    """Returns the mean log probability, one answer at a time and without padding."""
    text = text_of_words()
    question = np.array([text.encode_question(turns, LONGEST).ids or [UNKNOWN]], np.int32)
    ids = np.array([[*text.encode(answer), END]], np.int32)
    logits = model((question, decoder_inputs(ids))).numpy()[0].astype(np.float64)
    log_softmax = logits - np.log(np.sum(np.exp(logits), 1, keepdims=True))
    scores = log_softmax[np.arange(ids.shape[1]), ids[0]]
    return scores[ids[0] != UNKNOWN].mean()


def test_scores_are_mean_log_probabilities_whatever_shares_their_batch(model, ranker):
    expected = [expected_score(model, *pair) for pair in zip(QUESTIONS, ANSWERS, strict=True)]
    np.testing.assert_allclose(ranker.scores(QUESTIONS, ANSWERS), expected, rtol=2e-5)


def test_an_unknown_token_of_an_answer_does_not_count(ranker):
    (with_unknown,) = ranker.scores([["one"]], ["☃"])
    assert np.isfinite(with_unknown)


def test_a_hit_is_a_true_answer_above_all_others():
    scores = np.log([[0.5, 0.1, 0.4], [0.4, 0.5, 0.1], [0.2, 0.2, 0.1], [0.9, 0.2, 0.3]])
    assert fraction_of_hits(scores) == 0.5


def test_the_seed_decides_the_hits(ranker):
    questions = [[f"{word} plus"] for word in WORDS]
    hits = [ranker.hits(questions, WORDS, seed=seed) for seed in (3, 3)]
    assert hits[0] == hits[1]
    assert 0 <= hits[0] <= 1


def test_candidates_are_ten_different_texts_the_true_one_first():
    answers = WORDS * 3
    candidates = draw_candidates(answers, 1)
    assert [row[0] for row in candidates] == answers
    assert all(len(set(row)) == 10 for row in candidates)
    assert candidates == draw_candidates(answers, 1) != draw_candidates(answers, 2)
    assert {text for row in candidates for text in row[1:]} == set(WORDS)


def test_there_are_no_hits_of_fewer_than_ten_answers(ranker):
    assert draw_candidates(WORDS[:10], 0) is not None
    assert ranker.hits(QUESTIONS[:9] * 2, WORDS[:9] * 2) is None


def test_batches_have_similar_lengths_and_a_budget():
    lengths = np.random.default_rng(0).integers(1, 30, 2000)
    rows = Rows([[PAD]] * len(lengths), [[PAD] * length for length in lengths])
    batches = list(batches_by_length(rows))
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) * lengths[batch].max() <= BATCH_TOKENS
    used = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert lengths.sum() / used > 0.85
    assert list(batches_by_length(Rows([[PAD]], [[PAD] * 5000]))) == [[0]]
