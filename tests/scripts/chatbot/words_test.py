"""The words behind ids: spelled ones put together, unknown ones counted."""

import pytest

from tests.scripts.chatbot.chatbots import WORDS
from towers.data.text import SEPARATOR, UNKNOWN, TextCodec, TextSettings, build_vocabulary
from towers.scripts.chatbot.words import question_ids, unknown_share, words_of


@pytest.fixture(scope="module")
def text():
    settings = TextSettings("en", tokenizer="words")
    return TextCodec(settings, build_vocabulary(dict.fromkeys(WORDS, 9), 100))


def test_spelled_words_are_put_together_and_each_id_has_one_word(text):
    ids = text.encode_question(["is sunday good?", "ra☃n"])
    words = words_of(text.vocabulary, ids)
    assert [word.text for word in words][:5] == ["is", "sunday", "good", "?", "/"]
    assert [word.is_known for word in words][:5] == [True, False, True, True, True]
    assert [place for word in words for place in word.places] == list(range(len(ids)))
    assert {SEPARATOR, UNKNOWN} < set(ids)
    assert not any(word.is_known for word in words if "<unknown>" in word.text)


@pytest.mark.parametrize(
    ("message", "share"),
    [
        ("is it good?", 0),
        ("is it sunday?", 1 / 3),
        ("☃☃", 1),
        ("? . ?", 0),
        ("", 0),
    ],
)
def test_marks_are_no_words_of_a_message(text, message, share):
    assert unknown_share(text, message) == pytest.approx(share)


def test_of_a_long_question_the_last_ids_are_read_and_an_empty_one_is_unknown(text):
    assert (
        question_ids(text, ["is it", "good now"], 3)
        == text.encode_question(["is it", "good now"])[-3:]
    )
    assert question_ids(text, [" "], 3) == [UNKNOWN]
