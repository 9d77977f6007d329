"""Where ops of stages run; those without a label beside their variable or largest input."""

import contextlib

import keras
import pytest
import tensorflow as tf

from towers.devices.stage_devices import choose_device, labels, on_devices, stage_in
from towers.devices.stages import Stages

DEVICES = ["/CPU:1", "/CPU:2"]


def test_an_op_of_a_branch_runs_beside_what_the_branch_takes_from_around_it():
    """As the update of a gradient: a scalar travels, not the gradient."""
    found = {}
    with tf.device("/CPU:2"):
        variable = tf.Variable(tf.zeros([8]))

    @tf.function(autograph=False)
    def update(gradient):
        with tf.device("/CPU:2"):
            gradient = gradient * 2
        with tf.device("/CPU:1"):
            factor = tf.reduce_sum(gradient)

        def assign():
            with on_devices(DEVICES):
                found["product"] = factor * gradient
                found["double"] = factor * 2
                found["read"] = variable + tf.zeros([8])
                variable.assign(found["product"])

        with tf.device("/CPU:1"):
            tf.cond(factor > 0, assign, lambda: None)

    update.get_concrete_function(tf.TensorSpec([8]))
    devices = {name: tensor.device for name, tensor in found.items()}
    assert devices == {
        "product": "/device:CPU:2", "double": "/device:CPU:1", "read": "/device:CPU:2"
    }  # fmt: skip


def test_sums_without_a_label_run_beside_their_largest_part():
    with tf.Graph().as_default() as graph:
        choose = choose_device(DEVICES)
        with graph.device(choose), tf.name_scope("tower_0"):
            with tf.name_scope("stage_1"):
                large = tf.ones([100]) * 2
            small = tf.ones([]) * 3
            total = small + large
            with tf.name_scope("gradient_tape/tower_0/stage_1/dense"):
                backward = tf.ones([100]) * 4
    devices = [one.device for one in (large, small, total, backward)]
    assert devices == ["/device:CPU:2", "/device:CPU:1", "/device:CPU:2", "/device:CPU:2"]


@pytest.mark.parametrize("is_wrong", [False, True])
def test_behind_the_end_of_a_name_scope_is_the_stage_of_the_layer_before(is_wrong):
    layers = [keras.layers.Dense(2, name=name) for name in ("first", "second")]
    model = keras.Sequential([keras.Input((3,)), *layers])
    stages = Stages(model, 2, lambda layer: {"first": 0, "second": 1}.get(layer.name))

    @tf.function
    def run(x):
        with contextlib.suppress(KeyError), labels(stages):
            with tf.name_scope("encoder"):
                x = layers[0](x)
            with tf.name_scope("decoder"):
                with tf.name_scope("inner"):
                    x = layers[1](x)
                x = tf.identity(x, "inside")
            with tf.name_scope("loss"):
                x = tf.identity(x, "behind")
                if is_wrong:
                    raise KeyError
        return tf.identity(x, "outside")

    operations = run.get_concrete_function(tf.TensorSpec([4, 3])).graph.get_operations()
    stage_of = {op.name.split("/")[-1]: stage_in(op.name) for op in operations}
    assert (stage_of["inside"], stage_of["behind"], stage_of["outside"]) == (1, 1, None)
