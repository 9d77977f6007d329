"""The search for the weights of reranking: what is the best trial, and what is said of it."""

import pytest

from towers.scripts.chatbot.tuning import COLUMNS, Trial, best_trial, describe


def trial(weight, bleu, top_ten):
    return Trial(weight, 0.5, {**dict.fromkeys(COLUMNS, 0.0), "bleu": bleu, "top_ten": top_ten})


STOCK, VARIED, BETTER = trial(0.1, 9.0, 0.8), trial(0.5, 1.0, 0.1), trial(0.7, 2.0, 0.2)


@pytest.mark.parametrize(
    ("trials", "limit", "best", "reason"),
    [
        pytest.param([STOCK, VARIED, BETTER], 0.2, BETTER, "best BLEU", id="few stock answers"),
        pytest.param([STOCK, VARIED, BETTER], 0.1, VARIED, "best BLEU", id="at the limit"),
        pytest.param([STOCK, BETTER], 0.1, BETTER, "vary more", id="all have many"),
        pytest.param([STOCK, VARIED], 1.0, STOCK, "best BLEU", id="no limit in effect"),
    ],
)
def test_the_best_trial_has_few_stock_answers_then_the_best_bleu(trials, limit, best, reason):
    assert best_trial(trials, limit) is best
    lines = describe(trials, STOCK.metrics, best, limit, 100)
    assert lines[-1].startswith(f"chosen: --mmi-weight {best.weight:g} --length-reward 0.5 (")
    assert reason in lines[-1]
    assert len({line.count("|") for line in lines[1:-1]}) == 1  # A table.
