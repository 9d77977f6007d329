"""An embedding that gathers rows on the device of its table."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from towers.models.arguments import check_at_least


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
