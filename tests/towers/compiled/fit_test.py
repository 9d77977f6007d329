"""Callbacks, optimizers, weights and `initial_epoch` do in `towers.fit` what they do in Keras.

Every expected value is of `keras.Model.fit` on one device, in float64.
"""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from tests.helpers import tower_devices

pytestmark = pytest.mark.usefixtures("float64")
RANDOM = np.random.default_rng(3)
X, Y = RANDOM.normal(size=(20, 4)), RANDOM.normal(size=(20, 2))


class Scaled(keras.layers.Layer):
    """Multiplies by a number that is no variable: a step keeps that of its trace."""

    factor = 1.0

    def call(self, inputs):
        return inputs * self.factor


def network(optimizer=None, **options):
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(5, "tanh"), Scaled(), layers.Dropout(0.5), layers.Dense(2)]
    )
    model.layers[2].rate = 0.0  # Masks are drawn in another way than Keras's.
    optimizer = optimizer or keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(optimizer, **{"loss": "mse", **options})
    return model


def train(fit, make_model, *data, **options):
    """Returns the weights and the history of a new model."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(1)
    model = make_model()
    options = {"batch_size": 8, "epochs": 2, "verbose": 0, "shuffle": False, **options}
    history = fit(model, *data, **options).history
    return model.get_weights(), history


def check_trains_as_keras(make_model, make_data=lambda: (X, Y), num_towers=2, **options):
    """Trains in both ways, with data and callbacks of its own for each."""
    results = []
    for fit, own in ((keras.Model.fit, {}), (towers.fit, {"towers": tower_devices(num_towers)})):
        given = {name: value() if name == "callbacks" else value for name, value in options.items()}
        results.append(train(fit, make_model, *make_data(), **given, **own))
    (expected, history), (actual, other) = results
    assert set(history) == set(other)
    for name, values in history.items():
        np.testing.assert_allclose(other[name], values, rtol=1e-12, err_msg=name)
    for one, two in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-12)
    return actual


class Sum(keras.metrics.Metric):
    """Keeps its state in a variable that Keras does not list."""

    def __init__(self):
        super().__init__(name="sum")
        self.total = tf.Variable(0.0, dtype="float64", trainable=False)

    def update_state(self, labels, outputs, sample_weight=None):
        self.total.assign_add(tf.reduce_sum(outputs))

    def result(self):
        return self.total

    def reset_state(self):
        self.total.assign(0.0)


@pytest.mark.parametrize("number", [1, 2])
def test_a_metric_keeps_its_state_in_any_variable(number):
    def make():
        model = network()
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=[Sum()])
        return model

    check_trains_as_keras(make, num_towers=number)


class Decays(keras.layers.Layer):
    """Has a state that changes in each call, also in an evaluation."""

    def build(self, shape):
        self.factor = self.add_weight(shape=(), initializer="ones", trainable=False)

    def call(self, inputs):
        self.factor.assign(self.factor * 0.9)
        return inputs * self.factor


class Follows(keras.layers.Layer):
    """Assigns a mean of its weights, and computes from it."""

    def build(self, shape):
        self.own = self.add_weight(shape=(shape[-1], 3), trainable=True)
        self.mean = self.add_weight(shape=(shape[-1], 3), initializer="zeros", trainable=False)

    def call(self, inputs, training=False):
        if training:
            self.mean.assign(0.5 * self.mean + 0.5 * self.own)
        return inputs @ self.own - inputs @ self.mean


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("layer", [Decays, Follows])
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_what_layers_assign_ends_as_in_keras(layer, number, run_eagerly):
    def make():
        model = keras.Sequential([keras.Input((4,)), layer(), keras.layers.Dense(2)])
        model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=run_eagerly)
        return model

    check_trains_as_keras(make, num_towers=number, validation_data=(X, Y))
    models = [make(), make()]
    models[1].set_weights(models[0].get_weights())
    options = {"batch_size": 8, "verbose": 0}
    expected = models[0].evaluate(X, Y, **options)
    found = towers.evaluate(models[1], X, Y, towers=tower_devices(number), **options)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    for one, other in zip(models[1].get_weights(), models[0].get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


class Once(keras.callbacks.Callback):
    """Changes a model when a hook is called for the first time."""

    def __init__(self, hook, change):
        super().__init__()
        self._change = change
        setattr(self, hook, self._call)

    def _call(self, *arguments, **options):
        change, self._change = self._change, lambda model: None
        change(self.model)


def freeze(model):
    model.layers[0].trainable = False


def slow_down(model):
    model.optimizer.momentum = 0.5


def clip(model):
    model.optimizer.clipnorm = 0.01


def replace_optimizer(model):
    model.optimizer = keras.optimizers.SGD(0.01)


def rescale(model):
    model.layers[1].factor = 0.5


HOOKS = ("on_train_begin", "on_epoch_begin", "on_train_batch_begin")
CHANGES = (freeze, slow_down, rescale, clip, replace_optimizer)
SINGLE = [(hook, change) for hook in HOOKS for change in CHANGES]


@functools.cache
def plain_weights():
    return train(keras.Model.fit, network, X, Y)[0]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(list(zip(HOOKS, CHANGES, strict=False)), id="one_by_each_hook"),
        *(
            pytest.param([pair], id=f"{pair[0]}-{pair[1].__name__}", marks=pytest.mark.slow)
            for pair in SINGLE
        ),
    ],
)
def test_what_callbacks_set_up_before_the_first_step_has_its_effect(changes):
    def callbacks():
        return [Once(*pair) for pair in changes]

    held_out = {"validation_data": (X[:6], Y[:6])}
    changed = check_trains_as_keras(network, callbacks=callbacks, **held_out)
    assert np.abs(changed[0] - plain_weights()[0]).max() > 1e-4, "they change something"


def test_what_a_callback_sets_up_has_its_effect_in_a_resumed_run_too(tmp_path):
    def run(fit, folder=None, **options):
        callbacks = [Once("on_train_begin", freeze)]
        own = {"towers": tower_devices(2), "run_dir": folder} if folder else {}
        return train(fit, network, X, Y, callbacks=callbacks, **own, **options)[0]

    run(towers.fit, tmp_path, epochs=1)
    resumed, whole = run(towers.fit, tmp_path, epochs=3), run(keras.Model.fit, epochs=3)
    for one, other in zip(resumed, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def unfreeze(model):
    model.layers[0].trainable = True


def frozen():
    model = network()
    model.layers[0].trainable = False
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("change", [freeze, unfreeze])
def test_an_optimizer_has_slots_of_what_callbacks_let_it_train(hook, change):
    """As many as Keras's, which loads no others with a saved model."""
    results = []
    for fit, own in ((keras.Model.fit, {}), (towers.fit, {"towers": tower_devices(2)})):
        keras.utils.set_random_seed(1)
        model = frozen() if change is unfreeze else network(keras.optimizers.Adam(0.01))
        for step in (functools.partial(fit, callbacks=[Once(hook, change)]), fit):
            step(model, X, Y, batch_size=8, verbose=0, shuffle=False, **own)
        results.append([len(model.optimizer.variables), *model.get_weights()])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "before",
    [
        lambda model: towers.evaluate(model, X, Y, verbose=0, towers=tower_devices(2)),
        lambda model: towers.fit(model, X, Y, epochs=0, verbose=0, towers=tower_devices(2)),
    ],
    ids=["evaluate", "no epoch"],
)
def test_layers_may_be_unfrozen_until_the_first_update(before):
    model = frozen()
    before(model)
    assert not model.optimizer.built
    unfreeze(model)
    towers.fit(model, X, Y, verbose=0, towers=tower_devices(2))
    assert len(model.optimizer.variables) == 2 + 2 * len(model.trainable_variables)


def test_what_a_callback_sets_up_for_an_evaluation_has_its_effect():
    model = network()
    expected, actual = (
        evaluate(model, X, Y, verbose=0, callbacks=[Once("on_test_begin", rescale)])
        for evaluate in (keras.Model.evaluate, towers.evaluate)
    )
    assert model.layers[1].factor == 0.5
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


class Halved(keras.utils.PyDataset):
    @property
    def num_batches(self):
        return 10

    def __getitem__(self, index):
        return X[2 * index : 2 * index + 2], Y[2 * index : 2 * index + 2]


def generate():
    while True:
        for start in range(0, 20, 2):
            yield X[start : start + 2], Y[start : start + 2]


def dataset():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(2)


KINDS = {
    "arrays": lambda: (X, Y),
    "dataset": lambda: (dataset(),),
    "py_dataset": lambda: (Halved(),),
    "generator": lambda: (generate(),),
}


def steps_of(kind):
    """Epochs 2 and 3 of two steps each."""
    rows = {"batch_size": 2 if kind == "arrays" else None}
    return {**rows, "initial_epoch": 2, "steps_per_epoch": 2, "epochs": 4}


def some(values, *default):
    """The values, those that are not in the default tests marked as slow."""
    return [one if one in default else pytest.param(one, marks=pytest.mark.slow) for one in values]


@pytest.mark.parametrize("kind", some(KINDS, "arrays", "generator"))
def test_training_from_a_later_epoch_begins_with_the_first_batch(kind):
    check_trains_as_keras(network, KINDS[kind], **steps_of(kind))


@pytest.mark.parametrize("kind", some(KINDS, "dataset"))
@pytest.mark.parametrize("later_epoch", some((2, 3), 3))
def test_a_resumed_run_goes_on_behind_the_batches_that_it_has_read(tmp_path, kind, later_epoch):
    """Whatever the later call says of where the run began."""
    options = steps_of(kind)
    whole, _ = train(keras.Model.fit, network, *KINDS[kind](), **options)
    own = {"towers": tower_devices(2), "run_dir": tmp_path}
    train(towers.fit, network, *KINDS[kind](), **{**options, "epochs": 3}, **own)
    options |= {"initial_epoch": later_epoch}
    resumed, _ = train(towers.fit, network, *KINDS[kind](), **options, **own)
    for one, other in zip(resumed, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def test_calls_for_one_epoch_of_some_steps_each_see_other_shuffled_rows():
    model, rows = network(), []

    class Numbered(keras.utils.PyDataset):
        num_batches = 10

        def __getitem__(self, index):
            rows.append(index)
            return X[2 * index : 2 * index + 2], Y[2 * index : 2 * index + 2]

    for epoch in range(3):
        towers.fit(
            model, Numbered(), verbose=0, initial_epoch=epoch, epochs=epoch + 1, steps_per_epoch=2
        )
        rows.append("|")
    calls = " ".join(map(str, rows)).split("|")[:3]
    assert len(set(calls)) == 3, calls


class Halving(keras.optimizers.SGD):
    """Applies half of each gradient."""

    def apply_gradients(self, grads_and_vars):
        return super().apply_gradients([(0.5 * one, other) for one, other in grads_and_vars])


def test_an_own_apply_gradients_is_honoured():
    check_trains_as_keras(lambda: network(Halving(0.1, momentum=0.9)))


@pytest.mark.parametrize("parameters", ["auto", pytest.param("replicated", marks=pytest.mark.slow)])
def test_a_step_honours_an_own_apply_gradients(parameters):
    keras.config.set_dtype_policy("float64")
    batches, weights = helpers.dense_batches([7, 6], dtype="float64"), []
    for optimizer in (Halving(0.2), keras.optimizers.SGD(0.1)):
        keras.utils.set_random_seed(1)
        with helpers.tower_placement(2, parameters).scope():
            model = helpers.dense_model()
        tower_fn = helpers.classify(model)
        weights.append(
            helpers.train_on_towers(tower_fn, model, optimizer, batches, 2, parameters=parameters)[
                0
            ]
        )
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-15)


@pytest.mark.parametrize("options", [{}, {"clipnorm": 0.1}], ids=str)
def test_the_loss_scale_of_an_optimizer_is_that_of_keras(options):
    def make_model():
        return network(keras.optimizers.Adam(0.1, loss_scale_factor=8.0, **options))

    check_trains_as_keras(make_model)
    model = make_model()
    towers.fit(model, X, Y, verbose=0)
    assert model.optimizer.loss_scale_factor == 8.0, "it is the user's"


class Doubling(keras.optimizers.SGD):
    """Ends a training with other weights than it trains."""

    def finalize_variable_values(self, var_list):
        for variable in var_list:
            variable.assign(2 * variable)


def test_weights_that_an_optimizer_finalizes_itself_are_those_of_keras():
    check_trains_as_keras(lambda: network(Doubling(0.1)))


class OwnScaling(keras.optimizers.LossScaleOptimizer):
    def check_finite(self, grads):
        return True


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda: OwnScaling(keras.optimizers.SGD(0.1)),
        lambda: keras.optimizers.LossScaleOptimizer(Halving(0.1)),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Nadam(0.1)),
    ],
)
def test_methods_of_an_optimizer_that_only_keras_calls_are_called(make_optimizer):
    ended = []
    for fit, own in ((keras.Model.fit, {}), (towers.fit, {"towers": 2})):
        keras.utils.set_random_seed(3)
        model = network(make_optimizer())
        fit(model, X, Y, verbose=0, shuffle=False, **own)
        ended.append(model.get_weights())
    for one, other in zip(*ended, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-7)


class WithHelp(keras.Model):
    """Has a second output in a training."""

    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(5, "tanh")
        self.last, self.help = keras.layers.Dense(1), keras.layers.Dense(1)

    def call(self, inputs, training=False):
        hidden = self.hidden(inputs)
        return (self.last(hidden), self.help(hidden)) if training else self.last(hidden)


def test_a_model_with_more_outputs_in_a_training_trains_as_in_keras():
    def make():
        model = WithHelp()
        model.compile("sgd", ["mse", "mae"], loss_weights=[1.0, 0.3])
        return model

    check_trains_as_keras(make, lambda: (X, (Y, Y)))


class Centralising(keras.optimizers.SGD):
    """Changes some of the gradients, and takes the others as they are."""

    def apply(self, grads, trainable_variables=None):
        grads = [one - keras.ops.mean(one, 0) if one.ndim > 1 else one for one in grads]
        return super().apply(grads, trainable_variables)


@pytest.mark.parametrize("number", [1, 2])
def test_an_optimizer_that_changes_some_gradients_trains_as_in_keras(number):
    def make():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, "tanh")])
        model.compile(Centralising(0.1), "mse")
        return model

    check_trains_as_keras(make, num_towers=number)


PIXELS = RANDOM.normal(size=(40, 20, 1))  # Two towers have 20 rows each of 20 pixels.


def pixel_network(loss="mse"):
    model = keras.Sequential([keras.Input((20, 4)), keras.layers.Dense(1, "sigmoid")])
    model.compile(keras.optimizers.SGD(0.1), loss, weighted_metrics=["mae"])
    return model


def tag_network():
    model = keras.Sequential([keras.Input((20, 4)), keras.layers.Dense(3, "softmax")])
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(name="tags")
    )
    return model


def weighted_examples():
    return pixel_network(keras.losses.MeanSquaredError(name="pixels")), PIXELS, "sample_weight"


def weighted_classes():
    """Of labels with several columns Keras takes the largest: a class for each row."""
    return tag_network(), RANDOM.integers(0, 3, (40, 20)), "class_weight"


@pytest.mark.parametrize("num_towers", [1, 2])
@pytest.mark.parametrize("case", [weighted_examples, weighted_classes])
def test_a_weight_for_each_example_beside_a_loss_for_each_pixel_is_refused(case, num_towers):
    model, labels, kind = case()
    weights = {"sample_weight": np.ones(40), "class_weight": dict.fromkeys(range(20), 2.0)}[kind]
    inputs, before = RANDOM.normal(size=(40, 20, 4)), model.get_weights()
    options = {"batch_size": 40, "verbose": 0, "towers": tower_devices(num_towers), kind: weights}
    match = r"has values of shape \(None, 20\), and the .* weights are of shape \(None,\)"
    calls = [towers.fit] if kind == "class_weight" else [towers.fit, towers.evaluate]
    for call in calls:
        with pytest.raises(ValueError, match=match):
            call(model, inputs, labels, **options)
    np.testing.assert_array_equal(model.get_weights()[0], before[0])


@pytest.mark.parametrize("shape", [(40, 1), (40, 20)])
def test_weights_of_the_rank_of_the_loss_are_those_of_keras(shape):
    inputs, weights = RANDOM.normal(size=(40, 20, 4)), RANDOM.uniform(size=shape)
    check_trains_as_keras(pixel_network, lambda: (inputs, PIXELS), sample_weight=weights)


class Penalised(keras.Sequential):
    @property
    def losses(self):
        return [0.1 * keras.ops.sum(keras.ops.square(self.layers[0].kernel))]


def test_losses_that_a_model_says_itself_are_trained_on():
    def make_model():
        model = Penalised([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    check_trains_as_keras(make_model)
