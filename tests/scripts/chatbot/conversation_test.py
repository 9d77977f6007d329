"""Conversations: what is remembered, what commands print, and how they end."""

import functools
import logging
import re

import pytest

from tests.scripts.chatbot.chatbots import open_chatbot
from towers.scripts.chatbot.conversation import (
    FORGOT,
    HINT,
    NOTHING_SAID,
    Conversation,
    history_file,
    line_editing,
    typed_lines,
)
from towers.scripts.chatbot.opening import open_answerer
from towers.scripts.chatbot.ranking import AnswerRanker
from towers.scripts.chatbot.reranking import Reranker, SecondModel
from towers.scripts.recipes.chatbot import RECIPE
from towers.scripts.training.options import DecodingOptions


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    return open_chatbot(tmp_path_factory.mktemp("chatbot"))


@pytest.fixture(scope="module")
def make_answerer(opened):
    """Makes each answerer once, since it has a graph to build."""
    return functools.cache(functools.partial(open_answerer, opened))


@pytest.fixture
def hold(opened, make_answerer, capsys):
    """Returns a function that holds a conversation and returns the lines that it printed."""

    def held(*lines, **options):
        Conversation(opened, DecodingOptions(**options), make_answerer).hold(lines)
        return capsys.readouterr().out.splitlines()

    return held


def test_new_forgets_and_says_so(hold):
    alone = hold("is it bad now ?")
    later = hold("rain rain rain sun", "is it bad now ?")
    forgot = hold("rain rain rain sun", "/new", "is it bad now ?")
    assert forgot == [later[0], FORGOT, alone[0]]
    assert later[1] != alone[0], "the earlier turns count"


def test_a_chatbot_that_learned_single_pairs_answers_each_message_as_if_it_was_the_first(
    opened, make_answerer, hold, capsys
):
    alone = hold("is it bad now ?")
    of_pairs = opened._replace(about={**opened.about, "context": 0})
    talk = Conversation(of_pairs, DecodingOptions(), make_answerer)
    talk.hold(["rain rain rain sun", "is it bad now ?"])
    assert capsys.readouterr().out.splitlines()[1:] == alone


def test_changing_the_decoding_again_and_again_gives_no_warning(opened):
    warned = []
    logger = logging.getLogger("tensorflow")
    logger.addFilter(warned.append)  # Hides all, since it returns nothing.
    try:
        for beam in range(2, 7):
            Conversation(
                opened, DecodingOptions(beam=beam), functools.partial(open_answerer, opened)
            ).hold(["rain ?"])
    finally:
        logger.removeFilter(warned.append)
    assert [record.getMessage() for record in warned] == []


@pytest.mark.parametrize("end", ["/quit", "quit", "exit", "退出"])
def test_quit_ends_without_an_answer(hold, end):
    assert hold(end, "is it good ?") == []


@pytest.mark.parametrize("end", ["bye", "Bye.", "再见"])
def test_bye_is_answered_and_ends(hold, end):
    line, *_ = lines = hold(end, "is it good ?", "is it good ?")
    assert line.startswith("bot> ")
    assert not [line for line in lines[1:] if line.startswith("bot> ")]


def test_help_says_what_can_be_typed_and_a_wrong_command_says_what_is_near(hold):
    assert any(line.startswith("  /beam 5 ") for line in hold("help"))
    assert hold("/bean 5")[0].startswith("There is no command /bean. Did you mean '/beam'?")


@pytest.mark.slow
def test_a_beam_is_that_of_the_option_and_greedy_goes_back(hold):
    question = "rain or sun ?"
    searched, sampled = hold(question, beam=4), hold(question, top_p=0.9)
    lines = hold("/beam 4", question)
    assert lines == ["Answers are found by a search with 4 beams.", *searched]
    lines = hold("/top-p 0.9", question)
    assert lines == ["Answers are sampled with top-p 0.9.", *sampled]
    assert hold("/beam 4", "/greedy", question)[2:] == hold(question)


def test_a_wrong_value_leaves_the_decoding_as_it_was(hold):
    refused, *answers = hold("/top-p 3", "rain or sun ?")
    assert refused == "top_p must be above 0 and at most 1. Received 3.0."
    assert answers == hold("rain or sun ?")


def test_an_answer_alone_has_its_score_if_several_were_asked_for(opened, make_answerer, capsys):
    """Reranking gives each text once, and here the samples are all the same."""
    ranker = AnswerRanker(opened.model, opened.text, 9)

    def reranker(options):
        second = SecondModel(ranker, "answers")
        how = {"weight": 0.5, "length_reward": 0.0, "n_best": options.nbest}
        return Reranker(make_answerer(options), ranker, second, **how)

    options = DecodingOptions(top_k=1, nbest=3)
    Conversation(opened, options, reranker).hold(["is it good ?"])
    line, *others = capsys.readouterr().out.splitlines()
    assert re.match(r"bot>  +-?\d+\.\d{3}  \S", line) and "bot>" not in "".join(others)


def test_why_explains_the_last_answer(hold):
    assert hold("/why") == hold("/new", "/why")[1:] == [NOTHING_SAID]
    answer, first, *lines = hold("is it good ?", "/why")
    assert first.startswith("The likeliest answers")
    said = answer.removeprefix("bot> ").split()
    assert [line.split()[0] for line in lines[-len(said) :]] == said


def test_the_hint_comes_once_in_a_conversation(hold):
    lines = hold("is it good ?", "zorblax frob", "qwerty uiop", "/new", "zorblax")
    assert [place for place, line in enumerate(lines) if line == HINT] == [2, 6]


def test_the_introduction_names_the_run_and_its_data(opened, make_answerer):
    introduction = Conversation(opened, DecodingOptions(), make_answerer).introduction
    assert introduction.splitlines() == [
        "chatbot, step 0 of nowhere",
        "It was trained on 1,234 pairs of rain.tsv.",
    ]


def test_typed_messages_are_kept_outside_of_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = history_file()
    with line_editing(file):  # Pytest's input is no terminal.
        pass
    assert not capsys.readouterr().out and not file.exists()
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("locale.nl_langinfo", lambda item: "ANSI_X3.4-1968")  # Of the locale C.
    with line_editing(file):  # Bytes of é would be keys.
        pass
    assert not capsys.readouterr().out and not file.exists()
    monkeypatch.setattr("locale.nl_langinfo", lambda item: "UTF-8")
    for _ in range(2):
        with line_editing(file):
            pass
        assert f"kept in {file}" in capsys.readouterr().out
    assert file == tmp_path / "towers" / "chat_history" and file.exists()
    with line_editing(file / "within" / "a_file"):  # As in a folder that is read-only.
        pass
    assert capsys.readouterr().out == "The arrow keys recall earlier messages.\n"


def test_ctrl_c_at_the_prompt_ends_its_line(monkeypatch, capsys):
    def interrupted(prompt):
        print(f"{prompt}hel", end="")
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(typed_lines())
    assert capsys.readouterr().out == "you> hel\n"
    monkeypatch.setattr("towers.ground.interrupts._NOTED", [2])  # While it answered.
    monkeypatch.setattr("builtins.input", lambda prompt: "hello")
    with pytest.raises(KeyboardInterrupt):
        next(typed_lines())


def test_a_message_without_a_visible_character_is_blank(monkeypatch):
    lines = iter([" ", "\u200b", "\ufeff \u200b", "hello", "\u200d"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    assert next(typed_lines()) == "hello"


def test_what_is_not_read_of_a_long_message_is_told(hold):
    most = RECIPE.fields.max_question_length
    assert "not read" not in " ".join(hold("rain " * most))
    assert "note: the first 3 tokens of the message were not read." in hold("rain " * (most + 3))


def test_impossible_options_are_refused(opened, make_answerer):
    with pytest.raises(ValueError, match="Received --beam 2"):
        Conversation(opened, DecodingOptions(beam=2, temperature=1.0), make_answerer)
