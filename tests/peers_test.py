"""The comparison in docs/comparison.md with Keras `fit` is what really happens.

Each row of its table is run both ways on the same batches, and on a plain loop as the reference.
"""

import contextlib
import dataclasses
import functools
import gc
import json
import math
import os
import re
import sys
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import conftest, helpers
from tests.laws.batch_norm_test import MOMENTUM, expected_statistics
from tests.paths import ROOT
from tests.programs import run

pytestmark = [
    pytest.mark.skipif(
        not keras.__version__.startswith("3.15."),
        reason=f"docs/comparison.md is of Keras 3.15, this is Keras {keras.__version__}",
    ),
]
HEADER = "| Case | towers | `fit` under `MirroredStrategy` |"
HISTORY_HEADER = "| History | towers.fit | `fit` under `MirroredStrategy` |"
OUTCOME = re.compile(r"(same \w+|other \w+|raises)(?:, by ([\w.-]+))?(?: `(\w+)`)?")
CLIP = 0.05


def sgd(**options):
    return keras.optimizers.SGD(0.5, **options)


def adam(**options):
    return keras.optimizers.Adam(0.01, **options)


def tagger(*, mask_zero=False):
    """Token ids [batch, length] to logits [batch, length, classes]."""
    token_ids = keras.Input((None,), dtype="int32")
    embedding = keras.layers.Embedding(helpers.VOCABULARY_SIZE, 4, mask_zero=mask_zero)
    return keras.Model(token_ids, keras.layers.Dense(3)(embedding(token_ids)))


def normalised(*, synchronized=False):
    """A classifier with BatchNorm."""
    inputs = keras.Input((5,))
    norm = keras.layers.BatchNormalization(momentum=MOMENTUM, synchronized=synchronized)
    return keras.Model(inputs, keras.layers.Dense(3)(norm(inputs)))


def examples(sizes):
    return helpers.dense_batches([sum(sizes)])[0]


def full_sequences(sizes):
    token_ids, labels = padded_sequences(sizes)
    return np.maximum(token_ids, 1), labels


def padded_sequences(sizes):
    return helpers.token_batches([sum(sizes)])[0]


def weighted_sequences(sizes):
    """Sample weights, the third array, are one for a token and zero for padding."""
    token_ids, labels = padded_sequences(sizes)
    return token_ids, labels, (token_ids > 0).astype("float32")


@dataclasses.dataclass(frozen=True)
class Case:
    """One row's training: a model, its data and options, once for each way to train it."""

    row: str
    sizes: tuple[int, ...] = (8, 8)
    make_model: Callable = helpers.dense_model
    tower_fn: Callable = helpers.classify
    replicas: int = 2
    make_data: Callable = examples
    optimizer: Callable = sgd
    loss_reduction: str = "sum_over_batch_size"
    fit_options: dict = dataclasses.field(default_factory=dict)
    tower_options: dict = dataclasses.field(default_factory=dict)
    statistics_only: bool = False

    @property
    def name(self) -> str:
        return f"{self.row} {self.sizes}"

    def data(self):
        """The arrays of all examples; batches are cut from them in order."""
        return self.make_data(self.sizes)

    def batches(self):
        """The global batches (inputs, labels) of the updates."""
        ends = np.cumsum(self.sizes)[:-1]
        return list(zip(*(np.split(array, ends) for array in self.data()[:2]), strict=True))

    def fresh_model(self):
        keras.utils.set_random_seed(3)
        return self.make_model()


training = functools.partial(helpers.classify, training=True)
tags = {"make_model": tagger, "tower_fn": helpers.tag}
norm = {"make_model": normalised, "tower_fn": training, "statistics_only": True}

CASES = [
    Case("batches of 8"),
    Case("batches of 8, the last of 7", (8, 7)),
    Case("batches of 7", (7, 7)),
    Case(
        "clipped by global norm",
        fit_options={"global_clipnorm": CLIP},
        tower_options={"clip_norm": CLIP},
    ),
    Case("embedding", make_data=full_sequences, **tags),
    Case("embedding, Adam", make_data=full_sequences, optimizer=adam, **tags),
    Case(
        "padding masked by `mask_zero`",
        make_model=functools.partial(tagger, mask_zero=True),
        tower_fn=helpers.tag,
        make_data=padded_sequences,
    ),
    Case(
        "padding masked by sample weights",
        make_data=weighted_sequences,
        loss_reduction="mean_with_sample_weight",
        **tags,
    ),
    Case("BatchNorm, its moving averages", **norm),
    Case(
        "BatchNorm, `synchronized=True`",
        make_model=functools.partial(normalised, synchronized=True),
        tower_fn=training,
    ),
    # Last of those on two replicas: its error comes from the midst of a trace.
    Case(
        "accumulated, two parts of 4",
        fit_options={"gradient_accumulation_steps": 2},
        tower_options={"accumulate": 2},
    ),
    *[
        Case("4 replicas, batches of 1, 2, 3 or 7", (size, size), replicas=4)
        for size in (1, 2, 3, 7)
    ],
    Case("4 replicas, batches of 8", replicas=4),
    Case("4 replicas, batches of 8, the last of 1", (8, 1), replicas=4),
    Case("4 replicas, BatchNorm, the last batch of 3", (8, 3), replicas=4, **norm),
]


@dataclasses.dataclass(frozen=True)
class History:
    """One row about the history of a compiled model: losses and metrics of two epochs."""

    row: str
    make_model: Callable
    make_data: Callable
    options: dict

    def dataset(self):
        """Batches of 8, the last of 7."""
        return tf.data.Dataset.from_tensor_slices(self.make_data((8, 8, 7))).batch(8)

    def train(self, fit, scope=contextlib.nullcontext, **options):
        """The history of a model that is made and compiled in a scope."""
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(3)
        with scope():
            model = self.make_model()
            model.compile(sgd(), **self.options)
        options = {"epochs": 2, "shuffle": False, "verbose": 0, **options}
        return fit(model, self.dataset(), **options).history


def binary(sizes):
    inputs, labels = examples(sizes)
    return inputs, (labels > 0).astype("float32")[:, None]


def two_outputs():
    token_ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(helpers.VOCABULARY_SIZE, 4, mask_zero=True)(token_ids)
    tags = keras.layers.Dense(3, name="tags")(hidden)
    pooled = keras.layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(token_ids, [tags, keras.layers.Dense(1, name="length")(pooled)])


def tags_and_lengths(sizes):
    token_ids, labels = padded_sequences(sizes)
    return token_ids, (labels, (token_ids > 0).mean(1).astype("float32")[:, None])


cross_entropy = keras.losses.SparseCategoricalCrossentropy
HISTORIES = [
    History(
        "loss and accuracy",
        helpers.dense_model,
        examples,
        {"loss": cross_entropy(from_logits=True), "metrics": ["accuracy"]},
    ),
    History(
        "loss and accuracy of masked tokens",
        functools.partial(tagger, mask_zero=True),
        padded_sequences,
        {"loss": cross_entropy(from_logits=True), "metrics": ["accuracy"]},
    ),
    History(
        "AUC and a regulariser",
        lambda: keras.Sequential([keras.layers.Dense(1, "sigmoid", kernel_regularizer="l2")]),
        binary,
        {"loss": "binary_crossentropy", "metrics": ["auc"]},
    ),
    History(
        "two outputs, one masked, with loss weights",
        two_outputs,
        tags_and_lengths,
        {"loss": [cross_entropy(from_logits=True), "mse"], "loss_weights": [1.0, 0.5]},
    ),
]
# One of each kind; the others, and more replicas, by name.
TELLING = {
    "batches of 8, the last of 7 (8, 7)",
    "clipped by global norm (8, 8)",
    "embedding, Adam (8, 8)",
    "BatchNorm, `synchronized=True` (8, 8)",
    "accumulated, two parts of 4 (8, 8)",
}
each_history = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.row)
each_case = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] * (case.name not in TELLING))
        for case in CASES
    ],
)


# What Keras does.


def fit(case: Case, strategy) -> list[list[np.ndarray]]:
    """Every replica's weights after `compile` and `fit`, as a user of Keras writes it."""
    with strategy.scope():
        model = case.fresh_model()
        model.compile(
            optimizer=case.optimizer(**case.fit_options),
            loss=keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction=case.loss_reduction
            ),
        )
    parts = case.fit_options.get("gradient_accumulation_steps", 1)
    dataset = tf.data.Dataset.from_tensor_slices(case.data()).batch(case.sizes[0] // parts)
    model.fit(dataset, shuffle=False, verbose=0)
    copies = [strategy.experimental_local_results(weight.value) for weight in model.weights]
    return [[copy.numpy() for copy in replica] for replica in zip(*copies, strict=True)]


def print_fits(replicas: int) -> None:
    """Prints, as JSON, what `fit` made of each case: the replicas' weights or the error's name.

    No distributed iterator is ever destroyed: up to a minute passes until its tuner has stopped.
    """
    gc.disable()
    conftest.make_logical_cpus()
    strategy = tf.distribute.MirroredStrategy(helpers.tower_devices(replicas))
    results = {}
    for history in HISTORIES if replicas == 2 else []:
        try:
            results[history.row] = history.train(keras.Model.fit, strategy.scope)
        except Exception as error:
            results[history.row] = type(error).__name__
    for case in CASES:
        if case.replicas == replicas:
            keras.utils.clear_session(free_memory=False)
            try:
                results[case.name] = fit(case, strategy)
            except Exception as error:  # which one it is goes into the table
                results[case.name] = type(error).__name__
    print(json.dumps(results, default=np.ndarray.tolist), flush=True)
    os._exit(0)


@pytest.fixture(scope="module")
def fits():
    """Returns, by the number of replicas, what `fit` made of each case.

    A process for each number: collectives of strategies of different sizes disturb one another.
    """

    @functools.cache
    def results(replicas):
        printed = run([sys.executable, "-m", "tests.peers_test", replicas], cwd=ROOT, stderr=None)
        return json.loads(printed.splitlines()[-1])

    return results


# What the plain loop, or NumPy, and towers do.


def reference(case: Case) -> list[np.ndarray]:
    if case.statistics_only:
        return expected_statistics(case.batches(), case.replicas, "mean")
    model = case.fresh_model()
    clip_norm = case.tower_options.get("clip_norm")
    weights, _ = helpers.train_plainly(
        case.tower_fn(model), model, case.optimizer(), case.batches(), clip_norm=clip_norm
    )
    return weights


def train_on_towers(case: Case) -> list[np.ndarray]:
    model = case.fresh_model()
    weights, _ = helpers.train_on_towers(
        case.tower_fn(model), model, case.optimizer(), case.batches(), case.replicas,
        **case.tower_options,
    )  # fmt: skip
    return weights


# How they compare.


def difference(case: Case, weights) -> float:
    """The largest difference from the reference, as a part of its largest weight."""
    if case.statistics_only:
        weights = weights[2:4]  # after gamma and beta
    expected = reference(case)
    largest = max(np.abs(array).max() for array in expected)
    parts = [np.abs(one - other).max() for one, other in zip(weights, expected, strict=True)]
    return float(np.max(parts)) / largest


def assert_outcome(stated: str, found: float | str) -> None:
    """`found` is a difference or the name of an error; a stated difference is right within half."""
    words, size, error = OUTCOME.match(stated).groups()
    print(f"stated: {stated} | found: {found}")
    if words == "raises" or isinstance(found, str):
        assert found == error
    elif words.startswith("same"):
        assert found <= 1e-6
    elif size == "NaN":
        assert math.isnan(found)
    else:
        assert max(float(size) / 1.5, 1e-4) < found < float(size) * 1.5


@functools.cache
def table(header: str = HEADER) -> dict[str, tuple[str, str]]:
    """The rows of a table of docs/comparison.md: case to (outcome on towers, outcome of `fit`)."""
    lines = iter((ROOT / "docs" / "comparison.md").read_text(encoding="utf-8").splitlines())
    assert header in lines
    next(lines)
    rows = {}
    for line in lines:
        if not line.startswith("|"):
            break
        case, of_towers, of_fit = (cell.strip() for cell in line.strip("|").split("|"))
        rows[case] = of_towers, of_fit
    return rows


def test_table_has_a_row_for_each_case_and_no_other():
    assert set(table()) == {case.row for case in CASES}
    assert list(table(HISTORY_HEADER)) == [history.row for history in HISTORIES]


@each_case
def test_towers_do_what_the_table_says(case):
    try:
        found: float | str = difference(case, train_on_towers(case))
    except RuntimeError as error:
        found = type(error).__name__
    assert_outcome(table()[case.row][0], found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.replicas == 2], ids=lambda case: case.name
)
def test_fit_on_one_device_matches_the_plain_loop_but_for_sparse_adam(case):
    """The test of the test: what `fit` is asked for is right, so a row tells of the strategy."""
    case = dataclasses.replace(case, statistics_only=False)  # the plain loop is the reference
    (weights,) = fit(case, tf.distribute.get_strategy())
    if case.optimizer is adam:
        assert difference(case, weights) > 1e-4
    else:
        assert difference(case, weights) <= 1e-6


@pytest.mark.slow  # What TensorFlow and Keras do changes with their versions alone.
@each_case
def test_fit_under_the_strategy_does_what_the_table_says(case, fits):
    found = fits(case.replicas)[case.name]
    if not isinstance(found, str):
        found = np.max([difference(case, list(map(np.array, replica))) for replica in found])
    assert_outcome(table()[case.row][1], found)


def distance(found: dict, expected: dict) -> float:
    """The largest difference between two histories, as a part of the larger value."""
    assert set(found) == set(expected)
    return max(
        float(np.max(np.abs(np.subtract(found[name], expected[name])) / np.abs(expected[name])))
        for name in expected
    )


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(history, id=history.row, marks=[pytest.mark.slow] * (number != 1))
        for number, history in enumerate(HISTORIES)
    ],
)
def test_histories_of_towers_are_what_the_table_says(history):
    expected = history.train(keras.Model.fit)
    actual = history.train(towers.fit, towers=helpers.tower_devices(2))
    assert_outcome(table(HISTORY_HEADER)[history.row][0], distance(actual, expected))


@pytest.mark.slow
@each_history
def test_histories_under_the_strategy_are_what_the_table_says(history, fits):
    found = fits(2)[history.row]
    if not isinstance(found, str):
        found = distance(found, history.train(keras.Model.fit))
    assert_outcome(table(HISTORY_HEADER)[history.row][1], found)


if __name__ == "__main__":
    print_fits(int(sys.argv[1]))
