"""A table of vectors, looked up where it lives."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from towers.models.arguments import check_at_least


@keras.saving.register_keras_serializable(package="towers")
class Embedding(layers.Layer):
    """Vectors of tokens: int [...] to floating point [..., size].

    Unlike `keras.layers.Embedding` it gathers through the variable's handle, on the device where
    the table lives: rows travel, not the table, and its gradient is `IndexedSlices`.

    Args:
        vocabulary_size: rows of the table.
        size: numbers in a row.
        scale: standard deviation of the initial values. Where recurrent layers read the rows, the
            training is several times as quick with 1 as with the 0.05 that is usual.
        initializer: of the table, in place of a normal distribution with that scale.
        options: those of every Keras layer.
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
        """Makes the table."""
        self.table = self.add_weight(
            shape=(self.vocabulary_size, self.size),
            initializer=self.initializer,
            autocast=False,  # A cast would read the whole table; the rows are cast instead.
            name="table",
        )

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns a row for each id."""
        return tf.cast(tf.gather(self.table.value, ids), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns what the layer can be made again from."""
        own = {
            "vocabulary_size": self.vocabulary_size,
            "size": self.size,
            "scale": self.scale,
            "initializer": keras.initializers.serialize(self.initializer),
        }
        return {**super().get_config(), **own}
