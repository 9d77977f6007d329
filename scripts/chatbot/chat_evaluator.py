"""A chatbot's answers to held-out questions: samples during training, metrics in an evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from towers.scripts.chatbot.answer_metrics import answer_metrics
from towers.scripts.chatbot.answerer import Answer, Chatbot
from towers.scripts.chatbot.ranking import NUM_CANDIDATES, AnswerRanker

SHOWN, ASKED = 4, 16  # During training it asks 16 questions and shows 4 of the exchanges.


class Exchange(NamedTuple):
    """A held-out question, the last of its turns, with the corpus's answer and the chatbot's."""

    turns: Sequence[str]
    reference: str
    answer: Answer


@dataclasses.dataclass(eq=False)
class ChatEvaluator:
    """Asks a chatbot the held-out questions.

    Args:
        ranker: scores given answers by the same model.
        corpus: the prepared pairs.
        language: `zh` or `en`.
        num_questions: an evaluation asks at most so many.
        seed: of samples.
    """

    answerer: Chatbot
    ranker: AnswerRanker
    corpus: Any
    language: str
    num_questions: int
    seed: int = 0

    def show_samples(self, write: Callable[[str], None]) -> None:
        """Writes a few exchanges; warns if all answers agree."""
        exchanges = self._exchanges(ASKED)
        write_exchanges(exchanges[:SHOWN], write)
        answers = [answer.text for _, _, answer in exchanges]
        if len(answers) > 1 and len(set(answers)) == 1:
            write(
                f"warning: all {len(answers)} questions got the answer {answers[0]!r}. This is "
                "usual early in training; if it persists, try a lower learning rate, more epochs, "
                "or a corpus with fewer stock answers."
            )

    def evaluate(self, write: Callable[[str], None]) -> dict[str, float]:
        """Returns metrics of the answers to the held-out questions, and writes some of them."""
        exchanges = self._exchanges(self.num_questions)
        write_exchanges(exchanges[: 2 * SHOWN], write)
        metrics = judge(exchanges, self.language)
        metrics.update(self._ranking(exchanges, write))
        return {**metrics, "asked": len(exchanges)}

    def _ranking(
        self, exchanges: Sequence[Exchange], write: Callable[[str], None]
    ) -> dict[str, float]:
        """Returns `hits_1_10`; says why not where too few answers are held out."""
        references = [reference for _, reference, _ in exchanges]
        hits = self.ranker.hits([turns for turns, _, _ in exchanges], references)
        if hits is None:
            write(
                f"no hits_1_10: it needs {NUM_CANDIDATES} different held-out answers, and there "
                f"are {len(set(references))}. Hold out more with --set held_out=SHARE."
            )
            return {}
        return {"hits_1_10": hits}

    def exchanges_to_tune(self) -> list[Exchange]:
        """Returns held-out exchanges, evenly chosen, that `evaluate` does not ask from now on.

        It asks at most every second held-out question then.
        """
        pairs = self.corpus.held_out_pairs
        self.num_questions = max(1, min(self.num_questions, -(-len(pairs) // 2)))
        stride = stride_of(len(pairs), self.num_questions)
        others = [pair for index, pair in enumerate(pairs) if index % stride]
        return self._ask(others[:: stride_of(len(others), self.num_questions)])

    def _exchanges(self, limit: int) -> list[Exchange]:
        """Returns held-out exchanges, evenly chosen from all pairs."""
        pairs = self.corpus.held_out_pairs
        return self._ask(pairs[:: stride_of(len(pairs), limit)])

    def _ask(self, pairs: Sequence[Any]) -> list[Exchange]:
        texts = [self.corpus.texts(pair) for pair in pairs]
        answers = self.answerer.answer([turns for turns, _ in texts], seed=self.seed)
        return [
            Exchange(turns, reference, best)
            for (turns, reference), (best, *_) in zip(texts, answers, strict=True)
        ]


def judge(exchanges: Sequence[Exchange], language: str) -> dict[str, float]:
    """Returns the metrics of the answers of exchanges in a language."""
    return answer_metrics(
        [answer.text for _, _, answer in exchanges],
        [reference for _, reference, _ in exchanges],
        [answer.tokens for _, _, answer in exchanges],
        language,
    )


def stride_of(number: int, limit: int) -> int:
    """Returns the k for which every k-th of so many are at most `limit`."""
    return max(1, -(-number // limit))


def write_exchanges(exchanges: Sequence[Exchange], write: Callable[[str], None]) -> None:
    """Writes questions with the chatbot's answers, and the given answer where it differs."""
    for turns, reference, answer in exchanges:
        given = "" if answer.text == reference else f"   (given: {reference})"
        write(f"  {' / '.join(turns)}  ->  {answer.text or '(nothing)'}{given}")
