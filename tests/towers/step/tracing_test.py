"""A trace: what a step returns stays on the device that computed it."""

import tensorflow as tf

from towers.step.tracing import trace


def test_results_stay_on_their_device_whatever_the_scopes_within():
    def double(value):
        with tf.device("/CPU:1"):
            return {"twice": value * 2, "ones": tf.ones([2])}

    traced = trace(double, "/CPU:2", tf.TensorSpec([]))
    marks = [tensor.op for tensor in traced.outputs]
    assert {op.type for op in marks} == {"Identity"}
    assert all(op.device.endswith("CPU:2") for op in marks)
    assert float(traced(tf.constant(4.0))["twice"]) == 8.0
    assert tf.ones([]).device.endswith("CPU:0")  # No scope is left open.
