"""What a chatbot says about its training: from what its run recorded, however old."""

import json
from pathlib import Path

import pytest

from towers.data.samples.conversations import labelled_dialogues
from towers.scripts.chatbot.introduction import (
    about_data,
    example_questions,
    introduce,
    list_topics,
)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_embedded_dialogues_are_introduced_by_kinds_from_the_data(language):
    about = about_data(None, language, 26422, 2)
    assert about["kinds"] == list(dict(labelled_dialogues(language, "train")))
    line = introduce(json.loads(json.dumps(about)))
    assert line.startswith("It was trained on 26,422 pairs of embedded dialogues: sums, ")
    shown = line.partition(": ")[2].rpartition(" and ")[0].split(", ")
    listed = " ".join(list_topics(about)).removeprefix("It can talk about: ").rstrip(".")
    topics = listed.split(", ")
    assert set(shown) < set(topics) < set(about["kinds"]) and len(shown) <= 10
    assert line.endswith(f" and {len(topics) - len(shown)} more topics.")
    assert {"jokes", "capitals", "names"} <= set(topics) and "other words" not in listed
    assert len(list_topics(about)) <= 10


@pytest.mark.parametrize("language", ["en", "zh"])
def test_examples_are_held_out_questions_of_kinds_that_the_run_recorded(language):
    about = about_data(None, language, 3, 2)
    held_out = {(turns[0], kind) for kind, turns in labelled_dialogues(language, "held_out")}
    examples = example_questions(about, language)
    assert 3 <= len(set(examples)) <= 4 and set(examples) <= {question for question, _ in held_out}
    (only,) = example_questions({"kinds": ["sums"]}, language)
    assert (only, "sums") in held_out
    assert not example_questions({"files": ["my.conv"]}, language)


def test_a_corpus_is_introduced_by_its_files():
    about = about_data([Path("my/talk.conv"), Path("more.tsv")], "en", 3, 2)
    assert introduce(about) == "It was trained on 3 pairs of talk.conv, more.tsv."
    assert not list_topics(about)
    alone = introduce(about_data([Path("pairs.tsv")], "en", 3, 0))
    assert alone == "It was trained on 3 pairs of pairs.tsv. It answers each message by itself."
    many = introduce(about_data([Path(f"f{number}") for number in range(25)], "en", 1000, 2))
    assert many.endswith("f9 and 15 more files.")


def test_what_a_run_did_not_record_is_left_out():
    assert introduce({"files": ["my.conv"]}) == "It was trained on my.conv."
    assert introduce({"files": []}) == "It was trained on the embedded dialogues."
