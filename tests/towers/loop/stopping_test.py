"""A training stops for a signal, without improvement, or when its minutes are over."""

import contextlib
import multiprocessing
import os
import signal
import sys
import textwrap
import threading
import time

import keras
import pytest
import tensorflow as tf

import towers
from tests import helpers
from tests.paths import ROOT
from tests.programs import PATIENCE, end_of_losing, finish, forked, started
from tests.towers.loop.reports import report_of
from towers import StopTraining
from towers.batches.feed import request_stop
from towers.loop import stopping


@pytest.mark.parametrize("maximize, values, best", [(True, [1, 3, 2], 3), (False, [3, 1, 2], 1)])
def test_the_best_evaluation_is_kept(maximize, values, best):
    kept = stopping.Best("score", maximize)
    better = [kept.improves(step, {"score": value}) for step, value in enumerate(values, 1)]
    assert better == [True, True, False]
    assert (kept.value, kept.step, kept.stale) == (best, 2, 1)


def test_nan_and_equal_values_are_no_best():
    kept = stopping.Best("loss", False)
    values = [float("nan"), 2.0, float("nan"), 2.0]
    assert [kept.improves(1, {"loss": value}) for value in values] == [False, True, False, False]
    assert kept.stale == 2


def test_training_stops_early_after_patience_evaluations():
    best = stopping.Best("accuracy", True)
    stop = stopping.stop_early(best, patience=2)
    for step, value in enumerate([0.5, 0.4], 1):
        best.improves(step, {"accuracy": value})
        stop(report_of(step))
    with pytest.raises(StopTraining, match=r"not improved for 1 evaluation \(best"):
        best.check(1)
    best.improves(3, {"accuracy": 0.3})
    with pytest.raises(StopTraining, match=r"not improved for 2.*best: 0\.5000 at step 1"):
        stop(report_of(3))


def test_training_stops_early_when_no_evaluation_was_a_number():
    best = stopping.Best("loss", False)
    best.improves(1, {"loss": float("nan")})
    with pytest.raises(StopTraining, match=r"best: none"):
        stopping.stop_early(best, patience=1)(report_of(1))


# Trains a tiny model without end and says so; the last action of a step may take its time.
TRAINING = """
    import signal, sys, time
    import keras
    import towers
    from tests import helpers

    batches = helpers.dense_batches([4])
    dataset = helpers.dataset_of(batches).repeat()
    model = helpers.dense_model()
    step = towers.build_train_step(
        helpers.classify(model), model, keras.optimizers.SGD(0.1),
        towers.Placement(["/CPU:0"]), dataset,
    )

    def announce(report):
        print("step", report.step, flush=True)
        time.sleep(float(sys.argv[1]))

    def hear(number, frame):
        handle(number, frame)
        print("heard", flush=True)

    with towers.actions.stop_on_signals() as check_signals:
        handle = signal.signal(signal.SIGINT, hear)
        batches, actions = towers.batches_from(dataset), [announce, check_signals]
        trainer = helpers.make_trainer(step, batches, actions)
        reason = trainer.train(steps=10**9)
    print("stopped by", reason, "after", trainer.position.step, flush=True)
"""


@contextlib.contextmanager
def training(pause):
    """A program that trains and has done its first step, after which it pauses."""
    command = [sys.executable, "-c", textwrap.dedent(TRAINING), pause]
    with started(command, cwd=ROOT, stderr=None) as process:
        assert process.stdout.readline() == "step 1\n"
        yield process


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_the_training_after_the_step(number):
    with training(pause=0.05) as process:
        process.send_signal(number)
        lines = finish(process).splitlines()
    *steps, last = ["step 1", *(line for line in lines if line != "heard")]
    assert last == f"stopped by {number.name} after {len(steps)}"
    assert steps[-1] == f"step {len(steps)}"


def train_until_data_blocks(lines):
    """As above, but the data set blocks once it has yielded four batches."""
    batches = helpers.dense_batches([4, 4, 4, 4])

    def generate():
        yield from batches
        threading.Event().wait()

    dataset = tf.data.Dataset.from_generator(
        generate, output_signature=helpers.dataset_of(batches).element_spec
    )
    model = helpers.dense_model()
    step = towers.build_train_step(
        helpers.classify(model), model, keras.optimizers.SGD(0.1),
        towers.Placement(["/CPU:0"]), dataset,
    )  # fmt: skip

    def announce(report):
        lines.send(f"step {report.step}")

    with towers.actions.stop_on_signals() as check_signals:
        trainer = helpers.make_trainer(step, dataset, [announce, check_signals])
        reason = trainer.train(steps=10**9)
    lines.send(f"stopped by {reason} at {trainer.position}")


def test_a_signal_ends_a_training_whose_data_set_blocks():
    """The last step before the wait is reported, and the position is the one after it.

    On a busy machine the signal may come before the fourth step.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with forked(train_until_data_blocks, sender) as process:
        sender.close()
        for number in (1, 2, 3):
            assert receiver.recv() == f"step {number}"
        time.sleep(0.5)  # Until the data set blocks.
        os.kill(process.pid, signal.SIGINT)
        process.join(PATIENCE)
        assert process.exitcode == 0
    *reported, last = iter_lines(receiver)
    assert reported in (["step 4"], [])
    done = 3 + len(reported)
    assert last == f"stopped by SIGINT at Position(step={done}, epoch=0, epoch_step={done})"


def iter_lines(receiver):
    """Yields what was sent until the other end was closed."""
    with contextlib.suppress(EOFError):
        while True:
            yield receiver.recv()


@pytest.mark.slow
def test_the_second_signal_ends_the_process_at_once():
    with training(pause=PATIENCE) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "heard\n"
        process.send_signal(signal.SIGTERM)
        assert finish(process, code=-signal.SIGTERM) == ""


class Signalled(keras.layers.Layer):
    def call(self, inputs):
        os.kill(os.getpid(), signal.SIGTERM)
        return inputs


def test_a_signal_while_a_layer_is_called_ends_the_work_by_its_own_name():
    """Keras raises an error in a layer again, with a text of its own."""
    with (
        pytest.raises(StopTraining, match=r"^SIGTERM$"),
        stopping.stop_on_signals() as signals,
        signals.at_once(),
    ):
        Signalled()(tf.zeros([1, 1]))


def test_the_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with stopping.stop_on_signals() as check:
        assert signal.getsignal(signal.SIGTERM) is not before
        check(report_of(1))
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_training_stops_when_its_minutes_are_over():
    stopping.stop_after(60)(report_of(1))
    with pytest.raises(StopTraining, match="1e-09 minutes are over"):
        stopping.stop_after(1e-9)(report_of(1))
    for minutes in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="above 0"):
            stopping.stop_after(minutes)


def test_in_another_thread_a_request_ends_the_training_and_handlers_stay():
    """Python gives signals to the main thread alone; Ray, for one, trains in another."""
    before = signal.getsignal(signal.SIGTERM)
    found = []

    def train():
        with stopping.stop_on_signals() as signals:
            signals()
            found.append(signal.getsignal(signal.SIGTERM) is before)
            request_stop()
            try:
                signals()
            except StopTraining as stop:
                found.append(str(stop))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert found == [True, "SIGTERM"]


@pytest.mark.parametrize("made", [True, False])
def test_an_interrupt_that_python_dropped_ends_the_training_at_its_start(made):
    output, error = end_of_losing("towers.loop.stopping.stop_on_signals()", made)
    assert "not interrupted" in output or made
    assert ("KeyboardInterrupt" in error.splitlines()[-1:]) == made, error
