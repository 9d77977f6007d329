"""A training of any length needs the memory of a short one: no number of a step stays behind."""

import os
import pathlib
import sys

import pytest
import tensorflow as tf

from towers.step.tracing import number_on_host

MOST_BYTES = 100  # Of one number, on average; TensorFlow keeps some 700 of each Python number.


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what a process occupies")
def test_a_number_leaves_nothing_behind():
    first, count = 10**9, 20_000  # Numbers that no other test has.
    number_on_host(first)
    before = resident_bytes()
    for number in range(first, first + count):
        number_on_host(number)
    assert resident_bytes() - before < MOST_BYTES * count


def resident_bytes():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_number_is_one_of_64_bits_on_the_host_whatever_it_comes_from():
    for number in (7, tf.constant(7, tf.int64)):
        tensor = number_on_host(number)
        assert tensor.dtype == tf.int64 and tensor.shape == [] and int(tensor) == 7
        assert tensor.device.endswith("CPU:0")
