"""Law 1 for any Keras program: on towers it ends with one device's weights and History."""

import functools

import keras
import numpy as np
import pytest

from tests.kinds import KINDS, comparison, text
from tests.kinds.registry import Program, adam
from tests.paths import ROOT

# The most telling ones; all others are slow, as are one and three towers.
DEFAULT = (
    "several_inputs_and_outputs", "vae", "wgan_gp", "distillation_by_compute_loss",
    "forward_forward", "minibatch_standard_deviation", "prototypes_handed_to_a_layer",
    "traced_loop", "train_function_remade_by_a_callback",
)  # fmt: skip


def case(name, *num_towers):
    """Returns the parameters of a case, of which a kind's warnings make no failure."""
    slow = () if name in DEFAULT and num_towers == (2,) else (pytest.mark.slow,)
    marks = [pytest.mark.filterwarnings(f"ignore:{said}") for said in KINDS[name].said]
    return pytest.param(
        name, *num_towers, marks=[*marks, *slow], id="-".join(map(str, (name, *num_towers)))
    )


@functools.cache
def plain(name: str) -> comparison.Outcome:
    """What the program ends with under Keras alone, for all cases of a kind."""
    return comparison.run(KINDS[name], int(KINDS[name].repeated_rows))


@pytest.mark.parametrize(
    ("name", "num_towers"), [case(name, number) for name in KINDS for number in (1, 2, 3)]
)
def test_a_kind_of_program_ends_on_towers_as_on_one_device(name, num_towers):
    skip_if_missing(name)
    found = comparison.run(KINDS[name], num_towers)
    if KINDS[name].random_inside:
        assert_finite(found)
    else:
        apart = comparison.difference(plain(name), found)
        assert max(apart) <= KINDS[name].tolerance, apart


def reviews_by_words_and_places() -> Program:
    program = text.review_classifier(text.Positions(), keras.layers.GlobalAveragePooling1D())
    program.model.compile(adam(), "binary_crossentropy", metrics=["accuracy"])
    return program


@pytest.mark.parametrize(
    ("make", "num_towers"),
    [
        (reviews_by_words_and_places, 2),
        pytest.param(text.reviews_by_a_transformer_and_adam.make, 3, marks=pytest.mark.slow),
    ],
)
def test_repeated_rows_that_are_left_to_keras_end_as_on_one_device(make, num_towers):
    """Words come again in a batch; positions are looked up by every tower, but count once."""
    kind = KINDS["reviews_by_a_transformer_and_adam"]._replace(make=make)
    expected = comparison.run(kind, 0)
    found = comparison.run(kind._replace(how="own step"), num_towers)
    assert max(comparison.difference(expected, found)) <= kind.tolerance


@pytest.mark.parametrize("name", [case(name) for name in KINDS])
def test_a_kind_of_program_ends_the_same_when_it_runs_again(name):
    skip_if_missing(name)
    first = comparison.run(KINDS[name], 0)
    assert_finite(first)
    assert max(comparison.difference(first, comparison.run(KINDS[name], 0))) <= 1e-15


@pytest.mark.parametrize("name", DEFAULT)
def test_a_kind_of_program_trains(name):
    """A program whose variables stay where they are would agree with anything."""
    before, after, _ = plain(name)
    assert any(not np.array_equal(after[n], value) for n, value in before.items() if value.ndim)


def skip_if_missing(name: str) -> None:
    if KINDS[name].missing:
        pytest.skip(KINDS[name].missing)


def assert_finite(outcome: comparison.Outcome) -> None:
    for numbers in (*outcome.state.values(), *outcome.history.values()):
        assert np.isfinite(np.asarray(numbers, "float64")).all()


def test_the_guide_names_every_kind():
    page = (ROOT / "docs/guides/own-code.md").read_text(encoding="utf-8")
    table = page.partition("## Programs under test")[2]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("|")][2:]
    named = [name.strip() for row in rows for name in row.split(",")]
    assert sorted(named) == sorted(name.replace("_", " ") for name in KINDS)
    assert f"trains {len(KINDS)} small programs" in table
