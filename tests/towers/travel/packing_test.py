"""Tensors that travel together: one vector for each dtype, and the same tensors after it."""

import numpy as np
import pytest
import tensorflow as tf

from tests import helpers
from towers.step.exchange import with_all_states
from towers.step.sums import TowerSums
from towers.travel.packing import add_and_stack, send_together


def test_what_travels_together_arrives_as_it_was():
    source, target = helpers.tower_devices(2)
    spec = tf.TensorSpec(None, tf.float32)

    @tf.function(autograph=False, input_signature=[spec])
    def sent(unknown):
        with tf.device(source):
            nest = {"a": unknown + 1, "b": (tf.constant(7), None), "c": tf.constant(2.0)}
        return send_together(nest, source, [source, target])

    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    for nest in sent(tf.constant(matrix)):
        np.testing.assert_array_equal(nest["a"], matrix + 1)
        assert nest["b"][0].dtype == tf.int32 and int(nest["b"][0]) == 7 and nest["b"][1] is None
        assert nest["c"].shape == [] and float(nest["c"]) == 2.0


def test_each_dtype_travels_once():
    source, target = helpers.tower_devices(2)

    @tf.function(autograph=False)
    def sent():
        with tf.device(source):
            nest = [tf.zeros([3]), tf.constant(1), tf.ones([2, 2]), tf.constant(2)]
        return send_together(nest, source, [target])

    graph = sent.get_concrete_function().graph
    crossing = {
        tensor.name
        for op in graph.get_operations()
        if op.device.endswith(target[1:])
        for tensor in op.inputs
        if tensor.op.device.endswith(source[1:])
    }
    assert len(crossing) == 2


@pytest.mark.parametrize("unknown", [False, True])
def test_nests_are_added_in_pairs_and_stacked(unknown):
    """As their tensors are one by one, to the last bit; of unknown shapes, too."""
    target, *sources = helpers.tower_devices(4)
    random = np.random.default_rng(0)
    rows = [random.normal(size=(2, 3)).astype(np.float32) for _ in sources]
    spec = tf.TensorSpec(None if unknown else [2, 3], tf.float32)

    @tf.function(autograph=False, input_signature=[[spec] * 3])
    def both(rows):
        nests = [{"a": row, "b": (tf.size(row) + i, None)} for i, row in enumerate(rows)]
        return add_and_stack(nests, sources, target)

    added, stacked = both(rows)
    np.testing.assert_array_equal(added["a"], (rows[0] + rows[1]) + rows[2])
    np.testing.assert_array_equal(stacked["a"], rows)
    assert int(added["b"][0]) == 21 and stacked["b"][0].numpy().tolist() == [6, 7, 8]
    assert added["b"][1] is None and stacked["b"][1] is None


def test_a_state_that_one_tower_lacks_is_that_of_the_others():
    devices = helpers.tower_devices(2)
    shares = [[tf.ones([2]), None, None], [tf.ones([2]), tf.constant(3), None]]
    sums = [TowerSums(0.0, 0.0, {}, [], states, [], []) for states in shares]
    first, second = (tower.states for tower in with_all_states(sums, devices))
    assert int(first[1]) == 0 and int(second[1]) == 3
    assert first[2] is None and second[2] is None and first[0] is shares[0][0]
