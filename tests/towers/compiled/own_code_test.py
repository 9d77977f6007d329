"""What `towers.fit` adds to steps of a user's own, and what it leaves to Keras."""

import functools
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.curves import read_scalars
from tests.helpers import tower_devices
from tests.kinds.comparison import afresh
from towers.compiled import setting
from towers.compiled.own_code import groups_of
from towers.saving.checkpoint_files import path_of
from towers.scripts.training.overview import find_runs

RANDOM = np.random.default_rng(8)
X = RANDOM.normal(size=(22, 4)).astype("float32")
Y = RANDOM.normal(size=(22, 2)).astype("float32")
OPTIONS = {"batch_size": 8, "verbose": 0, "seed": 3}


class Own(keras.Model):
    """Has two optimizers, a variable that Keras does not track, and noise without a seed."""

    def __init__(self):
        super().__init__()
        self.first, self.last = keras.layers.Dense(5, "tanh"), keras.layers.Dense(2)
        self.dropout = keras.layers.Dropout(0.3)
        self.average = tf.Variable(tf.zeros(5))
        self.optimizers = {"first": keras.optimizers.Adam(0.01)}

    def call(self, inputs, training=False):
        return self.last(self.dropout(self.first(inputs), training=training))

    def train_step(self, data):
        x, y = data
        noisy = x + 0.1 * keras.random.normal(tf.shape(x))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(noisy, training=True) - y) ** 2)
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizers["first"].apply(gradients[:2], variables[:2])
        self.optimizer.apply(gradients[2:], variables[2:])
        self.average.assign(0.9 * self.average + 0.1 * tf.reduce_mean(self.first(x), 0))
        return {"loss": loss}


def own(seed=1):
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(seed)
    model = Own()
    model.compile(keras.optimizers.RMSprop(0.01), "mse")
    return model


def fit(model, *data, **options):
    return towers.fit(model, *data, **{**OPTIONS, "towers": tower_devices(2), **options})


def state_of(model):
    named = [(path_of(one), one) for group in groups_of(model).values() for one in group]
    return [(path, one.numpy()) for path, one in named]


@functools.cache
def uninterrupted(**options):
    model = own()
    history = fit(model, X, Y, epochs=3, **options).history
    return state_of(model), history


@pytest.mark.filterwarnings("ignore:The data ended", "ignore:Your input ran out")
@pytest.mark.parametrize("options", [{}, {"steps_per_epoch": 2}], ids=["passes", "steps"])
def test_a_run_goes_on_with_the_same_bits(tmp_path, options):
    folder, (expected, history) = tmp_path / "run", uninterrupted(**options)
    fit(own(), X, Y, epochs=2, run_dir=folder, **options)
    model = own(seed=9)
    resumed = fit(model, X, Y, epochs=3, run_dir=folder, **options)
    assert resumed.epoch == [2]
    assert resumed.history["loss"] == history["loss"][2:]
    for (path, wanted), (other, received) in zip(expected, state_of(model), strict=True):
        assert path == other
        np.testing.assert_array_equal(received, wanted, err_msg=path)
    with pytest.warns(RuntimeWarning, match="holds all 3 epochs"):
        assert fit(model, X, Y, epochs=3, run_dir=folder, **options).epoch == []


def test_a_run_has_a_point_of_each_curve_for_each_epoch(tmp_path):
    history = fit(own(), X, Y, epochs=2, run_dir=tmp_path, validation_data=(X, Y)).history
    for run, name in [("average", "loss"), ("evaluation", "val_loss")]:
        (points,) = read_scalars(tmp_path / "summaries", run).values()
        assert [step for step, _ in points] == [3, 6]
        np.testing.assert_allclose([value for _, value in points], history[name], rtol=1e-6)
    (run,) = find_runs(tmp_path)
    assert (run.state, run.step) == ("finished", 6) and run.last("test")["step"] == 6


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ({"clip_norm": 1.0}, "global_clipnorm"),
        ({"accumulate": 2}, "gradient_accumulation_steps"),
        ({"parameters": "replicated"}, "stay where they were made"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_what_the_own_step_does_itself_is_refused_by_name(option, advice):
    with pytest.raises(ValueError, match=f"{next(iter(option))} has no effect.*{advice}"):
        fit(own(), X, Y, **option)


class OwnFit(keras.Model):
    def call(self, inputs):
        return inputs

    def fit(self, x, epochs=1, verbose=1):
        return x, epochs


def test_a_fit_of_its_own_gets_what_was_given(tmp_path):
    model = OwnFit()
    model.compile(loss="mse")
    assert fit(model, "anything", epochs=3, batch_size=None) == ("anything", 3)
    with pytest.raises(ValueError, match=r"run_dir has no effect.*fit\(\).*BackupAndRestore"):
        fit(model, "anything", run_dir=tmp_path)


def plain_step(**options):
    """A model whose step is its own only by name."""

    class Named(keras.Sequential):
        def train_step(self, data):
            return super().train_step(data)

        def test_step(self, data):
            return super().test_step(data)

    keras.utils.set_random_seed(1)
    model = Named([keras.Input((4,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], **options)
    return model


class Heard(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches = []

    def on_train_batch_begin(self, batch, logs=None):
        self.batches.append(("begin", batch))

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append(("end", batch))


def test_several_steps_are_one_call_as_in_keras():
    found = []
    for run in (keras.Model.fit, fit):
        model, heard = plain_step(steps_per_execution=2), Heard()
        options = {} if run is fit else {"batch_size": 8, "verbose": 0}
        history = run(
            model, X, Y, epochs=2, shuffle=False, callbacks=[heard], validation_data=(X, Y),
            **options,
        ).history  # fmt: skip
        found.append((history, model.get_weights(), heard.batches))
    (history, weights, batches), (other, others, heard) = found
    assert batches == heard
    for name, values in history.items():
        np.testing.assert_allclose(other[name], values, rtol=1e-5)
    for one, two in zip(weights, others, strict=True):
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-6)


def test_limits_of_keras_are_told_once():
    keras.config.set_max_epochs(2)
    keras.config.set_max_steps_per_epoch(2)
    found = []
    try:
        for run in (keras.Model.fit, fit):
            model = plain_step()
            options = {"shuffle": False, "epochs": 4, "batch_size": 4, "verbose": 0}
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                history = run(model, X, Y, **options)
            assert history.epoch == [0, 1]
            said = [str(one.message) for one in told if one.category is UserWarning]
            found.append((history.history["loss"], said))
    finally:
        keras.config.set_max_epochs(None)
        keras.config.set_max_steps_per_epoch(None)
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-5)
    assert sorted(found[1][1]) == ["Limiting epochs to 2", "Limiting steps_per_epoch to 2"]


class OwnTable(keras.layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(shape=(5, 2))

    def call(self, ids):
        return keras.ops.take(self.table, ids, axis=0)


def words(optimizer, table, **options):
    layers = [keras.Input((3,), dtype="int32"), table, keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(2)])
    model.compile(optimizer, "mse", **options)
    return model


@pytest.mark.parametrize("make_table", [lambda: keras.layers.Embedding(5, 2), OwnTable])
@pytest.mark.parametrize(
    ("optimizer", "options", "times"),
    [("adam", {}, 1), ("sgd", {}, 0), ("adam", {"run_eagerly": True}, 1)],
)
def test_where_repeated_rows_matter_it_is_told_once(make_table, optimizer, options, times, capsys):
    model, ids = words(optimizer, make_table(), **options), RANDOM.integers(0, 5, (22, 3))
    for _ in range(2):
        fit(model, ids, Y, verbose=2)
    assert capsys.readouterr().out.count("repeated rows are summed") == times


@tf.custom_gradient
def clipped(x):
    return tf.identity(x), lambda gradient: tf.clip_by_value(gradient, -0.01, 0.01)


@tf.custom_gradient
def clipped_by_norm(x):
    return tf.identity(x), lambda gradient: tf.clip_by_norm(gradient, 0.01)


class Clipped(keras.layers.Layer):
    def call(self, x):
        return clipped(x)


class OfAClippedKernel(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 3), initializer="glorot_uniform")

    def call(self, x):
        return x @ clipped_by_norm(tf.convert_to_tensor(self.kernel))


class InTurn(keras.Model):
    """Trains one output after the other with each batch."""

    def train_step(self, data):
        for name in ("a", "b"):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(data[0], training=True)[name] - 1.0) ** 2)
            weights = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def trained(make, number):
    """Returns the History and the weights of a model, trained by Keras or on so many towers."""
    with afresh():
        keras.utils.set_random_seed(1)
        model = make()
        options = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}
        x, y = X.astype("float64"), Y.astype("float64")
        if number:
            history = towers.fit(model, x, y, towers=tower_devices(number), **options)
        else:
            history = model.fit(x, y, **options)
        return history.history["loss"], model.get_weights()


def check_as_in_keras(make, numbers=(1, 3)):
    losses, weights = trained(make, 0)
    for number in numbers:
        received = trained(make, number)
        np.testing.assert_allclose(received[0], losses, rtol=1e-12)
        for one, expected in zip(received[1], weights, strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(
    "middle",
    [Clipped, OfAClippedKernel, lambda: keras.layers.Dense(3, activation=clipped)],
    ids=["layer", "kernel", "activation"],
)
def test_a_gradient_that_the_model_clips_is_that_of_keras(middle):
    def make():
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(4), middle(), keras.layers.Dense(2)]
        )
        model.compile("sgd", "mse")
        return model

    check_as_in_keras(make)


def test_a_gradient_that_a_loss_clips_is_that_of_keras():
    def make():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile("sgd", lambda y, outputs: tf.reduce_mean((y - clipped(outputs)) ** 2, -1))
        return model

    check_as_in_keras(make)


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_what_a_loss_does_not_use_has_no_gradient(run_eagerly):
    """Adam moves a variable whose gradient is 0, but not one that has none."""

    def make():
        inputs = keras.Input((4,))
        hidden = keras.layers.Dense(3)(inputs)
        outputs = {name: keras.layers.Dense(1, name=name)(hidden) for name in ("a", "b")}
        model = InTurn(inputs, outputs)
        model.compile(keras.optimizers.AdamW(0.1, weight_decay=0.5), run_eagerly=run_eagerly)
        return model

    check_as_in_keras(make)


class OfGraphs(keras.Model):
    def train_step(self, data):
        loss = tf.reduce_mean(self(data[0], training=True) ** 2)
        gradients = tf.gradients(loss, [one.value for one in self.trainable_variables])
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


class Loops(keras.layers.Layer):
    def call(self, inputs):
        loop = tf.while_loop(
            lambda *_: True, lambda x, y: (x, 2 * y), [inputs, inputs], maximum_iterations=2
        )
        return loop[1]


def test_code_that_needs_a_graph_is_told():
    inputs = keras.Input((4,))
    model = OfGraphs(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd")
    with pytest.raises(ValueError, match=r"without a graph.*tf\.gradients is not.*GradientTape"):
        fit(model, X, Y)
    model = keras.Sequential([keras.Input((4,)), Loops(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=False)
    model.train_step = InTurnByHand.train_step.__get__(model)
    with pytest.raises(ValueError, match=r"without a graph.*nested structure.*tf\.while_loop"):
        fit(model, X, Y)


class Switched(keras.layers.Layer):
    """Couples the rows once a callback or its own calls have switched it on."""

    is_on, calls, last_apart = False, 0, 10**6

    def call(self, inputs, training=False):
        self.calls += bool(training)
        if self.is_on or self.calls > self.last_apart:
            return inputs - keras.ops.mean(inputs, 0)
        return inputs


class InTurnByHand(keras.Sequential):
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(data[0], training=True) - data[1]) ** 2)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


class SwitchesOn(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.model.layers[1].is_on = True
            self.model.make_train_function(force=True)


def switched(kind=keras.Sequential, **options):
    keras.utils.set_random_seed(1)
    parts = [keras.layers.Dense(3, "tanh"), Switched(), keras.layers.Dense(2)]
    model = kind([keras.Input((4,)), *parts])
    model.compile("sgd", "mse", **options)
    return model


@pytest.mark.parametrize(
    ("kind", "last_apart", "eager", "count"),
    [
        (keras.Sequential, Switched.last_apart, True, 2),
        (keras.Sequential, 2, True, 2),
        (InTurnByHand, Switched.last_apart, False, 2),
        (keras.Sequential, Switched.last_apart, False, 1),
    ],
    ids=["eagerly", "by calls eagerly", "by a step of its own", "by one tower"],
)
def test_a_layer_is_asked_again_once_it_may_take_another_branch(kind, last_apart, eager, count):
    ends = []
    for train in (kind.fit, functools.partial(towers.fit, towers=tower_devices(count))):
        model = switched(kind, run_eagerly=eager)
        model.layers[1].last_apart = last_apart
        callbacks = [SwitchesOn()] if last_apart > 2 else []
        options = {"batch_size": 8, "epochs": 3, "shuffle": False, "verbose": 0}
        train(model, X[:16], Y[:16], callbacks=callbacks, **options)
        ends.append(model.get_weights())
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def test_a_callback_that_has_the_rows_coupled_is_told_that_a_step_cannot_follow():
    with pytest.raises(ValueError, match=r"A callback has changed .* couples the rows .* Change"):
        fit(switched(), X, Y, epochs=2, callbacks=[SwitchesOn()])


def test_a_callback_that_compiles_a_loss_of_whole_batches_is_told_that_a_step_cannot_follow():
    model = switched()

    def compile_anew(epoch, logs):
        if epoch == 1:
            model.compile("sgd", keras.losses.Dice())

    anew = keras.callbacks.LambdaCallback(on_epoch_begin=compile_anew)
    with pytest.raises(ValueError, match=r"A callback has changed .* the whole batch. Change"):
        fit(model, X, Y, epochs=2, callbacks=[anew])


class CountsItsSteps(InTurnByHand):
    steps = 0

    def train_step(self, data):
        self.steps += 1
        return super().train_step(data)


def test_a_step_that_counts_its_traces_is_cut_as_others_are(capsys):
    model = switched(CountsItsSteps)
    fit(model, X, Y, verbose=2)
    assert model.steps == 1 and "alone runs" not in capsys.readouterr().out


def test_a_tensor_that_a_layer_leaves_in_a_closure_is_told():
    left = {}

    def tap(inputs):
        left["features"] = inputs
        return inputs

    def loss(labels, outputs):
        return tf.reduce_mean((labels - outputs) ** 2) + tf.reduce_mean(left["features"] ** 2)

    inputs = keras.Input((4,))
    features = keras.layers.Lambda(tap)(keras.layers.Dense(3, "tanh")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(2)(features))
    model.compile("sgd", loss)
    with pytest.warns(RuntimeWarning, match="holds the rows of one tower alone. Return it"):
        towers.fit(model, X, Y, towers=tower_devices(2), **OPTIONS)


class TwoSides(keras.Model):
    """Has models with the names of towers."""

    def __init__(self):
        super().__init__()
        self.sides = []
        for name in ("tower_0", "tower_1"):
            norm = keras.layers.BatchNormalization(synchronized=True)
            layers = [keras.Input((4,)), keras.layers.Dense(3), norm, keras.layers.Dense(2)]
            self.sides.append(keras.Sequential(layers, name=name))

    def train_step(self, data):
        with tf.GradientTape() as tape:
            first, second = (side(data[0], training=True) for side in self.sides)
            loss = tf.reduce_mean(first * second)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


@pytest.mark.parametrize("number", [1, 2])
def test_models_with_the_names_of_towers_are_not_taken_for_towers(number):
    model = TwoSides()
    model.compile("sgd")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        towers.fit(model, X, Y, towers=tower_devices(number), **OPTIONS)


class TakesItsWeightsFirst(keras.Model):
    def __init__(self):
        super().__init__()
        self.layer = keras.layers.Dense(2)

    def call(self, inputs):
        return self.layer(inputs)

    def train_step(self, data):
        inputs, labels = data
        variables = self.trainable_variables  # It has none before its first call.
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(inputs) - labels) ** 2)
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


@pytest.mark.parametrize("number", [1, 2])
def test_a_step_may_take_the_weights_before_they_are_made(number):
    ended = []
    for train in (keras.Model.fit, functools.partial(towers.fit, towers=tower_devices(number))):
        keras.utils.set_random_seed(2)
        model = TakesItsWeightsFirst()
        model.compile(keras.optimizers.SGD(0.1))
        train(model, X, Y, batch_size=8, shuffle=False, verbose=0)
        assert int(model.optimizer.iterations) == 3
        ended.append(model.get_weights())
    for one, other in zip(*ended, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def test_a_model_that_nothing_changes_is_checked_once(monkeypatch):
    checked, check = [], setting.check_built_model
    monkeypatch.setattr(
        setting, "check_built_model", lambda *given: (checked.append(1), check(*given))[1]
    )
    fit(switched(), X, Y, epochs=2)
    assert checked == [1]


class OfTwoKindsOfRows(keras.Model):
    def __init__(self):
        super().__init__()
        self.layer = keras.layers.Dense(2)

    def call(self, inputs):
        return tuple(map(self.layer, inputs))

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = sum(tf.reduce_mean(one**2) for one in self(data))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


def test_rows_that_are_no_longer_equally_many_are_told_in_one_sentence():
    pairs = [(X[:6], X[:6]), (X[:6], X[:9])]
    spec = (tf.TensorSpec([None, 4]),) * 2
    model = OfTwoKindsOfRows()
    model.compile("sgd")
    with pytest.raises(ValueError, match=r"^Towers cut .* \(None, 4\), .* differ. \[6 9\]$"):
        fit(model, tf.data.Dataset.from_generator(lambda: iter(pairs), output_signature=spec),
            batch_size=None)  # fmt: skip
