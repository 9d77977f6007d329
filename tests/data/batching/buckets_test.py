"""The layouts of an epoch: every example once, shapes that fit, the least padding."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towers.data.batching.buckets import (
    NUM_EDGES,
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
    examples, groups, bounds, shapes = make_layout(
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
    single = _snake_layout(questions, answers, 1, **budget)
    assert np.all(np.diff(answers[single.examples]) >= 0)
    assert num_tokens(layout.shapes) < 0.97 * num_tokens(single.shapes)
