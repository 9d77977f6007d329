"""Batches of pairs: every pair once, in an order of (seed, epoch), within the budget, balanced."""

import subprocess
import sys
import tempfile
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.prepared.helpers import (
    LIMITS,
    SPACES,
    collect,
    corpus_of,
    expected_rows,
    quiet,
    rows_of,
    same_batches,
)
from towers.data.batches.buckets import balanced_order
from towers.data.batches.pairs import pair_batches
from towers.data.prepared import DialoguePreparation, prepare_dialogues
from towers.ground.special_ids import END, SEPARATOR

LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60)
SHAPINGS = pytest.mark.parametrize("fixed_shapes", [False, True])


def many_lengths(num_pairs, seed=0, longest=20):
    """Returns lengths as those of talk: many short ones, few long ones."""
    drawn = np.random.default_rng(seed).gamma(2.0, 3.0, (num_pairs, 2)).astype(int) + 1
    return np.minimum(drawn, longest).tolist()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return corpus_of(tmp_path_factory.mktemp("corpus"), many_lengths(700), many_lengths(37, 1))


@settings(max_examples=15, deadline=None)
@given(
    lengths=LENGTHS,
    data=st.data(),
    batch_tokens=st.integers(1, 300),
    batch_size=st.integers(1, 20),
    fixed_shapes=st.booleans(),
)
def test_every_pair_comes_once_within_the_budget(
    lengths, data, batch_tokens, batch_size, fixed_shapes
):
    with tempfile.TemporaryDirectory() as folder:
        corpus = corpus_of(folder, lengths)
        limits = {**LIMITS, "batch_tokens": batch_tokens, "batch_size": batch_size}
        batches = pair_batches(corpus, "train", fixed_shapes=fixed_shapes, **limits)
        epoch = collect(batches(3))
        assert sorted(rows_of(epoch)) == sorted(expected_rows(corpus))
        assert (batches.num_examples, batches.steps_per_epoch) == (len(lengths), len(epoch))
        for question, answer in epoch:
            assert len(question) == len(answer) <= batch_size
            tokens = len(question) * (question.shape[1] + answer.shape[1])
            assert tokens <= batch_tokens or len(question) == 1
        first_step = data.draw(st.integers(0, len(epoch)))
        assert same_batches(collect(batches(3, first_step)), epoch[first_step:])


@SHAPINGS
def test_order_is_a_function_of_seed_and_epoch(corpus, fixed_shapes):
    def epoch(seed, number):
        batches = pair_batches(corpus, "train", seed=seed, fixed_shapes=fixed_shapes, **LIMITS)
        return rows_of(collect(batches(number)))

    assert epoch(1, 2) == epoch(1, 2)
    assert epoch(1, 2) != epoch(1, 3)
    assert epoch(1, 2) != epoch(2, 2)
    assert sorted(epoch(1, 2)) == sorted(epoch(2, 3))


@SHAPINGS
def test_pairs_meet_others_in_another_epoch(corpus, fixed_shapes):
    batches = pair_batches(corpus, "train", fixed_shapes=fixed_shapes, **LIMITS)
    companies = [
        {frozenset(answer[:, 0].tolist()) for _, answer in collect(batches(epoch))}
        for epoch in range(2)
    ]
    assert len(companies[0] & companies[1]) < len(companies[0]) / 2


@SHAPINGS
def test_shapes_are_the_same_in_every_epoch(corpus, fixed_shapes):
    batches = pair_batches(corpus, "train", fixed_shapes=fixed_shapes, **LIMITS)
    shapes = [
        sorted((*question.shape, answer.shape[1]) for question, answer in collect(batches(epoch)))
        for epoch in range(2)
    ]
    assert shapes[0] == shapes[1] == sorted(map(tuple, batches.layout.shapes.tolist()))


def test_unshuffled_order_is_the_same_in_every_epoch_and_goes_from_short_to_long(corpus):
    batches = pair_batches(corpus, "held_out", shuffle=False, **LIMITS)
    epoch = collect(batches(0))
    assert same_batches(epoch, collect(batches(5)))
    assert sorted(rows_of(epoch)) == sorted(expected_rows(corpus, "held_out"))
    lengths = [answer.shape[1] for _, answer in epoch]
    assert lengths[0] == min(lengths) < lengths[-1] == max(lengths)


def test_there_is_at_most_one_fixed_shape_for_a_bucket(corpus):
    epoch = collect(pair_batches(corpus, "train", fixed_shapes=True, **LIMITS)(0))
    rows_of_bucket = {}
    for question, answer in epoch:
        lengths = question.shape[1], answer.shape[1]
        rows_of_bucket.setdefault(lengths, set()).add(len(question))
    assert 1 < len(rows_of_bucket) <= 16
    assert all(len(rows) == 1 for rows in rows_of_bucket.values())


def test_a_missing_row_is_a_repeated_question_without_an_answer(corpus):
    epoch = collect(pair_batches(corpus, "train", fixed_shapes=True, **LIMITS)(0))
    missing = 0
    for question, answer in epoch:
        empty = ~np.any(answer, axis=1)
        missing += empty.sum()
        assert empty.sum() <= 1
        assert np.all(np.any(question, axis=1))
        for row in question[empty]:
            assert any(np.array_equal(row, other) for other in question[~empty])
    assert missing


def test_answers_end_once_and_everything_is_padded_at_the_end(corpus):
    for question, answer in collect(pair_batches(corpus, "train", **LIMITS)(0)):
        assert question.dtype == answer.dtype == np.int32
        np.testing.assert_array_equal(np.sum(answer == END, axis=1), 1)
        last = np.sum(answer > 0, axis=1) - 1
        np.testing.assert_array_equal(answer[np.arange(len(answer)), last], END)
        for ids in (question, answer):
            assert not np.any((ids[:, :-1] == 0) & (ids[:, 1:] != 0))
            assert np.all(ids[:, 0] > 0) and np.any(ids[:, -1] > 0)


def test_turns_of_a_question_are_parted_and_its_last_tokens_are_kept(tmp_path):
    dialogue = ["one two", "", "three", "four five", "six"]
    preparation = DialoguePreparation(SPACES, pairing="sliding", context=3)
    corpus = prepare_dialogues([dialogue], [["a", "b"]], preparation, tmp_path, write=quiet)
    assert [corpus.texts(pair) for pair in corpus.train_pairs] == [
        (["one two", "three"], "four five"),
        (["one two", "three", "four five"], "six"),
    ]
    longest = pair_batches(corpus, "train", shuffle=False, **LIMITS)
    assert sorted(rows_of(collect(longest(0)))) == sorted(expected_rows(corpus))
    assert any(SEPARATOR in question for question, _ in rows_of(collect(longest(0))))
    short = pair_batches(corpus, "train", shuffle=False, **LIMITS | {"max_question_length": 2})
    rows = rows_of(collect(short(0)))
    assert sorted(rows) == sorted(expected_rows(corpus, max_question_length=2))
    assert {len(question) for question, _ in rows} == {2}


@pytest.mark.parametrize("part", ["train", "held_out"])
def test_pairs_with_too_long_answers_are_left_out_and_counted(tmp_path, part):
    lengths = [(3, 4), (3, 5), (3, 6), (1, 9)]
    corpus = corpus_of(tmp_path, lengths, lengths)
    batches = pair_batches(corpus, part, **LIMITS | {"max_answer_length": 6})
    expected = [row for row in expected_rows(corpus, part) if len(row[1]) <= 6]
    rows = rows_of(collect(batches(0)))
    assert sorted(rows) == sorted(expected)
    assert batches.num_examples == len(rows) and batches.source.left_out == 4 - len(rows)
    if part == "train":  # Held-out numbers are unknown words, spelled by several ids.
        assert batches.source.left_out == 2
        assert batches.source.summary.endswith(
            "left out: 2 with longer answers (max_answer_length)"
        )


REPEATED = ["yes"] * 9 + ["no"] * 4 + ["yes indeed"] * 2 + ["why on earth not"]


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    """A corpus in which some answers occur often, in both parts."""
    parts = [
        [[f"{part}{number}", answer] for number, answer in enumerate(REPEATED)] for part in "qh"
    ]
    folder = tmp_path_factory.mktemp("repeated")
    return prepare_dialogues(*parts, DialoguePreparation(SPACES), folder, write=quiet)


@pytest.mark.parametrize("most", [1, 3, 100])
def test_an_answer_occurs_at_most_so_often_in_training(repeated, most):
    batches = pair_batches(repeated, "train", max_answer_repeats=most, **LIMITS)
    answers = Counter(repeated.texts(pair)[1] for pair in batches.source.pairs)
    assert answers == {text: min(most, count) for text, count in Counter(REPEATED).items()}
    assert batches.source.num_repeated == len(REPEATED) - answers.total()
    assert sorted(rows_of(collect(batches(0)))) == sorted(
        row
        for row, pair in zip(expected_rows(repeated), repeated.train_pairs, strict=True)
        if pair.tolist() in batches.source.pairs.tolist()
    )


def test_the_same_repeats_are_left_out_for_every_seed_and_from_everywhere(repeated):
    made = [
        pair_batches(repeated, "train", max_answer_repeats=3, seed=seed, **LIMITS)
        for seed in (0, 0, 7)
    ]
    kept = [batches.source.pairs.tolist() for batches in made]
    assert kept[0] == kept[1] == kept[2]
    assert kept[0][:3] != repeated.train_pairs[:3].tolist()


def test_held_out_pairs_keep_all_repeats_and_zero_keeps_all(repeated):
    held_out = pair_batches(repeated, "held_out", max_answer_repeats=1, **LIMITS)
    train = pair_batches(repeated, "train", max_answer_repeats=0, **LIMITS)
    assert held_out.num_examples == train.num_examples == len(REPEATED)
    assert held_out.source.num_repeated == train.source.num_repeated == 0
    assert "left out" not in held_out.source.summary + train.source.summary


def test_the_summary_says_how_many_were_left_out_and_why(repeated):
    limits = LIMITS | {"max_answer_length": 3}
    summary = pair_batches(repeated, "train", max_answer_repeats=2, **limits).source.summary
    expected = (
        "1 with longer answers (max_answer_length), "
        "9 with answers repeated too often (max_answer_repeats)"
    )
    assert summary.endswith(f"left out: {expected}")


def test_a_pair_over_the_budget_is_a_batch_of_its_own(tmp_path):
    corpus = corpus_of(tmp_path, [(2, 2), (2, 2), (40, 30)])
    epoch = collect(pair_batches(corpus, "train", **LIMITS | {"batch_tokens": 20})(0))
    assert sorted(question.shape for question, _ in epoch) == [(1, 40), (2, 2)]


def test_there_is_little_padding(corpus):
    batches = pair_batches(corpus, "train", **LIMITS)
    fitted = batches.source
    ids = np.concatenate([part.ravel() for batch in collect(batches(0)) for part in batch])
    assert fitted.padding_fraction == pytest.approx(np.mean(ids == 0))
    assert fitted.padding_fraction < 0.1
    assert f" batches, {fitted.padding_fraction:.1%} of the tokens are padding" in fitted.summary
    assert pair_batches(corpus, "train", fixed_shapes=True, **LIMITS).source.padding_fraction < 0.26


@pytest.mark.parametrize("num_towers", [2, 3, 4, 8])
@pytest.mark.parametrize("num_rows", [8, 31, 64, 100, 128, 250])
def test_balanced_blocks_differ_by_about_one_row(num_rows, num_towers):
    lengths = np.sort(np.random.default_rng(num_rows).gamma(2.0, 5.0, num_rows) + 1)
    assert sorted(balanced_order(num_rows)) == list(range(num_rows))
    blocks = np.array_split(lengths[balanced_order(num_rows)], num_towers)
    means = [block.mean() for block in blocks]  # Some blocks have a row more than others.
    assert np.ptp(means) * (num_rows // num_towers) <= 1.2 * np.ptp(lengths)


@SHAPINGS
@pytest.mark.parametrize("num_towers", [2, 3, 4, 8])
def test_towers_get_equal_shares_of_tokens(corpus, num_towers, fixed_shapes):
    limits = {**LIMITS, "batch_tokens": 10**6, "batch_size": 128}
    batches = pair_batches(corpus, "train", fixed_shapes=fixed_shapes, **limits)
    for question, answer in collect(batches(0)):
        tokens = np.sum(question > 0, axis=1) + np.sum(answer > 0, axis=1)
        if len(tokens) < 4 * num_towers:
            continue
        means = [block.mean() for block in np.array_split(tokens, num_towers)]
        assert np.ptp(means) * (len(tokens) // num_towers) <= 2 * np.ptp(tokens) + 1


def test_spec_leaves_rows_and_lengths_open(corpus):
    spec = pair_batches(corpus, "train", **LIMITS)(0).element_spec
    assert spec == (tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None], tf.int32))


def test_length_is_known(corpus):
    batches = pair_batches(corpus, "train", **LIMITS)
    assert batches(0, 2).cardinality() == batches.steps_per_epoch - 2
    answers = [corpus.texts(pair)[1] for pair in corpus.train_pairs]
    expected = sum(len(answer.replace(" ", "")) + 1 for answer in answers)
    assert batches.source.num_characters == expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_tokens": 0}, "batch_tokens must be a whole number of at least 1. Received 0"),
        ({"batch_size": -1}, "batch_size must be a whole number of at least 1. Received -1"),
        ({"max_answer_length": 1}, "No pair of the train part.*Raise max_answer_length"),
        ({"seed": -1}, "seed must be a whole number of at least 0. Received -1"),
        (
            {"max_answer_repeats": -1},
            "max_answer_repeats must be a whole number of at least 0. Received -1",
        ),
    ],
)
def test_wrong_argument_is_refused(corpus, wrong, message):
    with pytest.raises(ValueError, match=message):
        pair_batches(corpus, "train", **LIMITS | wrong)


def test_unknown_part_is_refused(corpus):
    with pytest.raises(ValueError, match=r"train, held_out\. Received 'test'"):
        pair_batches(corpus, "test", **LIMITS)


@pytest.mark.parametrize(("epoch", "first_step"), [(-1, 0), (0, -1), (0, 10**6)])
def test_position_outside_of_the_epoch_is_refused(corpus, epoch, first_step):
    with pytest.raises(ValueError, match=f"epoch={epoch}, first_step={first_step}"):
        pair_batches(corpus, "train", **LIMITS)(epoch, first_step)


def test_preparing_does_not_import_tensorflow():
    script = "import sys, towers.data.batches.pairs; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
