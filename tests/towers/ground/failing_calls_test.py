"""Calls of TensorFlow that fail: in several threads at once, and what their errors say."""

import subprocess
import sys

import pytest
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context, core

from tests.paths import ROOT
from towers.ground.failing_calls import mend

PATIENCE = 120  # Seconds for what takes about ten, while the machine has other work.
PROGRAM = """
import sys
import threading

import {first}
import {second}
import tensorflow as tf

sys.setswitchinterval(1e-6)  # Else it takes long until the threads meet.
params, beyond = tf.constant([1.0]), tf.constant([5])


def fail():
    for _ in range(3000):
        try:
            tf.raw_ops.Gather(params=params, indices=beyond)
        except tf.errors.InvalidArgumentError:
            pass


threads = [threading.Thread(target=fail) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("none hangs")
"""


@pytest.mark.parametrize("order", [("towers", "keras"), ("keras", "towers")])
def test_calls_that_fail_at_once_do_not_hang(order):
    """Before Python 3.12 they would not hang anyway."""
    first, second = order
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(first=first, second=second)],
        capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE,
    )  # fmt: skip
    assert result.stdout == "none hangs\n", result.stderr[-2000:]


def gather():
    tf.raw_ops.Gather(params=[1.0], indices=[5])


def read_nothing():
    tf.io.read_file("there/is/no/such/file")


def read_beyond_the_end():
    tf.raw_ops.IteratorGetNext(
        iterator=iter(tf.data.Dataset.range(0))._iterator_resource,
        output_types=[tf.int64],
        output_shapes=[[]],
    )


@tf.function(autograph=False)
def in_a_graph():
    return tf.io.decode_image(b"no picture")


def with_an_attribute():
    tf.raw_ops.Unpack(value=tf.zeros([2]), num=3)


def add_shapes_that_differ():
    tf.raw_ops.Add(x=[1.0, 2.0], y=[1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "call",
    [
        gather,
        read_nothing,
        read_beyond_the_end,
        in_a_graph,
        with_an_attribute,
        add_shapes_that_differ,
    ],
)
def test_errors_are_those_of_tensorflow(call):
    """Their type, message, op, code, text and payloads; whatever makes them."""
    try:
        pywrap_tfe.TFE_Py_RegisterExceptionClass(core._NotOkStatusException)
        expected = parts_of(error_of(call))
    finally:
        mend(core)
    assert parts_of(error_of(call)) == expected


def error_of(call):
    with pytest.raises(tf.errors.OpError) as caught:
        call()
    return caught.value


def parts_of(error):
    payloads = dict(error.experimental_payloads)
    return type(error), error.message, error.op, error.error_code, str(error), payloads


def test_the_exception_that_tensorflow_makes_runs_no_python_code():
    """It is seen only between TensorFlow's own code and the error of `tf.errors`."""
    arguments = tf.constant([1.0]), tf.constant([5])
    with pytest.raises(core._NotOkStatusException) as caught:
        pywrap_tfe.TFE_Py_FastPathExecute(context.context(), "Gather", None, *arguments)
    assert type(caught.value).__init__ is Exception.__init__
    assert not hasattr(caught.value, "messages")
    assert "InvalidArgumentError" in str(caught.value)
