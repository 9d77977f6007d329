"""Sums between towers: right for every kind of gradient, in packs, and checked at the start."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.optimizers.optimizers import build_optimizer
from towers.travel.gradients import sum_gradients
from towers.travel.packed_sums import plan_packs, send, sum_in_packs, wrong_sums


def gradients_of(tower):
    """A dense, a sparse, a missing, a half-missing, a float64 and two more dense gradients."""
    random = np.random.default_rng(tower)

    def dense(*shape, dtype="float32"):
        return tf.constant(random.normal(size=shape).astype(dtype))

    sparse = tf.IndexedSlices(dense(3, 2), tf.constant([4, tower, 0]), tf.constant([5, 2]))
    half = dense(2) if tower else None
    return [dense(3, 4), sparse, None, half, dense(4, dtype="float64"), dense(7), dense()]


@pytest.mark.parametrize("whole_bytes", [None, 16])
@pytest.mark.parametrize("pack_bytes", [1, 48, 2**22])
@pytest.mark.parametrize("num_towers", [1, 2, 3, 4])
def test_every_tower_gets_the_sum_of_all(num_towers, pack_bytes, whole_bytes):
    rows = [gradients_of(tower) for tower in range(num_towers)]
    devices = helpers.tower_devices(num_towers)
    expected = sum_gradients(rows)
    found = sum_in_packs(rows, devices, pack_bytes=pack_bytes, whole_bytes=whole_bytes)
    for device, sums in zip(devices, found, strict=True):
        for actual, wanted in zip(sums, expected, strict=True):
            if wanted is None:
                assert actual is None
                continue
            values = getattr(actual, "values", actual)
            assert values.device.endswith(device[1:])
            assert isinstance(actual, tf.IndexedSlices) == isinstance(wanted, tf.IndexedSlices)
            np.testing.assert_array_equal(
                tf.convert_to_tensor(actual).numpy(), tf.convert_to_tensor(wanted).numpy()
            )


def test_packs_begin_with_the_last_variable_and_are_full_at_a_quarter():
    """So a gradient that is computed late does not hold up a large one."""
    row = [tf.zeros([10]), tf.zeros([1]), tf.zeros([3]), tf.zeros([5])]
    assert list(plan_packs([row, row], 40)) == [[3], [2], [1], [0]]
    assert list(plan_packs([row, row], 90)) == [[3, 2], [1, 0]]
    assert list(plan_packs([row, row], 10_000)) == [[3, 2, 1, 0]]
    assert list(plan_packs([row, row], 1)) == [[3], [2], [1], [0]]


def test_packs_are_added_up_by_turns():
    devices = helpers.tower_devices(2)
    rows = [[tf.ones([4])] * 4, [tf.ones([4])] * 4]

    @tf.function(autograph=False)
    def add():
        return sum_in_packs(rows, devices, pack_bytes=1)

    nodes = add.get_concrete_function().graph.as_graph_def().node
    owners = [node.device[-5:] for node in nodes if node.op == "AddN"]
    assert owners == ["CPU:1", "CPU:2", "CPU:1", "CPU:2"]


def test_no_link_carries_a_large_pack_alone(monkeypatch):
    devices = helpers.tower_devices(4)
    rows = [[tf.ones([1002])] for _ in devices]
    sent = []

    def count(tensor, device):
        sent.append((int(tf.size(tensor)), device))
        return send(tensor, device)

    monkeypatch.setattr("towers.travel.packed_sums.send", count)
    sum_in_packs(rows, devices, whole_bytes=4000)
    assert {size for size, _ in sent} == {256, 234}  # Slices end where a line of 32 numbers ends.
    received = {device: sum(size for size, to in sent if to == device) for device in devices}
    assert max(received.values()) - min(received.values()) <= 4 * 32
    sent.clear()
    sum_in_packs(rows, devices, whole_bytes=4008)
    assert {size for size, _ in sent} == {1002}


def test_right_copies_keep_the_placement():
    devices = helpers.tower_devices(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert towers.Placement(devices, "replicated").parameters == "replicated"
        assert towers.Placement(devices, "auto").parameters == "auto"


def broken(tensor, device):
    """A way between devices that loses the last bit of a number on its way to the third one."""
    if device == "/CPU:3" and tensor.shape.rank:
        tensor = tensor - tf.one_hot(17, tensor.shape[0])
    return send(tensor, device)


@pytest.fixture
def broken_link(monkeypatch):
    """All values take the broken way."""
    monkeypatch.setattr("towers.travel.packed_sums.send", broken)
    wrong_sums.cache_clear()
    yield
    wrong_sums.cache_clear()


@pytest.mark.usefixtures("broken_link")
def test_a_device_that_receives_wrong_values_is_named():
    assert "/CPU:3" in wrong_sums(tuple(helpers.tower_devices(3)))
    assert wrong_sums(tuple(helpers.tower_devices(2))) == []


@pytest.mark.usefixtures("broken_link")
def test_wrong_copies_fall_back_to_the_cpu_with_a_warning():
    devices = helpers.tower_devices(3)
    with pytest.warns(RuntimeWarning, match=r"came out wrong on .*/CPU:3.*--parameters cpu"):
        assert towers.Placement(devices, "replicated").parameters == "cpu"
    model = helpers.dense_model()
    with pytest.warns(RuntimeWarning, match="stay on the CPU"):
        step, (shards,) = helpers.build_step(
            helpers.classify(model),
            model,
            build_optimizer("sgd", 0.1),
            helpers.dense_batches([6]),
            3,
            parameters="replicated",
        )
    step(shards, 1)
    assert len(step.update.copies) == 1
    assert step.exchange.device == "/CPU:0"


def test_the_host_finds_the_rows_that_gpus_share():
    """A GPU would find them in several kernels, with a wait of the host after each."""
    devices = ("/GPU:0", "/GPU:1")

    @tf.function(autograph=False)
    def run(values, indices):
        shape = tf.constant([5, 2])
        rows = [[tf.IndexedSlices(values, indices, shape)] for _ in devices]
        return [total.values for (total,) in sum_in_packs(rows, devices)]

    specs = tf.TensorSpec([None, 2]), tf.TensorSpec([None], tf.int32)
    operations = run.get_concrete_function(*specs).graph.get_operations()
    of_rows = {op.type: op.device for op in operations if op.type in ("Unique", "Size")}
    assert all(device.endswith("CPU:0") for device in of_rows.values()) and len(of_rows) == 2
    sums = [op.device for op in operations if op.type == "UnsortedSegmentSum"]
    assert len(sums) == 1 and sums[0].endswith("GPU:0")
