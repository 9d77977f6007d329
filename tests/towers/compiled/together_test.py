"""`towers.fit`, `evaluate` and `predict` in several processes are those of one with all towers."""

import contextlib
import json

import pytest

from tests.programs import PATIENCE, forked, free_addresses
from tests.towers.compiled.together_worker import CASES, find_out

ALL = [case.__name__ for case in CASES]
QUICK = ["callbacks", "evaluation", "kinds", "begins", "outside", "words", "refused"]


@pytest.fixture(
    scope="module",
    params=[(2, QUICK, 2), *(pytest.param((n, ALL, 4), marks=pytest.mark.slow) for n in (2, 4))],
    ids=["2", "2-all", "4-all"],
)
def found(request, tmp_path_factory):
    """What each of several processes finds, and what only it knows; the last is the one alone."""
    count, *_ = request.param
    folder = tmp_path_factory.mktemp("together")
    cluster = {"worker": free_addresses(count)}
    places = [{"cluster": cluster, "task": {"type": "worker", "index": i}} for i in range(count)]
    with contextlib.ExitStack() as stack:
        calls = [
            stack.enter_context(forked(find_out, config, folder / str(index), *request.param))
            for index, config in enumerate([*map(json.dumps, places), ""])
        ]
        for call in calls:
            call.join(PATIENCE)
            assert call.exitcode == 0
    return [json.loads((folder / str(i) / "found.json").read_text()) for i in range(count + 1)]


def check_equal(actual, expected, atol):
    if isinstance(expected, dict):
        assert set(actual) == set(expected)
        for name, value in expected.items():
            check_equal(actual[name], value, atol)
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            check_equal(one, other, atol)
    else:
        assert abs(actual - expected) <= atol


def test_all_processes_have_the_weights_history_and_logs_of_one_with_all_towers(found):
    *several, (alone, _) = found
    for case, expected in alone.items():
        assert all(one[case] == several[0][0][case] for one, _ in several), case
        # Two processes add the same parts in the same order; a ring of more adds in another. The
        # towers of one process cut a batch to predict that one of several predicts whole.
        exact = len(several) == 2 and case not in ("parts", "evaluation")
        check_equal(several[0][0][case], expected, atol=0 if exact else 2e-5)


def test_the_chief_alone_writes_and_every_process_draws_its_towers(found):
    (_, chief), *others, (_, alone) = found
    assert chief["written"] == alone["written"]
    assert "1.weights.h5" in chief["written"] and "log.csv" in chief["written"]
    assert all(other["written"] == [] and other["sent"] == 0 for _, other in others)
    assert chief["sent"] == alone["sent"]
    if "checkpoints" in alone:  # One of the slow cases.
        assert [own["checkpoints"] for _, own in found[:-1]] == [True] + [False] * len(others)
        assert sorted(name for _, own in found[:-1] for name in own["curves"]) == alone["curves"]


def test_other_data_settings_models_small_batches_and_own_steps_are_refused_in_every_process(found):
    for _, own in found[:-1]:
        data, settings, shares, own_step, layer, call, order, *anew, apart = own["said"]
        assert "worker 1 has a checksum of the data" in data and 'data="own"' in data
        assert "worker 1 has epochs 2, worker 0 has 1" in settings
        assert "worker 1 has layer 4 Dropout(rate=0.3" in layer
        assert "worker 1 has steps_per_execution 2, worker 0 has 1" in call
        assert "worker 1 has a checksum of the labels of batch 1 of pass 2" in order
        line = "has compile() called by a callback True, worker 0 has False"
        assert len(anew) == 3 and all(line in one for one in anew)
        assert "Call towers.fit, evaluate and predict in all of them, in the same order" in apart
        count = len(found) - 1
        assert f"batch_size={count - 1} for {count} processes; it must be at least" in shares
        assert "since OwnStep has a train_step() of its own. Train it in one process" in own_step


def test_evaluations_of_fewer_batches_in_one_process_end_with_an_error_in_all(found):
    *others, (_, last) = found[:-1]
    assert "in the same order and with as many batches" in last["shorter"]
    assert all(isinstance(own["shorter"], str) for _, own in others)
