"""Callbacks, checkpoints and the order of what happens in a training by `towers.fit`."""

import csv
import json
import os
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.curves import read_scalars
from tests.helpers import tower_devices
from towers.compiled.functions import OnTowers
from towers.saving.checkpoint_folder import CheckpointFolder
from towers.saving.summaries import event_files, read_events
from towers.scripts.main import main

ROWS = 20
RANDOM = np.random.default_rng(1)
X, Y = RANDOM.normal(size=(ROWS, 4)).astype("float32"), RANDOM.normal(size=(ROWS, 2))
HELD_OUT = (RANDOM.normal(size=(8, 4)), RANDOM.normal(size=(8, 2)))


def make_model(learning_rate=0.1, **options):
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(learning_rate, momentum=0.9), "mse", **options)
    return model


def fit_with(callbacks, fit, epochs=8, **options):
    model = make_model(metrics=["mae"])
    history = fit(
        model, X, Y, batch_size=8, epochs=epochs, verbose=0, shuffle=False,
        validation_data=HELD_OUT, callbacks=callbacks, **options,
    )  # fmt: skip
    return model, history


class Recorder(keras.callbacks.Callback):
    """Notes what it hears, and the names in the logs."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def __getattribute__(self, name):
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def note(*arguments, logs=None):
            given = [*arguments, logs]
            numbers = tuple(part for part in given if isinstance(part, int))
            names = {name for part in given if isinstance(part, dict) for name in part}
            self.heard.append((name, *numbers, sorted(names)))

        return note


def make_callbacks(folder):
    folder.mkdir()
    callbacks = keras.callbacks
    return [
        callbacks.EarlyStopping("val_loss", patience=2, min_delta=0.1, restore_best_weights=True),
        callbacks.ReduceLROnPlateau("val_loss", patience=1, factor=0.3, min_delta=1e-2),
        callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        callbacks.CSVLogger(folder / "log.csv"),
        callbacks.ModelCheckpoint(folder / "best.weights.h5", "val_loss", save_best_only=True,
                                  save_weights_only=True),
        callbacks.TensorBoard(folder / "board", histogram_freq=1),
    ]  # fmt: skip


# Keras reads the learning rate in a way that NumPy 2 deprecates.
old_copy = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.mark.slow
@old_copy
def test_six_callbacks_of_keras_work_as_written(tmp_path):
    one, expected = fit_with(make_callbacks(tmp_path / "keras"), keras.Model.fit)
    two, actual = fit_with(make_callbacks(tmp_path / "towers"), towers.fit, towers=tower_devices(2))
    assert 1 < len(expected.epoch) < 8, "EarlyStopping has to have something to do"
    assert expected.epoch == actual.epoch
    assert set(actual.history) == set(expected.history) >= {"learning_rate", "val_mae"}
    for name, values in expected.history.items():
        np.testing.assert_allclose(actual.history[name], values, rtol=1e-4, err_msg=name)
    np.testing.assert_allclose(one.get_weights()[0], two.get_weights()[0], rtol=1e-4)
    texts = [(tmp_path / name / "log.csv").read_text() for name in ("keras", "towers")]
    rows = [list(csv.reader(text.splitlines())) for text in texts]
    assert rows[0][0] == rows[1][0] and len(rows[0]) == len(rows[1]) == len(actual.epoch) + 1
    saved = [tmp_path / name / "best.weights.h5" for name in ("keras", "towers")]
    for model, path in zip((one, two), saved, strict=True):
        model.load_weights(path)
    np.testing.assert_allclose(one.get_weights()[0], two.get_weights()[0], rtol=1e-4)
    assert list((tmp_path / "towers" / "board").rglob("*tfevents*"))


def test_callbacks_hear_the_same_in_the_same_order():
    recorders = [Recorder(), Recorder()]
    fit_with([recorders[0]], keras.Model.fit, epochs=2, validation_freq=2)
    fit_with([recorders[1]], towers.fit, epochs=2, validation_freq=2, towers=tower_devices(2))
    assert recorders[0].heard == recorders[1].heard
    assert len(recorders[0].heard) > 20


@pytest.mark.filterwarnings("ignore:.*(ran out of data|data ended before)")
@pytest.mark.parametrize("per_call", [1, 2])
@pytest.mark.parametrize("steps", ["steps_per_epoch", "validation_steps"])
def test_more_steps_than_the_data_has_are_heard_and_counted_as_in_keras(steps, per_call):
    heard, losses = [], []
    for fit, options in ((keras.Model.fit, {}), (towers.fit, {"towers": tower_devices(2)})):
        model, recorder = make_model(steps_per_execution=per_call), Recorder()
        options |= {"validation_data": HELD_OUT, "validation_batch_size": 3, steps: 7}
        history = fit(model, X, Y, 8, 2, 0, [recorder], shuffle=False, **options)
        heard.append(recorder.heard)
        losses.append([*history.history["loss"], *history.history["val_loss"]])
    assert heard[0] == heard[1]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"steps_per_epoch": 4}], ids=["passes", "steps"])
@pytest.mark.filterwarnings("ignore:.*(ran out of data|data ended before)")
def test_a_seeded_shuffle_of_a_data_set_has_the_order_of_keras(options):
    """Each epoch has another order, and Keras leaves some out."""
    losses = []
    for fit, more in ((keras.Model.fit, {}), (towers.fit, {"towers": tower_devices(2)})):
        model = make_model()
        data = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(ROWS, seed=3).batch(4)
        history = fit(model, data, epochs=3, verbose=0, shuffle=False, **options, **more)
        losses.append(history.history["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def test_a_generator_that_ends_with_an_epoch_is_not_read_from_what_was_kept_of_it():
    def batches():
        yield from zip(np.split(X, 4), np.split(Y, 4), strict=True)

    with (
        pytest.warns(UserWarning, match="data ended before the steps"),
        pytest.raises(ValueError, match="the data set has no batch in epoch 2"),
    ):
        towers.fit(make_model(), batches(), steps_per_epoch=2, epochs=3, verbose=0)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_a_generator_of_validation_data_serves_one_epoch():
    def batches():
        yield from zip(np.split(X, 4), np.split(Y, 4), strict=True)

    histories = [
        fit(make_model(), X, Y, verbose=0, shuffle=False, validation_data=batches()).history
        for fit in (keras.Model.fit, towers.fit)
    ]
    np.testing.assert_allclose(*[one["val_loss"] for one in histories], rtol=1e-6)


@pytest.mark.parametrize("per_call", [1, 2])
def test_a_generator_of_validation_data_is_read_on_and_loses_no_batch(per_call):
    def numbered():
        yield from ((np.zeros((2, 4)), np.full((2, 1), float(number))) for number in range(100))

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mae", steps_per_execution=per_call)
    options = {"validation_data": numbered(), "validation_steps": 4, "epochs": 3, "verbose": 0}
    history = towers.fit(model, np.zeros((2, 4)), np.zeros((2, 1)), **options)
    np.testing.assert_allclose(history.history["val_loss"], [1.5, 5.5, 9.5])


def test_an_evaluate_of_the_model_gets_the_batch_size():
    class Own(keras.Sequential):
        def evaluate(self, x=None, y=None, batch_size=None, **options):
            sizes.append(batch_size)
            return super().evaluate(x, y, batch_size=batch_size, **options)

    sizes = []
    for fit in (keras.Model.fit, towers.fit):
        model = Own([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
        fit(model, X, Y, batch_size=7, verbose=0, validation_data=HELD_OUT)
    assert sizes == [7, 7]


class Halved(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule as tutorials write it, without a `get_config`."""

    def __call__(self, step):
        return 0.5


class Undescribed(keras.optimizers.SGD):
    def get_config(self):
        raise NotImplementedError


FOCAL = keras.losses.CategoricalFocalCrossentropy(alpha=np.array([0.1, 0.9]))


@pytest.mark.parametrize(
    ("optimizer", "loss", "described"),
    [
        (lambda: keras.optimizers.SGD(Halved()), "mse", ("SGD()", "Halved()", "mse")),
        (lambda: Undescribed(0.25), "mse", ("Undescribed()", 0.25, "mse")),
        ("sgd", FOCAL, ("SGD()", 0.01, "CategoricalFocalCrossentropy(alpha=[0.1, 0.9])")),
    ],
)
def test_a_run_directory_takes_what_cannot_describe_itself(optimizer, loss, described, tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, "softmax")])
    model.compile(optimizer() if callable(optimizer) else optimizer, loss)
    labels = np.eye(2)[np.arange(ROWS) % 2]
    numbers = {"batch_size": np.int64(8), "seed": np.int64(3)}
    towers.fit(model, X, labels, verbose=0, run_dir=tmp_path / "run", **numbers)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    fields = record["fields"]
    assert (fields["optimizer"], fields["learning_rate"], fields["loss"]) == described
    assert (fields["batch_size"], record["seed"]) == (8, 3)


class StopAt(keras.callbacks.Callback):
    def __init__(self, batches):
        super().__init__()
        self._left = batches

    def on_train_batch_end(self, batch, logs=None):
        self._left -= 1
        self.model.stop_training = self._left <= 0


@pytest.mark.parametrize("stop_after", [pytest.param(6, marks=pytest.mark.slow), 4])
def test_resumed_fit_matches_uninterrupted(tmp_path, stop_after):
    """Stopped after an epoch, or within one: weights, logs, curves and order are the same."""
    options = {"batch_size": 8, "epochs": 4, "verbose": 0, "towers": tower_devices(2)}
    options["validation_data"] = HELD_OUT
    whole = make_model(metrics=["mae"])
    expected = towers.fit(whole, X, Y, **options, run_dir=tmp_path / "whole").history
    tmp_path, callbacks = tmp_path / "stopped", [StopAt(stop_after)]
    stopped = make_model(metrics=["mae"])
    towers.fit(stopped, X, Y, **options, run_dir=tmp_path, callbacks=callbacks)
    resumed = make_model(metrics=["mae"])
    actual = towers.fit(resumed, X, Y, **options, run_dir=tmp_path).history
    left = len(actual["loss"])
    assert left == (2 if stop_after == 6 else 3)
    for name, values in actual.items():
        np.testing.assert_array_equal(values, expected[name][-left:], err_msg=name)
    for one, other in zip(resumed.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    for run, tag in [("average", "loss"), ("average", "gradient_norm"), ("tower_1", "loss")]:
        points = [
            read_scalars(folder / "summaries", run)[tag]
            for folder in (tmp_path, tmp_path.parent / "whole")
        ]
        assert points[0] == points[1] and [step for step, _ in points[0]] == [10]


@pytest.mark.parametrize("stop_after", [4, 6])
def test_an_epoch_of_unknown_length_goes_on(tmp_path, stop_after):
    """Stopped within an epoch or at its end: those that follow are as long as before."""
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).filter(lambda *_: True).batch(8)
    options = {"epochs": 4, "verbose": 0, "validation_data": HELD_OUT}
    whole, stopped, resumed = (make_model() for _ in range(3))
    expected = towers.fit(whole, rows, **options).history["loss"]
    options["run_dir"] = tmp_path
    towers.fit(stopped, rows, **options, callbacks=[StopAt(stop_after)])
    history = towers.fit(resumed, rows, **options)
    assert history.history["loss"] == expected[stop_after // 3 :]
    assert history.params["steps"] is None
    np.testing.assert_array_equal(resumed.get_weights()[0], whole.get_weights()[0])


class EndedError(Exception):
    pass


def dropping(**options):
    keras.utils.set_random_seed(1)
    layers = [keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.SGD(0.1, **options), "mse")
    return model


def test_what_backup_and_restore_goes_on_with_draws_the_same_numbers(tmp_path):
    def end(epoch, logs):
        if epoch == 2:
            raise EndedError

    options = {"batch_size": 8, "epochs": 4, "verbose": 0, "seed": 3}
    whole, killed, resumed = dropping(), dropping(), dropping()
    expected = towers.fit(whole, X, Y, **options).history["loss"]
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    with pytest.raises(EndedError):
        callbacks = [backup, keras.callbacks.LambdaCallback(on_epoch_begin=end)]
        towers.fit(killed, X, Y, **options, callbacks=callbacks)
    assert towers.fit(resumed, X, Y, **options, callbacks=[backup]).history["loss"] == expected[2:]
    np.testing.assert_array_equal(resumed.get_weights()[0], whole.get_weights()[0])


def test_a_short_training_has_a_curve_of_each_tower_on_the_disk_before_its_checkpoint(
    tmp_path, monkeypatch
):
    on_disk, sync = [], os.fsync

    def note(descriptor):
        on_disk.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    options = {"batch_size": 8, "verbose": 0, "towers": tower_devices(2), "run_dir": tmp_path}
    towers.fit(make_model(), X, Y, validation_data=HELD_OUT, **options)
    before = on_disk[: on_disk.index("step-00000003.ckpt.npz.partial")]
    assert "metrics.jsonl" in before and any("tfevents" in name for name in before)
    assert [step for step, _ in read_scalars(tmp_path / "summaries", "tower_1")["loss"]] == [3]


def test_averages_in_the_place_of_weights_are_not_saved_as_such(tmp_path):
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    with pytest.raises(ValueError, match=r"run_dir saves the weights .* Leave swap_on_epoch out"):
        towers.fit(dropping(use_ema=True), X, Y, run_dir=tmp_path / "run", callbacks=[swap])
    assert not (tmp_path / "run").exists()


def test_another_fit_counts_updates_that_were_only_accumulated():
    whole, parts = (dropping(gradient_accumulation_steps=2) for _ in range(2))
    options = {"batch_size": 8, "verbose": 0, "seed": 3}
    towers.fit(whole, X, Y, epochs=2, **options)
    towers.fit(parts, X, Y, epochs=1, **options)
    towers.fit(parts, X, Y, initial_epoch=1, epochs=2, **options)
    np.testing.assert_array_equal(parts.get_weights()[0], whole.get_weights()[0])


def test_a_resumed_fit_says_where_it_goes_on_and_that_nothing_is_left(tmp_path, capsys):
    options = {"batch_size": 8, "towers": 1, "run_dir": tmp_path}
    towers.fit(make_model(), X, Y, epochs=1, verbose=2, **options)
    assert "goes on" not in capsys.readouterr().out
    changed = make_model()
    changed.optimizer.learning_rate = 0.5
    with pytest.warns(RuntimeWarning, match=r"settings: learning_rate [\d.]+ before, 0.5 now\.$"):
        towers.fit(changed, X, Y, epochs=2, verbose=2, **options)
    assert f"{tmp_path}: goes on after epoch 1 with its own weights" in capsys.readouterr().out
    assert float(changed.optimizer.learning_rate) != 0.5
    with pytest.warns(RuntimeWarning, match=r"holds all 2 epochs: nothing is trained\. Give more"):
        towers.fit(make_model(), X, Y, epochs=2, verbose=0, **options)


def test_a_run_of_version_0_2_0_goes_on(tmp_path, monkeypatch):
    """It had the first epoch as a variable, and no state of reports."""
    options = {
        "batch_size": 5,
        "towers": 1,
        "verbose": 0,
        "run_dir": tmp_path,
        "steps_per_epoch": 2,
    }
    groups, save = OnTowers.groups, CheckpointFolder.save

    def save_as_before(folder, step, found, state, **more):
        save(folder, step, found, {"position": state["position"]}, **more)

    def groups_as_before(way):
        return {**groups(way), "begin": [tf.Variable(3, dtype=tf.int64, name="first_epoch")]}

    with monkeypatch.context() as patches:
        patches.setattr(OnTowers, "groups", groups_as_before)
        patches.setattr(CheckpointFolder, "save", save_as_before)
        towers.fit(make_model(), X, Y, initial_epoch=3, epochs=4, **options)
    resumed = make_model()
    assert towers.fit(resumed, X, Y, epochs=5, **options).epoch == [4]
    whole = make_model()
    towers.fit(whole, X, Y, initial_epoch=3, epochs=5, **{**options, "run_dir": None})
    for one, other in zip(resumed.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run of two epochs of ten steps on two towers."""
    path = tmp_path_factory.mktemp("run")
    options = {"batch_size": 2, "epochs": 2, "verbose": 0, "validation_data": HELD_OUT}
    model = make_model(metrics=["mae"])
    path.joinpath("history.json").write_text(
        json.dumps(
            towers.fit(model, X, Y, **options, towers=tower_devices(2), run_dir=path).history
        )
    )
    return path


def test_a_run_directory_is_one_that_towers_runs_lists_and_tensorboard_shows(run_dir, capsys):
    history = json.loads((run_dir / "history.json").read_text())
    assert main(["runs", str(run_dir), "--json"]) == 0
    ((run,),) = json.loads(capsys.readouterr().out.splitlines()[-1]).values()
    assert (run["recipe"], run["state"], run["step"]) == ("towers.fit", "finished", 20)
    for kind, name in [("train", "mae"), ("test", "loss"), ("test", "mae")]:
        expected = history[name if kind == "train" else f"val_{name}"][-1]
        assert run[kind][name] == pytest.approx(expected, rel=1e-6)
    curves = {
        one: read_scalars(run_dir / "summaries", one)
        for one in ("average", "evaluation", "tower_1")
    }
    for one, tag in [("tower_1", "loss"), ("average", "mae"), ("evaluation", "mae")]:
        assert [step for step, _ in curves[one][tag]] == [10, 20]
    fields = json.loads((run_dir / "run.json").read_text())["fields"]
    assert (fields["batch_size"], fields["loss"]) == (2, "mse")
    assert (
        fields["optimizer"] == "SGD(momentum=0.9)" and pytest.approx(fields["learning_rate"]) == 0.1
    )
    kinds = {kind_of(event) for path in event_files(run_dir) for event, _ in read_events(path)}
    assert {"graph_def", "hparams"} <= kinds


def kind_of(event):
    plugins = [one.metadata.plugin_data.plugin_name for one in event.summary.value]
    return next(iter(plugins), event.WhichOneof("what"))


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_run_that_has_all_epochs_that_are_asked_for_stays_as_it_is(epochs, run_dir, tmp_path):
    def contents():
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    folder = shutil.copytree(run_dir, tmp_path / "run")
    before, model = contents(), make_model(metrics=["mae"])
    with pytest.warns(RuntimeWarning, match=f"holds all {epochs} epochs: nothing is trained"):
        towers.fit(model, X, Y, batch_size=2, epochs=epochs, verbose=0, run_dir=folder)
    assert contents() == before


def test_a_run_that_goes_on_otherwise_says_how(run_dir, tmp_path):
    folder = shutil.copytree(run_dir, tmp_path / "run")
    model = make_model(0.2)
    huber = keras.losses.Huber(delta=2.0)
    model.compile(keras.optimizers.SGD(0.2, momentum=0.5), huber, metrics=["mae"])
    with pytest.warns(RuntimeWarning, match="goes on with other settings") as warned:
        towers.fit(model, X[1:], Y[1:], batch_size=5, epochs=3, verbose=0, run_dir=folder, seed=7)
    (text,) = (str(one.message) for one in warned if one.category is RuntimeWarning)
    for difference in (
        "batch_size 2 before, 5 now", "other data", "loss mse before, Huber() now",
        "optimizer SGD(momentum=0.9) before, SGD(momentum=0.5) now", "now; seed ",
        "towers 2 before, 1 now", "0.2 now",
    ):  # fmt: skip
        assert difference in text
    with pytest.raises(ValueError, match="holds a run of shapes, which `towers train` goes on"):
        record = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**record, "recipe": "shapes"}))
        towers.fit(model, X, Y, epochs=3, run_dir=folder)


def test_a_run_that_goes_on_with_another_schedule_of_the_rate_says_so(tmp_path):
    def train(decay_steps, epochs):
        model = make_model()
        rate = keras.optimizers.schedules.CosineDecay(0.1, decay_steps)
        model.compile(keras.optimizers.SGD(rate), "mse")
        towers.fit(model, X, Y, batch_size=20, epochs=epochs, verbose=0, run_dir=tmp_path)

    train(30, 1)
    train(30, 2)  # Without a warning, which fails a test.
    with pytest.warns(RuntimeWarning, match=r"learning_rate .*decay_steps=30.* before, .*=50"):
        train(50, 3)


def test_a_run_that_another_optimizer_cannot_go_on_with_says_which_it_had(run_dir):
    model = make_model()
    model.compile("adagrad", "mse")
    with pytest.raises(
        ValueError, match=r"nothing was restored.* optimizer \w+\(.* before, Adagrad"
    ):
        towers.fit(model, X, Y, epochs=3, verbose=0, run_dir=run_dir)


@pytest.mark.parametrize("damaged", ["[]", "{", '{"fields": {}, "seed": 0, "starts": []}'])
def test_a_run_goes_on_without_its_record_and_says_so(run_dir, tmp_path, damaged):
    folder = shutil.copytree(run_dir, tmp_path / "run")
    (folder / "run.json").write_text(damaged)
    with pytest.warns(RuntimeWarning, match="run.json is damaged"):
        model = make_model(metrics=["mae"])
        history = towers.fit(model, X, Y, epochs=3, verbose=0, run_dir=folder)
    assert history.epoch == [2]
    assert json.loads((folder / "run.json").read_text())["recipe"] == "towers.fit"


@pytest.mark.slow
@old_copy
@pytest.mark.parametrize("options", [{"parameters": "replicated"}, {"exchange": "nccl"}], ids=str)
def test_what_callbacks_assign_reaches_every_copy_of_the_parameters(options):
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.01 * (epoch + 1))
    with towers.Placement(tower_devices(2), "replicated").scope():
        model = make_model()
    towers.fit(
        model, X, Y, batch_size=8, epochs=3, verbose=0, shuffle=False,
        towers=tower_devices(2), callbacks=[scheduler], **options,
    )  # fmt: skip
    plain = make_model()
    plain.fit(X, Y, batch_size=8, epochs=3, verbose=0, shuffle=False, callbacks=[scheduler])
    np.testing.assert_allclose(model.get_weights()[0], plain.get_weights()[0], rtol=1e-5)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_as_asked():
    model = make_model(learning_rate=1.0)
    inputs = np.full_like(X, np.inf)
    with pytest.raises(towers.actions.NonFiniteGradientError):
        towers.fit(model, inputs, Y, batch_size=8, verbose=0, towers=tower_devices(2))
    callbacks = [keras.callbacks.TerminateOnNaN()]
    history = towers.fit(
        make_model(), inputs, Y, batch_size=8, epochs=3, verbose=0, callbacks=callbacks,
        towers=tower_devices(2),
    )  # fmt: skip
    assert history.epoch == [0]


def dropped_network():
    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Dropout(0.5)(inputs)))
    model.compile(keras.optimizers.SGD(0.0), "mse")  # Its losses differ by masks and order alone.
    return model


def test_a_second_call_draws_other_random_numbers_and_orders():
    model, options = dropped_network(), {"batch_size": 7, "verbose": 0, "towers": tower_devices(2)}
    first, second = (towers.fit(model, X, Y, **options).history["loss"] for _ in range(2))
    assert first != second
    plain = make_model(learning_rate=0.0)
    heard = [Losses(), Losses()]
    for one in heard:
        towers.fit(plain, X, Y, callbacks=[one], **options)
    assert heard[0].losses != heard[1].losses, "batches of other rows"


def test_calls_epoch_by_epoch_are_one_call_of_all_epochs():
    options = {"batch_size": 7, "verbose": 0, "towers": tower_devices(2)}
    whole = towers.fit(dropped_network(), X, Y, epochs=2, **options).history["loss"]
    model, parts = dropped_network(), []
    for epoch in range(2):
        ends = {"epochs": epoch + 1, "initial_epoch": epoch}
        parts += towers.fit(model, X, Y, **ends, **options).history["loss"]
    assert parts == whole


class Losses(keras.callbacks.Callback):
    """Notes the loss so far after each batch."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


def test_a_layer_that_was_frozen_after_compile_stays_as_it_is():
    model = make_model()
    model.layers[0].trainable = False
    before = [layer.get_weights()[0] for layer in model.layers]
    towers.fit(model, X, Y, verbose=0, towers=tower_devices(2))
    after = [layer.get_weights()[0] for layer in model.layers]
    np.testing.assert_array_equal(after[0], before[0])
    assert np.abs(after[1] - before[1]).max() > 0
