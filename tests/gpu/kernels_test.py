"""The kernel contract: what a step's graph asks of GPUs, read without one.

TensorFlow's wheel holds the registry of GPU kernels. Each test is a law about the graph of a step
that was traced for two GPUs.
"""

import itertools

import pytest
import tensorflow as tf
from tensorflow.python.framework import config

from tests.gpu import kernels, recipe_steps

DEVICES = ("/GPU:0", "/GPU:1")
PLACEMENTS = ("cpu", "tower0", "replicated")
VARIANTS = (("float32", 2), ("float16", 1), ("bfloat16", 2), ("float64", 1))
RECURRENT = {"chatbot", "chatbot_gru", "ptb_small", "sentences", "language_model_awd_lstm"}
# Input feeding has no kernel for whole sequences: a loop runs its cells.
LOOPS_OF_CELLS = {"chatbot_fed"}
# tf.config.experimental.enable_op_determinism names the ops that have no deterministic GPU kernel.
NONDETERMINISTIC = {
    "SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits", "ResourceScatterNdAdd",
    "MaxPoolGradWithArgmax", "CropAndResizeGradImage", "ResizeBicubicGrad",
}  # fmt: skip


@pytest.fixture(autouse=True)
def traced_for_gpus(monkeypatch):
    """Keras and the losses choose what to build by the list of devices; here GPUs are in it."""
    listed = tf.config.list_logical_devices
    gpus = [tf.config.LogicalDevice(name, "GPU") for name in DEVICES]

    def list_devices(kind=None):
        return gpus if kind == "GPU" else listed(kind)

    monkeypatch.setattr(tf.config, "list_logical_devices", list_devices)


def nodes_of(name, parameters, precision="float32", accumulate=1):
    """Returns all ops of a recipe's step."""
    task = recipe_steps.make_task(recipe_steps.SMALL[name], len(DEVICES))
    options = {"precision": precision, "accumulate": accumulate}
    return kernels.nodes_of(recipe_steps.build_step(task, DEVICES, parameters, **options).graph)


def check(name, parameters, precision="float32", accumulate=1):
    """Fails unless the step of a recipe keeps the contract."""
    nodes = nodes_of(name, parameters, precision, accumulate)
    towers = [node for node in nodes if "tower_" in node.name]
    assert {node.device for node in towers if node.op == "MatMul"} == {"GPU"}
    assert names(kernels.without_gpu_kernel(nodes)) == []
    assert names(kernels.loop_inputs_without_device(nodes)) == []
    if name in LOOPS_OF_CELLS:
        return
    waits = kernels.host_waits(towers)
    assert [(one.name, other.name) for one, other in waits] == []
    assert names(node for node in towers if node.op == "Tanh" and "while_body" in node.name) == []
    if name in RECURRENT:
        assert any(node.op == "CudnnRNNV3" for node in towers)


def names(nodes):
    """Returns types and names, for a message that tells more than objects do."""
    return [(node.op, node.name) for node in nodes]


def test_a_language_model_asks_gpus_only_for_what_they_have():
    check("ptb_small", "replicated")


def test_an_image_network_asks_gpus_only_for_what_they_have():
    check("shapes", "cpu", "float16", 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters"), list(itertools.product(recipe_steps.SMALL, PLACEMENTS))
)
def test_every_recipe_and_placement_asks_gpus_only_for_what_they_have(name, parameters):
    check(name, parameters)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "accumulate"), VARIANTS)
@pytest.mark.parametrize("name", list(recipe_steps.SMALL))
def test_every_precision_asks_gpus_only_for_what_they_have(name, precision, accumulate):
    check(name, "replicated", precision, accumulate)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(recipe_steps.SMALL))
def test_a_deterministic_step_has_only_deterministic_kernels(name):
    config.enable_op_determinism()
    try:
        nodes = nodes_of(name, "cpu")
    finally:
        config.disable_op_determinism()
    on_gpu = [node for node in nodes if node.device == "GPU"]
    assert names(node for node in on_gpu if node.op in NONDETERMINISTIC) == []


def test_the_contract_sees_what_breaks_it():
    """A seed and a shape in device memory, an op without a kernel, a loop input anywhere."""

    @tf.function(autograph=False)
    def broken(x, labels):
        with tf.device(DEVICES[0]):
            tf.random.stateless_uniform([2], tf.shape(x, tf.int64)[:2] + 1)
            tf.tensordot(x, tf.ones([4, 2], x.dtype), 1)
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x[0])
        somewhere = tf.reduce_sum(x)
        with tf.device(DEVICES[0]):
            start = tf.zeros([], x.dtype)
            return tf.while_loop(lambda y: y < 3.0, lambda y: y + somewhere, [start])

    specs = tf.TensorSpec([None, None, 4], tf.float64), tf.TensorSpec([None], tf.int32)
    nodes = kernels.nodes_of(broken.get_concrete_function(*specs).graph)
    waits = {other.op for _, other in kernels.host_waits(nodes)}
    assert "StatelessRandomGetKeyCounter" in waits and "ConcatV2" in waits
    missing = [node.op for node in kernels.without_gpu_kernel(nodes)]
    assert missing == ["SparseSoftmaxCrossEntropyWithLogits"]
    assert [node.op for node in kernels.loop_inputs_without_device(nodes)] == ["Sum"]
