"""Rows that meet where a trace alone shows it: none of these layers does anything to its rows."""

import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from tests.helpers import tower_devices
from towers.layers.asking import CUT, ask
from towers.layers.part import Call
from towers.layers.plain import needs_trace

pytestmark = pytest.mark.usefixtures("float64")
X = np.random.default_rng(6).normal(size=(8, 6))
FAR = 100.0  # No number of `X`, moved or not, comes near.


class Of(layers.Layer):
    """Computes a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, inputs):
        return self.function(inputs)


def far(x):
    return tf.nn.relu(x - FAR)


def scanned(x):
    return ops.scan(lambda kept, row: (kept + far(row), kept + row), ops.zeros(6, x.dtype), x)[1]


def counted_on(x):
    """Adds to each row what a loop has counted until then."""

    def body(index, found, rows):
        found += far(x[index])
        return index + 1, found, rows.write(index, x[index] + found)

    rows = tf.TensorArray(x.dtype, 0, dynamic_size=True, element_shape=[6])
    number, none = tf.shape(x)[0], tf.zeros(6, x.dtype)
    _, _, rows = tf.while_loop(lambda index, *_: index < number, body, (0, none, rows))
    return tf.reshape(rows.stack(), [-1, 6])


def parted(x):
    which = tf.cast(x[:, 0] > FAR, tf.int32)
    near, others = tf.dynamic_partition(x, which, 2)
    places = tf.dynamic_partition(tf.range(tf.shape(x)[0]), which, 2)
    return tf.dynamic_stitch(places, [near, others - tf.reduce_sum(others, 0)])


def by_python(x):
    return tf.ensure_shape(tf.numpy_function(lambda rows: rows, [x], x.dtype), x.shape)


@tf.custom_gradient
def clipped_backwards_by_row(x):
    return tf.identity(x), lambda upstream: tf.clip_by_norm(upstream, 1e9, axes=[1])


def processed(x):
    """Gives each row the sum of what is large in it."""
    return tf.map_fn(lambda row: row + tf.reduce_sum(tf.boolean_mask(row, row > FAR)), x)


def dilated(x):
    """Without a GPU, each row is many in turn meanwhile (`SpaceToBatchND`)."""
    kernel = tf.ones([2, 1, 1], x.dtype)
    return tf.nn.convolution(x[..., None], kernel, padding="SAME", dilations=[2])[..., 0]


def patched(x):
    """Doubles some of the rows, and puts them back where they were."""
    places = tf.where(x[:, 0] > FAR)
    return tf.tensor_scatter_nd_update(x, places, 2 * tf.gather_nd(x, places))


def as_wide_as_the_largest(x):
    """Takes means of counts, which go as far as the largest number of the batch."""
    counts = tf.math.bincount(tf.cast(tf.maximum(x, 0), tf.int32), axis=-1, dtype=x.dtype)
    return x + tf.reduce_mean(counts, 1, keepdims=True)


def in_a_scope(x):
    """Has the name of one of TensorFlow's own."""
    with tf.name_scope("bincount"):
        return x + tf.reduce_max(far(x))


MEETING = {
    "sum of some": lambda x: x - tf.reduce_sum(tf.boolean_mask(x, x[:, 0] > FAR), 0),
    "number of some": lambda x: x / (1.0 + tf.cast(tf.shape(tf.where(x > FAR))[0], x.dtype)),
    "parted": parted,
    "scan": scanned,
    "loop": counted_on,
    "pooling": lambda x: x + tf.nn.max_pool1d(far(x)[None], 3, 1, "SAME")[0],
    "averages": lambda x: x + tf.nn.avg_pool1d(far(x)[None], 3, 1, "SAME")[0],
    "python": by_python,
    "counts": as_wide_as_the_largest,
    "scope": in_a_scope,
}
APART = {
    "rows one by one": processed,
    "some rows": patched,
    "dilated": dilated,
    "counted": lambda x: tf.math.bincount(
        tf.cast(tf.abs(x) * 3, tf.int32), minlength=9, maxlength=9, axis=-1, dtype=x.dtype
    ),
    "scan of a row": lambda x: tf.transpose(
        ops.scan(lambda kept, one: (kept + one, kept), ops.zeros_like(x[:, 0]), tf.transpose(x))[1]
    ),
    "pooling of a row": lambda x: x + tf.nn.max_pool1d(far(x)[..., None], 3, 1, "SAME")[..., 0],
    "loop over numbers": lambda x: tf.while_loop(
        lambda index, _: index < 3, lambda index, rows: (index + 1, rows / 2), (0, x)
    )[1],
    "gradient of a row": clipped_backwards_by_row,
}


@pytest.mark.parametrize("name", [*MEETING, *APART])
def test_a_trace_shows_whether_rows_meet(name):
    layer = Of({**MEETING, **APART}[name])
    layer.build((None, 6))
    call = Call(layer, Of.__call__, (tf.constant(X),), {})
    answer = ask(call, tower_devices(2))
    assert (answer.way == CUT) == (name in APART), answer.reason


TEXTS = tf.constant(["a b c"] * 8)  # All are the longest.


def split(texts):
    return tf.strings.split(texts).to_tensor()


def characters(texts):
    return tf.strings.unicode_decode(texts, "UTF-8").to_tensor()


def vectorization(**options):
    return layers.TextVectorization(vocabulary=["a", "b"], **options)


@pytest.mark.parametrize(
    ("make", "is_cut"),
    [
        (vectorization, False),
        (lambda: vectorization(output_sequence_length=4), True),
        (lambda: vectorization(output_mode="multi_hot"), True),
        (lambda: Of(split), False),
        (lambda: Of(characters), False),
    ],
)
def test_texts_are_not_padded_to_the_longest_of_some(make, is_cut):
    layer = make()
    layer.build((None,))
    call = Call(layer, layers.Layer.__call__, (TEXTS,), {})
    answer = ask(call, tower_devices(2), traces=needs_trace(layer, "sum"))
    assert (answer.way == CUT) == is_cut, answer.reason


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 0.1 * x[:1],
        lambda x: x + tf.roll(x, 1, 0),
        lambda x: x - x[::-1],
        lambda x: x * tf.range(tf.cast(tf.shape(x)[0], x.dtype))[:, None],
    ],
    ids=["first", "rolled", "reversed", "numbered"],
)
@pytest.mark.parametrize("number", [2, 8])
def test_rows_of_nothing_but_0_tell_how_they_meet(function, number):
    """Such as those that a model is built with, or what a layer returns that begins with zeros."""
    layer = Of(function)
    layer.build((None, 6))
    call = Call(layer, Of.__call__, (tf.zeros([number, 6], tf.float64),), {})
    assert ask(call, tower_devices(2)).way != CUT
