"""Unknown words become copies in a question and its answer, in batches as for one question."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.data.prepared.helpers import LIMITS, SPACES, collect, quiet, rows_of
from towers.data.batches.pairs import number_unknown, pair_batches
from towers.data.prepared import DialoguePreparation, prepare_dialogues
from towers.data.text import TextCodec, TextSettings, Vocabulary
from towers.data.text.vocabulary import Unit
from towers.ground.special_ids import END, SEPARATOR, UNKNOWN

WORDS = ["a", "b", "c"]
VOCABULARY = Vocabulary(map(Unit, WORDS), 4)
SIZE = len(VOCABULARY)
KNOWN = list(range(VOCABULARY.copies.stop, SIZE))
IDS = st.lists(st.sampled_from(KNOWN) | st.integers(SIZE, SIZE + 7), min_size=1, max_size=9)


def word_of(one):
    return WORDS[one - KNOWN[0]] if one < SIZE else f"unknown{one}"


@given(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=5))
def test_a_batch_is_numbered_as_each_question_alone(rows):
    codec = TextCodec(TextSettings("en", "spaces"), VOCABULARY)
    questions, answers = (
        np.array([row + [0] * (9 - len(row)) for row in part], np.int32)
        for part in zip(*rows, strict=True)
    )
    actual = number_unknown(questions, answers, VOCABULARY)
    for (question, answer), row, answer_row in zip(rows, *actual, strict=True):
        ids, copied = codec.encode_question([" ".join(map(word_of, question))])
        assert row[row > 0].tolist() == ids
        expected = codec.encode_answer(" ".join(map(word_of, answer)), copied)
        assert answer_row[answer_row > 0].tolist() == expected
    assert {part.dtype for part in actual} == {np.dtype(np.int32)}


def corpus_with_copies(folder, dialogues, **settings):
    settings = DialoguePreparation(SPACES, copy_unknown=True, min_dialogues=2, **settings)
    return prepare_dialogues(dialogues, dialogues[:1], settings, folder, write=quiet)


DIALOGUES = [
    ["say zorvik", "zorvik", "and mimba", "mimba and zorvik"],
    ["say tuk", "tuk"],
    ["say and say", "say"],
    ["say", "never said before"],
]


def test_batches_hold_no_id_outside_of_the_vocabulary(tmp_path):
    corpus = corpus_with_copies(tmp_path, DIALOGUES, context=2)
    known = corpus.text.vocabulary.id_of
    say, also = map(known, ["say", "and"])  # Of the words that are in two dialogues.
    assert sorted(corpus.unknown_words) == ["before", "mimba", "never", "said", "tuk", "zorvik"]
    first, second, third, *_ = corpus.text.vocabulary.copies
    rows = rows_of(collect(pair_batches(corpus, "train", **LIMITS)(0)))
    assert ((say, first), (first, END)) in rows
    assert ((say,), (UNKNOWN, UNKNOWN, UNKNOWN, END)) in rows
    assert ((say, also, say), (say, END)) in rows
    question = (say, first, SEPARATOR, first, SEPARATOR, also, second)
    assert (question, (second, also, first, END)) in rows
    assert third not in {one for row in rows for part in row for one in part}


def test_texts_come_back_with_their_unknown_words(tmp_path):
    corpus = corpus_with_copies(tmp_path, DIALOGUES, context=2)
    texts = [corpus.texts(pair) for pair in corpus.pairs("train")]
    assert (["say tuk"], "tuk") in texts and (["say"], "never said before") in texts
    assert (["say zorvik", "zorvik", "and mimba"], "mimba and zorvik") in texts


def test_unknown_words_count_as_unknown(tmp_path):
    corpus = corpus_with_copies(tmp_path, [["quite", "unseen"], *DIALOGUES])
    assert corpus.unknown_rate == 1
    assert corpus.unigram_counts[UNKNOWN] == 1 + 1 + 2 + 1 + 3
    assert 1 < corpus.unigram_perplexity < 100
