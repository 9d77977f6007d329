"""Laws 1, 8 and 9 for the recipe `images`: pictures from files, with each kind of labels."""

import dataclasses

import keras
import numpy as np
import pytest

from tests import helpers
from tests.data.image_files.pictures import PLAIN_KINDS, write_pictures
from towers.scripts.recipes.images import RECIPE

SMALL = {
    "network": "softmax",
    "size": 16,
    "batch_size": 9,
    "validation_share": 0.0,
    "part": "train",
}
LABELS = {
    "one label": {},
    "soft labels": {"mixup": 0.3, "label_smoothing": 0.1, "augmentation": "randaugment"},
    "several labels": {"multi_label": True},
}
SIZES = [9, 9, 6]  # The last batch of an epoch is smaller.


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """Returns a folder of 24 pictures."""
    monkeypatch.chdir(tmp_path)  # Where the findings of the check are kept.
    write_pictures(tmp_path / "pictures", broken=False, kinds=PLAIN_KINDS)
    return tmp_path / "pictures"


def read(folder, **changes):
    """Returns the recipe's fields, its data and the batches of an epoch."""
    fields = dataclasses.replace(RECIPE.fields, **{**SMALL, **changes})
    data = RECIPE.make_data(fields, folder, seed=1)
    batches = [tuple(part.numpy() for part in batch) for batch in data.train(0)]
    assert [len(images) for images, _ in batches] == SIZES
    return fields, data, batches


def fresh(fields, data, batches):
    """Returns (tower function, model, batches), the same each time."""
    keras.utils.set_random_seed(3)
    model = RECIPE.make_model(fields, data)
    return RECIPE.make_tower_fn(fields, model, True), model, batches


def cases():
    """Yields labels, network and number of towers; each builds a step: but one by name."""
    for labels in LABELS:
        for network in ("softmax", "cifar_cnn"):
            for num_towers in (1, 2, 3):
                is_default = (labels, network, num_towers) == ("soft labels", "softmax", 3)
                marks = () if is_default else pytest.mark.slow
                yield pytest.param(labels, network, num_towers, marks=marks)


@pytest.mark.parametrize("labels, network, num_towers", list(cases()))
def test_any_number_of_towers_matches_the_plain_loop(pictures, labels, network, num_towers):
    keras.config.set_dtype_policy("float64")
    epoch = read(pictures, **LABELS[labels], network=network)
    expected, _ = helpers.train_plainly(*train(fresh(*epoch)))
    actual, _ = helpers.train_on_towers(*train(fresh(*epoch)), num_towers)
    helpers.assert_same_weights(actual, expected, float64=True)


def train(made):
    tower_fn, model, batches = made
    return tower_fn, model, keras.optimizers.Adam(0.01), batches


def test_one_trace_takes_every_batch(pictures):
    tower_fn, model, batches = fresh(*read(pictures))
    calls = []

    def counting(batch):
        calls.append(batch)
        return tower_fn(batch)

    step, shards = helpers.build_step(counting, model, keras.optimizers.SGD(0.1), batches, 2)
    num_traces = len(calls)
    weights = [float(step(one, number).weight) for number, one in enumerate(shards, 1)]
    assert weights == SIZES
    assert len(calls) == num_traces <= 1 + 2


@pytest.mark.slow
def test_dropout_is_a_function_of_the_step_and_the_part(pictures):
    """Two runs of a network of `keras.applications` draw the same masks."""

    def trained(**changes):
        made = train(fresh(*read(pictures, network="MobileNet", size=32, **changes)))
        return helpers.train_on_towers(*made, 2)[0]

    first, second, without = trained(dropout_rate=0.5), trained(dropout_rate=0.5), trained()
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    assert any(np.abs(one - other).max() > 1e-4 for one, other in zip(first, without, strict=True))
