"""Pairs read the other way, or not at all."""

import numpy as np
import pytest

from tests.data.prepared.helpers import LIMITS, SPACES, collect, quiet, rows_of
from towers.data.batches.pairs import pair_batches
from towers.data.prepared import DialoguePreparation, prepare_dialogues
from towers.ground.special_ids import END, SEPARATOR, UNKNOWN

DIALOGUES = [["a b", "c", "d e f", "c c"], ["f", "a"]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    settings = DialoguePreparation(SPACES, context=2)
    folder = tmp_path_factory.mktemp("directions")
    return prepare_dialogues(DIALOGUES, DIALOGUES[1:], settings, folder, write=quiet)


def rows(corpus, direction, **limits):
    batches = pair_batches(corpus, "train", direction=direction, **{**LIMITS, **limits})
    return sorted(rows_of(collect(batches(0))))


def ids(corpus, text):
    return tuple(corpus.text.encode(text))


def test_backward_the_answer_is_read_and_the_last_turn_of_the_question_written(corpus):
    expected = [("c", "a b"), ("c c", "d e f"), ("a", "f")]
    assert rows(corpus, "backward") == sorted(
        (ids(corpus, read), (*ids(corpus, written), END)) for read, written in expected
    )


def test_of_answers_alone_nothing_is_read(corpus):
    expected = ["c", "c c", "a"]
    assert rows(corpus, "answers") == sorted(
        ((UNKNOWN,), (*ids(corpus, written), END)) for written in expected
    )


def test_forward_is_the_default(corpus):
    batches = pair_batches(corpus, "train", **LIMITS)
    assert sorted(rows_of(collect(batches(0)))) == rows(corpus, "forward")
    question = (*ids(corpus, "a b"), SEPARATOR, *ids(corpus, "c"), SEPARATOR, *ids(corpus, "d e f"))
    assert (question, (*ids(corpus, "c c"), END)) in rows(corpus, "forward")


def test_limits_and_characters_are_those_of_what_is_read_and_written(corpus):
    assert len(rows(corpus, "backward", max_answer_length=3)) == 2
    assert all(len(read) == 1 for read, _ in rows(corpus, "backward", max_question_length=1))
    batches = pair_batches(corpus, "train", direction="backward", **LIMITS)
    assert batches.source.num_characters == np.sum([2, 3, 1]) + 3


def test_another_direction_is_refused(corpus):
    with pytest.raises(ValueError, match="direction must be one of forward, backward, answers"):
        rows(corpus, "sideways")
