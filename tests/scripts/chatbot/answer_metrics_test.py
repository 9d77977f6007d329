"""The metrics of answers, against numbers counted by hand."""

import pytest

from towers.scripts.chatbot.answer_metrics import answer_metrics, bleu, distinct


def test_distinct_counts_different_n_grams():
    token_lists = [["a", "b", "a"], ["a", "b"], []]
    assert distinct(token_lists, 1) == 2 / 5
    assert distinct(token_lists, 2) == 2 / 3  # a b, b a, a b
    assert distinct([["a"]], 2) == 0.0


def test_bleu_of_the_references_themselves_is_100():
    texts = ["the cat sat on the mat today.", "a dog ran over the long bridge."]
    assert bleu(texts, texts, "en") == pytest.approx(100.0)


def test_chinese_bleu_counts_characters():
    """Ten characters, one of them wrong; no blanks would make it one wrong word else."""
    assert 50 < bleu(["今天天气很好我们走吧"], ["今天天气很好我们走啊"], "zh") < 100


def test_every_metric_of_a_small_set():
    metrics = answer_metrics(
        ["yes.", "yes.", "", "no."], ["yes.", "no.", "yes.", "no."],
        [["yes", "."], ["yes", "."], [], ["no", "."]], "en",
    )  # fmt: skip
    assert metrics["exact_match"] == 0.5
    assert metrics["empty_rate"] == 0.25
    assert metrics["commonest"] == 0.5
    assert metrics["distinct_1"] == 3 / 6
    assert metrics["distinct_2"] == 2 / 3


def test_answers_without_references_are_refused():
    with pytest.raises(ValueError, match="a reference and a token list for each answer"):
        answer_metrics(["yes."], [], [["yes", "."]], "en")
    with pytest.raises(ValueError, match="at least one"):
        answer_metrics([], [], [], "en")
