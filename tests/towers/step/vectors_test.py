"""Tensors that travel together: one vector for each dtype, and the same tensors after it."""

import numpy as np
import tensorflow as tf

from tests import helpers
from towers.step.vectors import send_together


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
