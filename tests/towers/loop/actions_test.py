"""What happens periodically: when it is due, what it prints and writes, how a run is stopped."""

import contextlib
import signal
import sys
import textwrap
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.util.tensor_util import make_ndarray

from tests.paths import ROOT
from tests.programs import PATIENCE, finish, started
from towers import Position, StepReport, StopTraining
from towers.loop import actions, stopping
from towers.loop.rates import Rates
from towers.run.summaries import SummaryWriters
from towers.step.results import StepResults, TowerResults


def report_of(step, *, epoch_end=False, num_towers=2, **changes):
    """A report whose towers have the losses 3, 4, ... and 2, 3, ... examples."""
    losses = np.arange(3.0, 3.0 + num_towers, dtype="float32")
    results = {
        "loss": tf.constant(3.2104),
        "weight": tf.constant(5.0),
        "metrics": {"accuracy": tf.constant(0.25)},
        "gradient_norm": tf.constant(1.8),
        "learning_rate": tf.constant(0.125),
        "finite": tf.constant(True),
        "loss_scale": tf.constant(1.0),
        "towers": TowerResults(
            loss=tf.constant(losses),
            weight=tf.constant(losses - 1),
            metrics={"accuracy": tf.constant(losses / 8)},
            gradient_norm=tf.constant(losses * 2),
        ),
        **changes,
    }
    position = Position(step, 0, step)
    return StepReport(
        step, 0, epoch_end, position, StepResults(**results), 0.5, [0.0, 0.25][:num_towers]
    )


def steps_of(action, num_steps=7, epoch_ends=(3, 6)):
    seen = []
    periodic = action(lambda report: seen.append(report.step))
    for step in range(1, num_steps + 1):
        periodic(report_of(step, epoch_end=step in epoch_ends))
    return seen


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"steps": 2}, [2, 4, 6]),
        ({"steps": 1}, [1, 2, 3, 4, 5, 6, 7]),
        ({"epochs": True}, [3, 6]),
        ({"steps": 4, "epochs": True}, [3, 4, 6]),
        ({"seconds": 0}, [1, 2, 3, 4, 5, 6, 7]),
        ({"seconds": 3600}, []),
        ({"seconds": 3600, "steps": 5}, [5]),
    ],
)
def test_an_action_runs_when_it_is_due(options, expected):
    assert steps_of(lambda action: actions.every(action, **options)) == expected


@pytest.mark.parametrize("options, message", [({}, "needs steps, seconds"), ({"steps": 0}, "0")])
def test_a_period_is_needed(options, message):
    with pytest.raises(ValueError, match=message):
        actions.every(print, **options)


def test_rates_are_those_since_the_last_run():
    seen = []
    periodic = actions.with_rates(lambda report, rates: seen.append((report.step, rates)), steps=2)
    for step in range(1, 6):
        periodic(report_of(step))
    assert [step for step, _ in seen] == [2, 4]
    for _, rates in seen:
        assert rates.steps_per_second == 2.0
        assert rates.tower_examples_per_second.tolist() == [4.0, 6.0]
        assert rates.tower_input_wait.tolist() == [0.0, 0.5]


def rates_of(waits=(0.0, 0.0)):
    return Rates(142, 10.0, np.array(waits), np.array([18140, 18140]))


def test_a_report_is_one_line():
    assert actions.format_report(report_of(1200), rates_of()) == (
        "train | step 1200 | loss 3.2104 (t0 3 t1 4) | accuracy 0.2500 | norm 1.8 | "
        "14.2 steps/s | 3628 examples/s"
    )


def test_one_tower_has_no_losses_of_its_own():
    line = actions.format_report(report_of(7, num_towers=1), rates_of())
    assert line.startswith("train | step 7 | loss 3.2104 | accuracy")


@pytest.mark.parametrize("wait, shown", [(0.9, False), (1.0, True), (2.5, True)])
def test_input_wait_is_reported_from_ten_percent_on(wait, shown):
    line = actions.format_report(report_of(1), rates_of((0.0, wait)))
    assert line.endswith(f" | input wait {wait / 10:.0%}") is shown


def test_a_report_is_printed(capsys):
    actions.print_report(report_of(1), rates_of())
    assert capsys.readouterr().out.startswith("train | step 1 | ")


def curves(folder):
    """Returns {(run, tag): [(step, value)]} from the event files."""
    found = {}
    for path in sorted(folder.rglob("*tfevents*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = Event.FromString(record.numpy())
            for value in event.summary.value:
                number = float(tf.make_ndarray(value.tensor))
                key = (path.parent.relative_to(folder).as_posix(), value.tag)
                found.setdefault(key, []).append((event.step, number))
    return found


def test_each_tower_has_a_curve_under_the_same_tags(tmp_path):
    with SummaryWriters(tmp_path) as writers:
        write = actions.write_summaries(writers)
        write(report_of(5), rates_of((0.0, 2.5)))
        write(report_of(10), rates_of((0.0, 2.5)))
    found = curves(tmp_path)
    assert {run for run, _ in found} == {"average", "tower_0", "tower_1"}
    own = {"loss", "accuracy", "gradient_norm", "examples_per_second", "input_wait"}
    assert {tag for run, tag in found if run == "tower_1"} == own
    assert {tag for run, tag in found if run == "average"} == own | {"learning_rate"}
    assert found["tower_1", "loss"] == [(5, 4.0), (10, 4.0)]
    assert found["tower_1", "gradient_norm"] == [(5, 8.0), (10, 8.0)]
    assert found["tower_1", "input_wait"] == [(5, 0.25), (10, 0.25)]
    assert found["tower_0", "accuracy"] == [(5, 0.375), (10, 0.375)]
    assert found["average", "learning_rate"] == [(5, 0.125), (10, 0.125)]
    assert found["average", "examples_per_second"] == [(5, 3628.0), (10, 3628.0)]


@pytest.mark.parametrize("maximize, values, best", [(True, [1, 3, 2], 3), (False, [3, 1, 2], 1)])
def test_the_best_evaluation_is_kept(maximize, values, best):
    kept = actions.Best("score", maximize)
    better = [kept.improves(step, {"score": value}) for step, value in enumerate(values, 1)]
    assert better == [True, True, False]
    assert (kept.value, kept.step, kept.stale) == (best, 2, 1)


def test_nan_and_equal_values_are_no_best():
    kept = actions.Best("loss", False)
    values = [float("nan"), 2.0, float("nan"), 2.0]
    assert [kept.improves(1, {"loss": value}) for value in values] == [False, True, False, False]
    assert kept.stale == 2


def test_training_stops_early_after_patience_evaluations():
    best = actions.Best("accuracy", True)
    stop = stopping.stop_early(best, patience=2)
    for step, value in enumerate([0.5, 0.4], 1):
        best.improves(step, {"accuracy": value})
        stop(report_of(step))
    best.improves(3, {"accuracy": 0.3})
    with pytest.raises(StopTraining, match=r"not improved for 2.*best: 0\.5000 at step 1"):
        stop(report_of(3))


def test_training_stops_early_when_no_evaluation_was_a_number():
    best = actions.Best("loss", False)
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

    with towers.stop_on_signals() as check_signals:
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


# As above, but the data set blocks once it has yielded four batches.
BLOCKED = """
    import threading
    import keras
    import tensorflow as tf
    import towers
    from tests import helpers

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
    )

    def announce(report):
        print("step", report.step, flush=True)

    with towers.stop_on_signals() as check_signals:
        trainer = helpers.make_trainer(step, dataset, [announce, check_signals])
        reason = trainer.train(steps=10**9)
    print("stopped by", reason, "at", trainer.position, flush=True)
"""


def test_a_signal_ends_a_training_whose_data_set_blocks():
    """The last step before the wait is reported, and the position is the one after it.

    On a busy machine the signal may come before the fourth step.
    """
    command = [sys.executable, "-c", textwrap.dedent(BLOCKED)]
    with started(command, cwd=ROOT, stderr=None) as process:
        for number in (1, 2, 3):
            assert process.stdout.readline() == f"step {number}\n"
        time.sleep(0.5)  # Until the data set blocks.
        process.send_signal(signal.SIGINT)
        *reported, last = finish(process).splitlines()
    assert reported in (["step 4"], [])
    done = 3 + len(reported)
    assert last == f"stopped by SIGINT at Position(step={done}, epoch=0, epoch_step={done})"


@pytest.mark.slow
def test_the_second_signal_ends_the_process_at_once():
    with training(pause=PATIENCE) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "heard\n"
        process.send_signal(signal.SIGTERM)
        assert finish(process, code=-signal.SIGTERM) == ""


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


def test_a_report_of_eight_towers_fits_a_terminal():
    report, rates = report_of(120_000, num_towers=8), Rates(20, 2.0, [0.0] * 8, [5.0] * 8)
    whole = actions.format_report(report, rates, first_tower=0)
    assert len(whole) > 80 and "t7 10)" in whole
    lines = [actions.format_report(report, rates, columns=n) for n in (len(whole), 110, 90, 80, 10)]
    assert lines[0] == whole and all("accuracy 0.2500" in line for line in lines)
    assert "loss 3.2104 (t0 3 - t7 10) | accuracy 0.2500 | norm 1.8 | 10.0 steps/s" in lines[1]
    assert [len(line) <= n for line, n in zip(lines, (10**3, 110, 90, 80), strict=False)] == [
        True
    ] * 4
    assert lines[4] == "train | step 120000 | loss 3.2104 | accuracy 0.2500 | 20 examples/s"


def test_variables_of_one_path_have_histograms_of_their_own(tmp_path):
    variables = [keras.Variable([value], name="same") for value in (1.0, 2.0, 3.0)]
    assert len({variable.path for variable in variables}) == 1
    with SummaryWriters(tmp_path) as writers:
        actions.write_histograms(writers, variables)(report_of(7))
    events = EventAccumulator(str(tmp_path / "average")).Reload()
    found = {
        tag: make_ndarray(events.Tensors(tag)[0].tensor_proto) for tag in events.Tags()["tensors"]
    }
    middles = {tag: buckets[buckets[:, 2] > 0][0, :2].mean() for tag, buckets in found.items()}
    assert {tag: round(middle) for tag, middle in middles.items()} == {
        "same": 1,
        "same_2": 2,
        "same_3": 3,
    }


def test_the_steps_of_a_range_are_profiled(tmp_path):
    profile = actions.profile_steps(tmp_path, first=3, last=4)
    profile(report_of(1))
    assert not list(tmp_path.iterdir())
    for step in (2, 3):
        profile(report_of(step))
    assert not list(tmp_path.rglob("*.xplane.pb"))
    profile(report_of(4))
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1
    profile(report_of(5))
    for first, last in ((1, 5), (5, 4)):
        with pytest.raises(ValueError, match="2 <= first <= last"):
            actions.profile_steps(tmp_path, first=first, last=last)
