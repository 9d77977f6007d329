"""A trace: results stay on the device that computed them; no number of a step stays behind."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import ConfigProto

from tests import programs
from towers.scripts.timing.input_report import resident_bytes
from towers.step.tracing import checked_once, number_on_host, trace

MOST_BYTES = 100  # Of one number, on average; TensorFlow keeps some 700 of each Python number.


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


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what a process occupies")
def test_a_number_leaves_nothing_behind():
    """A training of any length needs the memory of a short one."""
    assert programs.exit_code(occupy_little) == 0  # Alone: threads of other tests occupy some, too.


def occupy_little():
    first, count = 10**9, 20_000
    number_on_host(first)
    before = resident_bytes()
    for number in range(first, first + count):
        number_on_host(number)
    assert resident_bytes() - before < MOST_BYTES * count


def test_a_number_is_one_of_64_bits_on_the_host_whatever_it_comes_from():
    for number in (7, tf.constant(7, tf.int64)):
        tensor = number_on_host(number)
        assert tensor.dtype == tf.int64 and tensor.shape == [] and int(tensor) == 7
        assert tensor.device.endswith("CPU:0")


class Counting:
    """A traced function that counts the calls in which TensorFlow checks the arguments."""

    def __init__(self, traced):
        self._traced, self.count = traced, 0
        self.inference_fn, self.graph = traced.inference_fn, traced.graph
        self.captured_inputs = traced.captured_inputs

    def __call__(self, *arguments):
        self.count += 1
        return self._traced(*arguments)


def test_arguments_of_each_shape_are_checked_once():
    captured = tf.Variable([10.0])
    specs = {"a": tf.TensorSpec([None]), "b": tf.RaggedTensorSpec([None, None])}, tf.TensorSpec([])

    def add(parts, number):
        captured.assign_add([1.0])
        total = tf.reduce_sum(parts["a"]) + tf.reduce_sum(parts["b"]) + captured + number
        return {"total": total, "a": parts["a"]}

    counting = Counting(trace(add, "/CPU:0", *specs))
    call = checked_once(counting, *specs)
    for times, (rows, checks) in enumerate([(1, 1), (1, 1), (2, 2), (1, 2), (2, 2)], 1):
        parts = {"a": tf.ones([rows]), "b": tf.ragged.constant([[1.0], [2.0, 3.0]])}
        results = call(parts, tf.constant(5.0))
        assert results["total"].numpy() == [rows + 6 + 10 + times + 5]
        assert results["a"].shape == [rows] and counting.count == checks
    inside = tf.function(lambda: call(parts, tf.constant(5.0)), autograph=False)
    assert inside()["total"].numpy() == [2 + 6 + 10 + 6 + 5]
    as_numpy = call({**parts, "a": np.ones(2, np.float32)}, tf.constant(5.0))
    assert as_numpy["total"].numpy() == [2 + 6 + 10 + 7 + 5]
    other_names = {"a": parts["a"], "c": parts["b"]}
    for wrong in (
        other_names,
        {**parts, "a": tf.ones([2, 1])},
        {**parts, "a": tf.ones([2], "int32")},
    ):
        with pytest.raises((TypeError, ValueError)):
            call(wrong, tf.constant(5.0))
    assert captured.numpy() == [17.0]


def settings_of(traced, *arguments):
    """Returns how TensorFlow is to rewrite the graph of a function that another one calls."""

    def around():
        return traced(*arguments)

    graph = tf.function(around, autograph=False).get_concrete_function().graph
    (call,) = (op for op in graph.get_operations() if op.type.endswith("PartitionedCall"))
    return ConfigProto.FromString(call.get_attr("config_proto")).graph_options.rewrite_options


def test_on_cpus_a_graph_is_rewritten_once_and_otherwise_as_the_program_has_set_it():
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"remapping": False})
    traced = trace(lambda value: value + 1, "/CPU:0", tf.TensorSpec([]))
    tf.config.optimizer.set_experimental_options({"remapping": True, **before})
    other = tf.function(lambda value: value + 1).get_concrete_function(tf.TensorSpec([]))
    assert float(traced(tf.constant(1.0))) == 2.0
    own, default = settings_of(traced, tf.constant(1.0)), settings_of(other, tf.constant(1.0))
    assert own.meta_optimizer_iterations == own.ONE
    assert own.remapping == own.layout_optimizer == own.OFF
    assert default.meta_optimizer_iterations == default.DEFAULT_NUM_ITERS
    assert default.layout_optimizer == default.DEFAULT


def test_beside_a_gpu_all_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [f"/{kind}:0"])
    traced = trace(lambda value: value + 1, "/CPU:0", tf.TensorSpec([]))
    own = settings_of(traced, tf.constant(1.0))
    assert own.meta_optimizer_iterations == own.DEFAULT_NUM_ITERS
