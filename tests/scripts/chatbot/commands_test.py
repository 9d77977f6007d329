"""The commands of a conversation: what is one, what is not, and what each does to the decoding."""

import pytest

from towers.scripts.chatbot.answerer import make_decoding
from towers.scripts.chatbot.commands import (
    USAGES,
    WORDS,
    Command,
    change_decoding,
    describe_decoding,
    help_lines,
    read_command,
)
from towers.scripts.training.options import DecodingOptions


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("/new", Command("new")),
        ("/beam 5", Command("beam", 5)),
        ("/Top-P  0.9", Command("top-p", 0.9)),
        ("help", Command("help")),
        ("Bye!", Command("bye")),
        ("/bye", Command("bye")),
        ("/exit", Command("quit")),
        ("exit", Command("quit")),
        ("再见！", Command("bye")),  # noqa: RUF001
        ("退出", Command("quit")),
        ("帮助", Command("help")),
    ],
)
def test_commands_are_read_with_a_slash_and_some_words_alone(line, command):
    assert read_command(line) == command


@pytest.mark.parametrize(
    "line", ["help me", "good bye", "5 / 2", "new", "beam 5", "你好", "再见了吗"]
)
def test_everything_else_is_a_message(line):
    assert read_command(line) is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/beem 5", "There is no command /beem. Did you mean '/beam'"),
        ("/", "There is no command /. There are: /beam, /greedy"),
        ("/beam", "/beam takes a whole number, such as /beam 5"),
        ("/new now", "/new takes no argument. Received /new now"),
    ],
)
def test_a_wrong_command_is_refused_with_the_right_one(line, message):
    with pytest.raises(ValueError, match="^" + message.replace("/.", "/[.]")):
        read_command(line)


def changed(options, *lines):
    for line in lines:
        options = change_decoding(options, read_command(line))
    make_decoding(options, 9)  # Raises for options that are impossible together.
    return options


def test_a_search_ends_the_sampling_and_the_other_way_round():
    options = DecodingOptions(beam=3, nbest=3, seed=7, repetition_penalty=1.5)
    sampled = changed(options, "/top-p 0.9", "/temperature 0.8")
    assert (sampled.beam, sampled.top_p, sampled.temperature, sampled.nbest) == (1, 0.9, 0.8, 3)
    searched = changed(sampled, "/beam 2")
    assert (searched.beam, searched.top_p, searched.temperature) == (2, None, None)
    assert searched.nbest == 2
    greedy = changed(searched, "/greedy")
    assert (greedy.beam, greedy.nbest) == (1, 1)
    assert (greedy.seed, greedy.repetition_penalty) == (7, 1.5)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/beam five", "/beam takes a whole number, such as /beam 5. Received 'five'"),
        ("/beam 1.5", "a whole number"),
        ("/beam 101", "1 to 100 beams. Received 101"),
        ("/beam 0", "1 to 100 beams. Received 0"),
        ("/top-p 2", "top_p must be above 0 and at most 1. Received 2.0"),
        ("/temperature 0", r"temperature must be from 1e-30 to 1e\+30. Received 0.0"),
        ("/temperature nan", r"temperature must be from 1e-30 to 1e\+30. Received nan"),
        ("/temperature 1e308", r"temperature must be from 1e-30 to 1e\+30. Received 1e\+308"),
    ],
)
def test_wrong_values_are_refused(line, message):
    with pytest.raises(ValueError, match=message):
        changed(DecodingOptions(), line)


def test_the_decoding_is_described():
    assert "2 beams" in describe_decoding(changed(DecodingOptions(), "/beam 2"))
    sampled = changed(DecodingOptions(top_k=4), "/top-p 0.5")
    assert describe_decoding(sampled) == "Answers are sampled with top-k 4, top-p 0.5."
    assert "likeliest word" in describe_decoding(DecodingOptions())


def test_help_names_every_command_and_every_word():
    text = "\n".join(help_lines())
    assert all(f"  /{name}" in text for name in USAGES)
    assert all(word in text for word in WORDS)
    assert all(read_command(line.split("  ")[1]) for line in help_lines()[:-1])
