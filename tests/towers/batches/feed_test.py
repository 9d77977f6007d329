"""Batches reach the towers whole: each row once, on its device, in order, a step ahead."""

import os
import sys
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import towers
from tests import helpers
from tests.programs import PATIENCE, wait_until
from towers.batches.feed import Feed, iterator_of
from towers.batches.shards import check_batch_spec, check_rows
from towers.loop.rates import Window
from towers.travel.pairs import part_sizes


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5))
def test_every_row_is_in_one_shard_and_sizes_differ_by_one_at_most(num_examples, num_towers):
    shards = towers.engine.split_batch(tf.range(num_examples), num_towers)
    sizes = [int(shard.size) for shard in shards]
    assert sum(sizes) == num_examples
    assert max(sizes) - min(sizes) <= 1
    counted = [shard.batch.numpy()[: int(shard.size)] for shard in shards]
    np.testing.assert_array_equal(np.concatenate(counted), np.arange(num_examples))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.sampled_from([1, 2, 4, 8]))
def test_parts_of_parts_are_the_parts(size, num_towers, num_micro_batches):
    nested = [part_sizes(part, num_micro_batches) for part in part_sizes(size, num_towers)]
    assert [part for parts in nested for part in parts] == part_sizes(
        size, num_towers * num_micro_batches
    )
    assert [int(part) for part in part_sizes(tf.constant(size), 6)] == part_sizes(size, 6)


def test_an_empty_shard_holds_the_first_example():
    shards = towers.engine.split_batch((tf.constant([7, 8]), tf.constant([[1.0], [2.0]])), 4)
    assert [int(shard.size) for shard in shards] == [1, 0, 1, 0]
    for shard in shards[1::2]:
        assert shard.batch[0].numpy().tolist() == [7]
        assert shard.batch[1].numpy().tolist() == [[1.0]]


@pytest.mark.parametrize(
    "nest",
    [
        {"image": np.arange(5), "label": np.arange(10).reshape(5, 2)},
        ({"ids": np.arange(5)}, (np.arange(5.0), np.arange(5))),
        (np.arange(5),),
        np.arange(5),
    ],
    ids=["dict", "nested", "tuple of one", "array"],
)
def test_a_shard_is_the_same_nest_as_the_batch(nest):
    dataset = tf.data.Dataset.from_tensor_slices(nest).batch(5)
    (shards,) = towers.engine.split(dataset, 2)
    expected = tf.nest.map_structure(lambda array: array[3:], nest)
    tf.nest.assert_same_structure(shards[1].batch, expected)
    tf.nest.map_structure(np.testing.assert_array_equal, shards[1].batch, expected)


def test_shard_specs_leave_the_number_of_rows_open():
    dataset = tf.data.Dataset.from_tensor_slices(np.zeros((8, 3), "float32"))
    specs = towers.engine.shard_specs(dataset.batch(4, drop_remainder=True), 2)
    assert [spec.batch for spec in specs] == [tf.TensorSpec([None, 3], tf.float32)] * 2
    assert specs == towers.engine.shard_specs(lambda epoch, first_step: dataset.batch(4), 2)


@pytest.mark.parametrize(
    "spec, message",
    [
        (tf.TensorSpec([], tf.int32), r"call `dataset\.batch\(\.\.\.\)` before"),
        ((), r"first dimension counts the examples"),
        (
            (tf.TensorSpec([4, 2], tf.float32), tf.TensorSpec([4], tf.int32), tf.NoneTensorSpec()),
            r"made of tensors\. Received None .*leave it out",
        ),
        (
            (tf.TensorSpec([4, 2], tf.float32), tf.TensorSpec([3], tf.int32)),
            r"same number of rows.*\[3, 4\]",
        ),
    ],
)
def test_what_is_no_batch_is_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        check_batch_spec(spec)


def test_an_unbatched_data_set_is_refused():
    with pytest.raises(ValueError, match=r"before the data set is split"):
        towers.engine.split(tf.data.Dataset.range(3), 2)


@pytest.mark.parametrize("num_towers", [1, 2])
@pytest.mark.parametrize("sizes", [(4, 3), (3, 4)])
def test_tensors_with_different_numbers_of_rows_are_refused(num_towers, sizes):
    def yield_batches():
        yield np.ones([5, 2], "float32"), np.ones([5], "int32")
        yield np.ones([sizes[0], 2], "float32"), np.ones([sizes[1]], "int32")

    for shape in ([None], None):
        signature = (tf.TensorSpec([None, 2], tf.float32), tf.TensorSpec(shape, tf.int32))
        dataset = tf.data.Dataset.from_generator(yield_batches, output_signature=signature)
        shards = iter(towers.engine.split(dataset, num_towers))
        assert sum(int(shard.size) for shard in next(shards)) == 5
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            next(shards)
        assert "must have the same number of rows" in str(error.value)
        assert f"[{sizes[0]} {sizes[1]}]" in str(error.value)


def test_rows_are_checked_only_where_shapes_leave_them_open():
    def ops_of(*shapes):
        specs = tuple(tf.TensorSpec(shape, tf.float32) for shape in shapes)
        return tf.function(check_rows).get_concrete_function(specs).graph.get_operations()

    assert {op.type for op in ops_of([5, 3])} == {"Placeholder"}
    assert {op.type for op in ops_of([4, 3], [4])} == {"Placeholder"}
    assert len(ops_of([None, 3], [None])) > 2


@pytest.mark.parametrize("num_towers", [1, 3])
def test_a_batch_without_examples_is_refused(num_towers):
    """Its statistics would be NaN."""
    dataset = tf.data.Dataset.range(8).batch(4).map(lambda batch: batch[batch > 5])
    with pytest.raises(tf.errors.InvalidArgumentError, match="A batch without examples"):
        list(towers.engine.split(dataset, num_towers))


def feed_of(dataset, num_towers=2, *, on_host=False):
    shards = towers.engine.split(dataset, num_towers)
    return Feed(shards, helpers.tower_devices(num_towers), on_host=on_host)


both_kinds = pytest.mark.parametrize("on_host", [False, True])


def feeding_threads():
    return {thread for thread in threading.enumerate() if "(fill)" in thread.name}


def test_shards_come_in_order_each_on_its_tower():
    with feed_of(tf.data.Dataset.range(10).batch(4)) as feed:
        rows = []
        for shards in feed:
            for index, shard in enumerate(shards):
                assert shard.batch.device.endswith(f"CPU:{index + 1}")
                assert shard.size.device.endswith(f"CPU:{index + 1}")
                rows += shard.batch.numpy().tolist()
    assert rows == list(range(10))


@both_kinds
def test_exhausted_looks_ahead_without_taking(on_host):
    with feed_of(tf.data.Dataset.range(4).batch(2), on_host=on_host) as feed:
        assert not feed.exhausted() and not feed.exhausted()
        assert next(feed)[0].batch.numpy().tolist() == [0]
        assert next(feed)[0].batch.numpy().tolist() == [2]
        assert feed.exhausted()
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(feed)


def produced(counts, num_batches, *, last=None):
    """A data set that counts its batches; the event `last` is set before the last of them."""

    def generate():
        for number in range(num_batches):
            counts.append(number)
            if last is not None and number == num_batches - 1:
                last.set()
            yield [number, number]

    return tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec([2], tf.int64))


@both_kinds
def test_batches_are_prepared_while_nobody_asks(on_host):
    counts, last = [], threading.Event()
    with feed_of(produced(counts, 2, last=last), on_host=on_host) as feed:
        next(feed)
        assert last.wait(PATIENCE)
        assert len(counts) == 2


def test_an_endless_data_set_is_not_read_far_ahead():
    counts = []
    with feed_of(produced(counts, 10**6)) as feed:
        next(feed)
        time.sleep(0.3)
    assert len(counts) < 20


@both_kinds
def test_an_error_in_the_data_set_is_raised_in_the_consumer_again_and_again(on_host):
    def generate():
        yield [1, 2]
        raise OSError("the disk is gone")

    dataset = tf.data.Dataset.from_generator(
        generate, output_signature=tf.TensorSpec([2], tf.int64)
    )
    others = feeding_threads()
    with feed_of(dataset, on_host=on_host) as feed:
        next(feed)
        for _ in range(2):
            with pytest.raises(tf.errors.UnknownError, match="the disk is gone"):
                next(feed)
    assert feeding_threads() <= others


@both_kinds
def test_closing_does_not_wait_for_a_data_set_that_blocks(on_host):
    blocked, go_on, closed = threading.Event(), threading.Event(), []

    def generate():
        yield [1, 2]
        blocked.set()
        go_on.wait(PATIENCE)
        closed.append(bool(closed))
        yield [3, 4]

    dataset = tf.data.Dataset.from_generator(
        generate, output_signature=tf.TensorSpec([2], tf.int64)
    )
    with feed_of(dataset, on_host=on_host) as feed:
        next(feed)
        assert blocked.wait(PATIENCE)
    del feed
    assert not closed  # The data set has not gone on: nobody has waited for it.
    go_on.set()
    wait_until(lambda: not feeding_threads(), "the end of the thread")


@pytest.mark.skipif(sys.platform != "linux", reason="counts the threads of TensorFlow by /proc")
def test_an_iterator_has_no_tuner_for_which_its_end_would_wait():
    held = []

    def threads_of(opened_by):
        before = len(os.listdir("/proc/self/task"))
        opened = [opened_by(tf.data.Dataset.range(9)) for _ in range(30)]
        assert [int(next(iterator)) for iterator in opened] == [0] * 30
        held.extend(opened)
        return len(os.listdir("/proc/self/task")) - before

    threads_of(iterator_of)  # TensorFlow starts threads of its own before the first.
    tuned = tf.data.Dataset.__iter__.__wrapped__  # Not as conftest.py has it.
    assert threads_of(iterator_of) <= threads_of(tuned) - 30


@pytest.mark.parametrize(("given", "expected"), [(None, 24), (2, 2)])
def test_autotune_is_as_many_calls_at_once_as_there_are_threads_or_as_is_said(given, expected):
    in_turn = threading.Barrier(expected, timeout=PATIENCE)
    lock, calls, most = threading.Lock(), set(), []

    def wait(number):
        with lock:
            calls.add(int(number))
            most.append(len(calls))
        in_turn.wait()
        with lock:
            calls.remove(int(number))
        in_turn.wait()
        return number

    options = tf.data.Options()
    options.threading.private_threadpool_size = 32
    if given is not None:
        options.autotune.initial_parallelism = given
    dataset = tf.data.Dataset.range(24).map(
        lambda number: tf.numpy_function(wait, [number], tf.int64),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    numbers = [int(number) for number in iterator_of(dataset.with_options(options))]
    assert numbers == list(range(24)) and max(most) == expected


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_closing_ends_the_thread(taken):
    others = feeding_threads()  # Of tests that end before their data set does.
    with feed_of(tf.data.Dataset.range(100).batch(4).repeat()) as feed:
        assert len(feeding_threads() - others) == 1
        for _ in range(taken):
            next(feed)
    for thread in feeding_threads() - others:  # On a busy machine it ends a little later.
        thread.join(60)
    assert feeding_threads() <= others


class Clock:
    """Stands still, but for those who say that time has passed."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def slow(self, call, seconds):
        """Returns a function that takes so long."""

        def called(*arguments):
            self.now += seconds
            return call(*arguments)

        return called


@pytest.mark.parametrize("batch_seconds, step_seconds", [(0.75, 0.25), (0.125, 0.875)])
def test_the_share_of_input_wait_is_the_true_one(batch_seconds, step_seconds, monkeypatch):
    """The loop's own time is either the step or waiting; an action's time is neither."""
    batches = helpers.dense_batches([4] * 10)
    model = helpers.dense_model()
    step, _ = helpers.build_step(
        helpers.classify(model), model, keras.optimizers.SGD(0.1), batches, 2
    )
    clock, window = Clock(), Window()
    take = clock.slow(Feed._take, batch_seconds)
    monkeypatch.setattr(time, "perf_counter", clock)
    monkeypatch.setattr(Feed, "_take", lambda feed: take(feed)._replace(ready=[clock.now] * 2))
    monkeypatch.setattr(type(step), "__call__", clock.slow(type(step).__call__, step_seconds))
    dataset = towers.batches_from(helpers.dataset_of(batches))
    helpers.make_trainer(step, dataset, [clock.slow(window.add, 3.0)]).train(epochs=1)
    _, rates = window.read()
    assert rates.input_wait == batch_seconds
    assert rates.steps_per_second == 1.0
    assert rates.tower_input_wait.tolist() == [batch_seconds] * 2
    assert rates.examples_per_second == 4.0
