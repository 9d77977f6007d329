"""The laws for sums by collective ops, on virtual CPUs: TensorFlow's ring instead of NCCL.

Law 1 for every kind of gradient on three towers is in `parity_test`, two processes are in
`tests/towers/processes/processes_test.py`, and what GPUs are asked for is in `tests/gpu`.
"""

import keras
import numpy as np
import pytest

import towers
from tests import helpers
from tests.laws import batch_norm_test, finite_test
from tests.laws.parity_test import accumulated_case, adam, fresh, plain, sparse_case
from towers.step.options import LossScale, set_precision


def train(make_case, num_towers):
    """Returns the weights after each batch of a case, and the step."""
    with helpers.tower_placement(num_towers, "nccl").scope():
        tower_fn, model, batches, options = fresh(make_case)
    step, shards = helpers.build_step(
        tower_fn, model, adam(), batches, num_towers, parameters="nccl", **options
    )
    for number, each in enumerate(shards, 1):
        step(each, number)
    step.check_copies()  # Law 1: the same bits on every tower.
    return helpers.weights_of(model)


@pytest.mark.slow
@pytest.mark.parametrize("num_towers", [2, 4])
def test_towers_match_the_plain_loop(num_towers):
    expected, _ = plain(accumulated_case, adam)
    helpers.assert_same_weights(train(accumulated_case, num_towers), expected)


@pytest.mark.slow
def test_the_same_run_gives_the_same_bits():
    """Not on another number of towers: the ring adds in another order."""
    for one, other in zip(train(sparse_case, 3), train(sparse_case, 3), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize(("bad", "row", "tower"), [(np.nan, 3, 1), (np.inf, 0, 0)])
def test_one_bad_tower_stops_the_whole_update(bad, row, tower):
    step, (good, not_finite) = finite_test.build(
        finite_test.batches_with(bad, row), clip_norm=1.0, parameters="nccl"
    )
    assert bool(step(good, 1).finite)
    before = finite_test.all_values(step)
    results = step(not_finite, 2)
    assert not bool(results.finite)
    norms = np.isfinite(results.towers.gradient_norm)
    assert norms.tolist() == [index != tower for index in range(2)]
    for old, new in zip(before, finite_test.all_values(step), strict=True):
        np.testing.assert_array_equal(old, new)
    step.check_copies()
    assert bool(step(good, 3).finite)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["first", "mean"])
def test_statistics_of_batch_norm_follow_the_policy(policy):
    batches = helpers.dense_batches([8, 7, 1, 8])
    found = batch_norm_test.train(batches, 3, batch_norm=policy, parameters="nccl")
    expected = batch_norm_test.expected_statistics(batches, 3, policy)
    batch_norm_test.assert_statistics(found, expected)


@pytest.mark.slow
def test_a_loss_scale_of_float16_falls_with_an_overflow_and_no_copy_differs():
    set_precision("float16")
    with helpers.tower_placement(2, "nccl").scope():
        model = helpers.dense_model()
        scale = LossScale(initial=2.0**120)
    step, shards = helpers.build_step(
        helpers.classify(model), model, keras.optimizers.SGD(0.1), helpers.dense_batches([8] * 3),
        2, parameters="nccl", loss_scale=scale,
    )  # fmt: skip
    before = helpers.weights_of(model)
    results = step(shards[0], 1)
    assert not bool(results.finite) and float(scale.read()) < float(results.loss_scale)
    for old, new in zip(before, helpers.weights_of(model), strict=True):
        np.testing.assert_array_equal(old, new)
    step.check_copies()


@pytest.mark.slow
def test_no_step_of_many_waits_for_ever():
    """Two steps over the same towers take turns; a hang ends with the limit of the helpers."""
    steps = []
    for _ in range(2):
        with helpers.tower_placement(4, "nccl").scope():
            model = helpers.dense_model()
        step, shards = helpers.build_step(
            helpers.classify(model), model, keras.optimizers.SGD(0.01),
            helpers.dense_batches([8, 3]), 4, parameters="nccl",
        )  # fmt: skip
        steps.append((step, shards))
    for number in range(1, 301):
        for step, shards in steps:
            results = step(shards[number % 2], number)
    assert bool(results.finite)
    for step, _ in steps:
        step.check_copies()


def test_an_evaluation_reads_copies_that_collective_ops_keep():
    """Evaluation sums a few numbers, on the first tower's device: no collective op."""
    with helpers.tower_placement(2, "nccl").scope():
        model = helpers.dense_model()
    placement = helpers.tower_placement(2, "nccl")
    batches = helpers.dataset_of(helpers.dense_batches([5, 1]))
    step = towers.build_evaluation_step(helpers.classify(model), model, placement, batches)
    assert not [op for op in step.graph.get_operations() if op.type == "CollectiveReduce"]
    assert towers.evaluate_step(step, batches)["examples"] == 6
