"""Several real processes: sums, the chief's values, stopping together, shards."""

import contextlib
import itertools
import json
import signal

import keras
import numpy as np
import pytest

import towers
from tests import helpers
from tests.programs import PATIENCE, forked, free_addresses, wait_until
from tests.towers.processes.processes_worker import (
    CASES,
    NUM_TOWERS,
    SIZES,
    evaluation,
    find_out,
    join_and_wait,
    make_case,
    trainers,
)
from towers.processes.processes import Processes, join_processes

# Sparse, clipped and accumulated. The others by name.
QUICK = ["sparse_collective"]


@contextlib.contextmanager
def together(function, count, arguments):
    """Calls a function in several processes of one cluster; yields the processes."""
    cluster = {"worker": free_addresses(count)}
    with contextlib.ExitStack() as stack:
        processes = []
        for index in range(count):
            config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
            call = forked(function, json.dumps(config), *arguments(index))
            processes.append(stack.enter_context(call))
        yield processes


@pytest.fixture(
    scope="module",
    params=[(2, QUICK), *(pytest.param((n, [*CASES]), marks=pytest.mark.slow) for n in (2, 4))],
    ids=["2", "2-all", "4-all"],
)
def found(request, tmp_path_factory):
    """What each of several processes says that it found."""
    count, cases = request.param
    folder = tmp_path_factory.mktemp("processes")
    with together(find_out, count, lambda index: (folder / f"{index}.json", cases)) as processes:
        for process in processes:
            process.join(PATIENCE)
            assert process.exitcode == 0
    return [json.loads((folder / f"{index}.json").read_text()) for index in range(count)]


def test_every_process_has_the_sum(found):
    count = len(found)
    total = sum(range(1, count + 1))
    rows = {2: float(total)}
    for index in range(count):
        rows[index] = rows.get(index, 0.0) + index + 1
    expected = {
        "matrix": [[total] * 3] * 2,
        "scalar": total,
        "indices": sorted(rows),
        "values": [[rows[row]] * 2 for row in sorted(rows)],
        "none": True,
    }
    assert [one["sums"] for one in found] == [expected] * count


def test_a_shape_may_be_known_in_one_process_and_new_in_another(found):
    count = len(found)
    longer = sum(range(2, 2 + count))
    expected = [2 * count, 2 * count, longer, 2 * count, 2 * count]
    assert [one["shapes"] for one in found] == [expected] * count


def test_every_process_has_the_values_of_the_chief(found):
    assert [one["broadcast"] for one in found] == [[[1.5, 2.5], 7, [True, False], 2**32 - 1]] * len(
        found
    )


def test_all_stop_after_the_same_step(found):
    (*others, asking) = [one["stopping"] for one in found]
    assert asking == [["enough", 4], ["6 steps done", 6]]
    for one in others:
        assert one == [["another process was asked to stop", 4], ["6 steps done", 6]]


def test_the_shards_of_all_processes_are_the_batches(found):
    for batch, rows in enumerate([[0, 1, 2, 3, 4], [5, 6, 7, 8]]):
        parts = [part for one in found for part in one["shards"][batch]]
        assert len(parts) == NUM_TOWERS
        assert list(itertools.chain(*parts)) == rows
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_several_processes_train_as_one_with_all_the_towers(found):
    for case in found[0]["training"]:
        check_training(case, [one["training"][case] for one in found])


def test_several_processes_evaluate_each_example_once(found):
    expected = evaluation(Processes())
    for one in found:
        for actual, means in zip(one["evaluation"], expected, strict=True):
            assert actual["examples"] == means["examples"] == sum(SIZES)
            assert actual == pytest.approx(means, rel=1e-6)


def test_an_evaluation_of_other_batches_or_weights_is_refused_in_every_process(found):
    for one in found:
        batches, weights = one["other_evaluations"]
        last = f"worker {len(found) - 1}"
        assert f"{last} has batches {len(SIZES) - 1}, worker 0 has {len(SIZES)}" in batches
        assert "no longer train one model" in weights and f"{last} in " in weights


def check_training(case, found):
    """Fails unless each process has the weights, losses and norms of one that has all towers."""
    keras.utils.set_random_seed(7)
    with helpers.tower_placement(NUM_TOWERS, CASES[case].get("parameters", "auto")).scope():
        tower_fn, model, batches = make_case(case)
    weights, results = helpers.train_on_towers(
        tower_fn, model, keras.optimizers.Adam(0.01), batches, NUM_TOWERS, **CASES[case]
    )
    for own in found:
        for actual, expected in zip(own["weights"], weights, strict=True):
            np.testing.assert_allclose(np.float32(actual), expected, rtol=1e-5, atol=1e-6)
        for name, key in (("losses", "loss"), ("norms", "gradient_norm")):
            expected = [float(getattr(result, key)) for result in results]
            np.testing.assert_allclose(own[name], expected, rtol=1e-5)


def test_all_processes_end_with_the_same_weights(found):
    for one in found[1:]:
        assert one["training"] == found[0]["training"]


def test_a_trainer_without_a_run_begins_with_the_chiefs_weights_and_refuses_what_differs(found):
    expected = trainers(Processes())["weights"]
    for one in (own["trainers"] for own in found):
        assert one["weights"] == found[0]["trainers"]["weights"]
        for actual, weight in zip(one["weights"], expected, strict=True):
            np.testing.assert_allclose(actual, weight, rtol=1e-5, atol=1e-6)
        data, epochs, order, seed, call = one["said"]
        last = f"worker {len(found) - 1} has"
        assert f"{last} a checksum of the first batch" in data
        assert f"{last} epochs 2, worker 0 has 1" in epochs
        assert f"{last} seed 1, worker 0 has 0" in order
        assert f"{last} StepOptions.seed 1, worker 0 has 0" in seed
        assert f"{last} StepOptions.steps_per_call 2, worker 0 has 1" in call


def test_sigterm_ends_processes_that_have_joined_and_made_no_step(tmp_path):
    with together(join_and_wait, 2, lambda index: (tmp_path,)) as processes:
        wait_until(lambda: len([*tmp_path.glob("joined-*")]) == 2, "both have joined")
        for process in processes:
            process.terminate()
        (tmp_path / "sent").touch()
        for process in processes:
            process.join(PATIENCE)
        assert [process.exitcode for process in processes] == [-signal.SIGTERM] * 2


def test_a_process_alone_passes_everything_through():
    alone = Processes()
    nest = [object(), None]
    assert alone.sum(nest) is nest and alone.is_chief and alone.first_tower(3) == 0
    actions = [print]
    assert towers.actions.share_stop_requests(alone, actions) == actions


def test_without_a_cluster_a_process_is_alone(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert join_processes().count == 1
    one = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(one))
    assert join_processes().count == 1
