"""The fused kernel of batch normalisation against Keras's own layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from towers.layers.asking import CUT, ask
from towers.layers.part import Call
from towers.models.batch_norm import FusedBatchNormalization

X = np.random.default_rng(2).normal(3, 2, (6, 4, 5, 3))


def trained(kind, dtype="float32", inputs=X, **options):
    """Returns outputs, gradients and moving averages of a call in training, as float64."""
    layer = kind(momentum=0.7, dtype=dtype, **options)
    layer.build(inputs.shape)
    layer.set_weights([np.linspace(0.5, 1.5, 3) + place for place in range(len(layer.weights))])

    @tf.function(autograph=False)
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = layer(x, training=True)
            loss = tf.reduce_sum(tf.cast(outputs, tf.float32) ** 3)
        return [outputs, *tape.gradient(loss, [x, *layer.trainable_variables])]

    found = run(tf.constant(inputs, layer.compute_dtype))
    ops = {
        op.type
        for op in run.get_concrete_function(
            inputs.astype(layer.compute_dtype)
        ).graph.get_operations()
    }
    found += layer.non_trainable_variables
    return [np.asarray(tf.cast(one, tf.float64)) for one in found], ops


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float32", 1e-5), ("mixed_float16", 5e-3), ("mixed_bfloat16", 5e-2), ("bfloat16", 5e-2)],
)
@pytest.mark.parametrize("options", [{}, {"scale": False}, {"center": False, "epsilon": 1e-5}])
def test_the_kernel_gives_what_keras_gives(options, dtype, tolerance):
    found, ops = trained(FusedBatchNormalization, dtype, **options)
    expected, _ = trained(keras.layers.BatchNormalization, dtype, **options)
    assert "FusedBatchNormV3" in ops
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())


@pytest.mark.parametrize(
    ("options", "inputs"),
    [({"dtype": "float64"}, X), ({}, X[0]), ({"axis": 1}, X[:, :3]), ({"trainable": False}, X)],
    ids=["float64", "no pictures", "channels first", "frozen"],
)
def test_where_there_is_no_kernel_it_is_the_layer_of_keras(options, inputs):
    found, ops = trained(FusedBatchNormalization, inputs=inputs, **options)
    expected, _ = trained(keras.layers.BatchNormalization, inputs=inputs, **options)
    assert "FusedBatchNormV3" not in ops
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Of Keras.
def test_inference_and_a_saved_model_are_those_of_keras(tmp_path):
    model = keras.Sequential([keras.Input(X.shape[1:]), FusedBatchNormalization()])
    model(X.astype("float32"), training=True)
    expected = keras.layers.BatchNormalization()
    expected.build(X.shape)
    expected.set_weights(model.get_weights())
    np.testing.assert_array_equal(model(X.astype("float32")), expected(X.astype("float32")))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again.layers[-1]) is FusedBatchNormalization


class MaskFirst(keras.layers.BatchNormalization):
    """As users write them: the arguments in another order."""

    def call(self, inputs, mask=None, training=None):
        return super().call(inputs, training=training, mask=mask)


@pytest.mark.parametrize(
    "kind", [keras.layers.BatchNormalization, FusedBatchNormalization, MaskFirst]
)
def test_rows_are_apart_as_in_keras_where_a_layer_is_asked(kind):
    """BatchNorm is asked in inference mode, whatever class it is of."""
    layer = kind()
    x = tf.constant(X, tf.float32)
    layer.build(x.shape)
    call = Call(layer, keras.layers.Layer.__call__, (x,), {"training": True})
    assert ask(call, ["/CPU:0", "/CPU:0"]).way == CUT
