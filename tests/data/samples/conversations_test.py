"""The embedded dialogues: what is held out was never seen, and can still be known."""

import itertools
import re
import string

import pytest

from towers.data.dialogues import pair_turns
from towers.data.samples.conversations import (
    chinese,
    conversations,
    dialogues,
    english,
    labelled_dialogues,
)
from towers.data.samples.conversations.chinese_words import NUMBERS as CHINESE_NUMBERS
from towers.data.samples.conversations.combinations import fill
from towers.data.samples.conversations.english_words import NUMBERS as ENGLISH_NUMBERS
from towers.data.text import TextSettings, make_tokenizer

LANGUAGES = {"en": english, "zh": chinese}
EACH_LANGUAGE = pytest.mark.parametrize("language", LANGUAGES)
CONTEXT = 2


def pairs(language, part):
    """Returns (turns of the question with its context, answer) of every pair."""
    found = []
    for turns in dialogues(language, part):
        for first, answer in pair_turns(len(turns), pairing="alternate", context=CONTEXT):
            found.append((tuple(turns[first:answer]), turns[answer]))
    return found


@EACH_LANGUAGE
def test_the_dialogues_are_always_the_same(language):
    assert dialogues(language, "train") == dialogues(language, "train")
    assert conversations(language, "train") == conversations(language, "train")


@EACH_LANGUAGE
def test_there_is_enough_of_both_parts(language):
    assert len(dialogues(language, "train")) > 10_000
    assert len(dialogues(language, "held_out")) > 200


@EACH_LANGUAGE
def test_no_held_out_dialogue_is_in_the_training_with_any_opening(language):
    openings = [opening for opening in LANGUAGES[language].OPENINGS if opening]

    def bare(turns):
        first = next((turns[0].removeprefix(o) for o in openings if turns[0].startswith(o)), None)
        return (first.strip() if first is not None else turns[0], *turns[1:])

    trained = {bare(turns) for turns in dialogues(language, "train")}
    held_out = [bare(turns) for turns in dialogues(language, "held_out")]
    assert len(set(held_out)) == len(held_out)
    assert not trained & set(held_out)


@EACH_LANGUAGE
def test_no_question_has_two_answers(language):
    answers = {}
    for part in ("train", "held_out"):
        for question, answer in pairs(language, part):
            assert answers.setdefault(question, answer) == answer


@EACH_LANGUAGE
def test_every_held_out_token_occurs_in_the_training(language):
    settings = TextSettings(language)
    tokenizer = make_tokenizer(settings)

    def tokens(part):
        turns = {turn for dialogue in dialogues(language, part) for turn in dialogue}
        return {token for turn in turns for token in tokenizer.tokenize(settings.normalise(turn))}

    assert tokens("held_out") <= tokens("train")


@EACH_LANGUAGE
def test_every_held_out_content_and_phrasing_occurs_in_the_training(language):
    kinds = {name for name, _ in labelled_dialogues(language, "held_out")}
    assert len(kinds) > 20
    assert kinds <= {name for name, _ in labelled_dialogues(language, "train")}
    for kind in LANGUAGES[language].kinds():
        assert not kind.held_out or len(kind.phrasings) >= 3


@EACH_LANGUAGE
def test_what_fills_a_gap_is_cut_as_words_of_its_own(language):
    settings = TextSettings(language)
    tokenizer = make_tokenizer(settings)

    def tokens(text):
        return tokenizer.tokenize(settings.normalise(text))

    for kind in LANGUAGES[language].kinds():
        for phrasing, content in itertools.product(kind.phrasings, kind.contents):
            for pattern, turn in zip(phrasing, fill("", phrasing, content, language), strict=True):
                found = " ".join(["", *tokens(turn), ""])
                for gap in re.findall(r"{(\w+)}", pattern):
                    assert f" {' '.join(tokens(content[gap]))} " in found, (turn, content[gap])


@EACH_LANGUAGE
def test_some_questions_need_the_turns_before(language):
    last = {}
    for question, answer in pairs(language, "train"):
        last.setdefault(question[-1], set()).add(answer)
    assert sum(len(answers) > 1 for answers in last.values()) >= 5


def test_english_sums_are_right():
    check_sums("en", r"what is (\w+) plus (\w+)\?", ENGLISH_NUMBERS, lambda a, b: a + b)
    check_sums("en", r"what is (\w+) minus (\w+)\?", ENGLISH_NUMBERS, lambda a, b: a - b)


def test_chinese_sums_are_right():
    check_sums("zh", r"(\w+)加上(\w+)等于几？", CHINESE_NUMBERS, lambda a, b: a + b)
    check_sums("zh", r"(\w+)减去(\w+)等于几？", CHINESE_NUMBERS, lambda a, b: a - b)


def check_sums(language, pattern, numbers, calculate):
    found = 0
    for (*_, question), answer in pairs(language, "train"):
        match = re.search(pattern, question.lower())
        if match and all(word in numbers for word in match.groups()):
            result = calculate(*map(numbers.index, match.groups()))
            words = answer.removeprefix("得数是").strip(string.punctuation + "。")
            assert words == numbers[result], (question, answer)
            found += 1
    assert found > 50


@EACH_LANGUAGE
@pytest.mark.parametrize("part", ["train", "held_out"])
def test_every_twentieth_dialogue_comes_again_behind_another(language, part):
    alone = dialogues(language, part)
    known = set(map(tuple, alone))
    found = conversations(language, part)
    assert found[: len(alone)] == alone
    again = list(map(tuple, found[len(alone) :]))
    assert len(alone) / 20 - 1 <= len(again) <= len(alone) / 20 + 1
    for turns in again:
        assert any({turns[:n], turns[n:]} <= known for n in range(2, len(turns), 2))


@pytest.mark.parametrize(
    ("language", "part", "message"), [("fr", "train", "'fr'"), ("en", "test", "'test'")]
)
def test_wrong_names_are_refused(language, part, message):
    with pytest.raises(ValueError, match=message):
        dialogues(language, part)
