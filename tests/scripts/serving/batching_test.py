"""Batches of waiting questions, with a function in place of a model."""

import threading

import pytest
import tensorflow as tf

from tests.programs import PATIENCE
from towers.scripts.serving.batching import Batcher, ClosedError, FullError


class Model:
    """Doubles numbers as soon as it may, and remembers the batches."""

    def __init__(self):
        self.batches = []
        self.began = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)

    def __call__(self, numbers):
        self.batches.append(list(numbers))
        self.began.release()
        assert self.may_end.acquire(timeout=PATIENCE)
        return [2 * number for number in numbers]


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def batcher(model):
    with Batcher(model, max_batch=4, max_waiting=6) as batcher:
        yield batcher
        model.may_end.release(100)


def busy(batcher, model):
    """Lets the batcher answer one question while the others of a test come."""
    future = batcher.submit(0, "busy")
    assert model.began.acquire(timeout=PATIENCE)
    return future


def test_questions_that_wait_are_answered_together(batcher, model):
    first = busy(batcher, model)
    futures = [batcher.submit(number, "a") for number in range(1, 4)]
    model.may_end.release(2)
    assert [future.result(PATIENCE) for future in (first, *futures)] == [0, 2, 4, 6]
    assert model.batches == [[0], [1, 2, 3]]


def test_a_batch_holds_one_group_and_the_oldest_question_goes_first(batcher, model):
    busy(batcher, model)
    futures = [batcher.submit(number, group) for number, group in enumerate("abab", 1)]
    model.may_end.release(3)
    assert [future.result(PATIENCE) for future in futures] == [2, 4, 6, 8]
    assert model.batches == [[0], [1, 3], [2, 4]]


def test_a_batch_is_bounded_in_rows_and_a_larger_question_is_alone(batcher, model):
    busy(batcher, model)
    rows = [2, 9, 1, 2]
    futures = [batcher.submit(number, "a", size) for number, size in enumerate(rows, 1)]
    model.may_end.release(4)
    assert [future.result(PATIENCE) for future in futures] == [2, 4, 6, 8]
    assert model.batches == [[0], [1, 3], [2], [4]]


def test_more_questions_than_may_wait_are_refused_and_cancelled_ones_make_room(batcher, model):
    busy(batcher, model)
    futures = [batcher.submit(number, "a") for number in range(1, 7)]
    with pytest.raises(FullError):
        batcher.submit(7, "a")
    assert futures[1].cancel()
    futures[1] = batcher.submit(7, "a")
    assert batcher.num_waiting() == 6
    model.may_end.release(3)
    assert sorted(future.result(PATIENCE) for future in futures) == [2, 6, 8, 10, 12, 14]
    assert all(2 not in batch for batch in model.batches)


def test_an_error_reaches_all_of_its_batch_and_no_other():
    def answer(numbers):
        return [1 // number for number in numbers]

    with Batcher(answer, max_batch=4, max_waiting=6) as batcher:
        with pytest.raises(ZeroDivisionError):
            batcher.submit(0, "a").result(PATIENCE)
        assert batcher.submit(1, "a").result(PATIENCE) == 1


def test_a_wrong_number_of_answers_is_an_error_of_every_question():
    with (
        Batcher(lambda numbers: [], max_batch=4, max_waiting=6) as batcher,
        pytest.raises(ValueError, match="zip"),
    ):
        batcher.submit(0, "a").result(PATIENCE)


def test_decoding_ends_when_nobody_waits_for_it():
    began = threading.Semaphore(0)

    @tf.function(autograph=False)
    def endless():
        first = tf.constant(0, tf.int64)
        return tf.while_loop(lambda count: count < 2**62, lambda count: count + 1, [first])

    def answer(numbers):
        began.release()
        return endless() if 0 in numbers else numbers

    with Batcher(answer, max_batch=4, max_waiting=6) as batcher:
        asked = batcher.submit(0, "a")
        assert began.acquire(timeout=PATIENCE)
        assert asked.cancel()
        assert batcher.submit(1, "a").result(PATIENCE) == 1


def test_closing_answers_what_waits_and_refuses_what_comes(model):
    with Batcher(model, max_batch=4, max_waiting=6) as batcher:
        first = busy(batcher, model)
        waiting = batcher.submit(1, "a")
        model.may_end.release(2)
    assert (first.result(0), waiting.result(0)) == (0, 2)
    with pytest.raises(ClosedError):
        batcher.submit(2, "a")


def test_many_threads_get_their_own_answers():
    with Batcher(lambda numbers: [-n for n in numbers], max_batch=8, max_waiting=999) as batcher:
        found = {}

        def ask(number):
            found[number] = batcher.submit(number, number % 3).result(PATIENCE)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {number: -number for number in range(60)}
