"""A function run over devices returns, and trains, what it does on one device."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from towers.devices.op_devices import record_placed_nodes
from towers.models import rnn_lm

SIZES = [1, 2, 3, 7, 8]
NUM_DEVICES = [1, 2, 3, 4]
MODES = {"eagerly": lambda call: call, "in a graph": tf.function}
EACH_MODE = pytest.mark.parametrize("mode", MODES)


def features_of(size, *, seed=0):
    """A batch float64 [size, 5] and labels int32 [size]."""
    ((features, labels),) = helpers.dense_batches([size], dtype="float64", seed=seed)
    return {"features": features, "labels": labels}


def assert_close(actual, expected):
    tf.nest.assert_same_structure(actual, expected)
    for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def losses_of(model, features, labels):
    logits = model(features)
    return logits, tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


# What comes back.

MERGED = {
    "sum": lambda losses: (tf.reduce_sum(losses), tf.reduce_sum(losses[:, None] ** [1, 2], 0)),
    "mean": lambda losses: (tf.reduce_mean(losses), tf.reduce_mean(losses[:, None] ** [1, 2], 0)),
    "concatenate": lambda losses: (losses, [losses > 1, tf.stack([losses, -losses], 1)]),
    "auto": lambda losses: (losses, tf.reduce_sum(losses), [tf.stack([losses, -losses], 1)]),
}


@pytest.mark.parametrize("merge", MERGED)
def test_any_batch_on_any_number_of_devices_is_as_on_one(merge, float64):
    model = helpers.dense_model()

    def run(features, labels):
        return MERGED[merge](losses_of(model, features, labels)[1])

    for size in SIZES:
        batch = features_of(size)
        expected = run(**batch)
        for num_devices in NUM_DEVICES:
            devices = helpers.tower_devices(num_devices)
            assert_close(towers.steps.parallel(run, devices, merge=merge, **batch), expected)


NEST = {"rows": ("concatenate", "concatenate"), "total": "sum", "means": "mean", "count": "auto"}


@pytest.mark.parametrize(
    ("size", "mode"),
    [
        *((size, "eagerly") for size in SIZES),
        pytest.param(7, "in a graph", marks=pytest.mark.slow),
    ],
)
def test_a_nest_of_choices_merges_each_output_as_it_says(size, mode, float64):
    """A choice may stand for a whole part of the outputs, as `mean` does."""
    model, batch = helpers.dense_model(), features_of(size)

    def run(features, labels):
        logits, losses = losses_of(model, features, labels)
        return {
            "rows": (logits, labels),
            "total": tf.reduce_sum(logits, axis=0),
            "means": {"loss": tf.reduce_mean(losses), "logits": [tf.reduce_mean(logits, axis=0)]},
            "count": tf.size(labels),
        }

    @MODES[mode]
    def run_parallel(features, labels):
        devices = helpers.tower_devices(3)
        tensors = {"features": features, "labels": labels}
        return towers.steps.parallel(run, devices, merge=NEST, **tensors)

    assert_close(run_parallel(**batch), run(**batch))


def test_rows_stay_in_order():
    for size in SIZES:
        rows = towers.steps.parallel(
            lambda rows: rows, helpers.tower_devices(4), rows=np.arange(size)
        )
        assert rows.numpy().tolist() == list(range(size))


def test_a_mean_in_float16_does_not_overflow():
    rows = np.full(3000, 30, "float16")
    mean = towers.steps.parallel(
        lambda rows: rows[0], helpers.tower_devices(4), merge="mean", rows=rows
    )
    assert mean.dtype == tf.float16 and float(mean) == 30


def test_tensors_may_be_nests():
    def run(pair, more):
        return pair[0] + pair[1]["one"], more

    batch = {"pair": (np.arange(5), {"one": np.ones(5, int)}), "more": np.array(list("abcde"))}
    numbers, letters = towers.steps.parallel(run, helpers.tower_devices(3), **batch)
    assert numbers.numpy().tolist() == [1, 2, 3, 4, 5]
    assert letters.numpy().tolist() == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.slow
def test_one_trace_takes_every_batch(float64):
    model = helpers.dense_model()
    traces = []

    @tf.function(
        input_signature=[tf.TensorSpec([None, 5], "float64"), tf.TensorSpec([None], "int32")]
    )
    def run_parallel(features, labels):
        traces.append(1)
        run = functools.partial(losses_of, model)
        devices = helpers.tower_devices(3)
        return towers.steps.parallel(run, devices, features=features, labels=labels)

    for size in SIZES:
        batch = features_of(size)
        assert_close(run_parallel(**batch), losses_of(model, **batch))
    assert len(traces) == 1


# Gradients.


def embedding_model():
    token_ids = keras.Input((6,), dtype="int32")
    rows = keras.layers.Embedding(helpers.VOCABULARY_SIZE, 4)(token_ids)
    return keras.Model(token_ids, keras.layers.Dense(3)(rows))


MODELS = {
    "dense": helpers.dense_model,
    "embedding": embedding_model,
    "table": lambda: helpers.recurrent_model(helpers.LookupTable()),
}


def batch_for(kind, size):
    ((features, labels),) = (
        helpers.dense_batches([size], dtype="float64")
        if kind == "dense"
        else helpers.token_batches([size])
    )
    return {"features": features, "labels": labels}


def as_dense(gradients):
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


def gradients_of(call, model, batch):
    """Returns a call's value and its gradients by the model's variables."""
    with tf.GradientTape() as tape:
        value = call(**batch)
    return value, as_dense(tape.gradient(value, [v.value for v in model.trainable_variables]))


WAYS = list(
    itertools.product(MODELS, [(1, 2), (2, 4), (7, 3), (8, 1)], ["ahead", "in place"], MODES)
)
QUICK = [  # Each model and each way to read, eagerly and in a graph; a table in a graph below.
    ("dense", (1, 2), "ahead", "eagerly"),
    ("dense", (8, 1), "in place", "eagerly"),
    ("dense", (7, 3), "ahead", "in a graph"),
    ("embedding", (7, 3), "ahead", "eagerly"),
    ("embedding", (2, 4), "in place", "in a graph"),
    ("table", (2, 4), "in place", "eagerly"),
]


@pytest.mark.parametrize(
    ("kind", "sizes", "reads", "mode"),
    [way if way in QUICK else pytest.param(*way, marks=pytest.mark.slow) for way in WAYS],
)
def test_gradients_are_those_of_one_device(kind, sizes, reads, mode, float64):
    size, num_devices = sizes
    model, batch = MODELS[kind](), batch_for(kind, size)

    def cost(features, labels):
        return tf.reduce_sum(losses_of(model, features, labels)[1])

    @MODES[mode]
    def run_parallel(features, labels):
        def call(features, labels):
            return towers.steps.parallel(
                cost,
                helpers.tower_devices(num_devices),
                variables=model if reads == "ahead" else (),
                features=features,
                labels=labels,
            )

        return gradients_of(call, model, {"features": features, "labels": labels})

    expected = gradients_of(cost, model, batch)
    assert_close(run_parallel(**batch), expected)
    assert all(np.any(gradient) for gradient in expected[1])


@pytest.mark.parametrize("merge", ["mean", "concatenate"])
def test_gradients_pass_through_every_merge(merge, float64):
    model, batch = helpers.dense_model(), features_of(7)

    def cost(features, labels):
        _, losses = losses_of(model, features, labels)
        return tf.reduce_mean(losses) if merge == "mean" else losses

    def run_parallel(**tensors):
        merged = towers.steps.parallel(cost, helpers.tower_devices(4), merge=merge, **tensors)
        return tf.reduce_mean(merged)

    expected = gradients_of(lambda **tensors: tf.reduce_mean(cost(**tensors)), model, batch)
    assert_close(gradients_of(run_parallel, model, batch), expected)


@EACH_MODE
def test_gradients_reach_the_tensors_that_were_split(mode, float64):
    model, batch = helpers.dense_model(), features_of(7)

    def cost(features, labels):
        return tf.reduce_sum(losses_of(model, features, labels)[1] ** 2)

    @MODES[mode]
    def gradient(run, features, labels):
        with tf.GradientTape() as tape:
            tape.watch(features)
            value = run(features=features, labels=labels)
        return tape.gradient(value, features)

    tensors = tf.nest.map_structure(tf.constant, batch)
    run = functools.partial(towers.steps.parallel, cost, helpers.tower_devices(3))
    assert_close(gradient(run, **tensors), gradient(cost, **tensors))


@pytest.mark.parametrize(
    ("order", "mode"),
    [
        (2, "eagerly"),
        (2, "in a graph"),
        pytest.param(3, "eagerly", marks=pytest.mark.slow),
        pytest.param(3, "in a graph", marks=pytest.mark.slow),
    ],
)
def test_gradients_have_gradients(order, mode, float64):
    """Penalties on the gradient, as WGAN-GP has: of rows, weights, and what is around."""
    model, batch = helpers.dense_model(), tf.nest.map_structure(tf.constant, features_of(7))
    weights = [variable.value for variable in model.trainable_variables]
    sources = [batch["features"], tf.ones([5], tf.float64), *weights]

    def gradients(run, order):
        with tf.GradientTape() as tape:
            tape.watch(sources[:2])
            if order > 1:
                value = sum(tf.reduce_mean(one**2) for one in gradients(run, order - 1))
            else:

                def cost(features, labels):
                    return tf.reduce_sum(losses_of(model, features * sources[1], labels)[1])

                value = run(cost, **batch)
        return tape.gradient(value, sources)

    def on_towers(function, **tensors):
        return towers.steps.parallel(function, helpers.tower_devices(3), **tensors)

    expected = gradients(lambda function, **tensors: function(**tensors), order)
    assert_close(MODES[mode](lambda: gradients(on_towers, order))(), expected)


def test_a_persistent_tape_gives_gradients_twice(float64):
    model, inputs = helpers.dense_model(), features_of(7)["features"]
    with tf.GradientTape(persistent=True) as tape:
        logits = towers.steps.parallel(model, helpers.tower_devices(3), inputs=inputs)
        pair = tf.reduce_sum(logits), tf.reduce_sum(logits**2)
    kernel = model.trainable_variables[0].value
    for value, power in zip(pair, (1, 2), strict=True):
        with tf.GradientTape() as plain:
            expected = tf.reduce_sum(model(inputs) ** power)
        assert_close(tape.gradient(value, kernel), plain.gradient(expected, kernel))


def test_a_variable_that_is_not_used_has_no_gradient(float64):
    model, unused = helpers.dense_model(), tf.Variable(1.0)
    with tf.GradientTape() as tape:
        logits = towers.steps.parallel(
            model, helpers.tower_devices(2), inputs=features_of(3)["features"]
        )
    gradients = tape.gradient(logits, [unused, model.trainable_variables[0].value])
    assert gradients[0] is None and gradients[1] is not None


# States, random numbers, places.


def normalised_model():
    inputs = keras.Input((5,), dtype="float64")
    normed = keras.layers.BatchNormalization(momentum=0.9, name="norm")(inputs)
    return keras.Model(inputs, keras.layers.Dense(3)(normed))


@pytest.mark.parametrize(
    ("size", "mode"),
    [
        (2, "eagerly"),
        (7, "in a graph"),
        pytest.param(7, "eagerly", marks=pytest.mark.slow),
        pytest.param(2, "in a graph", marks=pytest.mark.slow),
    ],
)
def test_moving_averages_are_assigned_once(size, mode, float64):
    """They become the mean, by rows, of what each tower alone would have made of them."""
    model, features = normalised_model(), features_of(size)["features"]

    @MODES[mode]
    def run_parallel(features):
        run = functools.partial(model, training=True)
        return towers.steps.parallel(run, helpers.tower_devices(3), inputs=features)

    mean, variance = np.zeros(5), np.ones(5)
    for _ in range(2):
        with tf.GradientTape() as tape:  # The way back assigns nothing.
            logits = run_parallel(tf.constant(features))
        assert tape.gradient(logits, model.trainable_variables[0].value) is not None
        parts = [part for part in np.array_split(features, 3) if len(part)]
        rows = [len(part) for part in parts]
        of_means = np.average([part.mean(axis=0) for part in parts], axis=0, weights=rows)
        of_variances = np.average([part.var(axis=0) for part in parts], axis=0, weights=rows)
        mean, variance = 0.9 * mean + 0.1 * of_means, 0.9 * variance + 0.1 * of_variances
    norm = model.get_layer("norm")
    np.testing.assert_allclose(norm.moving_mean.numpy(), mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(norm.moving_variance.numpy(), variance, rtol=0, atol=1e-12)


def test_a_graph_assigns_each_state_in_one_op(float64):
    model, features = normalised_model(), tf.constant(features_of(7)["features"])

    @tf.function
    def run_parallel():
        run = functools.partial(model, training=True)
        return towers.steps.parallel(run, helpers.tower_devices(3), inputs=features)

    operations = run_parallel.get_concrete_function().graph.get_operations()
    assert [op.type for op in operations].count("AssignVariableOp") == 2


def test_states_do_not_move_in_inference(float64):
    model = normalised_model()
    before = helpers.weights_of(model)
    towers.steps.parallel(model, helpers.tower_devices(3), inputs=features_of(7)["features"])
    for one, other in zip(helpers.weights_of(model), before, strict=True):
        np.testing.assert_array_equal(one, other)


@EACH_MODE
def test_towers_and_calls_draw_different_random_numbers(mode):
    dropout = keras.layers.Dropout(0.5, seed=3)
    ones = tf.ones((8, 64))

    @MODES[mode]
    def run_parallel():
        run = functools.partial(dropout, training=True)
        return towers.steps.parallel(run, helpers.tower_devices(4), inputs=ones)

    masks = np.concatenate([run_parallel().numpy() > 0 for _ in range(2)])
    assert 0.3 < masks.mean() < 0.7
    assert len({mask.tobytes() for mask in masks}) == 16


def test_one_tower_draws_what_one_device_does():
    draws = []
    for run in (
        functools.partial(towers.steps.parallel, devices=helpers.tower_devices(1)),
        lambda call, inputs: call(inputs),
    ):
        dropout = keras.layers.Dropout(0.5, seed=3)
        call = functools.partial(dropout, training=True)
        draws.append([run(call, inputs=tf.ones((4, 16))).numpy() for _ in range(2)])
    np.testing.assert_array_equal(*draws)


def test_a_tower_runs_on_its_device_eagerly():
    model, devices = helpers.dense_model(), helpers.tower_devices(3)
    found = []

    def run(inputs):
        logits = model(inputs)
        found.append(logits.device)
        return logits

    merged = towers.steps.parallel(run, devices, inputs=np.ones((7, 5), "float32"))
    assert [place[-5:] for place in found] == [device[-5:] for device in devices]
    assert merged.device.endswith("CPU:0")


@pytest.fixture(scope="module")
def placed():
    """Returns (op type, tower or None, device) of the ops of a step in a graph."""
    model = helpers.recurrent_model(helpers.LookupTable())

    def cost(features, labels):
        return tf.reduce_sum(losses_of(model, features, labels)[1])

    @tf.function
    def step(features, labels):
        def run_parallel(**tensors):
            devices = helpers.tower_devices(2)
            return towers.steps.parallel(cost, devices, variables=model, **tensors)

        return gradients_of(run_parallel, model, {"features": features, "labels": labels})

    with record_placed_nodes() as nodes:
        step(**tf.nest.map_structure(tf.constant, batch_for("table", 7)))
    return [(node.op, node.name, device) for node, device in nodes]


def test_a_tower_runs_forward_and_backward_on_its_device_in_a_graph(placed):
    for kind in ("MatMul", "BiasAdd", "Tanh", "TanhGrad", "TensorListSetItem"):
        where = {device for op, _, device in placed if kind in op}
        assert where == {"CPU:1", "CPU:2"}, kind


def test_scopes_are_named_after_the_towers(placed):
    for tower, device in enumerate(("CPU:1", "CPU:2")):
        scope = f"tower_{tower}/"
        where = {place for op, name, place in placed if "MatMul" in op and scope in name}
        assert where == {device}


# The two forms of data parallelism in functions.


def sentences():
    """Batches (inputs, targets) of sentences of 1 to 6 tokens, each the target of those before."""
    batches = helpers.token_batches([7, 5, 8])
    starts = [np.ones((len(tokens), 1), "int32") for tokens, _ in batches]
    return [
        (np.hstack([start, tokens[:, :-1]]), tokens)
        for start, (tokens, _) in zip(starts, batches, strict=True)
    ]


def train_language_model(run):
    """Trains on costs that `run` has computed; returns the weights."""
    keras.utils.set_random_seed(3)
    model = rnn_lm.RNNLanguageModel(helpers.VOCABULARY_SIZE, hidden_size=8, initial_scale=0.5)
    optimizer = keras.optimizers.Adam(0.01)

    def cost(inputs, targets):
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, model(inputs))
        cost_of_sentences = tf.reduce_sum(tf.where(targets > 0, losses, 0), axis=1)
        return tf.reduce_sum(cost_of_sentences)

    for inputs, targets in sentences():
        with tf.GradientTape() as tape:
            loss = run(cost, model, inputs=inputs, targets=targets) / len(inputs)
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        optimizer.apply(gradients, model.trainable_variables)
    return helpers.weights_of(model)


@pytest.mark.parametrize("num_devices", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_language_model_trains_on_the_sum_of_its_sentences_costs(num_devices, float64):
    expected = train_language_model(lambda cost, model, **batch: cost(**batch))
    weights = train_language_model(
        lambda cost, model, **batch: towers.steps.parallel(
            cost, helpers.tower_devices(num_devices), merge="sum", variables=model, **batch
        )
    )
    helpers.assert_same_weights(weights, expected, float64=True)


def test_devices_differ_in_tokens():
    """The test of the test: with as many tokens on each device, a mean of means would do."""
    for _, targets in sentences():
        counts = [np.count_nonzero(part) for part in np.array_split(targets, 2)]
        assert counts[0] / (len(targets) + 1) != counts[1] / len(targets)


@pytest.mark.parametrize("size", SIZES)
def test_costs_and_predictions_come_together_and_their_mean_is_that_of_all(size, float64):
    model, batch = helpers.dense_model(), features_of(size)

    def run(features, labels):
        logits, costs = losses_of(model, features, labels)
        return costs, tf.argmax(logits, axis=-1)

    def mean_cost(call):
        def run_all(**tensors):
            costs, predictions = call(**tensors)
            found.append(predictions.numpy().tolist())
            return tf.reduce_mean(costs)

        return gradients_of(run_all, model, batch)

    found = []
    devices = helpers.tower_devices(3)
    merged = mean_cost(functools.partial(towers.steps.parallel, run, devices, merge="concatenate"))
    assert_close(merged, mean_cost(run))
    assert found[0] == found[1] and len(found[0]) == size


# Wrong input.


def identity(rows):
    return rows


ROWS = np.arange(4.0)
WRONG = {
    "no rows": ({"rows": ROWS[:0]}, r"nothing to run: the tensors \['rows'\] have no rows"),
    "differing rows": ({"rows": ROWS, "more": ROWS[1:]}, r"same number of rows.*\[3, 4\]"),
    "scalar": ({"rows": 1.0}, "first dimension counts the examples"),
    "no tensor": ({}, "first dimension counts the examples"),
    "unknown merge": ({"rows": ROWS, "merge": "avg"}, "one of auto, sum, mean.*Received 'avg'"),
    "unknown in a nest": ({"rows": ROWS, "merge": {"a": ["men"]}}, "Received 'men'"),
    "other nest": ({"rows": ROWS, "merge": ["sum", "sum"]}, "fits the function's outputs"),
    "no devices": ({"rows": ROWS, "devices": []}, "sequence of device names"),
    "absent device": ({"rows": ROWS, "devices": ["/GPU:1"]}, "There is no device '/GPU:1'"),
    "one device": ({"rows": ROWS, "devices": "/CPU:1"}, "sequence of device names"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused(name):
    given, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        towers.steps.parallel(identity, **{"devices": helpers.tower_devices(2), **given})


UNFIT = {
    "concatenate": (tf.reduce_sum, "takes outputs with rows. Received a scalar"),
    "sum": (lambda rows: rows > 1, "Only numbers have a sum. Received an output of type bool"),
    "mean": (tf.strings.as_string, "Only numbers have a mean.*string"),
    "auto": (lambda rows: tf.reduce_any(rows > 1), "Only numbers have a sum.*bool"),
}


@EACH_MODE
@pytest.mark.parametrize("merge", UNFIT)
def test_an_output_that_cannot_be_merged_so_is_refused(merge, mode):
    function, message = UNFIT[merge]

    @MODES[mode]
    def run_parallel():
        run = functools.partial(towers.steps.parallel, lambda rows: function(rows))
        return run(helpers.tower_devices(2), merge=merge, rows=ROWS)

    with pytest.raises(ValueError, match=message):
        run_parallel()


@EACH_MODE
@pytest.mark.parametrize(
    "make",
    [
        lambda rows: keras.layers.Dense(2, name="new")(rows[:, None]),
        lambda rows: rows + tf.Variable(1.0, dtype="float64", name="new"),
    ],
    ids=["layer", "variable"],
)
def test_a_function_that_makes_variables_is_refused(make, mode, float64):
    @MODES[mode]
    def run_parallel():
        return towers.steps.parallel(make, helpers.tower_devices(2), rows=ROWS)

    with pytest.raises(RuntimeError, match="Tower 0 would create the variable 'new"):
        run_parallel()


def test_a_function_that_assigns_trainable_variables_is_refused(float64):
    model = helpers.dense_model()
    kernel = model.get_layer("hidden").kernel
    before = kernel.numpy()

    def run(features):
        kernel.assign(kernel * 2)
        return model(features)

    with pytest.raises(RuntimeError, match="Tower 0 assigns the trainable variable 'hidden/kernel"):
        towers.steps.parallel(run, helpers.tower_devices(2), features=features_of(3)["features"])
    np.testing.assert_array_equal(kernel.numpy(), before)


@EACH_MODE
@pytest.mark.parametrize("width", [1, 300])
def test_gradients_reach_the_tensors_that_the_function_takes_from_around_it(mode, width, float64):
    """Small and large ones: TensorFlow treats them in two ways."""
    features = tf.random.stateless_uniform([7, width], [1, 2], dtype=tf.float64)
    kernel = tf.random.stateless_uniform([width, 3], [3, 4], dtype=tf.float64)
    shift = tf.constant(2.0, tf.float64)

    @MODES[mode]
    def gradients(call, features, kernel, shift):
        with tf.GradientTape() as tape:
            tape.watch([features, kernel, shift])
            double = 2 * kernel

            def cost(features):
                return tf.reduce_sum(tf.tanh(features @ double + shift) ** 2)

            value = call(cost, features=features)
        return tape.gradient(value, [features, kernel, shift])

    def plainly(function, **tensors):
        return function(**tensors)

    def on_towers(function, **tensors):
        return towers.steps.parallel(function, helpers.tower_devices(3), **tensors)

    tensors = (features, kernel, shift)
    for actual, expected in zip(
        gradients(on_towers, *tensors), gradients(plainly, *tensors), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def test_without_a_tape_the_function_is_called_once_per_tower():
    calls, shift = [], tf.ones([])

    def add(features):
        calls.append(1)
        return features + shift

    towers.steps.parallel(add, helpers.tower_devices(2), features=np.ones((4, 1), "float32"))
    assert len(calls) == 2


def synchronised(mode, where, num_devices):
    """Returns outputs, gradients, and the moving averages of a normalised function."""
    norm = keras.layers.BatchNormalization(synchronized=True, dtype="float64")
    norm.build((None, 5))
    inputs = tf.constant(features_of(7)["features"])

    def call(inputs):
        run = functools.partial(norm, training=True)
        if num_devices:
            devices = helpers.tower_devices(num_devices)
            return towers.steps.parallel(run, devices, inputs=inputs) ** 3
        return run(inputs) ** 3

    @MODES[mode]
    def run(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = call(inputs) if where == "within" else compiled(inputs)
        return outputs, tape.gradient(outputs, [inputs, norm.gamma.value])

    compiled = tf.function(call)
    return run(inputs), [variable.value for variable in norm.variables]


@pytest.mark.parametrize(
    ("mode", "where"),
    [
        ("in a graph", "within"),
        ("eagerly", "around"),
        pytest.param("in a graph", "around", marks=pytest.mark.slow),
    ],
)
def test_synchronised_layers_sum_over_the_towers(mode, where, float64):
    """With a tape within the function, around it, or both."""
    expected = synchronised(mode, where, 0)
    assert_close(synchronised(mode, where, 3), expected)


def test_synchronised_layers_need_a_graph():
    assert synchronised("eagerly", "within", 1)
    with pytest.raises(RuntimeError, match="possible without a graph; call it in a tf"):
        synchronised("eagerly", "within", 2)
