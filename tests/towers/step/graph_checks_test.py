"""What a tower cannot do exactly is found in its trace, and named."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers


class Keeper(keras.layers.Layer):
    """A layer that does something wrong with a variable."""

    def __init__(self, use, **options):
        super().__init__(**options)
        self.use = use
        self.raw = tf.Variable(0.0, name="raw", trainable=False)
        self.kernel = self.add_weight(shape=(5, 3), name="kernel")
        self.kept = self.kernel.value

    def call(self, inputs, training=False):
        return self.use(self, inputs)


def assign(layer, inputs):
    layer.raw.assign_add(tf.reduce_sum(inputs))
    return inputs @ layer.kernel


def assign_in_a_loop(layer, inputs):
    def body(turn):
        layer.raw.assign_add(1.0)
        return turn + 1

    turns = tf.while_loop(lambda turn: turn < 2, body, [0])[0]
    return inputs @ layer.kernel + tf.cast(turns, tf.float32)


def assign_in_a_function(layer, inputs):
    tf.function(lambda: layer.raw.assign(1.0))()
    return inputs @ layer.kernel


def read(layer, inputs):
    return inputs @ layer.kernel + layer.raw


def use_the_kept_value(layer, inputs):
    return inputs @ layer.kept


def use_both(layer, inputs):
    return inputs @ layer.kept + inputs @ layer.kernel


KINDS = ["synchronous", "asynchronous", "evaluation"]


def build(use, kind="synchronous"):
    layer = Keeper(use, name="keeper")
    tower_fn, placement = helpers.classify(layer), helpers.tower_placement(2)
    dataset = helpers.dataset_of(helpers.dense_batches([8]))
    if kind == "evaluation":
        return towers.build_evaluation_step(tower_fn, layer, placement, dataset)
    make = towers.build_train_step if kind == "synchronous" else towers.steps.build_async_step
    return make(tower_fn, layer, keras.optimizers.SGD(0.1), placement, dataset)


@pytest.mark.parametrize(
    ("use", "kind"),
    [
        *((assign, kind) for kind in KINDS),
        (assign_in_a_loop, KINDS[0]),
        (assign_in_a_function, KINDS[0]),
    ],
)
def test_a_raw_variable_that_a_layer_assigns_is_named(use, kind):
    with pytest.raises(RuntimeError, match=r"assigns the tf\.Variable 'raw.*trainable=False"):
        build(use, kind)


def test_a_raw_variable_may_be_read():
    build(read)


@pytest.mark.parametrize("use", [use_the_kept_value, use_both])
def test_a_variable_that_a_tower_does_not_see_is_named(use):
    """It would have no gradient, or not all of it."""
    with pytest.raises(RuntimeError, match=r"keeper/kernel"):
        build(use)


@pytest.mark.parametrize(
    ("num_towers", "accumulate"),
    [(2, 1), *(pytest.param(n, 2, marks=pytest.mark.slow) for n in (1, 3))],
)
def test_spectral_normalization_trains_as_in_a_plain_loop(num_towers, accumulate):
    """Used twice a step, as a GAN's discriminator is: the second use starts from the first."""
    trained = []
    for count in (None, num_towers):
        keras.config.set_dtype_policy("float64")
        keras.utils.set_random_seed(1)
        inputs = keras.Input((5,))
        normed = keras.layers.SpectralNormalization(keras.layers.Dense(8), name="normed")
        model = keras.Model(inputs, keras.layers.Dense(3, name="logits")(normed(inputs)))

        def tower_fn(batch, model=model):
            loss, weight, _ = helpers.classify(model, training=True)(batch)
            again, _, _ = helpers.classify(model, training=True)((-batch[0], batch[1]))
            return loss + again, weight, {}

        batches = helpers.dense_batches([8, 7, 2], dtype="float64")
        optimizer = keras.optimizers.Adam(0.1)
        if count is None:
            weights, _ = helpers.train_plainly(tower_fn, model, optimizer, batches)
        else:
            weights, _ = helpers.train_on_towers(
                tower_fn, model, optimizer, batches, count, accumulate=accumulate
            )
        trained.append(weights)
    for weights in trained[1:]:
        helpers.assert_same_weights(weights, trained[0], float64=True)


def test_copies_of_normalised_variables_stay_equal():
    with helpers.tower_placement(2, "replicated").scope():
        layer = keras.layers.SpectralNormalization(keras.layers.Dense(3))
        model = keras.Sequential([keras.Input((5,)), layer])
    step, shards = helpers.build_step(
        helpers.classify(model, training=True), model, keras.optimizers.SGD(0.1),
        helpers.dense_batches([8, 7]), 2, parameters="replicated",
    )  # fmt: skip
    for number, parts in enumerate(shards, 1):
        step(parts, number)
    step.check_copies()


def test_asynchronous_towers_refuse_spectral_normalization():
    model = keras.Sequential(
        [keras.Input((5,)), keras.layers.SpectralNormalization(keras.layers.Dense(3))]
    )
    dataset, placement = helpers.dataset_of(helpers.dense_batches([8])), helpers.tower_placement(2)
    with pytest.raises(RuntimeError, match=r"assigns the trainable variable.*build_train_step"):
        towers.steps.build_async_step(
            helpers.classify(model, training=True), model, keras.optimizers.SGD(0.1), placement,
            dataset,
        )  # fmt: skip


@pytest.mark.parametrize(
    "built",
    [
        pytest.param(True, marks=helpers.newer_keras("asks a tensor for its truth there")),
        False,
    ],
)
def test_stateful_recurrent_layers_are_refused(built):
    layer = keras.layers.LSTM(4, stateful=True, name="lstm")
    model = keras.Sequential([layer, keras.layers.Dense(3)])
    if built:
        model.build((8, 6, 5))
    random = np.random.default_rng(0)
    batches = [(random.normal(size=(8, 6, 5)).astype("float32"), np.zeros(8, "int32"))]
    with pytest.raises(ValueError, match=r"stateful=True.*StepOptions\(carried="):
        helpers.build_step(helpers.classify(model), model, keras.optimizers.SGD(0.1), batches, 2)


def test_sparse_tensors_are_refused():
    dataset = tf.data.Dataset.from_tensors(
        (tf.sparse.from_dense(tf.eye(4)), tf.zeros([4], tf.int32))
    )
    model = helpers.dense_model()
    with pytest.raises(ValueError, match=r"Received a sparse one.*tf\.sparse\.to_dense"):
        helpers.build_step_for(
            helpers.classify(model), model, keras.optimizers.SGD(0.1), dataset, 2
        )


def test_a_generator_that_is_not_listed_is_named():
    model, generator = helpers.dense_model(), keras.random.SeedGenerator(1)

    def tower_fn(batch):
        noise = keras.random.normal(tf.shape(batch[0]), seed=generator)
        return helpers.classify(model)((batch[0] + noise, batch[1]))

    with pytest.raises(RuntimeError, match=r"generator is missing from the `variables` given"):
        helpers.build_step(
            tower_fn, model, keras.optimizers.SGD(0.1), helpers.dense_batches([8]), 2
        )


def test_a_metric_that_is_not_listed_is_named():
    model, mean = helpers.dense_model(), keras.metrics.Mean(name="mean")

    def tower_fn(batch):
        mean.update_state(batch[0])
        return helpers.classify(model)(batch)

    with pytest.raises(RuntimeError, match=r"uses the variable 'mean/.*layers and metrics once"):
        helpers.build_step(
            tower_fn, model, keras.optimizers.SGD(0.1), helpers.dense_batches([8]), 2
        )
