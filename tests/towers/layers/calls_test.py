"""Calls of layers that are cut by rows over towers, and what surrounds them."""

import contextlib
import functools
import gc
import re
import threading
import types
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from tests.helpers import tower_devices
from towers.layers.calls import CALL_FUNCTION, CALL_LAYER, TWINS, LayerCalls

pytestmark = pytest.mark.usefixtures("float64")
RANDOM = np.random.default_rng(7)
X, Y = RANDOM.normal(size=(7, 6)), RANDOM.normal(size=(7, 1))


def dense(*units, inputs=6):
    layers = [keras.layers.Dense(count, activation="tanh") for count in units]
    return keras.Sequential([keras.Input((inputs,)), *layers])


def on_towers(number):
    return towers.layers_on(tower_devices(number)) if number else contextlib.nullcontext()


def near(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


class Raw(keras.layers.Layer):
    """Reads a variable that Keras does not know."""

    def build(self, shape):
        self.scale = tf.Variable(np.full(shape[-1], 0.5))

    def call(self, inputs):
        return inputs * self.scale


class Styled(keras.layers.Layer):
    """Reads a tensor that it was given as an attribute."""

    def call(self, inputs):
        return inputs * self.style


class Given(keras.layers.Layer):
    """Takes a tensor without rows."""

    def call(self, inputs, style):
        return inputs * style


class Closed(keras.layers.Layer):
    """Reads a tensor of a function around it."""

    def call(self, inputs):
        return inputs * self.style_of()


class Kept(keras.layers.Layer):
    """Keeps what it computes, in a list."""

    def call(self, inputs):
        self.kept = [keras.ops.square(inputs), {"sum": keras.ops.sum(inputs, axis=-1)}]
        return inputs


class Elsewhere(Kept):
    """Keeps it in an object that is no layer."""

    def __init__(self):
        super().__init__()
        self.notes = types.SimpleNamespace(kept=())

    def call(self, inputs):
        self.notes.kept = [keras.ops.square(inputs), {"sum": keras.ops.sum(inputs, axis=-1)}]
        return inputs


def slopes(layer, number):
    """Returns the gradients of weights, of the input and of a style that the layer uses."""
    keras.utils.set_random_seed(3)
    before, after, style = dense(6), dense(1), tf.Variable(np.linspace(0.5, 1.5, 6))
    layer.build((None, 6))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            taken = tf.sin(style)
            hidden, given = before(x), ()
            if isinstance(layer, Given):
                given = (taken,)
            layer.style, layer.style_of = taken, lambda: taken
            hidden = layer(hidden, *given)
            loss = tf.reduce_mean((after(hidden) - Y) ** 2)
            if isinstance(layer, Kept):
                squares, sums = getattr(layer, "notes", layer).kept
                loss += tf.reduce_mean(squares) + tf.reduce_mean(sums["sum"] ** 3)
        own = [layer.scale] if isinstance(layer, Raw) else []
        sources = [x, style, *before.variables, *after.variables, *own]
        return [g for g in tape.gradient(loss, sources) if g is not None]

    with on_towers(number):
        return [step(tf.constant(X)), step(tf.constant(X))]


@pytest.mark.parametrize(
    "kind", [Raw, Styled, Given, Closed, Kept, Elsewhere], ids=lambda kind: kind.__name__
)
def test_gradients_exist_wherever_keras_has_them(kind):
    expected = slopes(kind(), 0)
    for number in (2, 3):
        for one, other in zip(expected, slopes(kind(), number), strict=True):
            assert len(one) == len(other)
            for wanted, received in zip(one, other, strict=True):
                near(received, wanted)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_gradient_of_a_gradient_is_that_of_one_device(order):
    first, second = dense(5), dense(2, inputs=5)

    @tf.function
    def derivative(x, order):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.reduce_sum(second(first(x)) ** 2)
            if order > 1:
                value = tf.reduce_sum(derivative.python_function(x, order - 1)[0] ** 2)
        return tape.gradient(value, [x, *first.variables, *second.variables])

    expected = derivative(tf.constant(X), order)
    with on_towers(2):
        for _ in range(2):  # Without a graph, then within one.
            for one, other in zip(expected, derivative(tf.constant(X), order), strict=True):
                near(other, one)


def test_a_gradient_with_respect_to_an_output_that_goes_on_in_parts():
    first, second = dense(5), dense(1, inputs=5)

    @tf.function
    def slope(x):
        hidden = first(x)
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            score = second(hidden)
        return tape.gradient(score, hidden)

    expected = slope(tf.constant(X))
    with on_towers(3):
        near(slope(tf.constant(X)), expected)
        near(slope(tf.constant(X)), expected)


@pytest.mark.filterwarnings("ignore:.*___pyct_anno:DeprecationWarning")  # Of autograph, on 3.13.
def test_a_value_that_was_assigned_meanwhile_is_read_again():
    model = dense(1)
    (kernel, _) = model.variables

    @tf.function
    def step(x):
        first = model(x)
        kernel.assign(2.0 * kernel)
        second = model(x)
        for _ in tf.range(2):
            kernel.assign(kernel + 0.1)
            second += model(x)
        return first, second

    ended = []
    for number in (0, 2):
        with on_towers(number):
            values = []
            for _ in range(2):
                kernel.assign(tf.reshape(tf.range(6.0, dtype=tf.float64), (6, 1)) / 6)
                values += step(tf.constant(X))
        ended.append(values)
    for one, other in zip(*ended, strict=True):
        near(other, one)


def test_a_variable_is_read_once_however_often_its_layer_is_called():
    model = dense(5, 1)

    @tf.function
    def calls(x):
        return [model(x + number) for number in range(7)]

    with on_towers(2):
        calls(tf.constant(X))
        calls(tf.constant(X))
        (twin,) = vars(calls)[TWINS].values()
        graph = twin.get_concrete_function(tf.TensorSpec([7, 6], tf.float64)).graph
    reads = [one for one in graph.get_operations() if one.type == "ReadVariableOp"]
    assert len(reads) == len(model.variables)


def test_gradients_of_several_calls_are_added_before_they_leave_their_tower():
    model = dense(5, 1)

    @tf.function(jit_compile=True)
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x) ** 2) + tf.reduce_sum(model(x + 1.0) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    devices, expected = tower_devices(2), step.python_function(tf.constant(X))
    with towers.layers_on(devices):
        for _ in range(2):
            for one, other in zip(expected, step(tf.constant(X)), strict=True):
                near(other, one)
        (twin,) = vars(step)[TWINS].values()
        graph = twin.get_concrete_function(tf.constant(X)).graph
    sums = [one for one in graph.get_operations() if one.type == "AddN"]
    shapes = {tuple(one.shape) for one in model.trainable_variables}
    of_weights = [one for one in sums if tuple(one.outputs[0].shape) in shapes]
    on_second = [one for one in of_weights if one.device.endswith(devices[1].rpartition("/")[2])]
    assert len(on_second) == len(model.trainable_variables)


class Centred(keras.layers.Layer):
    """Couples rows by their mean."""

    def call(self, inputs):
        return inputs - keras.ops.mean(inputs, axis=0)


def test_a_deep_model_that_is_entered_costs_few_ops_more_than_one_that_is_cut_as_a_whole():
    """Each of its layers is cut by itself; what goes from one to the next stays in parts."""
    num_ops = []
    for middle in (keras.layers.LayerNormalization(), Centred()):
        ends = [keras.layers.Dense(6, "tanh") for _ in range(12)]
        model = keras.Sequential([keras.Input((6,)), *ends[:6], middle, *ends[6:]])

        @tf.function
        def step(x, model=model):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(x) ** 2)
            return tape.gradient(loss, model.trainable_variables)

        with on_towers(2):
            for _ in range(2):
                step(tf.constant(X))
            (twin,) = vars(step)[TWINS].values()
            operations = twin.get_concrete_function(tf.constant(X)).graph.get_operations()
        assert not [one.name for one in operations if "Random" in one.type]
        num_ops.append(len(operations))
    assert num_ops[0] < num_ops[1] < 1.5 * num_ops[0]


def test_that_xla_compiles_nothing_is_told(capsys):
    step = tf.function(dense(1), jit_compile=True)
    with on_towers(2):
        step(tf.constant(X))
    assert capsys.readouterr().out.strip().endswith("; jit_compile is off")


def test_what_was_traced_before_is_cut_within_the_scope_and_untouched_after_it():
    model = dense(4, 1)
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0)
    traced, traces = tf.function(lambda x: model(x), autograph=False), []
    traced(tf.constant(X))
    traces.append(traced.experimental_get_tracing_count())
    with on_towers(2) as scope:
        model.fit(X, Y, verbose=0)
        assert "run sequential" in scope.told.describe()
        near(traced(tf.constant(X)), traced(tf.constant(X)))
    traced(tf.constant(X))
    model.fit(X, Y, verbose=0)
    traces.append(traced.experimental_get_tracing_count())
    assert traces == [1, 1]
    names = [one.name for one in traced.get_concrete_function(X).graph.get_operations()]
    assert not [name for name in names if "tower_" in name]
    assert type(traced).__call__ is CALL_FUNCTION.original
    assert keras.Operation.__call__ is CALL_LAYER.original


def test_a_function_that_is_gone_is_not_kept_with_what_it_holds():
    """Such as the arrays of a fit."""
    model = dense(1)
    with on_towers(2):
        step = tf.function(lambda x: model(x), autograph=False)
        for _ in range(2):
            step(tf.constant(X))
        gone = weakref.ref(step.python_function)
        del step
        gc.collect()
        assert gone() is None


def test_other_threads_call_layers_as_ever():
    model, names = dense(3), []

    def elsewhere():
        graph = tf.function(model).get_concrete_function(tf.TensorSpec([None, 6], tf.float64)).graph
        names.extend(one.name for one in graph.get_operations())

    with on_towers(2):
        model(tf.constant(X))
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert names and not [name for name in names if "tower_" in name]


@pytest.mark.parametrize("number", [2, 3])
def test_a_loop_without_graphs_ends_as_on_one_device(number):
    def train(number):
        keras.utils.set_random_seed(3)
        model, optimizer = dense(8, 1), keras.optimizers.Adam(0.01)
        with on_towers(number):
            for size in (7, 7, 6, 1, 7):  # One row has fewer rows than there are towers.
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((model(tf.constant(X[:size])) - Y[:size]) ** 2)
                weights = model.trainable_variables
                optimizer.apply(tape.gradient(loss, weights), weights)
        return model.get_weights()

    for one, other in zip(train(0), train(number), strict=True):
        near(other, one)


def test_a_loop_without_graphs_calls_a_layer_as_one_function():
    """Op by op it would take several times as long."""
    model = dense(8, 1)
    with on_towers(2) as scope:
        for size in (7, 6, 5):
            model(tf.constant(X[:size]))
    ((function, _),) = scope._functions.of(model, dict).values()
    assert 1 <= function.experimental_get_tracing_count() <= 2


def test_masks_of_inputs_and_outputs_go_along():
    words = keras.Sequential([keras.layers.Embedding(9, 4, mask_zero=True), keras.layers.LSTM(3)])
    inner = keras.layers.Embedding(9, 4, mask_zero=True)
    ids = tf.constant([[1, 2, 0], [3, 0, 0], [4, 5, 6]])
    words(ids), inner(ids)

    @tf.function
    def run(ids):
        return words(ids), inner(ids)._keras_mask

    expected = run(ids)
    with on_towers(2):
        for _ in range(2):
            outputs, mask = run(ids)
            near(outputs, expected[0])
            np.testing.assert_array_equal(mask, expected[1])


def test_the_line_names_what_runs_whole_and_why(capsys):
    class Hollow(Centred):
        def build(self, shape):
            self.inner = keras.layers.Dense(3)  # Never called as a layer.

    ends = [Centred(name="centred"), Hollow(name="hollow")]
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3), *ends])
    with on_towers(2):
        tf.function(model)(tf.constant(X))
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    reason = "(couples the rows of a batch)"
    assert "2 towers run dense;" in said
    assert f"runs centred {reason}, hollow {reason}" in said


def normalised():
    def norm():
        return keras.layers.BatchNormalization(synchronized=True, momentum=0.9)

    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, "tanh"), norm()])
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), norm(), inner,
                             keras.layers.Dense(1)])  # fmt: skip


def fit(model):
    model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)


def loss_of(model, size):
    return tf.reduce_mean((model(tf.constant(X[:size]), training=True) - Y[:size]) ** 2)


def loop(model):
    for size in (7, 7, 2):  # Two rows are fewer than three towers.
        with tf.GradientTape() as tape:
            loss = loss_of(model, size)
        gradients = tape.gradient(loss, model.trainable_variables)
        keras.optimizers.SGD(0.1).apply(gradients, model.trainable_variables)


def tape_around_a_function(model):
    compute = tf.function(functools.partial(loss_of, model, 7))
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = compute()
        gradients = tape.gradient(loss, model.trainable_variables)
        keras.optimizers.SGD(0.1).apply(gradients, model.trainable_variables)


def penalty_on_the_gradient(model):
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:
                tape.watch(x)
                score = tf.reduce_sum(model(x, training=True) ** 2)
            penalty = score + tf.reduce_sum(tape.gradient(score, x) ** 2)
        gradients = outer.gradient(penalty, model.trainable_variables)
        optimizer.apply([0.01 * one for one in gradients], model.trainable_variables)

    for _ in range(3):
        step(tf.constant(X))


@pytest.mark.parametrize(
    ("train", "number"),
    [
        (fit, 2),
        (loop, 3),
        (tape_around_a_function, 2),
        pytest.param(fit, 3, marks=pytest.mark.slow),
        pytest.param(penalty_on_the_gradient, 2, marks=pytest.mark.slow),
        pytest.param(penalty_on_the_gradient, 3, marks=pytest.mark.slow),
    ],
)
def test_synchronized_statistics_are_those_of_all_rows(train, number, capsys):
    model = normalised()
    weights = model.get_weights()
    ended = []
    for count in (0, number):
        model.set_weights(weights)
        with on_towers(count):
            train(model)
        ended.append(model.get_weights())
    for one, other in zip(*ended, strict=True):
        near(other, one)
    assert (
        max(np.abs(one - other).max() for one, other in zip(ended[0], weights, strict=True)) > 0.1
    )
    assert capsys.readouterr().out.strip() == f"{number} towers run {model.name}"


class KeepsItsMean(keras.layers.Layer):
    def call(self, x):
        self.mean = keras.ops.mean(x)
        return x


def test_a_trace_takes_nothing_that_a_layer_keeps_of_another():
    model = normalised()
    kept = keras.Sequential([keras.Input((6,)), KeepsItsMean(), *model.layers])

    @tf.function
    def gradients(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(kept(x, training=True) ** 2)
        return tape.gradient(loss, kept.trainable_variables)

    expected = [gradients(tf.constant(X[:size])) for size in (7, 5, 4)]
    with on_towers(2):
        kept(tf.constant(X))
        found = [gradients(tf.constant(X[:size])) for size in (7, 5, 4)]
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        near(one, other)


def test_what_keras_does_not_synchronize_runs_whole(capsys):
    words = keras.Sequential([keras.layers.Embedding(9, 4, mask_zero=True),
                              keras.layers.BatchNormalization(synchronized=True)])  # fmt: skip
    ids = tf.constant([[1, 2, 0], [3, 0, 0], [4, 5, 6]])
    expected = words(ids, training=True)
    with on_towers(2):
        for _ in range(2):
            near(tf.function(words)(ids, training=True), expected)
    assert "statistics of inputs with a mask" in capsys.readouterr().out


DRAWS = {
    "keras": lambda seed, generator: keras.random.normal((2,)),
    "seeded": lambda seed, generator: keras.random.normal((2,), seed=seed),
    "generator": lambda seed, generator: generator.normal((2,)),
    "stateless": lambda seed, generator: tf.random.stateless_normal((2,), seed.next()),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("keras", marks=helpers.newer_keras("draws on after set_random_seed")),
        "seeded",
        "generator",
        "stateless",
    ],
)
def test_what_a_step_draws_is_what_one_device_draws(name):
    """From the first step on, which runs without a graph, and after the ops of other layers."""
    model, drawn = dense(2), []
    for number in (0, 2):
        keras.utils.set_random_seed(3)
        seed, generator = keras.random.SeedGenerator(4), tf.random.Generator.from_seed(4)

        @tf.function
        def step(x, seed=seed, generator=generator):
            return model(x), DRAWS[name](seed, generator)

        with on_towers(number):
            drawn.append([step(tf.constant(X))[1].numpy() for _ in range(3)])
    np.testing.assert_array_equal(*drawn)
    assert not np.array_equal(*drawn[0][:2])


def test_devices_are_checked():
    with pytest.raises(ValueError, match="device"), towers.layers_on([]):
        pass
    with pytest.raises(ValueError, match="no device '/GPU:1'"), towers.layers_on(["/GPU:1"]):
        pass
    with towers.layers_on(2) as calls:
        assert calls.devices == ("/CPU:1", "/CPU:2")
    assert LayerCalls(["/CPU:0"]).devices == ("/CPU:0",)


def test_a_tower_runs_forward_and_backward_on_its_device():
    """Second derivatives, too."""
    judge = dense(5, 1)

    @tf.function
    def step(x):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:
                tape.watch(x)
                scores = judge(x)
            loss = tf.reduce_sum(tape.gradient(scores, x) ** 2)
        return outer.gradient(loss, judge.trainable_variables)

    devices = tower_devices(2)
    with on_towers(2):
        step(tf.constant(X))
        step(tf.constant(X))
        (twin,) = vars(step)[TWINS].values()
        operations = twin.get_concrete_function(tf.constant(X)).graph.get_operations()
    for tower, device in enumerate(devices):
        own = [one for one in operations if f"tower_{tower}" in one.name.split("/")]
        index = device.rpartition(":")[2]
        elsewhere = [one.name for one in own if not one.device.endswith(f"CPU:{index}")]
        assert own and not elsewhere
    products = [one for one in operations if one.type == "MatMul"]
    assert len(products) > 8
    assert not [one.name for one in products if "tower_" not in one.name]


class Named(keras.layers.Layer):
    """Has arguments with names that a hook might use itself."""

    def call(self, inputs, original=None, layer=None):
        return inputs * original + layer


def test_arguments_of_a_layer_may_have_any_name():
    named, x = Named(), tf.constant(X)
    expected = named(x, original=x, layer=x)
    with on_towers(2):
        near(named(x, original=x, layer=x), expected)


@pytest.mark.parametrize("reduction", ["sum", "mean_with_sample_weight"])
def test_logits_that_only_losses_and_metrics_read_are_not_joined(reduction):
    labels, weights = tf.constant(np.arange(7) % 3), np.linspace(0.0, 1.0, 7)
    outputs, results = [], []
    for number in (0, 2):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([dense(5), keras.layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
        metric = keras.metrics.SparseCategoricalAccuracy()

        @tf.function
        def step(x, model=model, loss=loss, metric=metric):
            with tf.GradientTape() as tape:
                logits = model(x)
                value = loss(labels, logits, sample_weight=weights)
            outputs.append(logits)
            metric.update_state(labels, logits, weights)
            return value, *tape.gradient(value, model.trainable_variables), metric.result()

        with on_towers(number):
            results.append([step(tf.constant(X)), step(tf.constant(X))])
    assert outputs[0].consumers(), "one device computes the loss from the logits"
    assert not outputs[-1].consumers()
    for expected, actual in zip(*results, strict=True):
        for one, other in zip(expected, actual, strict=True):
            near(other, one)


def test_values_of_a_loss_of_the_whole_batch_are_computed_whole(capsys):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, "sigmoid")])
    step = tf.function(lambda x: keras.losses.Dice()(Y, model(x)))
    expected = step(tf.constant(X))
    with on_towers(2):
        for _ in range(2):
            near(step(tf.constant(X)), expected)
    assert capsys.readouterr().out == "2 towers run sequential\n"


@pytest.mark.parametrize(
    ("columns", "told"),
    [(1, "; 50% of the weights that the step reads are theirs"), (2, ""), (3, "; only 25% of")],
)
def test_the_share_of_the_weights_that_towers_hold_is_told(columns, told, capsys):
    """A dense layer of 7 numbers that is cut, beside variables that the step reads by hand."""
    layer, wide = dense(1), dense(columns)
    layer.layers[0].kernel.assign(np.ones((6, 1)))

    @tf.function
    def step(x):
        by_hand = layer(x) if columns == 2 else wide.layers[0].call(x)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x)) + tf.reduce_sum(by_hand)
        return tape.gradient(loss, layer.trainable_variables)

    with on_towers(2):
        step(tf.constant(X))
    line = capsys.readouterr().out.strip().removeprefix(f"2 towers run {layer.name}")
    assert line.startswith(told) if told else line == ""


@pytest.mark.parametrize("reads_all", [True, False], ids=["all rows", "parts"])
def test_the_bytes_that_are_joined_on_one_device_are_told_from_a_megabyte_on(reads_all, capsys):
    """A step reads the wide output itself, or another layer takes it in parts, twice."""
    wide, narrow = dense(75_000, inputs=1), dense(1, inputs=75_000)

    @tf.function
    def step(x):
        hidden = wide(x[:, :1])
        return tf.reduce_sum(hidden) if reads_all else narrow(hidden) + narrow(hidden)

    devices = tower_devices(2)
    with towers.layers_on(devices):
        for _ in range(2):
            step(tf.constant(X))
    names = wide.name if reads_all else f"{wide.name}, {narrow.name}"
    told = f"; 4 MB of outputs are joined on {devices[0]}(, where at most [0-9,]+ MB were in use)?"
    assert re.fullmatch(
        f"2 towers run {names}{told if reads_all else ''}\n", capsys.readouterr().out
    )


class Apart(keras.layers.Layer):
    """Treats two kinds of rows apart, such as nodes and edges: a ring has equally many."""

    def __init__(self):
        super().__init__()
        self.nodes, self.edges = dense(2), dense(2)

    def call(self, nodes, edges):
        return self.nodes(nodes), self.edges(edges)


@pytest.mark.parametrize("joined_before", [False, True])
@pytest.mark.parametrize("count", [5, 6, 9])
def test_a_graph_loses_no_rows_of_which_there_were_equally_many_at_first(count, joined_before):
    layer, others = Apart(), [keras.layers.Dense(6), keras.layers.Dense(6)]

    @tf.function(input_signature=[tf.TensorSpec([None, 6], "float64")] * 2)
    def run(*pair):
        return layer(*(other(one) for other, one in zip(others, pair, strict=True))
                     if joined_before else pair)  # fmt: skip

    nodes, edges = tf.constant(X[:6]), tf.constant(np.repeat(X, 2, 0)[:count])
    with on_towers(2):
        run(nodes, nodes)
        if count != 6:
            with pytest.raises(tf.errors.InvalidArgumentError, match="cut tensors alike"):
                run(nodes, edges)
        for pair in ((nodes, nodes), (nodes, edges), (edges, nodes)):
            found = layer(*pair)
            near(found[1], layer.edges(pair[1]))


def test_a_function_over_devices_loses_no_rows():
    @tf.function(input_signature=[tf.TensorSpec([None, 6], "float64")] * 2)
    def run(one, other):
        both = towers.steps.parallel(lambda x, y: (x, y), tower_devices(2), x=one, y=other)
        return both[1]

    near(run(X, X), X)
    with pytest.raises(tf.errors.InvalidArgumentError, match="cut tensors alike"):
        run(X[:4], X)


@pytest.mark.parametrize("decorate", [lambda call: call, tf.function])
def test_an_argument_may_have_one_row_for_all_first_and_one_for_each_later(decorate):
    layer, specs = Given(), [tf.TensorSpec([None, 6], "float64")] * 2
    is_graph = decorate is tf.function
    call = decorate(layer.__call__, **{"input_signature": specs} if is_graph else {})
    with on_towers(2):
        for x, style in ((X, X[:1]), (X[:2], X[1:3]), (X, X), (X, X[:1])):
            near(call(tf.constant(x), tf.constant(style)), x * style)
