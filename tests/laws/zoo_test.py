"""Law 1 for models that nobody wrote for towers: in float64 they train as in a plain loop."""

import functools
import re

import keras
import numpy as np
import pytest

from tests import helpers
from tests.laws.zoo import other, published, text, vision
from tests.paths import ROOT

MEMBERS = {
    **vision.MEMBERS,
    **text.MEMBERS,
    **other.MEMBERS,
    **published.MEMBERS,
    **published.HUB_MEMBERS,
}
SIZES = (8, 7, 1)
TOLERANCE = 1e-12  # Of the model's largest weight.
# The bounds of those that amplify rounding, and of those that TensorFlow computes in float32.
BOUNDS = {"ctc": 1e-6, "hub_llama": 1e-6}
DEFAULT = {("tab_transformer", 2)}
CASES = [(name, towers) for name in MEMBERS for towers in (1, 2, 3)]


def test_the_table_has_every_model():
    table = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(MEMBERS)


@pytest.fixture(autouse=True)
def floats():
    """Puts back Keras's float type, which some of its functions compute in."""
    yield
    keras.config.set_floatx("float32")


def fresh(name):
    """Returns the model of a member as it is before the first step, and its batches."""
    keras.utils.clear_session(free_memory=False)
    keras.config.set_floatx("float32" if name == "hub_t5" else "float64")
    keras.config.set_dtype_policy("float64")
    keras.utils.set_random_seed(3)
    member = MEMBERS[name]
    random = np.random.default_rng(5)
    batches = [member.make_batch(random, rows) for rows in SIZES]
    model = member.make_model()
    member.tower_fn(model)(batches[0])  # Builds what is not built yet.
    return member, model, batches


def optimizer():
    return keras.optimizers.SGD(0.1, momentum=0.9)


@functools.lru_cache(maxsize=1)
def plain(name):
    """The first weights, and the last and the losses of the plain loop, for a member's cases."""
    member, model, batches = fresh(name)
    first = helpers.weights_of(model)
    return first, *helpers.train_plainly(member.tower_fn(model), model, optimizer(), batches)


# KerasHub's backbones have parts that this loss leaves out.
@pytest.mark.filterwarnings("ignore:The loss does not depend on:UserWarning")
@pytest.mark.parametrize(
    ("name", "num_towers"),
    [
        pytest.param(
            *case, marks=() if case in DEFAULT else pytest.mark.slow, id=f"{case[0]}-{case[1]}"
        )
        for case in CASES
    ],
)
def test_a_model_of_the_zoo_trains_as_in_a_plain_loop(name, num_towers):
    if name in published.HUB_MEMBERS and not published.HAS_KERAS_HUB:
        pytest.skip("keras-hub is not installed; the extra `zoo` brings it")
    first, expected, losses = plain(name)
    member, model, batches = fresh(name)
    weights, results = helpers.train_on_towers(
        member.tower_fn(model), model, optimizer(), batches, num_towers
    )
    bound = BOUNDS.get(name, TOLERANCE)
    largest = max(np.abs(array).max() for array in expected)
    difference = max(
        np.abs(one - other).max() for one, other in zip(weights, expected, strict=True)
    )
    print(f"{name}, {num_towers} towers: {difference / largest:.1e} of the largest weight")
    assert difference <= bound * largest
    np.testing.assert_allclose([float(one.loss) for one in results], losses, rtol=1e3 * bound)
    moved = [np.any(one != before) for one, before in zip(expected, first, strict=True)]
    assert sum(moved) >= len(model.trainable_variables) / 2
