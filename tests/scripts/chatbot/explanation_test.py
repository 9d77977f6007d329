"""Why an answer was said: the likely ones in order, and the attention, whatever the model."""

import numpy as np
import pytest

from tests.scripts.chatbot.chatbots import open_chatbot
from towers.ground.special_ids import START
from towers.models.attention import KINDS
from towers.scripts.chatbot.answerer import Answer
from towers.scripts.chatbot.explanation import (
    Look,
    explain,
    find_looks,
    likely_lines,
    look_lines,
)
from towers.scripts.chatbot.opening import open_answerer
from towers.scripts.training.options import DecodingOptions

TURNS = ["is it good ?", "no .", "is sundown bad now ?"]


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    return open_chatbot(tmp_path_factory.mktemp("chatbot"))


def said_by(opened, options):
    return open_answerer(opened, options).answer([TURNS], seed=3)[0][0]


@pytest.mark.parametrize(
    ("attention", "input_feeding"),
    [
        pytest.param(*way, marks=[pytest.mark.slow] * (number > 0))
        for number, way in enumerate(zip(KINDS, (True, False, True), strict=True))
    ],
)
def test_each_word_of_an_answer_has_its_most_attended_words(tmp_path, attention, input_feeding):
    opened = open_chatbot(tmp_path, attention=attention, input_feeding=input_feeding)
    said = Answer("good sunrain .", ["good", "sunrain", "."], 0.0)  # The second is spelled.
    looks = find_looks(opened, TURNS, said)
    assert [look.word for look in looks] == said.tokens

    encode = opened.text.encode
    asked = np.array([opened.text.encode_question(TURNS).ids], np.int32)
    inputs = np.array([[START, *encode("good sunrain")]], np.int32)
    weights = opened.model.attention_weights(asked, inputs)[0].numpy()
    spelled = slice(1, 1 + len(encode("sunrain")))
    question = ["is", "it", "good", "?", "/", "no", ".", "/", "is", "sundown", "bad", "now", "?"]
    begin = question.index("sundown")
    after = begin + len(encode("sundown"))
    for look, rows in zip(looks, (slice(0, 1), spelled, slice(-1, None)), strict=True):
        row = weights[rows].mean(0)
        shares = [*row[:begin], row[begin:after].sum(), *row[after:]]
        best = np.argsort(shares)[::-1][:3]
        assert [word for word, _ in look.words] == [question[place] for place in best]
        found = [share for _, share in look.words]
        np.testing.assert_allclose(found, np.sort(shares)[:-4:-1], rtol=1e-5)


def test_a_transformer_that_copies_words_is_explained_alike(tmp_path):
    sizes = {"hidden_size": 8, "heads": 2, "feed_forward_size": 8}
    opened = open_chatbot(tmp_path, copies=True, network="transformer", **sizes)
    said = Answer("sundown is good .", ["sundown", "is", "good", "."], 0.0)
    looks = find_looks(opened, TURNS, said)
    assert [look.word for look in looks] == said.tokens
    question = opened.text.encode_question(TURNS)
    copy = opened.text.vocabulary.copies[0]
    inputs = np.array([[START, copy, *opened.text.encode("is good")]], np.int32)
    weights = opened.model.attention_weights(np.array([question.ids], np.int32), inputs)[0].numpy()
    for look, row in zip(looks, weights, strict=True):
        found = [share for _, share in look.words]
        np.testing.assert_allclose(found, np.sort(row)[:-4:-1], rtol=1e-5)
    assert {word for look in looks for word, _ in look.words} <= set(" / ".join(TURNS).split())


@pytest.mark.slow
def test_an_explanation_marks_what_was_said_among_the_likeliest(opened):
    options = DecodingOptions(beam=3)
    said = said_by(opened, options)
    lines = explain(opened, lambda one: open_answerer(opened, one), options, TURNS, said)
    marked = [line for line in lines if line.endswith("<- said")]
    assert len(marked) == 1 and said.text in marked[0]
    scores = [float(line.split()[0]) for line in lines[1 : lines.index(marked[0]) + 1]]
    assert scores == sorted(scores, reverse=True)
    table = lines[lines.index("What each word of the answer attended to:") + 1 :]
    assert [row.split()[0] for row in table] == said.tokens
    assert all(row.count("%") == 3 for row in table)


def test_what_no_search_finds_is_marked_too():
    found = [Answer("yes", ["yes"], -0.5), Answer("", [], -1.25), Answer("", ["?"], -np.inf)]
    lines = likely_lines(found, Answer("rain", ["rain"], -9.0), "score")
    assert lines[0] == "The likeliest answers, by score:"
    assert [line.split() for line in lines[1:3]] == [["-0.500", "yes"], ["-1.250", "(nothing)"]]
    assert lines[3:] == [f"{'':10}  rain   <- said, less likely than these"]


def test_columns_are_straight_with_chinese_words_and_short_questions():
    rows = look_lines([Look("下雨", [("吗", 0.75)]), Look("ok", [("now", 0.5)])])
    assert rows == ["  下雨   吗 75%", "  ok     now 50%"]
    assert look_lines([]) == ["  (it has no words)"]
