"""The layouts of an epoch: every example once, shapes that fit, the least padding."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towers.data.batches.buckets import (
    NUM_EDGES,
    WIDTHS,
    _cells,
    _snake_layout,
    edges_of,
    fitted_layout,
    fixed_layout,
    num_tokens,
)

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=200)
MAKERS = pytest.mark.parametrize("make_layout", [fitted_layout, fixed_layout])


@MAKERS
@given(lengths=LENGTHS, batch_tokens=st.integers(1, 400), batch_size=st.integers(1, 30))
def test_layout_holds_every_example_once_in_shapes_that_fit(
    make_layout, lengths, batch_tokens, batch_size
):
    questions, answers = np.array(lengths).T
    examples, groups, bounds, shapes, _ = make_layout(
        questions, answers, batch_tokens=batch_tokens, batch_size=batch_size
    )
    assert sorted(examples) == list(range(len(lengths)))
    assert (bounds[0], bounds[-1]) == (0, len(examples)) and np.all(np.diff(bounds) > 0)
    assert len(groups) == len(examples) and np.all(np.diff(groups) >= 0)
    for group in np.unique(groups):  # Examples that change places fit there.
        places = np.flatnonzero(groups == group)
        inside = (bounds[:-1] <= places[-1]) & (bounds[1:] > places[0])
        assert np.all(questions[examples[places]].max() <= shapes[inside, 1])
        assert np.all(answers[examples[places]].max() <= shapes[inside, 2])
    rows, _, _ = shapes.T
    missing = rows - np.diff(bounds)
    assert np.all((missing >= 0) & (missing <= (make_layout is fixed_layout)))
    assert np.all((rows == 1) | (rows * shapes[:, 1:].sum(axis=1) <= batch_tokens))
    assert np.all(rows <= batch_size)


@given(LENGTHS)
def test_fixed_shapes_are_few_and_one_for_each_pair_of_lengths(lengths):
    shapes = fixed_layout(*np.array(lengths).T, batch_tokens=300, batch_size=16).shapes
    different = {tuple(shape) for shape in shapes.tolist()}
    assert len(different) == len({shape[1:] for shape in different}) <= NUM_EDGES**2


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30))
def test_edges_add_the_least_padding(lengths):
    lengths = np.array(lengths)
    values = np.unique(lengths)
    choices = itertools.combinations(values, min(NUM_EDGES, len(values)))
    costs = [
        np.sum(np.array(edges)[np.searchsorted(edges, lengths)])
        for edges in choices
        if edges[-1] == values[-1]
    ]
    padded = edges_of(lengths)[lengths]
    assert np.all(padded >= lengths) and len(np.unique(padded)) <= NUM_EDGES
    assert padded.sum() == min(costs)


def test_lengths_of_answers_are_taken_together_where_that_pads_less():
    questions, answers = np.random.default_rng(0).gamma(2.0, 3.0, (2, 2000)).astype(int) + 1
    budget = {"batch_tokens": 1000, "batch_size": 32}
    layout = fitted_layout(questions, answers, **budget)
    cells = _cells(questions, answers)
    single = _snake_layout(cells, 1, *budget.values())
    assert np.all(np.diff(cells.answers[single.order]) >= 0)
    assert num_tokens(layout.shapes) < 0.97 * num_tokens(single.shapes)


def batches_one_by_one(lengths, width, batch_tokens, batch_size):
    """Returns the batches of a bucket width, made by adding one example after another."""

    def place(number):
        question, answer = lengths[number]
        bucket = answer // width
        return bucket, question if bucket % 2 == 0 else -question, answer

    batches = []
    for number in sorted(range(len(lengths)), key=place):
        batch = [*batches[-1], number] if batches else [number]
        longest = sum(max(lengths[one][side] for one in batch) for side in (0, 1))
        if batches and len(batch) <= batch_size and longest * len(batch) <= batch_tokens:
            batches[-1] = batch
        else:
            batches.append([number])
    return batches


@given(
    lengths=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=120),
    batch_tokens=st.integers(1, 60),
    batch_size=st.integers(1, 9),
)
def test_batches_are_those_of_adding_one_example_after_another(lengths, batch_tokens, batch_size):
    """Equal examples are taken many at a time."""
    options = {"batch_tokens": batch_tokens, "batch_size": batch_size}
    layout = fitted_layout(*np.array(lengths).T, **options)
    made = [layout.rows[start:end].tolist() for start, end in itertools.pairwise(layout.bounds)]
    assert made in [batches_one_by_one(lengths, width, **options) for width in WIDTHS]
    for batch, (rows, question, answer) in zip(made, layout.shapes.tolist(), strict=True):
        longest = [max(lengths[one][side] for one in batch) for side in (0, 1)]
        assert [len(batch), *longest] == [rows, question, answer]
