"""What a model keeps between calls, as Keras keeps its train function."""

import copy
import gc
import multiprocessing
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.helpers import tower_devices
from towers.scripts.timing.input_report import resident_bytes
from towers.variables.outside_writes import WATCHING

RANDOM = np.random.default_rng(5)
X, Y = RANDOM.normal(size=(20, 4)).astype("float32"), RANDOM.normal(size=(20, 2)).astype("float32")


@keras.saving.register_keras_serializable("kept_test")
class Counted(keras.layers.Layer):
    """Counts how often Python calls it: once for each time that it is traced."""

    calls = 0

    def call(self, inputs):
        Counted.calls += 1
        return inputs


class OwnStep(keras.Sequential):
    """Has a step of its own by name, so that towers run its layers only."""

    def train_step(self, data):
        return super().train_step(data)


def network(kind=keras.Sequential):
    keras.utils.set_random_seed(1)
    layers = [keras.Input((4,)), keras.layers.Dense(3), Counted(), keras.layers.Dense(2)]
    model = kind(layers)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"])
    return model


def traces_of(call):
    before = Counted.calls
    call()
    return Counted.calls - before


CALLS = {
    "fit": lambda model, **options: towers.fit(model, X, Y, verbose=0, **options),
    "evaluate": lambda model, **options: towers.evaluate(model, X, Y, verbose=0, **options),
    "predict": lambda model, **options: towers.predict(model, X, verbose=0, **options),
}


@pytest.mark.parametrize("kind", ["fit", "evaluate"])
def test_a_model_is_traced_once_until_it_is_compiled_again(kind):
    model, call, devices = network(), CALLS[kind], tower_devices(2)
    assert traces_of(lambda: call(model, towers=devices)) > 0
    assert not traces_of(lambda: call(model, towers=devices, batch_size=8))
    assert traces_of(lambda: call(model, towers=tower_devices(3))) > 0, "other devices"
    model.compile("sgd", "mse")
    assert traces_of(lambda: call(model, towers=devices)) > 0, "compiled again"


def test_what_the_trace_holds_is_traced_anew_with_other_options():
    model, options = network(), {"towers": tower_devices(2)}
    CALLS["fit"](model, **options)
    for other in ({"seed": 3}, {"clip_norm": 1.0}, {"accumulate": 2}):
        assert traces_of(lambda other=other: CALLS["fit"](model, **options, **other)) > 0, other
    model.optimizer.learning_rate = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    assert traces_of(lambda: CALLS["fit"](model, **options)) > 0, "another schedule"
    model.optimizer = keras.optimizers.SGD(0.2)
    assert traces_of(lambda: CALLS["fit"](model, **options)) > 0, "another optimizer"


@pytest.mark.parametrize("parameters", ["auto", "replicated"])
def test_calls_one_after_the_other_train_as_in_keras(parameters):
    with towers.Placement(tower_devices(2), parameters).scope():
        model = network()
    plain = network()
    for number in range(3):
        options = {"batch_size": 8, "shuffle": False, "verbose": 0}
        expected = plain.fit(X, Y, **options).history
        options |= {"towers": tower_devices(2), "parameters": parameters}
        history = towers.fit(model, X, Y, **options).history
        assert history["loss"] == pytest.approx(expected["loss"], rel=1e-5)
        for one in (model, plain):  # What is written in between counts.
            one.set_weights([weight * (0.9 + number / 10) for weight in one.get_weights()])
            one.optimizer.learning_rate = 0.05
    for one, other in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


class OwnMomentum(keras.optimizers.Optimizer):
    """The example of Keras's documentation, whose `build` makes its slots whenever it is called."""

    def build(self, variables):
        super().build(variables)
        self.slots = self.add_optimizer_variables(variables, "momentum")

    def update_step(self, gradient, variable, learning_rate):
        slot = self.slots[self._get_variable_index(variable)]
        self.assign(slot, 0.9 * slot - gradient * keras.ops.cast(learning_rate, gradient.dtype))
        self.assign_add(variable, slot)


def test_an_optimizer_of_ones_own_goes_on_with_its_slots_when_the_step_is_traced_anew():
    weights = []
    for fit, more in ((keras.Model.fit, {}), (towers.fit, {"towers": tower_devices(2)})):
        model = network()
        model.compile(OwnMomentum(0.1), "mse")
        options = {"batch_size": 8, "shuffle": False, "verbose": 0, **more}
        fit(model, X, Y, **options)
        fit(model, X, Y, sample_weight=np.ones(len(X)), **options)
        weights.append([*model.get_weights(), *map(np.asarray, model.optimizer.variables)])
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def not_built(layers):
    return keras.Sequential(layers[1:])


@pytest.mark.parametrize("kind", [keras.Sequential, not_built])
def test_layers_frozen_after_a_fit_are_trained_until_compile_as_in_keras(kind):
    models = network(kind), network(kind)
    fits = (
        keras.Model.fit,
        lambda *given, **options: towers.fit(*given, towers=tower_devices(2), **options),
    )
    options = {"batch_size": 8, "shuffle": False, "verbose": 0}
    for model, fit in zip(models, fits, strict=True):
        fit(model, X, Y, **options)
        model.layers[0].trainable = False
    fits[0](models[0], X, Y, **options)
    with pytest.warns(UserWarning, match=r"`trainable` was changed .* until you call model.compil"):
        fits[1](models[1], X, Y, **options)
    for one, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    before = models[1].get_weights()
    models[1].compile("sgd", "mse")
    fits[1](models[1], X, Y, **options)
    after = models[1].get_weights()
    np.testing.assert_array_equal(after[0], before[0])
    assert np.abs(after[2] - before[2]).max() > 0


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's.
def test_what_a_model_keeps_is_not_saved(tmp_path):
    model, options = network(), {"towers": tower_devices(2)}
    for call in CALLS.values():
        call(model, **options)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for other in (loaded, copy.deepcopy(model)):
        for one, two in zip(model.variables, other.variables, strict=True):
            np.testing.assert_array_equal(one, two)
        assert traces_of(lambda other=other: CALLS["fit"](other, **options)) > 0


def graphs():
    gc.collect()
    kind = type(tf.Graph())
    return sum(isinstance(one, kind) for one in gc.get_objects())


def state_after(calls, model):
    for _ in range(calls):
        for call in CALLS.values():
            call(model, towers=tower_devices(2))
    processes = multiprocessing.active_children()
    return graphs(), threading.active_count(), len(processes), len(WATCHING)


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        (keras.Sequential, 3),
        (OwnStep, 2),
        pytest.param(keras.Sequential, 50, marks=pytest.mark.slow),
        pytest.param(OwnStep, 50, marks=pytest.mark.slow),
    ],
)
def test_calls_again_and_again_leave_nothing_behind(kind, calls):
    model = network(kind)
    before = state_after(2, model)
    size = resident_bytes()
    assert state_after(calls, model) == before
    assert resident_bytes() - size < (30 + 0.2 * calls) * 1e6


@pytest.mark.parametrize("kind", [keras.Sequential, OwnStep])
def test_its_iterators_end_with_a_fit_and_not_with_a_collection(kind):
    model = network(kind)
    CALLS["fit"](model)
    iterator = type(iter(tf.data.Dataset.range(1)))

    def living():
        return {id(one) for one in gc.get_objects() if type(one) is iterator}

    gc.collect()
    gc.disable()
    others = living()  # Of another test, such as one whose exception is kept.
    try:
        CALLS["fit"](model)
        assert living() <= others
    finally:
        gc.enable()


def test_a_model_that_is_gone_leaves_no_watched_step():
    with towers.Placement(tower_devices(2), "replicated").scope():
        model = network()
    CALLS["fit"](model, towers=tower_devices(2), parameters="replicated")
    gc.collect()
    held = len(WATCHING)
    del model
    keras.utils.clear_session()
    assert len(WATCHING) < held


@pytest.mark.slow
@pytest.mark.parametrize("kind", [keras.Sequential, OwnStep])
def test_a_second_fit_takes_about_as_long_as_in_keras(kind):
    models = network(kind), network(kind)
    for model in models:
        model.optimizer.learning_rate = 1e-4
    fits = keras.Model.fit, towers.fit
    seconds = [[], []]
    for _ in range(15):
        for model, fit, own in zip(models, fits, seconds, strict=True):
            begin = time.perf_counter()
            fit(model, X, Y, batch_size=4, verbose=0)
            own.append(time.perf_counter() - begin)
    plain, ours = (min(own[1:]) for own in seconds)
    assert ours < 1.3 * plain
