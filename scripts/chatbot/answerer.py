"""Answers to questions: text to ids, decoding in one compiled graph, ids to text."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from towers.data.text import END, PAD, SEPARATOR, START, UNKNOWN, TextCodec
from towers.models.decoding import Decoded, Decoding, decode

SILENT = (PAD, START, UNKNOWN, SEPARATOR)  # Never spoken.
BATCH_SIZE = 64


class Answer(NamedTuple):
    """One answer.

    Attributes:
        text: as a person writes it.
        tokens: what the model said, without END.
        score: as `models.decoding.decode` gives it; the higher, the better.
    """

    text: str
    tokens: list[str]
    score: float


class Answerer:
    """Answers questions with a model.

    Args:
        model: a `Seq2Seq`.
        text: what turns text into ids and back.
        decoding: how to decode.
        max_question_length: of longer questions only the last tokens count.
    """

    def __init__(
        self, model: keras.Model, text: TextCodec, decoding: Decoding, *, max_question_length: int
    ):
        self._text = text
        self._decode = decode_questions(model, decoding)
        self._max_question_length = max_question_length

    def answer(self, questions: Sequence[Sequence[str]], *, seed: int = 0) -> list[list[Answer]]:
        """Returns the answers to each question, the best first.

        Args:
            questions: each the turns of a dialogue, the question the last of them.
            seed: of the answers that are sampled.
        """
        encoded = [self._encode(turns) for turns in questions]
        order = sorted(range(len(encoded)), key=lambda index: len(encoded[index]))
        answers: list[list[Answer]] = [[] for _ in encoded]
        for start in range(0, len(order), BATCH_SIZE):
            rows = order[start : start + BATCH_SIZE]
            ids = pad([encoded[row] for row in rows])
            decoded = self._decode(tf.constant(ids), tf.constant([seed, start], tf.int64))
            for row, found in zip(rows, self._read(decoded), strict=True):
                answers[row] = found
        return answers

    def _encode(self, turns: Sequence[str]) -> list[int]:
        ids = self._text.encode_question(turns)[-self._max_question_length :]
        return ids or [UNKNOWN]  # A question without a word still gets an answer.

    def _read(self, decoded: Decoded) -> list[list[Answer]]:
        """Returns the answers of each row of a batch."""
        ids, scores = decoded.ids.numpy(), decoded.scores.numpy()
        return [
            [self._answer(one, float(score)) for one, score in zip(row, row_scores, strict=True)]
            for row, row_scores in zip(ids, scores, strict=True)
        ]

    def _answer(self, ids: np.ndarray, score: float) -> Answer:
        spoken = [int(one) for one in ids if one not in (PAD, END)]
        return Answer(self._text.decode(spoken), self._text.vocabulary.tokens(spoken), score)


def decode_questions(
    model: keras.Model, decoding: Decoding
) -> Callable[[tf.Tensor, tf.Tensor], Decoded]:
    """Returns `answer(questions, seed) -> Decoded`, one graph for every batch.

    Questions are int32 [batch, length], padded with 0; the seed is int64 [2].
    """

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([2], tf.int64)],
        autograph=False,
    )
    def answer(questions: tf.Tensor, seed: tf.Tensor) -> Decoded:
        return decode(
            model.step,
            model.start(questions),
            decoding,
            start=START,
            end=END,
            forbidden=SILENT,
            batch_size=tf.shape(questions)[0],
            seed=seed,
        )

    return answer


def pad(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns the rows as int32 [rows, length of the longest], filled with padding."""
    padded: Any = np.full((len(rows), max(map(len, rows))), PAD, np.int32)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def decoding_from(options: argparse.Namespace, max_length: int) -> Decoding:
    """Returns the decoding that the command line asks for.

    Args:
        options: the command line.
        max_length: tokens of an answer, if the command line does not say.

    Raises:
        ValueError: more answers than beams are asked for, or beams of samples.
    """
    samples = any((options.temperature, options.top_k, options.top_p))
    if samples and options.beam > 1:
        raise ValueError(
            "--beam searches, --temperature, --top-k and --top-p sample: give one or the other. "
            f"Received --beam {options.beam}."
        )
    if not samples and options.nbest > options.beam:
        raise ValueError(
            "--nbest takes at most as many answers as --beam is wide, or samples (--temperature). "
            f"Received --nbest {options.nbest} with --beam {options.beam}; give --beam "
            f"{options.nbest}."
        )
    return Decoding(
        beam_size=options.beam,
        length_penalty=options.length_penalty,
        n_best=options.nbest,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        no_repeat_ngram=options.no_repeat_ngram,
        repetition_penalty=options.repetition_penalty,
        max_length=options.max_length or max_length,
    )
