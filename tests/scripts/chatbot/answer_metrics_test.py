"""The metrics of answers, against numbers counted by hand."""

import math

import pytest

from towers.scripts.chatbot.answer_metrics import answer_metrics, bleu, distinct, entropy


def test_distinct_counts_different_n_grams():
    token_lists = [["a", "b", "a"], ["a", "b"], []]
    assert distinct(token_lists, 1) == 2 / 5
    assert distinct(token_lists, 2) == 2 / 3  # a b, b a, a b
    assert distinct([["a"]], 2) == 0.0


def test_entropy_is_that_of_the_n_grams_and_none_reaches_over_an_end():
    token_lists = [["a", "b", "a"], ["a", "b"], []]
    assert entropy(token_lists, 1) == pytest.approx(-(0.6 * math.log(0.6) + 0.4 * math.log(0.4)))
    thirds = [1 / 3, 2 / 3]  # b a, and twice a b
    assert entropy(token_lists, 2) == pytest.approx(-sum(p * math.log(p) for p in thirds))
    assert entropy([list("abcd")], 1) == pytest.approx(math.log(4))
    assert entropy([["a"]], 2) == 0.0


def test_entropy_tells_even_words_from_a_common_one_where_distinct_does_not():
    even, uneven = [list("aabbcc")], [list("aaaabc")]
    assert distinct(even, 1) == distinct(uneven, 1)
    assert entropy(even, 1) > entropy(uneven, 1)


def test_top_ten_is_the_share_of_the_ten_commonest_answers():
    answers = ["yes"] * 5 + list("abcdefghij") + ["no"] * 3
    tokens = [[answer] for answer in answers]
    metrics = answer_metrics(answers, answers, tokens, "en")
    assert metrics["commonest"] == 5 / 18
    assert metrics["top_ten"] == (5 + 3 + 8) / 18


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
    assert metrics["top_ten"] == 1
    assert metrics["distinct_1"] == 3 / 6
    assert metrics["distinct_2"] == 2 / 3
