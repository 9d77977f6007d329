"""The embedded dialogues: held-out ones are not in the training part, but can be answered."""

import hashlib
import itertools
import json
import re
import string

import pytest

from towers.data.dialogues import pair_turns
from towers.data.samples.conversations import (
    conversations,
    dialogues,
    labelled_dialogues,
    read_patterns,
)
from towers.data.samples.conversations.generation import fill
from towers.data.samples.conversations.patterns import LANGUAGES
from towers.data.text import TextSettings, make_tokenizer

EACH_LANGUAGE = pytest.mark.parametrize("language", LANGUAGES)
CONTEXT = 2


def pairs(language, part):
    """Returns (turns of the question with its context, answer) of every pair."""
    found = []
    for turns in dialogues(language, part):
        for first, answer in pair_turns(len(turns), pairing="alternate", context=CONTEXT):
            found.append((tuple(turns[first:answer]), turns[answer]))
    return found


@pytest.mark.parametrize(
    ("language", "part", "digest"),
    [
        ("en", "train", "e9e4063c10116e8dc791633e8abb929dca59eeff5745140027c9a7843d5c7214"),
        ("en", "held_out", "56aa7d134cadd04417fcedacb9d8cb6e64726319e5a35502ef4f1191fec015df"),
        ("zh", "train", "ee97c50ed5cb0af9a19a46ee1e38bda65222dda1fac5a123aa0fd91bd27860f9"),
        ("zh", "held_out", "407fd6f5264d91c578f4df96198f64452d4823ebac718547f3994280c54e7782"),
    ],
)
def test_the_dialogues_and_their_order_never_change(language, part, digest):
    """A run can be resumed, and results compared, only with the same dialogues."""
    content = json.dumps(conversations(language, part)).encode()
    assert hashlib.sha256(content).hexdigest() == digest


@EACH_LANGUAGE
def test_there_is_enough_of_both_parts(language):
    assert len(dialogues(language, "train")) > 10_000
    assert len(dialogues(language, "held_out")) > 200


@EACH_LANGUAGE
def test_no_held_out_dialogue_is_in_the_training_with_any_opening(language):
    openings = [opening for opening in read_patterns(language).openings if opening]

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
    for kind in read_patterns(language).kinds:
        assert not kind.held_out or len(kind.phrasings) >= 3


@EACH_LANGUAGE
def test_the_text_of_a_gap_is_tokenised_as_words_of_its_own(language):
    settings = TextSettings(language)
    tokenizer = make_tokenizer(settings)

    def tokens(text):
        return tokenizer.tokenize(settings.normalise(text))

    for kind in read_patterns(language).kinds:
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
    check_sums("en", r"what is (\w+) plus (\w+)\?", lambda a, b: a + b)
    check_sums("en", r"what is (\w+) minus (\w+)\?", lambda a, b: a - b)


def test_chinese_sums_are_right():
    check_sums("zh", r"(\w+)加上(\w+)等于几？", lambda a, b: a + b)
    check_sums("zh", r"(\w+)减去(\w+)等于几？", lambda a, b: a - b)


def check_sums(language, pattern, calculate):
    numbers = read_patterns(language).words["numbers"]
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
def test_every_twentieth_dialogue_occurs_again_after_another(language, part):
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
