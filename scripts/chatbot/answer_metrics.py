"""Metrics of a chatbot's answers: agreement with the references, and variety."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Sequence
from typing import Any

from towers.ground.extras import import_extra

BLEU_TOKENIZERS = {"zh": "zh", "en": "13a"}  # sacrebleu's names.


def answer_metrics(
    answers: Sequence[str],
    references: Sequence[str],
    token_lists: Sequence[Sequence[str]],
    language: str,
) -> dict[str, float]:
    """Returns the metrics by name.

    - bleu, exact_match: agreement with the references.
    - distinct_1, distinct_2, entropy_1, entropy_2: variety of the words and of the pairs of words.
    - empty_rate: fraction of answers without a word.
    - commonest, top_ten: fraction of the commonest answer, and of the ten commonest.

    Args:
        answers: the chatbot's, a text for each question; at least one.
        references: the answers of the corpus.
        token_lists: the tokens of each of the chatbot's answers.
        language: `zh` or `en`, for the tokenizer of BLEU.
    """
    same = sum(answer == reference for answer, reference in zip(answers, references, strict=True))
    commonest = [count for _, count in collections.Counter(answers).most_common(10)]
    return {
        "bleu": bleu(answers, references, language),
        "exact_match": same / len(answers),
        "distinct_1": distinct(token_lists, 1),
        "distinct_2": distinct(token_lists, 2),
        "entropy_1": entropy(token_lists, 1),
        "entropy_2": entropy(token_lists, 2),
        "empty_rate": sum(not answer for answer in answers) / len(answers),
        "commonest": commonest[0] / len(answers),
        "top_ten": sum(commonest) / len(answers),
    }


def bleu(answers: Sequence[str], references: Sequence[str], language: str) -> float:
    """Returns corpus BLEU in 0..100 (Papineni et al. 2002), as sacrebleu computes it."""
    corpus_bleu = import_bleu().corpus_bleu
    tokenizer = BLEU_TOKENIZERS[language]
    return corpus_bleu(list(answers), [list(references)], tokenize=tokenizer).score


def import_bleu() -> Any:
    """Returns sacrebleu, which an evaluation needs once; ValueError if it is not installed."""
    return import_extra("sacrebleu", "bleu", "Evaluating a chatbot includes BLEU")


def distinct(token_lists: Iterable[Sequence[str]], size: int) -> float:
    """Returns the number of different n-grams over the number of all; 0 for none.

    Li et al. 2016 (arXiv:1510.03055) divide by the number of tokens instead.
    """
    grams = count_grams(token_lists, size)
    return len(grams) / grams.total() if grams else 0.0


def entropy(token_lists: Iterable[Sequence[str]], size: int) -> float:
    """Returns the entropy of the n-grams of all answers in nats; 0 for none.

    With F(w), the number of times that the n-gram w occurs, and F, the number of all n-grams, it is
    -sum over w of F(w) / F * log(F(w) / F): Ent-n of Zhang et al. 2018 (arXiv:1809.05972). Unlike
    `distinct` it tells n-grams that occur evenly from a few that occur mostly.
    """
    grams = count_grams(token_lists, size)
    fractions = [count / grams.total() for count in grams.values()]
    return sum((-fraction * math.log(fraction) for fraction in fractions), 0.0)


def count_grams(
    token_lists: Iterable[Sequence[str]], size: int
) -> collections.Counter[tuple[str, ...]]:
    """Returns how often each n-gram occurs; none reaches over the end of an answer."""
    return collections.Counter(
        gram
        for tokens in token_lists
        for gram in zip(*(tokens[start:] for start in range(size)), strict=False)
    )
