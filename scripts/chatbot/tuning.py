"""The weight and the length reward of reranking, searched on held-out questions.

Li et al. 2016, "A Diversity-Promoting Objective Function for Neural Conversation Models", tune both
for BLEU. Answers of real talk agree with each other so little that BLEU alone may choose stock
answers: here the ten commonest answers may be at most a third as large a fraction as in the greedy
ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from towers.scripts.chatbot.chat_evaluator import ChatEvaluator, judge
from towers.scripts.chatbot.reranking import Reranker
from towers.scripts.shown import show

WEIGHTS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5)
LENGTH_REWARDS = (0.0, 0.5, 1.0, 2.0)
FRACTION_OF_GREEDY = 1 / 3
FEWEST = 50  # BLEU and fractions of fewer answers say nothing.
COLUMNS = ("bleu", "distinct_2", "entropy_2", "top_ten", "commonest")


class Trial(NamedTuple):
    """A weight and a length reward with the metrics, by name, of the answers that they choose."""

    weight: float
    length_reward: float
    metrics: dict[str, float]


def tune_reranking(reranker: Reranker, evaluator: ChatEvaluator, seed: int) -> Trial:
    """Returns the best trial on held-out questions that the evaluation leaves out from now on.

    The candidates are decoded and scored once for all trials, and compared with the evaluator's own
    answers, the greedy ones. The trials are printed as a table.

    Raises:
        ValueError: too few questions are left to tune with.
    """
    exchanges, language = evaluator.exchanges_to_tune(), evaluator.language
    if len(exchanges) < FEWEST:
        raise ValueError(
            f"--tune needs {FEWEST} test questions besides those of the evaluation. Received "
            f"{len(exchanges)}; train with a larger --set held_out=SHARE."
        )
    greedy = judge(exchanges, language)
    candidates = reranker.candidates([exchange.turns for exchange in exchanges], seed=seed)
    trials = []
    for weight, reward in itertools.product(WEIGHTS, LENGTH_REWARDS):
        best = reranker.weighted(weight, reward).choose(candidates)
        chosen = [one._replace(answer=row[0]) for one, row in zip(exchanges, best, strict=True)]
        trials.append(Trial(weight, reward, judge(chosen, language)))
    limit = greedy["top_ten"] * FRACTION_OF_GREEDY
    found = best_trial(trials, limit)
    show("\n".join(describe(trials, greedy, found, limit, len(exchanges))))
    return found


def best_trial(trials: Sequence[Trial], limit: float) -> Trial:
    """Returns the trial with the best BLEU of those with few stock answers, within the limit.

    Where no trial has few, the one with the fewest.
    """
    varied = [trial for trial in trials if trial.metrics["top_ten"] <= limit]
    if varied:
        return max(varied, key=lambda trial: trial.metrics["bleu"])
    return min(trials, key=lambda trial: trial.metrics["top_ten"])


def describe(
    trials: Sequence[Trial], greedy: dict[str, float], best: Trial, limit: float, number: int
) -> list[str]:
    """Returns a table of the trials, and a line for the best one."""
    rows = [(f"{one.weight:g} | {one.length_reward:g}", one.metrics) for one in trials]
    lines = [
        f"tuned on {number} test questions that the evaluation below does not ask:",
        f"| weight | length reward | {' | '.join(COLUMNS)} |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    for name, metrics in [("greedy | ", greedy), *rows]:
        values = " | ".join(f"{metrics[column]:.3f}" for column in COLUMNS)
        lines.append(f"| {name} | {values} |")
    if best.metrics["top_ten"] <= limit:
        reason = (
            f"the best BLEU among trials whose ten commonest answers make up at most {limit:.3f}"
        )
    else:
        reason = (
            f"the fewest stock answers; no trial reached {limit:.3f}. Samples vary more than "
            "beams, and more with a higher --temperature"
        )
    chosen = f"--mmi-weight {best.weight:g} --length-reward {best.length_reward:g}"
    return [*lines, f"chosen: {chosen} ({reason})"]
