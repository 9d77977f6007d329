"""A trained chatbot that answers batches of requests, with one compiled graph for each decoding."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from towers.scripts.chatbot.answerer import Answer
from towers.scripts.chatbot.commands import search_options
from towers.scripts.chatbot.introduction import example_questions
from towers.scripts.chatbot.opening import (
    open_answerer,
    read_context,
    unread_tokens,
    without_second,
)
from towers.scripts.serving.chat_request import ChatRequest
from towers.scripts.training.options import DecodingOptions
from towers.scripts.training.saved_run import OpenModel

MOST_ANSWERERS = 16  # Compiled graphs that are kept; the one that was not used longest goes first.
HELLO = "hello"  # Any question compiles the graph.
BLANKS = " \u2581"  # The second is how subwords write the first.


class Reply(NamedTuple):
    """One of the answers to a request.

    Attributes:
        text: of the answer.
        num_tokens: of the text.
        is_cut: whether the answer ends because it may not be longer.
        score: log probability, the higher the better; None where it is not finite.
    """

    text: str
    num_tokens: int
    is_cut: bool
    score: float | None


class Replies(NamedTuple):
    """The answers to a request.

    Attributes:
        replies: the best first.
        num_question_tokens: that the model was given.
        num_unread_tokens: of the last message, which was longer than what the model reads.
    """

    replies: list[Reply]
    num_question_tokens: int
    num_unread_tokens: int


class ServedChatbot:
    """A chatbot for requests with decoding options of their own.

    Args:
        opened: the trained model.
        options: the decoding for requests that do not ask for another.
        max_choices: answers to one question.

    Attributes:
        context: how many earlier messages belong to a question.
        examples: questions that it can answer, as far as its data is known.

    Raises:
        ValueError: the options are impossible, or the model does not answer.
    """

    def __init__(self, opened: OpenModel, options: DecodingOptions, *, max_choices: int):
        self.context = read_context(opened)
        self.examples = example_questions(opened.about, opened.recipe.fields.language)
        self._opened = opened
        self._options = options
        self._longest_question: int = opened.recipe.fields.max_question_length
        self._most_tokens: int = options.max_length or opened.recipe.fields.max_answer_length
        self._most_beams = max(max_choices, options.beam)
        make_answerer = functools.partial(open_answerer, opened)
        self._answerer = functools.lru_cache(MOST_ANSWERERS)(make_answerer)
        self._batches = 0
        self._first = ChatRequest((HELLO,), choices=options.nbest)
        self._answerer(self._decoding(self._first))

    def compile(self) -> None:
        """Compiles the graph for requests that do not ask for another decoding."""
        self.answer([self._first])

    def group(self, request: ChatRequest) -> Hashable:
        """Returns what requests have in common that are decoded together.

        Samples depend on the index in the batch, so a request with a seed is decoded alone.
        """
        decoding = self._decoding(request)
        is_alone = decoding.samples and request.seed is not None
        return (decoding, id(request)) if is_alone else decoding

    def rows(self, request: ChatRequest) -> int:
        """Returns how many rows of a batch a request takes: one for each sample.

        Samples that a second run ranks take one row, which has the best ones.
        """
        decoding = self._decoding(request)
        return request.choices if decoding.samples and decoding.mmi is None else 1

    def answer(self, requests: Sequence[ChatRequest]) -> list[Replies]:
        """Returns the answers to requests of one group."""
        decoding = self._decoding(requests[0])
        seed = requests[0].seed if len(requests) == 1 else None
        self._batches += 1
        questions = [
            request.turns[-1 - self.context :]
            for request in requests
            for _ in range(self.rows(request))
        ]
        found = iter(
            self._answerer(decoding).answer(
                questions, seed=self._options.seed + self._batches if seed is None else seed
            )
        )
        return [
            self._replies(request, [a for _ in range(self.rows(request)) for a in next(found)])
            for request in requests
        ]

    def _decoding(self, request: ChatRequest) -> DecodingOptions:
        """Returns the decoding that a request asks for; several answers are those of a search."""
        decoding = dataclasses.replace(self._options, seed=0, nbest=1)
        if 0 in (request.temperature, request.top_p):  # The likeliest.
            if decoding.beam < 2:  # A second run would have one answer to choose from.
                decoding = without_second(decoding)
            decoding = search_options(decoding, decoding.beam, 1)
        elif request.temperature is not None or request.top_p not in (None, 1):
            top_p = None if request.top_p == 1 else request.top_p
            temperature = request.temperature or 1.0
            decoding = dataclasses.replace(
                without_second(decoding), beam=1, temperature=temperature, top_p=top_p
            )
        if request.choices > 1:
            decoding = self._of_several(decoding, request.choices)
        return decoding

    def _of_several(self, decoding: DecodingOptions, choices: int) -> DecodingOptions:
        """Returns a decoding with several answers; few ones do not widen a search with beams."""
        if not decoding.samples:
            beams = decoding.beam if choices <= decoding.beam else self._most_beams
            return dataclasses.replace(decoding, beam=beams, nbest=beams)
        if decoding.mmi is not None:
            candidates = max(decoding.candidates, choices)
            return dataclasses.replace(decoding, nbest=choices, candidates=candidates)
        return decoding

    def _replies(self, request: ChatRequest, answers: Sequence[Answer]) -> Replies:
        turns, longest = request.turns[-1 - self.context :], self._longest_question
        asked = len(self._opened.text.read_question(turns, longest).ids)
        replies = [self._reply(answer, request) for answer in answers[: request.choices]]
        return Replies(replies, asked, unread_tokens(self._opened, turns[-1]))

    def _reply(self, answer: Answer, request: ChatRequest) -> Reply:
        kept = answer.tokens[: request.max_tokens]
        is_cut = len(kept) < len(answer.tokens)
        return Reply(
            text=beginning(answer.text, kept) if is_cut else answer.text,
            num_tokens=len(kept),
            is_cut=is_cut or len(kept) >= self._most_tokens,
            score=answer.score if math.isfinite(answer.score) else None,
        )


def beginning(text: str, tokens: Sequence[str]) -> str:
    """Returns the part of a text that its first tokens make up, whatever blanks are in it."""
    left = sum(character not in BLANKS for character in "".join(tokens))
    for index, character in enumerate(text):
        if not left:
            return text[:index].rstrip()
        left -= character not in BLANKS
    return text
