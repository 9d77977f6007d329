"""The words behind ids: spelled ones put together, unknown ones counted."""

import pytest

from tests.scripts.chatbot.chatbots import WORDS
from towers.data.text import TextCodec, TextSettings, build_vocabulary
from towers.ground.special_ids import SEPARATOR, UNKNOWN
from towers.scripts.chatbot.explanation import unknown_fraction, words_of


def codec(**options):
    settings = TextSettings("en", tokenizer="words")
    return TextCodec(settings, build_vocabulary(dict.fromkeys(WORDS, 9), 100, **options))


@pytest.fixture(scope="module")
def text():
    """A codec that spells unknown words."""
    return codec()


@pytest.fixture(scope="module")
def copying():
    """A codec that numbers unknown words."""
    return codec(copies=True)


def test_spelled_words_are_put_together_and_each_id_has_one_word(text):
    ids = text.encode_question(["is sunday good?", "ra☃n"]).ids
    words = words_of(text.vocabulary, ids)
    assert [word.text for word in words][:5] == ["is", "sunday", "good", "?", "/"]
    assert [word.is_known for word in words][:5] == [True, False, True, True, True]
    assert [place for word in words for place in word.indices] == list(range(len(ids)))
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
    assert unknown_fraction(text, message) == pytest.approx(share)


def test_of_a_long_question_the_last_ids_are_read_and_an_empty_one_is_unknown(text):
    turns = ["is it", "good now"]
    assert text.read_question(turns, 3).ids == text.encode_question(turns).ids[-3:]
    assert text.read_question([" "], 3).ids == [UNKNOWN]


def test_copied_words_are_shown_and_unknown(copying):
    vocabulary = copying.vocabulary
    question = copying.encode_question(["is sunday good?", "sunday or monday?"])
    words = words_of(vocabulary, question.ids, question.copied)
    expected = ["is", "sunday", "good", "?", "/", "sunday", "or", "monday", "?"]
    assert [word.text for word in words] == expected
    assert [word.text for word in words if not word.is_known] == [
        "sunday",
        "sunday",
        "or",
        "monday",
    ]
    ids = vocabulary.ids_of(["monday", "is", "good", "else"], question.copied)
    assert ids == [vocabulary.copies[2], *vocabulary.ids("is"), *vocabulary.ids("good"), UNKNOWN]
    assert vocabulary.tokens(ids, question.copied) == ["monday", "is", "good"]


def test_words_that_can_be_copied_are_unknown_too(copying):
    assert unknown_fraction(copying, "is monday sunday?") == pytest.approx(2 / 3)
