"""Prepared corpora for tests, whose pairs can be told from each other by their answers."""

import numpy as np

from tests.paths import CORPORA
from towers.data.prepared import DialoguePreparation, prepare_dialogues
from towers.data.text import TextSettings

SHARED = CORPORA
SPACES = TextSettings("en", tokenizer="spaces")
LIMITS = {
    "batch_tokens": 120,
    "batch_size": 8,
    "max_question_length": 50,
    "max_answer_length": 50,
}


def quiet(_):
    pass


def numbered_pair(number, question_length, answer_length):
    """Returns a dialogue of two turns; the answer's first token is its number."""
    question = [f"q{place}" for place in range(question_length)]
    return [" ".join(question), " ".join([f"a{number}", *["x"] * (answer_length - 1)])]


def corpus_of(folder, lengths, held_out=((2, 2),)):
    """Returns a corpus with training pairs of these (question, answer) lengths, without END."""
    parts = [
        [numbered_pair(number, *pair) for number, pair in enumerate(part)]
        for part in (lengths, held_out)
    ]
    preparation = DialoguePreparation(SPACES, vocabulary_size=5000)
    return prepare_dialogues(*parts, preparation, folder, write=quiet)


def collect(dataset):
    """Returns the batches as pairs of NumPy arrays."""
    return [(question.numpy(), answer.numpy()) for question, answer in dataset]


def rows_of(batches):
    """Returns the (question, answer) of every row that counts, as tuples without padding."""
    return [
        (tuple(question[question > 0].tolist()), tuple(answer[answer > 0].tolist()))
        for batch in batches
        for question, answer in zip(*batch, strict=True)
        if answer[0]
    ]


def expected_rows(corpus, part="train", max_question_length=50):
    """Returns what `rows_of` has to find, put together by the codec from the texts."""
    rows = []
    for pair in corpus.pairs(part):
        question, answer = corpus.texts(pair)
        ids = corpus.text.encode_question(question, max_question_length).ids
        rows.append((tuple(ids), (*corpus.text.encode(answer), 2)))
    return rows


def same_batches(some, others):
    """Returns whether two lists of batches are equal."""
    return len(some) == len(others) and all(
        np.array_equal(one, other)
        for batch, other_batch in zip(some, others, strict=True)
        for one, other in zip(batch, other_batch, strict=True)
    )
