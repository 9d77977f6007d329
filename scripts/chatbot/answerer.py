"""Answers to questions: text to ids, decoding in one compiled graph, ids to text."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf
from keras.utils import pad_sequences

from towers.data.text import Question, TextCodec, Vocabulary
from towers.ground.progress import counted
from towers.ground.special_ids import PAD, START
from towers.models.decoding import Decoded, Decoding, decode, read_once
from towers.models.decoding.options import DecoderStep
from towers.scripts.options.setting import arguments_for
from towers.scripts.training.options import DecodingOptions

BATCH_SIZE = 64


class Answer(NamedTuple):
    """One answer.

    Attributes:
        text: as a person writes it.
        tokens: the tokens that the model said, without the end.
        score: as `models.decoding.decode` gives it; the higher, the better.
    """

    text: str
    tokens: list[str]
    score: float


class Chatbot(Protocol):
    """What answers questions: an `Answerer`, or a `Reranker` of its answers."""

    def answer(self, questions: Sequence[Sequence[str]], *, seed: int = 0) -> list[list[Answer]]:
        """Returns the answers to each question, the best first; arguments as in `Answerer`."""


class Answerer:
    """Answers questions with a model.

    Args:
        model: a `Seq2Seq` or a `Transformer`.
        text: the codec between text and ids.
        max_question_length: of longer questions only the last tokens count.
    """

    def __init__(
        self, model: keras.Model, text: TextCodec, decoding: Decoding, max_question_length: int
    ):
        self._text = text
        function: Any = decode_questions(model, decoding, text.vocabulary)
        # If the function itself was called, TensorFlow would warn of a fifth decoding's graph.
        self._graph = functools.cache(function.get_concrete_function)
        self._max_question_length = max_question_length

    def answer(self, questions: Sequence[Sequence[str]], *, seed: int = 0) -> list[list[Answer]]:
        """Returns the answers to each question, the best first.

        Args:
            questions: for each the turns of a dialogue, of which the last is the question.
            seed: of sampled answers.
        """
        longest = self._max_question_length
        encoded = [self._text.read_question(turns, longest) for turns in questions]
        order = sorted(range(len(encoded)), key=lambda index: len(encoded[index].ids))
        answers: list[list[Answer]] = [[] for _ in encoded]
        for start in counted(range(0, len(order), BATCH_SIZE), "answering"):
            rows = order[start : start + BATCH_SIZE]
            batch = [encoded[row] for row in rows]
            ids = pad_sequences([question.ids for question in batch], padding="post", value=PAD)
            decoded = self._graph()(tf.constant(ids), tf.constant([seed, start], tf.int64))
            for row, found in zip(rows, self._read(decoded, batch), strict=True):
                answers[row] = found
        return answers

    def _read(self, decoded: Decoded, questions: Sequence[Question]) -> list[list[Answer]]:
        """Returns the answers to each question of a batch."""
        rows = zip(decoded.ids.numpy(), decoded.scores.numpy(), questions, strict=True)
        return [
            [
                self._answer(one, float(score), question.copied)
                for one, score in zip(ids, scores, strict=True)
            ]
            for ids, scores, question in rows
        ]

    def _answer(self, ids: np.ndarray, score: float, copied: Sequence[str]) -> Answer:
        vocabulary = self._text.vocabulary
        spoken = [int(one) for one in ids if one not in (PAD, vocabulary.end)]
        tokens = vocabulary.tokens(spoken, copied)
        return Answer(self._text.decode(spoken, copied), tokens, score)


def decode_questions(
    model: keras.Model, decoding: Decoding, vocabulary: Vocabulary
) -> Callable[[tf.Tensor, tf.Tensor], Decoded]:
    """Returns `answer(questions, seed) -> Decoded`, one graph for every batch.

    Questions are int32 [batch, length], filled with padding; the seed is int64 [2]. An answer
    copies unknown words of its own question alone.
    """

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([2], tf.int64)],
        autograph=False,
    )
    def answer(questions: tf.Tensor, seed: tf.Tensor) -> Decoded:
        with read_once(model):
            return decode(
                *copying(model, questions, vocabulary.copies),
                decoding,
                start=START,
                end=vocabulary.end,
                forbidden=vocabulary.unspoken,
                batch_size=tf.shape(questions)[0],
                seed=seed,
            )

    return answer


def copying(model: keras.Model, questions: tf.Tensor, copies: range) -> tuple[DecoderStep, Any]:
    """Returns a model's step, in which answers copy no word that their question lacks, and state.

    Questions are int32 [batch, length]; the copies are the ids for unknown words.
    """
    if not copies:
        return model.step, model.start(questions)
    ids = tf.range(copies.start, copies.stop)
    missing = ~tf.reduce_any(tf.equal(questions[:, :, None], ids), axis=1)  # [batch, copies]

    def step(tokens: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        logits, after = model.step(tokens, state[0])
        before, own, behind = tf.split(
            logits, [copies.start, len(copies), logits.shape[-1] - copies.stop], axis=-1
        )
        own = tf.where(state[1], tf.constant(-float("inf"), own.dtype), own)
        return tf.concat([before, own, behind], -1), (after, state[1])

    return step, (model.start(questions), missing)


def make_decoding(options: DecodingOptions, max_length: int) -> Decoding:
    """Returns the decoding of some options, which gives every candidate that is to be reranked.

    An answer has at most `max_length` tokens if the options leave it open.

    Raises:
        ValueError: there would be more answers than beams, or samples in a beam search.
    """
    if options.samples and options.beam > 1:
        raise ValueError(
            "--beam searches, and --temperature, --top-k and --top-p sample; give one or the "
            f"other. Received --beam {options.beam}."
        )
    if not options.samples and options.nbest > options.beam:
        raise ValueError(
            "--nbest must be at most --beam, unless answers are sampled (--temperature). Received "
            f"--nbest {options.nbest} with --beam {options.beam}; give --beam {options.nbest}."
        )
    n_best = options.nbest
    if options.mmi is not None:  # A second model chooses among so many.
        n_best = max(n_best, options.candidates) if options.samples else options.beam
    arguments = arguments_for(
        Decoding,
        options,
        beam_size=options.beam,
        n_best=n_best,
        max_length=options.max_length or max_length,
    )
    return Decoding(**arguments)
