"""What a layer does out of sight when it is asked whether it treats rows apart."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.helpers import tower_devices
from tests.kinds import unseen
from towers.layers.asking import CUT, ask, summary
from towers.layers.part import Call

pytestmark = pytest.mark.usefixtures("float64")
X = np.random.default_rng(5).uniform(-0.9, 0.9, (9, 5))
X[:, 0] = 1.0  # The largest number of every part.


class GateOfTensorFlow(unseen.OfWidth):
    """Adds a sum whose weight is 0 first, and unknown to Keras."""

    def __init__(self, width):
        super().__init__(width)
        self.gate = tf.Variable(0.0, dtype="float64", trainable=False)

    def call(self, x, training=False):
        self.add_loss(self.gate * tf.reduce_sum(x**2))
        return x


class GateOfRows(GateOfTensorFlow):
    """Adds the mean over the rows that are above its gate, which the first time all are."""

    def call(self, x, training=False):
        squares = tf.reduce_mean(x**2, 1)
        is_above = tf.cast(squares > self.gate, x.dtype)
        self.add_loss(tf.reduce_sum(is_above * squares) / (tf.reduce_sum(is_above) + 1e-9))
        return x


class GateOfPython(GateOfTensorFlow):
    """The same with a number, of which nobody knows where it changes."""

    def __init__(self, width):
        super().__init__(width)
        self.gate = 0.0


HIDE = [
    unseen.AnnealedSum, unseen.ShiftedByTheMean, unseen.ByTheLargest, unseen.ClippedBackwards,
    unseen.Counted, unseen.Recomputed, unseen.Hooked, unseen.ActNorm, GateOfTensorFlow,
    GateOfRows,
]  # fmt: skip


def steps(layer, number):
    """Returns losses and gradients of two steps of a loop without graphs."""
    keras.utils.set_random_seed(3)
    layer, head, found = layer(5), keras.layers.Dense(1), []
    layer.build((None, 5))
    head.build((None, 5))
    with towers.layers_on(tower_devices(number)) if number else contextlib.nullcontext():
        for x in (X, X[:5] * np.linspace(0.3, 1, 5)[:, None]):
            x = tf.constant(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                outputs = head(layer(x, training=True))
                loss = tf.reduce_mean(outputs**2) + sum(layer.losses)
                loss += sum(map(tf.reduce_sum, getattr(layer, "squares", [])))
            weights = [one.value for one in (*layer.trainable_weights, *head.weights)]
            found += [loss, *tape.gradient(loss, [x, *weights])]
            if hasattr(layer, "gate"):
                layer.gate.assign(0.3)
    return [one.numpy() for one in found], len(getattr(layer, "squares", []))


@pytest.mark.parametrize("layer", HIDE, ids=lambda layer: layer.__name__)
@pytest.mark.parametrize("number", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_what_a_layer_hides_from_its_first_batch_ends_as_on_one_device(layer, number):
    (expected, kept), (found, others) = steps(layer, 0), steps(layer, number)
    assert kept == others
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-14)


class Sparse(unseen.OfWidth):
    def call(self, x, training=False):
        return tf.sparse.from_dense(x)


class Ragged(unseen.OfWidth):
    def call(self, x, training=False):
        return tf.RaggedTensor.from_tensor(x)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (unseen.Counted, "assigns a tf.Variable"),
        (unseen.ClippedBackwards, "couples the rows of a batch in its gradient"),
        (GateOfPython, "returns or adds a 0, in which a mean over the rows cannot be told"),
        (Sparse, "returns or keeps a SparseTensor, which towers do not join"),
        (Ragged, "returns or keeps a RaggedTensor, which towers do not join"),
        (
            unseen.ActNorm,
            "(RuntimeError: Tower 0 assigns the trainable variable 'act_norm/variable'))",
        ),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_the_reason_is_that_of_the_layer(make, reason):
    layer = make(5)
    layer.build((None, 5))
    with towers.layers_on(tower_devices(2)) as calls:
        layer(tf.constant(X), training=True)
    assert reason in calls.told.describe()


class KeepsATensor(keras.layers.Layer):
    """Assigns a tensor that it has made before."""

    def build(self, shape):
        self.zero = tf.constant(3.0)
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        self.count.assign(self.zero)
        return x * 2.0


class DrawsInALoop(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.generator = keras.random.SeedGenerator(1)

    def call(self, x):
        def turn(number, x):
            return number + 1, x * keras.random.uniform(tf.shape(x), seed=self.generator)

        return tf.while_loop(lambda number, x: number < 2, turn, (0, x))[1]


def test_a_layer_that_assigns_a_tensor_of_its_own_is_cut():
    layer = KeepsATensor()
    layer.build((None, 5))
    with towers.layers_on(tower_devices(2)) as calls:
        layer(tf.constant(X))
    assert "whole" not in calls.told.describe() and float(layer.count) == 3.0


class Doubled(keras.layers.Layer):
    """Has a layer that a `build` from outside does not build."""

    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dense(3)

    def call(self, x):
        return 2 * self.inner(x)


@pytest.mark.filterwarnings("ignore:.build... was called on layer")
def test_a_layer_that_is_only_called_built_is_built_before_it_is_asked():
    layer = Doubled()
    layer.build((None, 5))
    with towers.layers_on(tower_devices(2)) as calls:
        outputs = layer(tf.constant(X))
    np.testing.assert_allclose(outputs, layer(tf.constant(X)), rtol=1e-12)
    assert calls.told.describe() == f"2 towers run {layer.name}"


def test_a_layer_that_draws_within_a_loop_runs_whole():
    layer = DrawsInALoop()
    with towers.layers_on(tower_devices(2)) as calls:
        layer(tf.constant(X))
    assert "draws random numbers, or assigns a state, within a loop" in calls.told.describe()


class Lengths(keras.layers.Layer):
    """Lengths as a part of the longest."""

    def call(self, ids):
        lengths = keras.ops.sum(keras.ops.cast(ids, "float64") > 0, -1)
        return lengths / keras.ops.max(lengths)


class MeanWherever(keras.layers.Layer):
    """The mean of all that a mask leaves."""

    def call(self, mask):
        mask = keras.ops.cast(mask, "float64")
        return keras.ops.sum(mask * [1.0, 2.0, 3.0, 4.0]) / keras.ops.sum(mask)


@pytest.mark.parametrize("dtype", ["bool", "int32"])
@pytest.mark.parametrize("kind", [Lengths, MeanWherever])
def test_a_first_batch_without_padding_tells_of_others(kind, dtype):
    layer = kind()
    layer.build((None, 4))
    padded = tf.cast([[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]], dtype)
    with towers.layers_on(tower_devices(2)):
        layer(tf.ones((8, 4), dtype))
        found = layer(padded)
    np.testing.assert_allclose(found, layer(padded), rtol=1e-12)


class BegunByAVariable(unseen.OfWidth):
    """Keeps the deviation of its first batch; a variable says whether it was there."""

    def build(self, shape):
        self.begun = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.scale = self.add_weight(shape=shape[-1:], initializer="ones", trainable=False)

    def call(self, x):
        first = keras.ops.std(x, 0)
        self.scale.assign(keras.ops.where(self.begun > 0, self.scale, first))
        self.begun.assign(1.0)
        return x


def test_a_state_that_the_first_batch_sets_is_that_of_all_rows():
    layer = BegunByAVariable(5)
    layer.build((None, 5))
    with towers.layers_on(tower_devices(2)):
        layer(tf.constant(X))
    np.testing.assert_allclose(layer.scale, X.std(0), rtol=1e-12, atol=1e-15)


def test_a_slice_of_rows_keeps_the_shape_of_a_row():
    @tf.function
    def shape(x):
        return tf.constant(layer(x).shape[1:].as_list())

    layer = keras.layers.Dense(3)
    layer.build((None, 5))
    with towers.layers_on(tower_devices(2)):
        shape(tf.constant(X))
        assert shape(tf.constant(X[:4])).numpy().tolist() == [3]


class Swiglu(keras.layers.Layer):
    """Gates by swish, which TensorFlow has as a custom gradient."""

    def build(self, shape):
        size = shape[-1]
        self.gate, self.up = (self.add_weight(shape=(size, 4 * size)) for _ in range(2))
        self.down = self.add_weight(shape=(4 * size, size))

    def call(self, x):
        return keras.ops.silu(x @ self.gate) * (x @ self.up) @ self.down


class Normed(keras.layers.Layer):
    """Normalises each row, so that the gradient of its bias is 0, but for rounding."""

    def build(self, shape):
        self.kernel, self.bias = (
            self.add_weight(shape=(shape[-1], 16)),
            self.add_weight(shape=(16,)),
        )

    def call(self, x):
        y = x @ self.kernel + keras.ops.mean(self.bias)
        return keras.ops.silu(y - keras.ops.mean(y, -1, keepdims=True))


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("layer", [Swiglu, Normed])
def test_layers_with_swish_are_cut_in_every_precision(layer, policy):
    keras.utils.set_random_seed(1)
    layer = layer(dtype=policy)
    x = tf.cast(tf.random.normal((64, 128)), layer.compute_dtype)
    layer(x)
    answer = ask(Call(layer, keras.layers.Layer.__call__, (x,), {}), tower_devices(2))
    assert (answer.way, answer.has_gradient, answer.not_in_step) == (CUT, True, ""), answer.reason


def test_a_reason_names_what_failed_and_not_the_node():
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        tf.reshape(tf.zeros([3]), [2])
    assert str(caught.value).startswith("{{")
    assert summary(caught.value).startswith("InvalidArgumentError: Input to reshape is a tensor")
