"""The first messages of a new user: what counts as sensible, and that many are unseen."""

import re

import pytest

from tests.scripts.chatbot.first_messages import (
    Message,
    Talk,
    hold_talks,
    is_sensible,
    made_up_messages,
    read_fresh_messages,
    read_messages,
    table,
    transcript,
    words,
)
from tests.scripts.chatbot.made_up import repetitions
from towers.data.samples.conversations import conversations
from towers.data.samples.conversations.patterns import LANGUAGES

EACH_LANGUAGE = pytest.mark.parametrize("language", LANGUAGES)


@EACH_LANGUAGE
def test_each_message_has_a_rule_and_some_of_each_category_are_unseen(language):
    messages, fresh = read_messages(language), read_fresh_messages(language)
    assert (len(messages), len(fresh)) == (300, 200)
    assert len({message.say for message in (*messages, *fresh)}) == 500
    for message in (*messages, *fresh):
        assert 1 <= len(message.say) <= 4
        assert message.rule and message.sensible
        for expression in (*message.sensible, *message.never):
            re.compile(expression)
    for name in {message.category for message in messages}:
        assert {True, False} == {one.seen for one in messages if one.category == name}, name
    assert sum(not message.seen for message in messages) > 100
    assert sum(message.seen for message in fresh) <= len(fresh) / 4


@EACH_LANGUAGE
def test_what_the_training_dialogues_answer_is_sensible(language):
    """The rules and the dialogues agree."""
    answers = {}
    for turns in conversations(language, "train"):
        answers.setdefault(tuple(map(words, turns[::2])), turns[-1])
    judged = [
        (message.say, answers[key], is_sensible(message, answers[key]))
        for message in read_messages(language)
        if (key := tuple(map(words, message.say))) in answers
    ]
    assert [one for one in judged if not one[-1]] == []
    assert len(judged) >= 60


@pytest.mark.parametrize("language", [pytest.param("en", marks=pytest.mark.slow), "zh"])
def test_no_made_up_word_is_in_the_training_dialogues(language):
    trained = "\n".join(turn for turns in conversations(language, "train") for turn in turns)
    made_up = [word for _, word, _ in repetitions(language)]
    assert len(set(made_up)) == len(made_up) == 200
    assert not [word for word in made_up if word.lower() in trained.lower()]


@EACH_LANGUAGE
def test_each_talk_about_a_made_up_word_tells_it_before_it_asks(language):
    for _, word, (told, asked) in repetitions(language):
        assert word in told
        assert word not in asked


def test_an_answer_is_sensible_if_one_expression_occurs_and_none_of_the_forbidden():
    greeting = Message("greetings", "It greets.", ("hello",), True, (r"\bhi\b",), ("wendy",))
    assert is_sensible(greeting, "Hi there.")
    assert not is_sensible(greeting, "Hi Wendy.")
    assert not is_sensible(greeting, "This is nonsense.")


def test_answers_are_earlier_turns_of_the_next_question():
    asked = []

    def answer(dialogues):
        asked.append(dialogues)
        return [f"answer to {turns[-1]}" for turns in dialogues]

    messages = [
        Message("memories", "", ("a", "b", "c"), True, ("to c",)),
        Message("greetings", "", ("hello",), False, ("nothing",)),
    ]
    talks = hold_talks(messages, answer, context=2)
    assert asked == [[["a"], ["hello"]], [["a", "answer to a", "b"]], [["b", "answer to b", "c"]]]
    assert talks[0].answers == ("answer to a", "answer to b", "answer to c")
    assert [talk.is_sensible for talk in talks] == [True, False]


def test_the_table_counts_each_category_and_the_transcript_shows_each_talk():
    message = Message("jokes", "It is funny.", ("joke | now?",), False, ("ha",))
    talks = [Talk(message, ("ha *ha*",), True), Talk(message, ("no",), False)]
    assert "| jokes | 2 | 50% | 50% |" in table(talks)
    assert "| all first messages | 2 | 50% | 50% |" in table(talks)
    text = transcript(talks)
    assert r"| joke \| now? → *ha \*ha\** | no | yes |" in text
    assert "It is funny." in text


@EACH_LANGUAGE
def test_talks_about_made_up_words_are_judged_by_the_word(language):
    for message in made_up_messages(language):
        assert is_sensible(message, f"It is {message.say[0].lower()}.")
        assert not is_sensible(message, "?")
