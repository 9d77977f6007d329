"""Metrics of a chatbot's answers: agreement with the references, and variety."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

BLEU_TOKENIZERS = {"zh": "zh", "en": "13a"}  # sacrebleu's names.


def answer_metrics(
    answers: Sequence[str],
    references: Sequence[str],
    token_lists: Sequence[Sequence[str]],
    language: str,
) -> dict[str, float]:
    """Returns `bleu`, `exact_match`, `distinct_1`, `distinct_2`, `empty_rate` and `commonest`.

    Args:
        answers: the chatbot's, a text for each question; at least one.
        references: the answers of the corpus.
        token_lists: the tokens of each of the chatbot's answers.
        language: `zh` or `en`, for the tokenizer of BLEU.
    """
    if not answers or not len(answers) == len(references) == len(token_lists):
        raise ValueError(
            "There must be a reference and a token list for each answer, and at least one answer. "
            f"Received {len(answers)} answers, {len(references)} references and "
            f"{len(token_lists)} token lists."
        )
    same = sum(answer == reference for answer, reference in zip(answers, references, strict=True))
    return {
        "bleu": bleu(answers, references, language),
        "exact_match": same / len(answers),
        "distinct_1": distinct(token_lists, 1),
        "distinct_2": distinct(token_lists, 2),
        "empty_rate": sum(not answer for answer in answers) / len(answers),
        "commonest": collections.Counter(answers).most_common(1)[0][1] / len(answers),
    }


def bleu(answers: Sequence[str], references: Sequence[str], language: str) -> float:
    """Returns corpus BLEU in 0..100 (Papineni et al. 2002), as sacrebleu computes it."""
    import sacrebleu  # Not at the top: it is needed once, at the end of an evaluation.

    tokenizer = BLEU_TOKENIZERS[language]
    return sacrebleu.corpus_bleu(list(answers), [list(references)], tokenize=tokenizer).score


def distinct(token_lists: Iterable[Sequence[str]], size: int) -> float:
    """Returns the number of different n-grams over the number of all; 0 for none.

    Li et al. 2016 (arXiv:1510.03055) divide by the number of tokens instead.

    Args:
        token_lists: the tokens of each answer.
        size: n.
    """
    grams = collections.Counter(
        gram
        for tokens in token_lists
        for gram in zip(*(tokens[start:] for start in range(size)), strict=False)
    )
    return len(grams) / grams.total() if grams else 0.0
