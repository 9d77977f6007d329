"""What text models are made of: their base, and small layers such as the output projection."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from numpy.typing import ArrayLike

from towers.ground.arguments import check_at_least
from towers.models.precision import at_least_float32


class TextModel(keras.Model):
    """The base of text models. A model of numbers and words is saved by them, with its policy.

    Raises:
        ValueError: `dtype` is not the global policy, which its layers take.
    """

    def __new__(cls, *args: Any, **options: Any) -> TextModel:
        """Returns a new model, and lets Keras make its config of the arguments.

        `keras.Model` keeps them from that.
        """
        return layers.Layer.__new__(cls, *args, **options)

    def __init__(self, **options: Any):
        super().__init__(**options)
        if self.dtype_policy != keras.config.dtype_policy():
            raise ValueError(
                "The layers of a text model take the global policy, "
                f"{keras.config.dtype_policy().name}. Received dtype={self.dtype_policy.name}; "
                f'call keras.config.set_dtype_policy("{self.dtype_policy.name}") before.'
            )

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> TextModel:
        """Returns a model with these arguments and its own policy."""
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(keras.dtype_policies.get(config.get("dtype")))
        try:
            return super().from_config(config, custom_objects)
        finally:
            keras.config.set_dtype_policy(before)


@keras.saving.register_keras_serializable(package="towers")
class Dense(layers.Dense):
    """Keras's layer, for inputs of any rank and batches of any size.

    Keras takes `tensordot` for more than two dimensions. For a batch of unknown size it computes
    shapes on the GPU while the host waits, and XLA cannot differentiate it in a loop.
    """

    def call(self, inputs: tf.Tensor, training: Any = None) -> tf.Tensor:
        """Returns activation(inputs @ kernel + bias), [..., units], of inputs [..., size]."""
        shape = inputs.shape[:-1].as_list()
        if len(shape) == 1:
            return super().call(inputs, training=training)
        rows = super().call(tf.reshape(inputs, [-1, inputs.shape[-1]]), training=training)
        if shape.count(None) > 1:
            return tf.reshape(rows, tf.concat([tf.shape(inputs)[:-1], [self.units]], 0))
        return tf.reshape(rows, [-1 if side is None else side for side in shape] + [self.units])


@keras.saving.register_keras_serializable(package="towers")
class Embedding(layers.Layer):
    """Maps tokens to vectors: int [...] to floating point [..., size].

    Unlike `keras.layers.Embedding` it gathers through the variable's handle, on the device of the
    table: rows are copied between devices, not the table, and the gradient is `IndexedSlices`.

    Args:
        vocabulary_size: number of rows of the table.
        size: dimension of the vectors.
        scale: standard deviation of the initial values. Recurrent layers that read the rows train
            several times faster with 1 than with the usual 0.05.
        initializer: of the table, in place of a normal distribution with that scale.
        options: of every Keras layer.
    """

    def __init__(
        self,
        vocabulary_size: int,
        size: int,
        *,
        scale: float = 1.0,
        initializer: Any = None,
        **options: Any,
    ):
        super().__init__(**options)
        check_at_least(1, vocabulary_size=vocabulary_size, size=size)
        self.vocabulary_size = vocabulary_size
        self.size = size
        self.scale = scale
        self.initializer = keras.initializers.get(
            initializer or keras.initializers.RandomNormal(stddev=scale)
        )

    def build(self, input_shape: Any = None) -> None:
        """Creates the table."""
        self.table = self.add_weight(
            shape=(self.vocabulary_size, self.size),
            initializer=self.initializer,
            autocast=False,  # A cast would read the whole table; `call` casts the rows.
            name="table",
        )

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the row of each id."""
        return tf.cast(tf.gather(self.table.value, ids), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        own = {
            "vocabulary_size": self.vocabulary_size,
            "size": self.size,
            "scale": self.scale,
            "initializer": keras.initializers.serialize(self.initializer),
        }
        return {**super().get_config(), **own}


class FeedForward(layers.Layer):
    """Two dense layers with GELU between them (Hendrycks and Gimpel 2016).

    With a gate there is no bias: `outer(silu(gate(x)) * inner(x))`.
    """

    def __init__(self, size: int, hidden_size: int, *, gated: bool = False, **options: Any):
        super().__init__(**options)
        self.size = size
        dense: dict[str, Any] = {"use_bias": not gated, "dtype": self.dtype_policy}
        self.gate = Dense(hidden_size, activation="silu", name="gate", **dense) if gated else None
        between = None if gated else "gelu"
        self.inner = Dense(hidden_size, activation=between, name="inner", **dense)
        self.outer = Dense(size, name="outer", **dense)

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables."""
        for layer in filter(None, (self.gate, self.inner)):
            layer.build((None, None, self.size))
        self.outer.build((None, None, self.inner.units))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns outputs in the shape of the inputs, [..., size]."""
        if self.gate is None:
            return self.outer(self.inner(inputs))
        return self.outer(self.gate(inputs) * self.inner(inputs))


class Projection(layers.Layer):
    """The output projection, with one row of weights for each token of the vocabulary.

    Its weights are the table of an embedding, if one is given.
    """

    def __init__(self, vocabulary_size: int, size: int, table: Embedding | None, **options: Any):
        super().__init__(**options)
        self.vocabulary_size = vocabulary_size
        self.size = size
        self._embedding = table

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables."""
        if self._embedding is None:
            self.kernel = self.add_weight(
                shape=(self.vocabulary_size, self.size),
                initializer="glorot_uniform",
                name="kernel",
            )
        self.bias = self.add_weight(shape=(self.vocabulary_size,), initializer="zeros", name="bias")

    def weights_and_bias(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the weights, [vocabulary, size], and the bias, [vocabulary]."""
        kernel = self.kernel if self._embedding is None else self._embedding.table
        dtype = self.compute_dtype
        return tf.cast(kernel.value, dtype), tf.cast(self.bias.value, dtype)

    def call(self, hidden: tf.Tensor) -> tf.Tensor:
        """Returns the logits, [..., vocabulary], in at least float32."""
        return logits_of(hidden, *self.weights_and_bias())


def logits_of(hidden: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns the logits, [..., vocabulary], in at least float32, of hidden [..., size]."""
    flat = tf.reshape(hidden, [-1, kernel.shape[1]])
    logits = at_least_float32(tf.matmul(flat, kernel, transpose_b=True) + bias)
    return tf.reshape(logits, tf.concat([tf.shape(hidden)[:-1], kernel.shape[:1]], 0))


def predict_unigrams(bias: keras.Variable, counts: ArrayLike) -> None:
    """Sets the bias of an output projection to the logarithm of each token's frequency.

    A network of small weights then predicts the frequencies, whatever it reads (for two classes:
    Lin et al. 2017, "Focal Loss for Dense Object Detection", section 3.3). From another bias an
    optimizer with a rate for each weight, such as Adam, first makes the hidden vectors large and
    all alike, to serve as that bias, and then stacked LSTM layers learn nothing else for hundreds
    of updates.

    Args:
        bias: [vocabulary].
        counts: [vocabulary], how often each token is a target; one is added to each.

    Raises:
        ValueError: there are not as many counts as tokens, or one is negative or not finite.

    >>> bias = keras.Variable(np.zeros(2, "float32"))
    >>> predict_unigrams(bias, [2, 0])
    >>> np.exp(bias.numpy()).round(2).tolist()
    [0.75, 0.25]
    """
    found = np.asarray(counts, np.float64)
    if found.shape != tuple(bias.shape) or not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError(
            f"counts must be {bias.shape[0]} finite numbers of at least 0, one for each token. "
            f"Received shape {found.shape}, least {np.min(found, initial=0):g}."
        )
    smoothed = found + 1
    bias.assign(np.log(smoothed / smoothed.sum()))
