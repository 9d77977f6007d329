"""Given answers, scored by a model: how likely each is, and whether the true one wins."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras.utils import pad_sequences

from towers.data.text import TextCodec
from towers.ground.progress import counted
from towers.ground.special_ids import PAD, UNKNOWN
from towers.models.answering import decoder_inputs
from towers.models.decoding import read_once
from towers.models.linear_cross_entropy import log_probabilities

NUM_CANDIDATES = 10
BATCH_TOKENS = 4096  # The answers' tokens in one batch.
Turns = Sequence[str]


class Rows(NamedTuple):
    """The ids of questions and of an answer to each; answers end with the end token."""

    questions: Sequence[Sequence[int]]
    answers: Sequence[Sequence[int]]


class AnswerRanker:
    """Scores answers by the model's mean log probability of their tokens, the end included.

    The mean, not the sum: a sum falls with each token, so that a short stock answer would win
    against a longer true one whatever the question is. As in the loss, an unknown token does not
    count.

    Args:
        model: a `Seq2Seq` or a `Transformer`.
        text: the codec between text and ids.
        max_question_length: of longer questions only the last tokens count.
    """

    def __init__(self, model: keras.Model, text: TextCodec, max_question_length: int):
        self._text = text
        self._max_question_length = max_question_length
        score: Any = score_answers(model)
        self._graph = functools.cache(score.get_concrete_function)

    def hits(
        self, questions: Sequence[Turns], answers: Sequence[str], *, seed: int = 0
    ) -> float | None:
        """Returns hits@1 of 10: how often the true answer scores above 9 random ones, a fraction.

        This is recall at 1 of 10 (Lowe et al. 2015, arXiv:1506.08909), which Zhang et al. 2018
        (arXiv:1801.07243) call hits@1 and take of 20. The random answers of a question are
        different texts, none of them the true one, drawn from all answers that are given here.

        It is None of fewer than 10 different answers.
        """
        candidates = draw_candidates(answers, seed)
        if candidates is None:
            return None
        repeated = [turns for turns in questions for _ in range(NUM_CANDIDATES)]
        scores = self.scores(repeated, [text for row in candidates for text in row])
        return fraction_of_hits(scores.reshape([-1, NUM_CANDIDATES]))

    def scores(self, questions: Sequence[Turns], answers: Sequence[str]) -> np.ndarray:
        """Returns the score of each answer to its question, float64 [rows], at most 0."""
        sums, counts = self.sums(questions, answers)
        return sums / counts

    def sums(
        self, questions: Sequence[Turns], answers: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the log probability of each answer and the number of its tokens that count.

        Both are float64 [rows]; the end of an answer is one of its tokens.
        """
        rows = self._encode(questions, answers)
        sums = np.zeros([2, len(answers)])
        for indices in counted([*batches_by_length(rows)], "ranking"):
            parts = ([part[index] for index in indices] for part in rows)
            question, answer = (pad_sequences(part, padding="post", value=PAD) for part in parts)
            sums[:, indices] = self._graph()(tf.constant(question), tf.constant(answer)).numpy()
        return sums[0], sums[1]

    def _encode(self, questions: Sequence[Turns], answers: Sequence[str]) -> Rows:
        """Returns the ids; a question that comes again is tokenised once."""
        found = {
            turns: self._text.read_question(turns, self._max_question_length)
            for turns in {tuple(turns) for turns in questions}
        }
        read = [found[tuple(turns)] for turns in questions]
        said = [
            [*self._text.encode_answer(text, question.copied), self._text.vocabulary.end]
            for text, question in zip(answers, read, strict=True)
        ]
        return Rows([question.ids for question in read], said)


def draw_candidates(answers: Sequence[str], seed: int) -> list[list[str]] | None:
    """Returns for each answer itself and 9 others, different texts; None if there are too few."""
    texts = sorted(set(answers))
    if len(texts) < NUM_CANDIDATES:
        return None
    indices = {text: index for index, text in enumerate(texts)}
    random = np.random.default_rng(seed)
    candidates = []
    for answer in answers:
        # All texts but the true answer: those from its index on move up by one.
        drawn = random.choice(len(texts) - 1, NUM_CANDIDATES - 1, replace=False)
        others = drawn + (drawn >= indices[answer])
        candidates.append([answer, *(texts[index] for index in others)])
    return candidates


def fraction_of_hits(scores: np.ndarray) -> float:
    """Returns how often the first score of a row is above all others, which a tie is not."""
    return float(np.mean(scores[:, 0] > scores[:, 1:].max(1)))


def batches_by_length(rows: Rows) -> Iterator[list[int]]:
    """Yields indices of rows with answers of similar length, together `BATCH_TOKENS` at most."""
    lengths = [(len(answer), len(question)) for question, answer in zip(*rows, strict=True)]
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index][0] > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def score_answers(model: keras.Model) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns `score(questions, answers) -> floating point [2, batch]`, one graph for every batch.

    Both are int32 [batch, length], filled with padding. The score is the log probability of an
    answer's tokens, each given those before it, and their number.
    """
    spec = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[spec, spec], autograph=False)
    def score(questions: tf.Tensor, answers: tf.Tensor) -> tf.Tensor:
        inputs = decoder_inputs(answers)
        with read_once(model):
            hidden = model.hidden(questions, inputs, training=False)
            flat = tf.reshape(hidden, [-1, model.output_size])
            kernel, bias = model.projection.weights_and_bias()
            gained = log_probabilities(flat, kernel, bias, tf.reshape(answers, [-1]))
        gained = tf.reshape(gained, tf.shape(answers))
        counted = (answers != PAD) & (answers != UNKNOWN)
        weights = tf.cast(counted, gained.dtype)
        return tf.stack([tf.reduce_sum(gained * weights, 1), tf.reduce_sum(weights, 1)])

    return score
