"""Layers of users that read, return and tell what nobody foresaw are those of one device."""

import contextlib
import enum
import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.curves import read_scalars
from tests.helpers import tower_devices
from tests.kinds.comparison import float64

X = tf.constant(np.random.default_rng(7).normal(size=(16, 4)))


class Way(enum.Enum):
    ROW, BATCH = 1, 0


class Ready(keras.layers.Layer):
    """A layer that makes its weights at once."""

    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dense(4, activation="tanh")
        self.inner.build((None, 4))
        self.built = True


class Named(Ready):
    def call(self, inputs):
        return self.inner(inputs["own"]) if "own" in inputs else centred(inputs["all"])


class Optional(Ready):
    def call(self, x, added=None, taken=None):
        return self.inner(x) + (added if taken is None else x - centred(taken))


class Chosen(Ready):
    def call(self, x, way=Way.ROW, function=None):
        if function is not None:
            return function(x)
        return self.inner(x) - tf.reduce_mean(x, way.value, keepdims=True)


class Returning(Ready):
    def call(self, x):
        self.kept = self.inner(x)
        return x, self.kept, tf.reduce_sum(self.kept**2, axis=-1)


class Trimmed(Ready):
    """Leaves out the tenth of the rows that is largest."""

    def call(self, x):
        hidden = self.inner(x)
        sizes = tf.norm(hidden, axis=1)
        largest = tf.math.top_k(sizes, tf.shape(x)[0] // 10 + 1).values[-1]
        return tf.where((sizes > largest)[:, None], tf.zeros_like(hidden), hidden)


class Strict(keras.layers.Layer):
    def call(self, x):
        return tf.tanh(x) * {16: 2.0, None: 2.0}[x.shape[0]]


class Telling(keras.layers.Layer):
    def call(self, x):
        tf.summary.scalar("mean", tf.reduce_mean(x), step=0)
        return tf.tanh(x)


def centred(x):
    return x - tf.reduce_mean(x, axis=0)


@pytest.fixture(autouse=True)
def in_float64():
    with float64():
        yield


def on_towers(number):
    return towers.layers_on(tower_devices(number)) if number else contextlib.nullcontext()


def equal_on_towers(make, number=2):
    """Checks that what a function returns of two calls is the same on towers as on one device."""
    found = []
    for count in (0, number):
        keras.utils.set_random_seed(3)
        call = make()
        with on_towers(count):
            found.append(tf.nest.flatten([call(X), call(X + 1)]))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-14)


def calls_of(make, *each):
    """Returns a function that calls one layer in several ways."""

    def made(wrap):
        layer = make()
        return wrap(lambda x: [call(layer, x) for call in each])

    return made


KEYS = [
    calls_of(Named, lambda layer, x: layer({"own": x}), lambda layer, x: layer({"all": x})),
    calls_of(Optional, lambda layer, x: layer(x, added=x), lambda layer, x: layer(x, taken=x**2)),
    calls_of(
        Chosen, lambda layer, x: layer(x, way=Way.ROW), lambda layer, x: layer(x, way=Way.BATCH)
    ),
    calls_of(
        Chosen,
        lambda layer, x: layer(x, function=tf.tanh),
        lambda layer, x: layer(x, function=centred),
    ),
]


@pytest.mark.parametrize("make", KEYS, ids=["keys", "names", "enum", "functions"])
@pytest.mark.parametrize("wrap", [lambda one: one, tf.function], ids=["eager", "traced"])
def test_calls_with_other_names_or_objects_are_asked_each(make, wrap):
    equal_on_towers(lambda: make(wrap))


@pytest.mark.parametrize("kind", ["layer", "model"])
@pytest.mark.parametrize("wrap", [lambda one: one, tf.function], ids=["eager", "traced"])
def test_the_gradient_by_an_output_goes_through_the_others(kind, wrap):
    def make():
        inputs = keras.Input((4,))
        hidden = keras.layers.Dense(3, activation="tanh")(inputs)
        model = keras.Model(inputs, [hidden, keras.layers.Dense(1)(hidden)])
        layer = Returning() if kind == "layer" else model

        def slopes(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                outputs = layer(x)
                loss = sum(tf.reduce_sum(one**3) for one in outputs)
            return tape.gradient(loss, list(outputs))

        return wrap(slopes)

    equal_on_towers(make)


@pytest.mark.parametrize("wrap", [lambda one: one, tf.function], ids=["eager", "traced"])
def test_an_argument_with_one_row_is_not_cut_after_a_batch_of_one(wrap):
    rows = tf.TensorSpec([None, 4], tf.float64)

    def make():
        layer, sizes = Optional(), iter([1, 16])
        added = wrap(lambda x, one: layer(x, added=one))
        if wrap is tf.function:
            added = tf.function(lambda x, one: layer(x, added=one), input_signature=[rows] * 2)
        return lambda x: added(tf.constant(x)[: next(sizes)], tf.constant(x)[:1])

    equal_on_towers(make)


@pytest.mark.parametrize("wrap", [lambda one: one, tf.function], ids=["eager", "traced"])
def test_a_layer_that_counts_its_calls_counts_as_on_one_device(wrap):
    class Counting(Ready):
        calls = 0

        def call(self, x):
            self.calls += 1
            return self.inner(x) * self.calls

    equal_on_towers(lambda: calls_of(Counting, *[lambda layer, x: layer(x)] * 3)(wrap))


def test_a_training_after_an_evaluation_asks_again():
    """An evaluation needs no gradient by one output through another."""

    class Penalised(keras.Model):
        def __init__(self):
            super().__init__()
            inputs = keras.Input((4,))
            hidden = keras.layers.Dense(3, activation="tanh")(inputs)
            self.inner = keras.Model(inputs, [hidden, keras.layers.Dense(1)(hidden)])
            self.built = True

        def call(self, x):
            return self.inner(x)[1]

        def test_step(self, data):
            return {"loss": tf.reduce_mean(self.inner(data[0])[1] ** 2)}

        def train_step(self, data):
            with tf.GradientTape() as outer:
                with tf.GradientTape() as tape:
                    hidden, outputs = self.inner(data[0])
                    loss = tf.reduce_mean((outputs - data[1]) ** 2)
                loss += tf.reduce_mean(tape.gradient(loss, hidden) ** 2)
            weights = self.trainable_variables
            self.optimizer.apply(outer.gradient(loss, weights), weights)
            return {"loss": loss}

    def losses(number):
        keras.utils.set_random_seed(3)
        model = Penalised()
        model.compile("sgd", "mse")
        common = {"batch_size": 8, "verbose": 0}
        if number:
            towers.evaluate(model, X, X[:, :1], towers=number, **common)
            fit = towers.fit(model, X, X[:, :1], towers=number, epochs=2, shuffle=False, **common)
        else:
            fit = model.fit(X, X[:, :1], epochs=2, shuffle=False, **common)
        return fit.history["loss"]

    np.testing.assert_allclose(losses(2), losses(0), rtol=1e-12)


def test_what_a_layer_reads_without_a_graph_is_read_at_each_call():
    class Reading(Ready):
        def call(self, x):
            return self.inner(x) * float(self.scale[0])

    def make():
        plain, layer, layer.scale = keras.layers.Dense(4), Reading(), np.ones(1)
        plain.build((None, 4))

        def call(x):
            outputs = plain(x), layer(x)
            layer.scale[0], plain.activation = 5.0, keras.activations.tanh
            return outputs

        return call

    equal_on_towers(make)


@pytest.mark.parametrize("kind", ["penalty", "forward"])
def test_a_loop_without_graphs_has_every_gradient(kind):
    def make():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5, "tanh")])

        def penalty(x):
            with tf.GradientTape() as outer:
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    outputs = model(x)
                loss = tf.reduce_sum(tape.gradient(outputs, x) ** 2)
            return outer.gradient(loss, model.kernel_of)

        def forward(x):
            with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as tangents:
                outputs = model(x)
            return tangents.jvp(outputs)

        model.kernel_of = model.layers[0].kernel.value
        return {"penalty": penalty, "forward": forward}[kind]

    equal_on_towers(make)


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("wrap", [lambda one: one, tf.function], ids=["eager", "traced"])
def test_what_follows_from_the_number_of_rows_is_that_of_all(number, wrap):
    equal_on_towers(lambda: calls_of(Trimmed, lambda layer, x: layer(x))(wrap), number)


def test_a_layer_that_fails_in_any_way_on_other_rows_runs_whole(capsys):
    equal_on_towers(Strict)
    assert "cannot be called with a part of its rows (KeyError: 8)" in capsys.readouterr().out
    model = keras.Sequential([Strict(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = towers.fit(model, X, X[:, :1], batch_size=16, epochs=2, verbose=0, towers=2)
    assert np.isfinite(history.history["loss"]).all()


def test_a_layer_writes_its_summaries_once(tmp_path, capsys):
    layer = Telling()
    with tf.summary.create_file_writer(str(tmp_path)).as_default(), on_towers(2):
        for _ in range(3):
            layer(X)
    ((_, points),) = read_scalars(tmp_path, ".").items()
    assert points == [(0, pytest.approx(np.mean(X), rel=1e-6))] * 3
    assert "telling (prints, or writes a summary)" in capsys.readouterr().out


def test_layers_losses_and_functions_are_let_go_within_the_scope():
    def train():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        loss, metric = keras.losses.MeanSquaredError(), keras.metrics.MeanAbsoluteError()
        model.compile("sgd", loss, metrics=[metric])
        model.fit(X, X[:, :1], batch_size=8, verbose=0)
        model(X)
        return list(map(weakref.ref, (model, loss, metric)))

    with on_towers(2):
        gone = [*train(), *train()]
        keras.backend.clear_session()
        gc.collect()
        assert [one() for one in gone] == [None] * 6


class Alike(Ready):
    """Equal to all others of its class."""

    def __init__(self, couples):
        super().__init__()
        self.couples = couples

    def __eq__(self, other):
        return isinstance(other, Alike)

    __hash__ = None

    def call(self, x):
        return centred(x) if self.couples else self.inner(x)


def test_layers_are_told_apart_whatever_they_call_equal():
    def make():
        layers = Alike(couples=False), Alike(couples=True)
        return lambda x: [layer(x) for layer in layers]

    equal_on_towers(make)


def test_objects_that_are_made_anew_in_a_trace_are_those_that_were_asked(capsys):
    class Given(keras.layers.Layer):
        def call(self, x, function=None, rows=None):
            return function(x)[:, rows]

        def own(self, x):
            return tf.tanh(x)

    layer = Given()

    @tf.function
    def step(x):
        return layer(x, function=layer.own, rows=slice(2)), layer(x, function=lambda x: x * 2)

    with on_towers(2):
        for _ in range(2):
            step(X)
    assert capsys.readouterr().out == "2 towers run given\n"


def test_nothing_is_told_of_models_that_are_gone(capsys):
    with on_towers(2):
        for _ in range(2):
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)], name="model")
            model.compile("sgd", "mse")
            model.fit(X, X[:, :1], batch_size=8, verbose=0)
            del model
            keras.backend.clear_session()
            gc.collect()
    assert capsys.readouterr().out == "2 towers run model\n"


def test_arrays_that_a_layer_takes_are_let_go():
    class Arrays(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self._convert_input_args, self._allow_non_tensor_positional_args = False, True

        def call(self, x):
            return tf.convert_to_tensor(x) * 2

    layer, gone = Arrays(), []
    with on_towers(2):
        for _ in range(3):
            array = X.numpy()
            layer(array)
            gone.append(weakref.ref(array))
            del array
        gc.collect()
        assert [one() for one in gone] == [None] * 3


def test_asking_draws_nothing_of_numpys_numbers():
    class Noisy(Ready):
        def call(self, x):
            return self.inner(x) * np.random.uniform()

    def draws(number):
        np.random.seed(3)
        layer = Noisy()
        with on_towers(number):
            return [layer(X) / layer.inner(X) for _ in range(2)]

    np.testing.assert_allclose(draws(1), draws(0), rtol=1e-12)


def test_a_function_takes_and_returns_tensors_from_its_first_call_on():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    count = tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float64), tf.TensorSpec([])])
    def signed(x, scale):
        return model(x) * tf.cast(scale, x.dtype) ** x.shape.as_list()[1]

    @tf.function
    def counted(x, *, power):
        count.assign_add(1)
        return {"count": count, "power": power, "x": x.get_shape(), "rest": (signed(x, 0.5), None)}

    with on_towers(2):
        results = [counted(X.numpy(), power=2) for _ in range(3)]
        signed(X.numpy().tolist(), 2)
    assert [one["count"].numpy() for one in results] == [1, 2, 3]
    assert [one["power"].numpy() for one in results] == [2, 2, 2]
    with pytest.raises(TypeError, match="power"), on_towers(2):
        tf.function(counted.python_function)(X)


class Applied(Ready):
    """Applies a function to what it computes and to what else it is given."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x, *others):
        return self.function(self.inner(x), *others)


def mean_where(hidden, is_valid):
    return tf.reduce_mean(tf.boolean_mask(hidden, is_valid))


def partly_centred(hidden, part):
    return hidden + tf.cast(part, hidden.dtype) * centred(hidden)


def bounded(hidden, largest):
    return tf.clip_by_global_norm([hidden], tf.cast(largest, hidden.dtype))[0][0]


def centred_if(hidden, flag):
    return tf.where(flag, centred(hidden), hidden)


def shrunk_until(hidden, bound):
    """All rows shrink as often as the largest has to."""

    def goes_on(one):
        return tf.reduce_any(tf.abs(one) > tf.cast(bound, one.dtype))

    return tf.while_loop(goes_on, lambda one: (one * 0.99,), (hidden,))[0]


def hard_by_row_soft_by_batch(hidden, _):
    hard = tf.one_hot(tf.argmax(hidden, -1), 4, dtype=hidden.dtype)
    soft = tf.nn.softmax(hidden, axis=0)
    return soft + tf.stop_gradient(hard - soft)


def with_places(hidden, _):
    """Two experts, each with places for most of the rows; those without one are left out."""
    chosen = tf.one_hot(tf.cast(hidden[:, 0] > 0, tf.int32), 2, dtype=hidden.dtype)
    places = tf.shape(hidden)[0] * 3 // 4 + 1
    has_place = tf.cumsum(chosen, axis=0) * chosen <= tf.cast(places, hidden.dtype)
    return hidden * tf.reduce_sum(chosen * tf.cast(has_place, hidden.dtype), 1, keepdims=True)


def with_places_for_tokens(hidden, _):
    """Experts for the tokens of all rows, of which each row has two."""
    return tf.reshape(with_places(tf.reshape(hidden, [-1, 2]), _), [-1, 4])


def bounded_whole(hidden, largest):
    norm = tf.norm(tf.reshape(hidden, [-1]))
    return hidden * tf.minimum(tf.constant(1.0, hidden.dtype), tf.cast(largest, norm.dtype) / norm)


def by_similarities(hidden, flag):
    return tf.where(flag > 0, hidden @ (tf.transpose(hidden) @ hidden), hidden)


def shared_out(hidden, flag):
    return tf.where(flag > 0, tf.nn.softmax(hidden, axis=0), hidden)


def with_the_last(hidden, flag):
    return hidden + tf.cast(flag, hidden.dtype) * hidden[::-1]


def less_the_first(hidden, flag):
    return hidden - tf.cast(flag, hidden.dtype) * hidden[0]


def with_the_last_if(hidden, flag):
    return tf.cond(flag > 0, lambda: with_the_last(hidden, 1), lambda: hidden + 0)


def mean_of_near(hidden, bound):
    """The mean over those rows that are not too large: the first time all of them."""
    squares = tf.reduce_mean(hidden**2, 1)
    is_near = tf.cast(squares < tf.cast(bound, hidden.dtype), hidden.dtype)
    return tf.reduce_sum(is_near * squares) / tf.maximum(tf.reduce_sum(is_near), 1)


def sum_of_far(hidden, bound):
    far = tf.cast(hidden[:, :1] > tf.cast(bound, hidden.dtype), hidden.dtype)
    return hidden + tf.matmul(tf.ones_like(far) * tf.transpose(far), hidden)


def far_to_others(hidden, bound):
    far = hidden[:, :1] > tf.cast(bound, hidden.dtype)
    return hidden + tf.reverse(tf.where(far, hidden, 0), [0])


def told_by_others(hidden, bound):
    far = hidden[:, :1] > tf.cast(bound, hidden.dtype)
    return tf.where(far[::-1], 2 * hidden, hidden)


def one_of_two(hidden, branch):
    return tf.switch_case(branch, [lambda: hidden, lambda: centred(hidden)])


MOST = tf.constant(np.arange(16) > 4)
HIDING = {
    "mask": (mean_where, [tf.ones_like(MOST), MOST]),
    "number": (partly_centred, [tf.constant(0.0), tf.constant(0.5)]),
    "variable": (partly_centred, None),
    "gradient": (hard_by_row_soft_by_batch, [tf.constant(0.0)] * 2),
    "bound": (bounded, [tf.constant(1e9), tf.constant(0.1)]),
    "turns": (shrunk_until, [tf.constant(1e9), tf.constant(0.1)]),
    "flag": (centred_if, [tf.constant(False), tf.constant(True)]),
    "places": (with_places, [tf.constant(0.0)] * 2),
    "places for tokens": (with_places_for_tokens, [tf.constant(0.0)] * 2),
    "norm": (bounded_whole, [tf.constant(1e9), tf.constant(0.1)]),
    "similarities": (by_similarities, [tf.constant(0), tf.constant(1)]),
    "softmax": (shared_out, [tf.constant(0), tf.constant(1)]),
    "order": (with_the_last, [tf.constant(0), tf.constant(1)]),
    "first row": (less_the_first, [tf.constant(0), tf.constant(1)]),
    "order in a branch": (with_the_last_if, [tf.constant(0), tf.constant(1)]),
    "denominator": (mean_of_near, [tf.constant(1e9), tf.constant(0.5)]),
    "pairs": (sum_of_far, [tf.constant(1e9), tf.constant(0.1)]),
    "turned": (far_to_others, [tf.constant(1e9), tf.constant(0.1)]),
    "turned flags": (told_by_others, [tf.constant(1e9), tf.constant(0.1)]),
    "branch": (one_of_two, [tf.constant(0), tf.constant(1)]),
}


@pytest.mark.parametrize("kind", HIDING)
@pytest.mark.parametrize("wrap", [lambda one: one, tf.function], ids=["eager", "traced"])
def test_what_hides_in_the_first_batch_is_asked(kind, wrap):
    def make():
        function, given = HIDING[kind]
        part = tf.Variable(0.0, trainable=False)
        layer, waiting = Applied(function if given else lambda x: function(x, part)), given

        @wrap
        def slopes(x, *others):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(layer(x, *others) ** 3)
            return loss, tape.gradient(loss, x)

        def call(x):
            nonlocal waiting
            if waiting is None:
                results = slopes(x)
                part.assign(0.5)
                return results
            other, *waiting = waiting
            is_crowded = kind.startswith("places") and not waiting
            return slopes(tf.repeat(x[:1], 16, axis=0) if is_crowded else x, other)

        return call

    equal_on_towers(make)


APART = {
    "experts": lambda h: tf.reduce_sum(tf.stack([h * one for one in np.linspace(0, 1, 16)]), 0),
    "time first": lambda h: tf.reduce_mean(
        tf.transpose(tf.repeat(h[:, None], 16, 1), [1, 0, 2]), 0
    ),
    "width": lambda h: h / tf.norm(tf.transpose(tf.tile(h, [1, 4])), axis=0)[:, None],
    "width of a trace's rows": lambda h: (
        h + tf.reduce_sum(tf.tile(h, [1, 211])[:, :211] ** 2, 1)[:, None]
    ),
    "each row": lambda h: tf.map_fn(lambda row: row - tf.reduce_mean(tf.tile(row, [4]), 0), h),
}


@pytest.mark.parametrize("kind", APART)
def test_an_axis_as_long_as_the_batch_is_not_that_of_rows(kind, capsys):
    layer = Applied(APART[kind])
    equal_on_towers(lambda: layer)
    assert "2 towers run applied" in capsys.readouterr().out


@pytest.mark.parametrize("wrap", [lambda one: one, tf.function], ids=["eager", "traced"])
def test_a_layer_draws_what_a_seed_of_its_callers_says(wrap):
    class Noisy(Ready):
        def call(self, x, seed):
            return self.inner(x) * tf.random.stateless_uniform(tf.shape(x), seed, dtype=x.dtype)

    equal_on_towers(lambda: calls_of(Noisy, lambda layer, x: layer(x, seed=[3, 4]))(wrap))
