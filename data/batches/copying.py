"""Words that the vocabulary does not have: numbered in a question, and repeated in its answer."""

from __future__ import annotations

import numpy as np

from towers.data.text import Vocabulary
from towers.ground.special_ids import UNKNOWN


def number_unknown(
    questions: np.ndarray, answers: np.ndarray, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
    """Returns questions and answers in which no id is outside of the vocabulary.

    In each row the first unknown word of the question becomes the first copy, the second the second
    one, and so on, wherever it occurs in the question or in the answer. Unknown words of an answer
    that are not in its question become UNKNOWN, and so does what exceeds the number of copies.

    Args:
        questions: int32 [rows, question_length], with an id of its own for each unknown word.
        answers: int32 [rows, answer_length], with the same ids.
        vocabulary: with copies.
    """
    size = len(vocabulary)
    is_unknown = questions >= size
    if not is_unknown.any():
        return questions, np.where(answers < size, answers, UNKNOWN)
    places = np.argmax(questions[:, :, None] == questions[:, None, :], axis=2)  # Of the first ones.
    is_first = is_unknown & (places == np.arange(questions.shape[1]))
    numbers = np.take_along_axis(np.cumsum(is_first, axis=1) - 1, places, axis=1)
    copies = vocabulary.copies.start + numbers
    copies = np.where(numbers < len(vocabulary.copies), copies, UNKNOWN).astype(questions.dtype)
    same = answers[:, :, None] == questions[:, None, :]
    copied = np.take_along_axis(copies, np.argmax(same, axis=2), axis=1)
    copied = np.where(same.any(axis=2), copied, UNKNOWN)
    return np.where(is_unknown, copies, questions), np.where(answers < size, answers, copied)
