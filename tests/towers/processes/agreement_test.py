"""Processes that do not have the same settings or variables are told apart, by name."""

import numpy as np
import pytest
import tensorflow as tf

from tests import helpers
from towers.processes import agreement
from towers.processes.agreement import check_settings, check_variables, difference
from towers.processes.processes import Processes


def other_adds(*arrays):
    """What the other of two processes adds to one sum after another."""
    queue = list(arrays)

    def add(nest):
        return [part + tf.cast(queue.pop(0), part.dtype) for part in nest]

    return add


def of_text(text, index, size):
    row = np.zeros([2, size], np.int32)
    row[index, : len(text)] = np.frombuffer(text.encode(), np.uint8)
    return row


def test_the_setting_and_the_worker_that_differ_are_named():
    chief, other = '{"seed": 0, "steps": 3}', '{"seed": 5, "steps": 3}'
    size = len(other)
    processes = helpers.OneOfTwo(other_adds([0, size], of_text(other, 1, size)))
    with pytest.raises(ValueError, match="differ: worker 1 has seed 5, worker 0 has 0"):
        check_settings(processes, {"seed": 0, "steps": 3})
    same = helpers.OneOfTwo(other_adds([0, size], of_text(chief, 1, size)))
    check_settings(same, {"seed": 0, "steps": 3})


def test_variables_that_differ_are_named():
    weights = tf.Variable([1.0, 2.0], name="weights")
    found = "weights by 1.5e-02"
    size = len(found)
    chief = helpers.OneOfTwo(other_adds(np.zeros(2), [0, size], of_text(found, 1, size)))
    with pytest.raises(RuntimeError, match=r"worker 1 in weights by 1\.5e-02"):
        check_variables(chief, {"variables": [weights]})
    # The other one: the sum is the chief's values, since it adds zeros itself.
    other = helpers.OneOfTwo(other_adds([1.03, 2.0], [0, 0], np.zeros([2, 18])), index=1)
    with pytest.raises(RuntimeError, match=r"worker 1 in weights by 1\.5e-02"):
        check_variables(other, {"variables": [weights]})
    equal = helpers.OneOfTwo(other_adds([1.0, 2.0], [0, 0], np.zeros([2, 0])), index=1)
    check_variables(equal, {"variables": [weights]})


def test_one_process_agrees_with_itself():
    check_settings(Processes(), {"seed": 0})
    check_variables(Processes(), {})


def test_rounding_is_no_difference_and_nothing_finite_is_near_infinity():
    assert difference(np.float32([1, 2]), np.float32([1, 2])) == 0
    assert difference(np.float32([np.nan]), np.float32([np.nan])) == 0
    assert difference(np.float32([1 + 1e-7]), np.float32([1])) < agreement.TOLERANCE
    assert difference(np.float32([np.inf]), np.float32([1])) == np.inf
    assert difference(np.zeros([0]), np.zeros([0])) == 0
