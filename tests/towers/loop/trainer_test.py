"""The loop: every batch once, in order, and any position continues to the same weights."""

import contextlib
import signal
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.checkpoints import CheckpointFolder
from towers.loop.updates import FiniteCheck
from towers.steps import Position

SIZES = [4, 4, 3]


def dropout_model():
    inputs = keras.Input((5,))
    normed = keras.layers.BatchNormalization()(inputs)
    return keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Dropout(0.3, seed=1)(normed)))


def batches(epoch, first_step=0):
    """Three batches of other examples in each epoch."""
    return helpers.dataset_of(helpers.dense_batches(SIZES, seed=epoch)).skip(first_step)


def build():
    keras.utils.set_random_seed(3)
    model = dropout_model()
    tower_fn = helpers.classify(model, training=True)
    optimizer = keras.optimizers.Adam(0.01)
    step, _ = helpers.build_step(tower_fn, model, optimizer, helpers.dense_batches(SIZES), 2)
    return step


@pytest.fixture(scope="module")
def step():
    return build()


def variables_of(step):
    return [*step.update.copies.shared.all, *step.update.copies.optimizer.variables]


def snapshot(step):
    return [variable.numpy() for variable in variables_of(step)]


def restore(step, values):
    for variable, value in zip(variables_of(step), values, strict=True):
        variable.assign(value)


def assert_bit_identical(step, expected):
    for actual, value in zip(snapshot(step), expected, strict=True):
        np.testing.assert_array_equal(actual, value)


def test_positions_count_steps_and_epochs(step):
    reports = []
    trainer = helpers.make_trainer(step, batches, [reports.append])
    assert trainer.train(epochs=2) == "2 epochs done"
    assert [report.step for report in reports] == [1, 2, 3, 4, 5, 6]
    assert [report.epoch for report in reports] == [0, 0, 0, 1, 1, 1]
    assert [report.epoch_end for report in reports] == [False, False, True] * 2
    assert [report.position for report in reports] == [
        Position(1, 0, 1), Position(2, 0, 2), Position(3, 1, 0),
        Position(4, 1, 1), Position(5, 1, 2), Position(6, 2, 0),
    ]  # fmt: skip
    assert [float(report.results.weight) for report in reports] == [4, 4, 3] * 2
    assert trainer.position == Position(6, 2, 0)


def test_a_training_shorter_than_the_period_of_its_reports_is_reported_at_its_end(step):
    seen = []
    report = towers.actions.with_rates(lambda report, rates: seen.append(report), steps=5)
    trainer = helpers.make_trainer(step, batches, [report])
    for epochs in (1, 1, 2):  # It goes on as if the report at the end had not been.
        trainer.train(epochs=epochs)
    assert [(one.step, float(one.results.weight)) for one in seen] == [(3, 11), (5, 19)]


@pytest.mark.parametrize(
    "epochs, steps, reason, position",
    [
        (None, 2, "2 steps done", Position(2, 0, 2)),
        (None, 3, "3 steps done", Position(3, 1, 0)),
        (None, 4, "4 steps done", Position(4, 1, 1)),
        (1, 5, "1 epoch done", Position(3, 1, 0)),
        (5, 1, "1 step done", Position(1, 0, 1)),
        (0, None, "0 epochs done", Position()),
    ],
)
def test_training_ends_at_what_comes_first(step, epochs, steps, reason, position):
    trainer = helpers.make_trainer(step, batches)
    assert trainer.train(epochs=epochs, steps=steps) == reason
    assert trainer.position == position


def test_epochs_and_steps_count_from_the_beginning_of_the_run(step):
    reports = []
    trainer = helpers.make_trainer(step, batches, [reports.append], position=Position(4, 1, 1))
    assert trainer.train(steps=6) == "6 steps done"
    assert trainer.train(epochs=2) == "2 epochs done"
    assert [report.step for report in reports] == [5, 6]


def test_after_an_interrupted_wait_no_update_is_made_twice(step):
    """As in a notebook, where nothing takes the signal."""
    reported, waits = threading.Event(), [True]
    steps = []

    def report(one):
        steps.append(one.step)
        reported.set()

    def wait(number):
        if number == 2 and waits:
            waits.clear()
            reported.wait(60)
            time.sleep(0.5)  # For the second update.
            signal.raise_signal(signal.SIGINT)
        return number

    def read(number, batch):
        number = tf.numpy_function(wait, [number], tf.int64)
        with tf.control_dependencies([number]):
            return tf.nest.map_structure(tf.identity, batch)

    def slow_batches(epoch, first_step=0):
        return batches(epoch).enumerate().map(read).skip(first_step)

    trainer = helpers.make_trainer(step, slow_batches, [report])
    before = int(step.update.copies.optimizer.iterations)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # A job may ignore it.
    try:
        with pytest.raises(KeyboardInterrupt):
            trainer.train(epochs=1)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert trainer.position.step == 2
    trainer.train(epochs=1)
    assert int(step.update.copies.optimizer.iterations) - before == 3
    assert steps == [1, 2, 3]


def test_the_time_of_a_step_has_the_wait_for_the_one_before(step, monkeypatch):
    """On a GPU the call itself returns at once."""
    check = FiniteCheck.check

    def wait(self):
        time.sleep(0.05)
        check(self)

    monkeypatch.setattr(FiniteCheck, "check", wait)
    reports = []
    helpers.make_trainer(step, batches, [reports.append]).train(epochs=1)
    assert all(report.seconds > 0.05 for report in reports)


@pytest.mark.parametrize("given", [{"epochs": 1.5}, {"steps": "2"}, {"epochs": float("nan")}])
def test_what_is_no_number_of_epochs_or_steps_is_refused(step, given):
    with pytest.raises(ValueError, match=" must be a whole number of at least 0"):
        helpers.make_trainer(step, batches).train(**given)


def test_neither_epochs_nor_steps_is_refused(step):
    with pytest.raises(ValueError, match="needs epochs or steps"):
        helpers.make_trainer(step, batches).train()


def test_every_action_runs_though_one_asks_to_stop(step):
    seen = []

    def stop(report):
        seen.append("stop")
        if report.step == 2:
            raise towers.StopTraining("enough of it")

    def stop_too(report):
        seen.append("too")
        if report.step == 2:
            raise towers.StopTraining("also enough")

    def last(report):
        seen.append(report.position)

    trainer = helpers.make_trainer(step, batches, [stop, stop_too, last])
    assert trainer.train(epochs=3) == "enough of it"
    assert seen == ["stop", "too", Position(1, 0, 1), "stop", "too", Position(2, 0, 2)]
    assert trainer.position == Position(2, 0, 2)


def test_an_error_in_an_action_ends_the_training(step):
    def fail(report):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        helpers.make_trainer(step, batches, [fail]).train(epochs=1)


def test_any_position_continues_to_bit_identical_weights(step):
    begin, saved = snapshot(step), {}
    trainer = helpers.make_trainer(
        step, batches, [lambda r: saved.update({r.position: snapshot(step)})]
    )
    trainer.train(epochs=2)
    final = snapshot(step)
    assert any((old != new).any() for old, new in zip(begin, final, strict=True))
    for position, values in {Position(): begin, **saved}.items():
        restore(step, values)
        helpers.make_trainer(step, batches, position=position).train(epochs=2)
        assert_bit_identical(step, final)

    fresh = build()  # As another process would: nothing but position and variables goes over.
    restore(fresh, saved[Position(4, 1, 1)])
    helpers.make_trainer(fresh, batches, position=Position(4, 1, 1)).train(epochs=2)
    assert_bit_identical(fresh, final)


def test_stopping_in_between_changes_nothing(step):
    begin = snapshot(step)
    helpers.make_trainer(step, batches).train(epochs=2)
    final = snapshot(step)
    restore(step, begin)
    trainer = helpers.make_trainer(step, batches)
    for steps in (1, 3, 4, 6):
        trainer.train(steps=steps)
    assert_bit_identical(step, final)


def test_an_empty_data_set_is_an_error(step):
    def empty(epoch, first_step=0):
        return batches(epoch).take(0)

    with pytest.raises(ValueError, match=r"no batch in epoch 0\. Is it empty, or smaller than one"):
        helpers.make_trainer(step, empty).train(epochs=1)


def test_a_position_at_the_end_of_an_epoch_goes_on_with_the_next(step):
    """A checkpoint of a data set that has shrunk since."""
    reports = []
    trainer = helpers.make_trainer(step, batches, [reports.append], position=Position(3, 0, 3))
    trainer.train(steps=4)
    assert [(report.step, report.epoch) for report in reports] == [(4, 1)]


def test_an_endless_data_set_is_trained_for_a_number_of_steps(step):
    dataset = helpers.dataset_of(helpers.dense_batches(SIZES)).repeat()
    trainer = helpers.make_trainer(step, towers.batches_from(dataset))
    assert trainer.train(steps=5) == "5 steps done"
    assert trainer.position == Position(5, 0, 5)


def test_an_own_split_is_used(step):
    """Text, for instance, is split so that the towers get as many tokens each."""

    def reverse_split(dataset, num_towers):
        return towers.engine.split(
            dataset.map(lambda *batch: tf.nest.map_structure(lambda t: t[::-1], batch)), num_towers
        )

    reports = []
    helpers.make_trainer(step, batches, [reports.append], split=reverse_split).train(steps=1)
    assert reports[0].results.towers.weight.numpy().tolist() == [2, 2]


def test_a_run_directory_is_all_that_a_run_needs_to_go_on(tmp_path):
    """Stopped in the middle of an epoch, begun anew by another process: bit-identical."""
    whole = build()
    helpers.make_trainer(whole, batches).train(epochs=2)
    for steps in (2, 4):
        step = build()
        updates = towers.steps.SynchronousUpdates(step, batches)
        assert (
            towers.Trainer.making(updates, run_dir=tmp_path).train(steps=steps)
            == f"{steps} steps done"
        )
    reports, step = [], build()
    updates = towers.steps.SynchronousUpdates(step, batches)
    trainer = towers.Trainer.making(updates, [reports.append], run_dir=tmp_path)
    assert trainer.train(epochs=2) == "2 epochs done"
    assert [report.step for report in reports] == [5, 6]
    assert_bit_identical(step, snapshot(whole))
    saved = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert saved == [f"step-{number:08d}.ckpt.npz" for number in (3, 4, 6)]


def test_an_epoch_goes_on_with_the_same_batches_only(tmp_path, step):
    ((rows, labels),) = helpers.dense_batches([12])
    once, other = (towers.batches_from((rows, labels), size) for size in (2, 4))
    towers.Trainer(step, once, run_dir=tmp_path).train(steps=2)
    before = snapshot(step)
    trainer = towers.Trainer(step, other, run_dir=tmp_path)
    with pytest.raises(ValueError, match=r"rows of a batch: 2 before, 4 now\): rows would be"):
        trainer.train(epochs=1)
    assert_bit_identical(step, before)
    towers.Trainer(step, once, run_dir=tmp_path).train(epochs=1)
    trainer = towers.Trainer(step, other, run_dir=tmp_path)
    trainer.train(epochs=2)
    assert trainer.position == Position(6 + 3, 2, 0)


def test_an_order_of_the_users_own_is_none_that_is_saved(tmp_path, step):
    class Shuffled:
        order = np.arange(3)

        def __call__(self, epoch, first_step=0):
            return batches(epoch, first_step)

    assert towers.Trainer(step, Shuffled(), run_dir=tmp_path).train(steps=1) == "1 step done"


def test_a_run_directory_of_another_model_is_refused_and_kept(tmp_path, step):
    towers.Trainer(step, batches, run_dir=tmp_path).train(steps=1)
    (saved,) = (tmp_path / "checkpoints").iterdir()
    content = saved.read_bytes()
    model = helpers.dense_model()
    other = helpers.build_step_for(
        helpers.classify(model), model, keras.optimizers.SGD(0.1), batches, 2
    )
    trainer = towers.Trainer(other, batches, run_dir=tmp_path)
    with pytest.raises(ValueError, match="does not fit this model, and nothing was restored"):
        trainer.train(steps=2)
    assert saved.read_bytes() == content


def test_of_several_processes_only_the_chief_has_a_run_and_the_others_take_its_state(tmp_path):
    def of_the_chief(nest):
        return [part + tf.ones_like(part) for part in nest]  # This one adds zeros.

    model = helpers.dense_model()
    shares = [*4 * [lambda own: own], b"[5, 1, 2]"]  # Settings, batch, variables; position.
    processes = helpers.OneOfTwo(index=1, shares=shares)
    step = helpers.build_step_for(
        helpers.classify(model), model, keras.optimizers.SGD(0.1), batches, 2, processes=processes
    )
    processes.add = of_the_chief
    trainer = towers.Trainer(step, batches, run_dir=tmp_path / "run")
    trainer.train(steps=5)
    assert trainer.position == Position(5, 1, 2)
    assert all(np.all(weight == 1) for weight in model.get_weights())
    assert not (tmp_path / "run").exists()


def test_a_run_that_was_sent_back_saves_the_same_step_again(tmp_path):
    step = build()
    updates = towers.steps.SynchronousUpdates(step, batches)
    trainer = towers.Trainer.making(updates, run_dir=tmp_path)
    begin = snapshot(step)
    trainer.train(steps=2)
    restore(step, [value + 1 for value in begin])
    updates.position = Position()
    trainer.train(steps=2)
    kernel = CheckpointFolder(tmp_path / "checkpoints").latest().groups["variables"][2]
    np.testing.assert_array_equal(kernel.array, snapshot(step)[2])


def test_what_a_full_disk_could_not_take_is_saved_by_the_next_call(small_disk):
    filling = small_disk / "filling"

    def fill(report):
        with contextlib.suppress(OSError):
            filling.write_bytes(bytes(2**21))

    trainer = towers.Trainer(build(), batches, [fill], run_dir=small_disk / "run")
    with pytest.raises(OSError, match=r"Cannot save the checkpoint .*: No space left on device"):
        trainer.train(steps=2)
    filling.unlink()
    assert trainer.train(steps=2) == "2 steps done"
    assert CheckpointFolder(small_disk / "run/checkpoints").latest().step == 2


def test_a_run_directory_on_a_full_disk_is_named(small_disk, step):
    with contextlib.suppress(OSError):
        (small_disk / "filling").write_bytes(bytes(2**21))
    with pytest.raises(OSError, match=r"run_dir .*/run cannot be made or written: No space left"):
        towers.Trainer(step, batches, run_dir=small_disk / "run").train(steps=1)


def test_an_endless_data_set_is_refused_for_epochs(step):
    dataset = helpers.dataset_of(helpers.dense_batches(SIZES)).repeat()
    with pytest.raises(ValueError, match=r"endless .*train\(steps=\.\.\.\)"):
        helpers.make_trainer(step, dataset).train(epochs=2)
    assert helpers.make_trainer(step, dataset).train(epochs=2, steps=4) == "4 steps done"


def test_a_data_set_is_as_good_as_its_batches(step):
    reports = []
    dataset = helpers.dataset_of(helpers.dense_batches(SIZES))
    helpers.make_trainer(step, dataset, [reports.append]).train(epochs=1)
    assert [int(report.results.weight) for report in reports] == SIZES


def build_of_features():
    """A step with several updates in a call; its batches are pairs of like tensors."""
    model = helpers.dense_model()

    def tower_fn(features):
        return tf.reduce_sum(model(features[0] - 2 * features[1])), tf.shape(features[0])[0], {}

    features = tf.data.Dataset.from_tensor_slices((np.ones((6, 5), "f"), np.zeros((6, 5), "f")))
    step = helpers.build_step_for(
        tower_fn, model, keras.optimizers.SGD(0.1), features.batch(3), 2, steps_per_call=2
    )
    return step, model, features


@pytest.mark.parametrize(
    "change",
    [
        lambda first, second: {"second": first, "first": second},  # Its order is first, second.
        lambda first, second: (tf.cast(first, tf.float64), second),
        lambda first, second: (first[:4], second),
        lambda first, second: (first, second, second),
    ],
    ids=["names", "type", "shape", "number"],
)
def test_batches_that_the_step_was_not_built_for_change_nothing(change):
    step, model, features = build_of_features()
    before = helpers.weights_of(model)
    with pytest.raises(ValueError, match=r"not like those .* Received .*; expected .* Build the"):
        towers.Trainer(step, features.map(change).batch(3)).train(epochs=1)
    np.testing.assert_equal(helpers.weights_of(model), before)
    assert towers.Trainer(step, features.batch(2)).train(epochs=1) == "1 epoch done"


def test_a_trainer_refuses_what_is_no_step_no_batches_and_no_action(step):
    dataset = helpers.dataset_of(helpers.dense_batches(SIZES))
    updates = towers.steps.SynchronousUpdates(step, dataset)
    model = helpers.dense_model()
    evaluation = towers.build_evaluation_step(
        helpers.classify(model), model, helpers.tower_placement(1), dataset
    )
    for wrong in (updates, None, model, helpers.classify(model), evaluation):
        with pytest.raises(ValueError, match=r"Trainer\(step, batches, actions\).*making\(updates"):
            towers.Trainer(wrong, dataset)
    for wrong in (step, None):
        with pytest.raises(ValueError, match=r"use towers\.Trainer\(step, batches"):
            towers.Trainer.making(wrong)
    for wrong in (dataset, [None], print):
        with pytest.raises(ValueError, match=r"list of functions .*StepReport"):
            towers.Trainer(step, dataset, wrong)
        with pytest.raises(ValueError, match=r"list of functions .*StepReport"):
            towers.Trainer.making(updates, wrong)
    with pytest.raises(ValueError, match=r"print_report.*with_rates\(action, steps"):
        towers.Trainer(step, dataset, [towers.actions.print_report])
    with pytest.raises(ValueError, match=r"batches must be a function .*Received list"):
        towers.Trainer(step, [1, 2])
    with pytest.raises(ValueError, match="run_dir must be a folder, or new"):
        towers.Trainer(step, dataset, run_dir="")


def test_a_trainer_makes_the_updates_of_its_step(step):
    dataset = helpers.dataset_of(helpers.dense_batches(SIZES))
    reports = []
    towers.Trainer(step, dataset, [reports.append]).train(epochs=1)
    assert [int(report.results.weight) for report in reports] == SIZES
