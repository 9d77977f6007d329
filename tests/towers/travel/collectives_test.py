"""Sums by collective ops: right for every kind of gradient, one op a tower and pack, refusals."""

import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.travel import collectives
from towers.travel.collectives import Group, fault_of_group
from towers.travel.gradients import sum_gradients

LIMIT = 60.0  # Seconds after which a sum that hangs is an error.


def gradients_of(tower):
    """Dense gradients of two dtypes, a sparse one, a missing one, and one that a tower lacks."""
    random = np.random.default_rng(tower)

    def dense(*shape, dtype="float32"):
        return tf.constant(random.integers(-9, 9, shape).astype(dtype))  # Exact in any order.

    sparse = tf.IndexedSlices(dense(3, 2), tf.constant([4, tower, 0]), tf.constant([5, 2]))
    half = dense(2) if tower else None
    return [dense(3, 4), sparse, None, half, dense(4, dtype="float64"), dense(7), dense()]


def traced(group, rows):
    """Returns the group's sums of constant gradients, what is left, and the ops that add."""

    @tf.function(autograph=False)
    def add(rows):
        packed = group.pack(rows)
        return group.sum_packed(packed)[0], [row.left for row in packed]

    ops = ops_of(add.get_concrete_function(rows).graph)
    # Groups across processes wait for the others.
    return *(add(rows) if group.size == len(group.devices) else (None, None)), ops


def ops_of(graph):
    return [op for op in graph.get_operations() if op.type == "CollectiveReduce"]


@pytest.mark.parametrize("pack_bytes", [1, 2**20])
@pytest.mark.parametrize("num_towers", [2, 3, 4])
def test_every_tower_gets_the_same_sum_of_all_dense_gradients(num_towers, pack_bytes):
    rows = [gradients_of(tower) for tower in range(num_towers)]
    group = Group(helpers.tower_devices(num_towers), limit=LIMIT, pack_bytes=pack_bytes)
    totals, left, _ = traced(group, rows)
    expected = sum_gradients(rows)
    for place, wanted in enumerate(expected):
        if place in (1, 2, 3):  # Sparse, missing, and missing on the first tower.
            assert all(total[place] is None for total in totals)
            assert [type(row[place]) for row in left] == [type(row[place]) for row in rows]
            continue
        assert all(row[place] is None for row in left)
        for total in totals:
            np.testing.assert_array_equal(total[place].numpy(), wanted.numpy())


def test_there_is_one_op_a_tower_and_pack_and_no_number_is_used_twice():
    """A pack holds one dtype; here the only float64 gradient stands between the others."""
    group = Group(helpers.tower_devices(3), limit=LIMIT)
    rows = [gradients_of(tower) for tower in range(3)]
    numbers = []
    for _ in range(2):
        ops = traced(group, rows)[-1]
        assert sorted(op.get_attr("T").name for op in ops) == ["float32"] * 6 + ["float64"] * 3
        assert {op.get_attr("communication_hint") for op in ops} == {b"ring"}
        places = sorted(tf.DeviceSpec.from_string(op.device).device_index for op in ops)
        assert places == [1, 1, 1, 2, 2, 2, 3, 3, 3]
        turns = [op.get_attr("instance_key") for op in ops]
        assert sorted(turns) == sorted([*set(turns)] * 3)
        numbers += set(turns)
        assert not any(op.control_inputs for op in ops)  # None waits for another.
    assert len(numbers) == len(set(numbers)) == 6


def test_a_group_without_dense_gradients_has_nothing_to_sum():
    rows = [gradients_of(tower)[1:3] for tower in range(2)]
    totals, left, ops = traced(Group(helpers.tower_devices(2), limit=LIMIT), rows)
    assert totals == [[None, None]] * 2 and not ops
    assert [row[0].indices.shape for row in left] == [[3], [3]]


def test_packs_of_several_processes_are_summed_in_the_same_order():
    rows, devices = [gradients_of(tower) for tower in range(3)], helpers.tower_devices(3)
    for num_processes in (1, 2):
        ops = traced(Group(devices, num_processes, LIMIT, pack_bytes=1), rows)[-1]
        turns = {op: op.get_attr("instance_key") for op in ops}
        assert len(ops) == 3 * len(set(turns.values())) == 12
        for op, turn in turns.items():
            before = [other for other in op.control_inputs if other in turns]
            expected = [turn - 1] if num_processes > 1 and turn > min(turns.values()) else []
            assert [turns[other] for other in before] == expected


def test_groups_of_other_devices_have_other_numbers():
    ways = [("/CPU:1", "/CPU:2"), ("/CPU:2", "/CPU:3"), ("/CPU:1", "/CPU:2", "/CPU:3")]
    keys = [collectives.numbers_of_group(devices, 1)[0] for devices in ways]
    shared = collectives.numbers_of_group(ways[0], 2)[0]
    assert len({*keys, shared}) == 4
    assert Group(ways[0])._key == Group(ways[0])._key == keys[0]


def test_a_step_joins_all_gradients_and_reads_as_packs_do():
    """Several steps from the same values; sums differ in their last bits at most."""
    weights = {}
    for exchange in ("replicated", "nccl"):
        keras.utils.set_random_seed(5)
        with helpers.tower_placement(3, exchange).scope():
            model = helpers.dense_model()
        batches = helpers.dense_batches([8, 7, 1])
        step, shards = helpers.build_step(
            helpers.classify(model), model, keras.optimizers.Adam(0.01), batches, 3,
            parameters=exchange, clip_norm=0.1,
        )  # fmt: skip
        for number, parts in enumerate(shards, 1):
            assert bool(step(parts, number).finite)
        step.check_copies()
        weights[exchange] = helpers.weights_of(model)
        ops = ops_of(step.graph)
        assert len(ops) == (3 if exchange == "nccl" else 0)
    helpers.assert_same_weights(weights["nccl"], weights["replicated"])


def test_a_placement_that_collective_ops_cannot_serve_is_refused():
    devices = helpers.tower_devices(2)
    assert towers.Placement(devices, exchange="nccl").copy_devices == tuple(devices)
    for parameters in ("cpu", "tower0"):
        with pytest.raises(ValueError, match=f"must be 'auto' or 'replicated'.*'{parameters}'"):
            towers.Placement(devices, parameters, "nccl")
    with pytest.raises(ValueError, match=r"one of packs, nccl\. Received 'ring'"):
        towers.Placement(devices, "replicated", "ring")
    with pytest.raises(ValueError, match=r"distinct devices of one type\. Use exchange='packs'"):
        towers.Placement(["/CPU:1", "/CPU:1"], exchange="nccl")
    assert fault_of_group(("/CPU:1", "/GPU:0")) == "a group is of distinct devices of one type"


def test_devices_that_copy_wrongly_are_trusted_with_no_exchange(monkeypatch):
    monkeypatch.setattr("towers.devices.placement.wrong_sums", lambda devices: list(devices))
    with pytest.warns(RuntimeWarning, match="cannot be trusted"):
        placement = towers.Placement(helpers.tower_devices(2), exchange="nccl")
    assert (placement.parameters, placement.exchange) == ("cpu", "packs")


def test_asynchronous_towers_refuse_collective_ops():
    model = helpers.dense_model()
    placement = helpers.tower_placement(2, "nccl")
    dataset = helpers.dataset_of(helpers.dense_batches([4]))
    with pytest.raises(ValueError, match=r"share their variables.*exchange='nccl'"):
        towers.steps.build_async_step(
            helpers.classify(model), model, keras.optimizers.SGD(), placement, dataset
        )


ALONE = pathlib.Path(__file__).with_name("collectives_worker.py")


@pytest.mark.slow
def test_a_device_that_never_comes_is_an_error_and_determinism_is_refused():
    """In a process of its own: after a failure TensorFlow sums no more by collective ops."""
    result = subprocess.run(
        [sys.executable, ALONE], capture_output=True, text=True, timeout=300, check=True
    )
    told = json.loads(result.stdout.splitlines()[-1])
    assert "timed out" in told["late"]
    assert "failed to sum known values" in told["fault"]
    assert told["others"] == [4.0, 4.0]
    assert "use exchange='packs'" in told["deterministic"]


def test_what_mends_a_fault_depends_on_the_devices():
    with pytest.raises(ValueError, match=r"one type\. Install NCCL .*, or use exchange='packs'"):
        collectives.check_group(("/GPU:0", "/GPU:0"))
    with pytest.raises(ValueError, match=r"one type\. Use exchange='packs'"):
        collectives.check_group(("/GPU:0", "/CPU:0"))
