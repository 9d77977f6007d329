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


def test_reads_and_writes_are_in_the_order_in_which_they_are_written():
    variable, table = tf.Variable(1.0), tf.Variable(tf.zeros([3]))

    def function(x):
        before = variable * x
        variable.assign_add(before)
        numbers = tf.data.Dataset.range(3).reduce(0.0, lambda s, n: s + tf.cast(n, s.dtype))
        table.scatter_nd_update([[1]], [tf.cond(x > 0, lambda: variable.assign(x), lambda: x)])
        tf.py_function(lambda: None, [], [])
        tf.debugging.assert_greater(x, 0.0)
        return before + variable + tf.reduce_sum(table) + numbers

    plain = tf.function(function, autograph=False).get_concrete_function(tf.TensorSpec([]))
    ours = concrete_function(function, tf.TensorSpec([]))
    assert orders(ours) == orders(plain)
    assert sum(map(len, orders(ours))) > 5


def orders(function):
    """Returns which ops every op waits for, by their place in the graph, and the last ones."""
    ops = function.graph.get_operations()
    places = {op: number for number, op in enumerate(ops)}
    waited = [*(op.control_inputs for op in ops), function.graph.control_outputs]
    return [sorted(places[one] for one in every) for every in waited]
