"""The first step asks the tower function if it returns sums, and never refuses one that does."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.step import probe


def losses_of(model, batch, training=False):
    inputs, labels = batch
    logits = model(inputs, training=training)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits), logits


def size_of(batch):
    return tf.cast(tf.shape(batch[1])[0], tf.float32)


def mean(model, batch, **options):
    return tf.reduce_mean(losses_of(model, batch, **options)[0]), size_of(batch), {}


def constant_weight(model, batch, **options):
    return tf.reduce_sum(losses_of(model, batch, **options)[0]), 1.0, {}


def mean_of_both(model, batch, **options):
    return tf.reduce_mean(losses_of(model, batch, **options)[0]), 1.0, {}


def in_batch_negatives(model, batch, **options):
    _, logits = losses_of(model, batch, **options)
    scores = logits @ tf.transpose(logits)
    labels = tf.range(tf.shape(scores)[0])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
    return tf.reduce_sum(losses), size_of(batch), {}


def contraction(model, batch, **options):
    _, logits = losses_of(model, batch, **options)
    return tf.reduce_sum(tf.reduce_sum(logits, axis=0) ** 2), size_of(batch), {}


def centred(model, batch, **options):
    """Twice the rows have twice this loss; two halves do not."""
    _, logits = losses_of(model, batch, **options)
    return tf.reduce_sum((logits - tf.reduce_mean(logits, axis=0)) ** 2), size_of(batch), {}


def unweighted_regulariser(model, batch, **options):
    loss = tf.reduce_sum(losses_of(model, batch, **options)[0])
    return loss + tf.reduce_sum(model.trainable_variables[0] ** 2), size_of(batch), {}


def right(model, batch, **options):
    return tf.reduce_sum(losses_of(model, batch, **options)[0]), size_of(batch), {}


def model_with(*layers):
    inputs = outputs = keras.Input((5,))
    for layer in [keras.layers.Dense(8, activation="tanh"), *layers, keras.layers.Dense(3)]:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs)


def first_step(function, model, num_towers=2, size=8, training=False, **options):
    def tower_fn(batch):
        return function(model, batch, training=training)

    batches, options = helpers.dense_batches([size]), {"probe": True, **options}
    step, (shards,) = helpers.build_step(
        tower_fn, model, keras.optimizers.SGD(0.1), batches, num_towers, **options
    )
    return step(shards, 1)


WRONG = [
    (mean, "The loss is not a sum"),
    (constant_weight, "The weight is not a sum"),
    pytest.param(mean_of_both, "The weight is not a sum", marks=pytest.mark.slow),
    (in_batch_negatives, "The loss is not a sum.*couples"),
    pytest.param(contraction, "The loss is not a sum", marks=pytest.mark.slow),
    (unweighted_regulariser, r"regularisers enter as weight \* sum"),
]


HALVES = pytest.param(centred, "two halves", marks=pytest.mark.slow)


@pytest.mark.parametrize(("function", "message"), [*WRONG, HALVES])
def test_what_is_no_sum_is_named(function, message):
    with pytest.raises(ValueError, match=message):
        first_step(function, model_with())


@pytest.mark.parametrize("noise", [pytest.param("dropout", marks=pytest.mark.slow), "norm"])
def test_neither_noise_nor_batch_norm_hides_a_mean(noise):
    layer = {"dropout": keras.layers.Dropout(0.1), "norm": keras.layers.BatchNormalization()}[noise]
    with pytest.raises(ValueError, match="The loss is not a sum"):
        first_step(mean, model_with(layer), training=True)


def test_a_batch_of_one_row_is_enough():
    with pytest.raises(ValueError, match="The loss is not a sum"):
        first_step(mean, model_with(), size=1)


LAYERS = {
    "plain": [],
    "dropout": [keras.layers.Dropout],
    "norm": [keras.layers.BatchNormalization],
    "all": [keras.layers.BatchNormalization, keras.layers.GaussianNoise, keras.layers.Dropout],
}
TELLING = [("plain", 1), ("all", 7)]


@pytest.mark.parametrize(
    ("layers", "size"),
    [
        pytest.param(LAYERS[name], size, id=f"{name}-{size}")
        if (name, size) in TELLING
        else pytest.param(LAYERS[name], size, id=f"{name}-{size}", marks=pytest.mark.slow)
        for name in LAYERS
        for size in (1, 7, 24)
    ],
)
def test_a_sum_is_never_refused(layers, size):
    arguments = {keras.layers.Dropout: [0.5], keras.layers.GaussianNoise: [1.0]}
    made = [layer(*arguments.get(layer, [])) for layer in layers]
    first_step(right, model_with(*made), size=size, training=True)


def test_a_sum_is_not_refused_where_batch_norm_makes_noise_of_rounding_errors():
    """As in a deep network with few rows: here all rows are the same but for rounding."""
    keras.utils.set_random_seed(2)
    same = keras.layers.Rescaling(1e-7, offset=1.0)
    layers = [same, keras.layers.Dense(64), keras.layers.BatchNormalization(epsilon=1e-30)]
    first_step(right, model_with(*layers, keras.layers.Rescaling(30.0)), size=7, training=True)


def test_series_of_random_losses_with_one_mean_are_never_told_apart():
    random = np.random.default_rng(0)
    for draw in range(3000):
        series = random.normal(size=(2, probe.MANY_DRAWS))
        series = np.round(series) if draw % 2 else series
        assert probe.is_near(*series, probe.IMPOSSIBLE)


@pytest.mark.parametrize(
    "function",
    [
        centred,
        *(
            pytest.param(function, marks=pytest.mark.slow)
            for function in (constant_weight, in_batch_negatives, contraction, mean_of_both)
        ),
    ],
)
def test_one_part_may_have_any_loss(function):
    first_step(function, model_with(), num_towers=1)
    with pytest.raises(ValueError, match="is not a sum"):
        first_step(function, model_with(), num_towers=1, accumulate=2)


def test_a_mean_is_refused_with_one_part_too():
    with pytest.raises(ValueError, match="The loss is a mean, which would be divided"):
        first_step(mean, model_with(), num_towers=1)


def test_it_can_be_switched_off():
    first_step(centred, model_with(), probe=False)


def test_padding_alone_tells_nothing():
    def nothing(model, batch, **options):
        loss, _, metrics = right(model, batch, **options)
        return 0.0 * loss, 0.0, metrics

    first_step(nothing, model_with())


def test_nested_batches_and_carried_states_are_asked_too():
    model = model_with()

    def tower_fn(batch, state):
        losses, logits = losses_of(model, (batch["x"]["inputs"], batch["labels"]))
        return tf.reduce_mean(losses), size_of((0, batch["labels"])), {}, state + logits

    ((inputs, labels),) = helpers.dense_batches([8])
    batches = [{"x": {"inputs": inputs}, "labels": labels}]
    carried = towers.Carried(tf.TensorSpec([3]), 8)
    step, (shards,) = helpers.build_step(
        tower_fn, model, keras.optimizers.SGD(0.1), batches, 2, carried=carried, probe=True
    )
    with pytest.raises(ValueError, match="The loss is not a sum"):
        step(shards, 1)


def test_it_is_asked_once_and_changes_nothing():
    model, calls = model_with(keras.layers.BatchNormalization(momentum=0.5)), []

    def tower_fn(batch):
        calls.append(1)
        return right(model, batch, training=True)

    batches = helpers.dense_batches([8, 8])
    step, shards = helpers.build_step(
        tower_fn, model, keras.optimizers.SGD(0.0), batches, 2, probe=True
    )
    built = len(calls)
    before = [variable.numpy() for variable in model.variables]
    step.probe.ask(shards[0])
    for old, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, variable.numpy())
    for number, parts in enumerate(shards, 1):
        step(parts, number)
    assert len(calls) == built + 1


def with_metrics(metrics):
    def function(model, batch, **options):
        losses, logits = losses_of(model, batch, **options)
        return tf.reduce_sum(losses), size_of(batch), metrics(logits)

    return function


@pytest.mark.parametrize("num_towers", [1, 2])
def test_a_metric_that_is_a_mean_is_named(num_towers):
    for metric in (
        lambda logits: tf.reduce_mean(logits**2),
        lambda logits: (tf.reduce_mean(logits**2), tf.shape(logits)[0]),
    ):
        function = with_metrics(
            lambda logits, metric=metric: {"fine": 0.0, "square": metric(logits)}
        )
        with pytest.raises(ValueError, match=r"The metric 'square' is a mean.*tf\.reduce_sum"):
            first_step(function, model_with(), num_towers=num_towers)


def test_a_metric_that_is_0_at_first_is_asked_again():
    def tower_fn(batch):
        is_large = tf.cast(batch[0][:, 0] > 1.0, tf.float32)
        return *right(model, batch)[:2], {"large": tf.reduce_mean(is_large)}

    model, batches = model_with(), helpers.dense_batches([8, 8])
    step, (first, second) = helpers.build_step(
        tower_fn, model, keras.optimizers.SGD(0.1), batches, 2, probe=True
    )
    large = [shard._replace(batch=(shard.batch[0] + 9.0, shard.batch[1])) for shard in second]
    step([one._replace(batch=(one.batch[0] * 0.0, one.batch[1])) for one in first], 1)
    with pytest.raises(ValueError, match=r"The metric 'large' is a mean"):
        step(large, 2)


def test_metrics_that_are_no_means_are_not_refused():
    def metrics(logits):
        num_rows = tf.cast(tf.shape(logits)[0], tf.float32)
        return {
            "sum": tf.reduce_sum(logits),
            "largest": tf.reduce_max(logits) * num_rows,
            "temperature": (0.5, 1),
            "table": (tf.reduce_sum(logits, axis=0), None),
        }

    first_step(with_metrics(metrics), model_with(keras.layers.Dropout(0.5)), training=True)


def test_asynchronous_towers_are_asked():
    model = model_with()
    dataset = helpers.dataset_of(helpers.dense_batches([8]))
    step = towers.steps.build_async_step(
        lambda batch: mean(model, batch), model, keras.optimizers.SGD(0.1),
        helpers.tower_placement(2), dataset,
    )  # fmt: skip
    with pytest.raises(ValueError, match="The loss is a mean"):
        step(1, next(iter(towers.engine.split(dataset, 1))), 1)


def test_ragged_batches_are_asked_and_trained():
    placement = towers.Placement(helpers.tower_devices(2))
    with placement.scope():
        table, optimizer = keras.Variable(tf.ones([9, 3])), keras.optimizers.SGD(0.1)

    def tower_fn(batch):
        ids, labels = batch
        rows = tf.ragged.map_flat_values(lambda one: tf.gather(table.value, one), ids)
        logits = tf.reduce_mean(rows, axis=1)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return tf.reduce_sum(losses), tf.size(labels), {}

    ids = tf.ragged.constant([[1, 2], [3], [4, 5, 6], [7], [8, 1, 2], [3]])
    data = tf.data.Dataset.from_tensor_slices((ids, tf.range(6) % 3)).batch(5)
    step = towers.build_train_step(tower_fn, [table], optimizer, placement, data)
    towers.Trainer(step, data).train(epochs=1)
    assert np.ptp(table.numpy()) > 0
