"""Beside a GPU, what the host knows stays there; beside a CPU nothing is moved."""

import tensorflow as tf

from towers.devices.host_placement import tower_device
from towers.devices.op_devices import short_device


def devices_of(device):
    """Returns the device of each op of a small pass over a shard, by the op's name."""

    @tf.function(autograph=False)
    def run(ids, rows, step):
        with tower_device(device):
            seed = tf.add(tf.constant([7, 0], tf.int64), step, name="seed")
            tf.gather(tf.shape(rows), [1, 0])
            tf.unique(ids, name="unique")
            tf.matmul(rows, rows, transpose_b=True, name="product")
            with tf.device("/CPU:3"):
                tf.identity(rows, name="elsewhere")
            mask = tf.random.stateless_uniform([2], seed)
            return tf.while_loop(
                lambda i, _: i < 2,
                lambda i, x: (i + 1, x + tf.cast(tf.cast(i, tf.int64, name="inside"), x.dtype)),
                [tf.constant(0), mask],
            )

    specs = [
        tf.TensorSpec([None], tf.int32),
        tf.TensorSpec([None, None]),
        tf.TensorSpec([], "int64"),
    ]
    graph = run.get_concrete_function(*specs).graph
    bodies = [body for body in graph._functions.values() if "body" in str(body.name)]
    inside = [
        node.device for body in bodies for node in body.cached_definition.node_def
        if node.name.endswith("inside")
    ]  # fmt: skip
    return {op.name: short_device(op.device) for op in graph.get_operations()}, inside


def test_seeds_shapes_and_ids_stay_on_the_host_beside_a_gpu():
    devices, inside = devices_of("/GPU:1")
    assert devices["seed"] == devices["GatherV2"] == devices["unique"] == "CPU:0"
    assert devices["Const"] == "CPU:0"  # Of int64: it would be in the GPU's memory.
    assert devices["product"] == "GPU:1" and devices["elsewhere"] == "CPU:3"
    assert set(map(short_device, inside)) == {
        "GPU:1"
    }  # A loop across devices would be slower than a copy.


def test_nothing_is_moved_beside_a_cpu():
    devices, _ = devices_of("/CPU:1")
    assert devices["seed"] == devices["GatherV2"] == devices["unique"] == "CPU:1"


def test_a_shape_that_a_gradient_takes_stays_on_the_host():
    @tf.function(autograph=False)
    def run(x):
        with tower_device("/GPU:0"), tf.GradientTape() as tape:
            tape.watch(x)
            mean = tf.reduce_mean(x, [1, 2])
            return tape.gradient(mean, x)

    graph = run.get_concrete_function(tf.TensorSpec([None, 2, 2, 3])).graph
    stitches = [op for op in graph.get_operations() if op.type == "DynamicStitch"]
    assert stitches and {short_device(op.device) for op in stitches} == {"CPU:0"}


def test_a_loop_beside_a_gpu_takes_nothing_from_the_host_but_what_stays_there():
    """Otherwise a part of the loop is on the host, and each iteration is told to it."""

    @tf.function(autograph=False)
    def run(ids):
        with tower_device("/GPU:1"):
            labels = tf.cast(ids, tf.int64, name="labels")
            return tf.while_loop(
                lambda i, _: i < tf.size(ids),
                lambda i, total: (i + 1, total + tf.cast(labels[i], tf.float32)),
                [tf.constant(0), tf.constant(0.0)],
            )

    graph = run.get_concrete_function(tf.TensorSpec([None], tf.int32)).graph
    (loop,) = [op for op in graph.get_operations() if op.type.endswith("While")]
    assert short_device(graph.get_operation_by_name("labels").device) == "CPU:0"
    taken = {tensor.op.type: tensor for tensor in loop.inputs if tensor.dtype == tf.int64}
    assert set(taken) == {"Identity"}
    assert short_device(taken["Identity"].device) == "GPU:1"
