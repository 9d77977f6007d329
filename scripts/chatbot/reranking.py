"""Answers by their mutual information with the question, so that not the commonest one wins.

Li et al. 2016, "A Diversity-Promoting Objective Function for Neural Conversation Models": a beam
search or samples give candidates T for a question S, and a second model says how much each one has
to do with the question. With a weight w and a reward r for each of the |T| tokens, the score is

    log p(T|S) + w log p(S|T) + r |T|    (MMI-bidi, times a constant)
    log p(T|S) - w log p(T) + r |T|      (MMI-antiLM)

for a second model that was trained in the direction backward, or answers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from towers.scripts.chatbot.answerer import Answer, Answerer
from towers.scripts.chatbot.ranking import AnswerRanker, Turns


class SecondModel(NamedTuple):
    """A ranker of a model that says how much an answer has to do with its question.

    Its direction is backward or answers.
    """

    ranker: AnswerRanker
    direction: str

    def log_probabilities(self, questions: Sequence[Turns], answers: Sequence[str]) -> np.ndarray:
        """Returns log p(S|T) or -log p(T) of each row; S is the last turn of a question."""
        if self.direction == "backward":
            return self.ranker.sums([[text] for text in answers], [one[-1] for one in questions])[0]
        texts = list(dict.fromkeys(answers))  # Many questions share a stock answer.
        sums = dict(zip(texts, self.ranker.sums([[] for _ in texts], texts)[0], strict=True))
        return -np.array([sums[text] for text in answers])


class Candidate(NamedTuple):
    """An answer with the parts of its score.

    Attributes:
        answer: as it was found.
        own: log p(T|S).
        second: log p(S|T) or -log p(T).
        length: its tokens that count, the end included.
    """

    answer: Answer
    own: float
    second: float
    length: float

    def scored(self, weight: float, length_reward: float) -> Answer:
        """Returns the answer with its score for a weight and a length reward."""
        score = self.own + weight * self.second + length_reward * self.length
        return self.answer._replace(score=score)


@dataclasses.dataclass(frozen=True, eq=False)
class Reranker:
    """Answers like an `Answerer`, the answer with the highest mutual information first.

    Args:
        answerer: gives the candidates.
        ranker: of the chatbot's own model.
        weight: w of the score, not negative.
        length_reward: r of the score.
        n_best: answers to each question.
    """

    answerer: Answerer
    ranker: AnswerRanker
    second: SecondModel
    weight: float
    length_reward: float
    n_best: int

    def answer(self, questions: Sequence[Turns], *, seed: int = 0) -> list[list[Answer]]:
        """Returns the answers to each question, the best first; arguments as in `Answerer`."""
        return self.choose(self.candidates(questions, seed=seed))

    def candidates(self, questions: Sequence[Turns], *, seed: int = 0) -> list[list[Candidate]]:
        """Returns what may be answered to each question; arguments as in `answer`."""
        found = self.answerer.answer(questions, seed=seed)
        answers = [distinct_texts(row) for row in found]
        repeated = [turns for turns, row in zip(questions, answers, strict=True) for _ in row]
        texts = [one.text for row in answers for one in row]
        own, lengths = self.ranker.sums(repeated, texts)
        second = self.second.log_probabilities(repeated, texts)
        parts = iter(zip(own.tolist(), second.tolist(), lengths.tolist(), strict=True))
        return [[Candidate(one, *next(parts)) for one in row] for row in answers]

    def choose(self, candidates: Sequence[Sequence[Candidate]]) -> list[list[Answer]]:
        """Returns the best candidates of each question, the best first."""
        weights = self.weight, self.length_reward
        scored = [[one.scored(*weights) for one in row] for row in candidates]
        return [sorted(row, key=lambda answer: -answer.score)[: self.n_best] for row in scored]

    def weighted(self, weight: float, length_reward: float) -> Reranker:
        """Returns a reranker of the same models with another weight and length reward."""
        return dataclasses.replace(self, weight=weight, length_reward=length_reward)


def distinct_texts(answers: Sequence[Answer]) -> list[Answer]:
    """Returns the answers that were found, each text once."""
    texts = {answer.text: answer for answer in reversed(answers) if answer.score > -float("inf")}
    return [answer for answer in answers if texts.get(answer.text) is answer]
