"""Law 18 for every optimizer: the towers' copies stay the same, and equal a plain loop's."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.optimizers.optimizers import build_optimizer

BATCHES = helpers.dense_batches([4, 3, 4, 4])


def excluding(optimizer, **exclusions):
    optimizer.exclude_from_weight_decay(**exclusions)
    return optimizer


def callable_rate():
    """An optimizer whose rate is a function of a variable that no config holds."""
    rate = tf.Variable(0.02)
    return keras.optimizers.SGD(lambda: rate * 0.5, momentum=0.9)


def several_optimizers():
    chosen = {"kernel": keras.optimizers.Adam(0.02), "bias": keras.optimizers.SGD(0.5)}
    return keras.optimizers.MultiOptimizer(lambda variable: chosen[variable.name])


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "nesterov": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "rmsprop_centered": lambda: keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True),
    "adam_amsgrad": lambda: keras.optimizers.Adam(0.01, amsgrad=True),
    "adamw_without_biases": lambda: excluding(
        keras.optimizers.AdamW(0.01, weight_decay=0.5), var_names=["bias"]
    ),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adadelta": lambda: keras.optimizers.Adadelta(1.0),
    "adamax": lambda: keras.optimizers.Adamax(0.01),
    "nadam": lambda: keras.optimizers.Nadam(0.01),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.01),
    "lion": lambda: keras.optimizers.Lion(0.01, weight_decay=0.1),
    "lamb": lambda: keras.optimizers.Lamb(0.01),
    "adafactor": lambda: keras.optimizers.Adafactor(0.01),
    "muon_without_a_layer": lambda: keras.optimizers.Muon(0.01, exclude_layers=["logits"]),
    "schedule_free": lambda: keras.optimizers.ScheduleFreeAdamW(0.01, warmup_steps=2),
    "several": several_optimizers,
    "schedule": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [0.1, 0.5, 0.01])
    ),
    "callable_rate": callable_rate,
    "averages": lambda: keras.optimizers.Adam(
        0.01, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3
    ),
    "accumulating": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "clipping": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.1),
    "fused_momentum": lambda: build_optimizer("momentum", 0.1),
    "fused_adamw_without_biases": lambda: excluding(
        build_optimizer("adamw", 0.01, weight_decay=0.5), var_names=["bias"]
    ),
}


def fresh_model():
    keras.utils.set_random_seed(2)
    inputs = keras.Input((5,))
    logits = keras.layers.Dense(helpers.NUM_CLASSES, name="logits", kernel_constraint="max_norm")
    return keras.Model(inputs, logits(inputs))


# Their updates are like those of others here: elementwise, with slots of the variables' shapes.
ALIKE = {"adam_amsgrad", "adagrad", "adadelta", "adamax", "ftrl", "lamb", "lion", "nesterov"}
ALIKE |= {"rmsprop_centered", "nadam", "sgd", "schedule_free"}
ALIKE |= {"fused_adamw_without_biases", "fused_momentum", "adafactor", "accumulating"}


def marks_of(name):
    old = {
        "several": "has no MultiOptimizer",
        "muon_without_a_layer": "asks for paths",
    }
    marks = [helpers.newer_keras(old[name])] if name in old else []
    return [*marks, *[pytest.mark.slow] * (name in ALIKE)]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=marks_of(name)) for name in OPTIMIZERS],
)
def test_copies_of_every_optimizer_are_the_plain_loop(name):
    with helpers.tower_placement(2, "replicated").scope():
        model = fresh_model()
        optimizer = OPTIMIZERS[name]()
    step, shards = helpers.build_step(
        helpers.classify(model), model, optimizer, BATCHES, 2, parameters="replicated"
    )
    for number, of_towers in enumerate(shards, 1):
        step(of_towers, number)
    step.check_copies()
    plain = fresh_model()
    expected, _ = helpers.train_plainly(helpers.classify(plain), plain, OPTIMIZERS[name](), BATCHES)
    helpers.assert_same_weights(helpers.weights_of(model), expected)


def test_a_variable_excluded_by_identity_decays_in_no_copy():
    with helpers.tower_placement(2, "replicated").scope():
        model = fresh_model()
        optimizer = keras.optimizers.SGD(0.1, weight_decay=0.5)
    excluding(optimizer, var_list=[model.layers[1].bias.value])
    model.layers[1].bias.assign([1.0, 2.0, 3.0])
    zeros = [(np.zeros_like(inputs), labels) for inputs, labels in BATCHES]

    def tower_fn(batch):
        logits = model(batch[0])
        return 0.0 * tf.reduce_sum(logits), tf.size(batch[1]), {}

    step, shards = helpers.build_step(tower_fn, model, optimizer, zeros, 2, parameters="replicated")
    kernel = model.layers[1].kernel.numpy()
    step(shards[0], 1)
    step.check_copies()
    np.testing.assert_array_equal(model.layers[1].bias.numpy(), [1, 2, 3])
    np.testing.assert_allclose(model.layers[1].kernel.numpy(), 0.95 * kernel, rtol=1e-6)


@helpers.newer_keras("has no MultiOptimizer")
def test_the_rate_of_several_optimizers_is_reported_as_not_a_number():
    model = fresh_model()
    step, shards = helpers.build_step(
        helpers.classify(model), model, several_optimizers(), BATCHES, 2
    )
    assert np.isnan(step(shards[0], 1).learning_rate)


class KeepsItsOwn(keras.optimizers.SGD):
    """An optimizer with a variable that Keras does not know of."""

    def build(self, variables):
        super().build(variables)
        self.count = tf.Variable(0.0)


class Wraps(keras.optimizers.SGD):
    """An optimizer around another one, whose variables it does not list."""

    def build(self, variables):
        super().build(variables)
        self.inner = keras.optimizers.Adam(0.1)
        self.inner.build(variables)


@pytest.mark.parametrize("kind", [KeepsItsOwn, Wraps])
def test_an_optimizer_with_a_variable_of_its_own_is_refused(kind):
    model = fresh_model()
    with pytest.raises(ValueError, match=rf"{kind.__name__} keeps the variable .*add_variable"):
        helpers.build_step(helpers.classify(model), model, kind(0.1), BATCHES, 1)


def test_a_callable_rate_is_read_at_every_step():
    rate = tf.Variable(0.5)
    with helpers.tower_placement(2, "replicated").scope():
        model = fresh_model()
        optimizer = keras.optimizers.SGD(lambda: rate)
    step, shards = helpers.build_step(
        helpers.classify(model), model, optimizer, BATCHES, 2, parameters="replicated"
    )
    seen = []
    for number, of_towers in enumerate(shards, 1):
        rate.assign(number / 8)
        seen.append(float(step(of_towers, number).learning_rate))
    assert seen == [1 / 8, 2 / 8, 3 / 8, 4 / 8]
    step.check_copies()


@pytest.mark.parametrize("policy", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["sgd", "momentum"])
def test_copies_of_variables_of_16_bits_beside_others_stay_the_same(policy, name):
    placement = towers.Placement(helpers.tower_devices(2), "replicated")
    with placement.scope():
        keras.utils.set_random_seed(3)
        hidden = keras.layers.Dense(5, "tanh", dtype=policy)
        model = keras.Sequential([keras.Input((4,)), hidden, keras.layers.Dense(3)])
        optimizer = build_optimizer(name, 0.1)

    def tower_fn(batch):
        logits = tf.cast(model(batch[0], training=True), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch[1], logits)
        return tf.reduce_sum(losses), tf.size(batch[1]), {}

    random = np.random.default_rng(0)
    arrays = random.normal(size=(42, 4)).astype("float32"), random.integers(0, 3, 42)
    data = tf.data.Dataset.from_tensor_slices(arrays).batch(7)
    step = towers.build_train_step(tower_fn, model, optimizer, placement, data)
    towers.Trainer(step, data).train(epochs=2)
    step.check_copies()
