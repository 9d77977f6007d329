import gc

import pytest
import tensorflow as tf

from towers.ground.concrete_function import concrete_function


def test_no_garbage_is_collected_while_a_function_is_traced():
    seen = []

    def double(x):
        seen.append(gc.isenabled())
        return 2 * x

    assert float(concrete_function(double, tf.TensorSpec([]))(tf.constant(3.0))) == 6
    assert seen == [False]
    assert gc.isenabled()


def test_garbage_is_collected_again_after_a_trace_that_fails():
    def fail(x):
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        concrete_function(fail, tf.TensorSpec([]))
    assert gc.isenabled()


def test_a_program_without_collections_stays_without_them():
    gc.disable()
    try:
        concrete_function(tf.identity, tf.TensorSpec([]))
        assert not gc.isenabled()
    finally:
        gc.enable()
