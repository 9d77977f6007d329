"""A recurrent language model: stacked LSTM layers with dropout between them.

Zaremba, Sutskever and Vinyals 2014, "Recurrent Neural Network Regularization".
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from towers.ground.arguments import check_above_0, check_at_least, check_fraction
from towers.models.language_model import LanguageModel
from towers.models.recurrent import LSTM
from towers.models.text_layers import Embedding, logits_of

State = tuple[dict[str, tf.Tensor], ...]  # The h and c of each layer, [batch, hidden_size] each.


@keras.saving.register_keras_serializable(package="towers")
class RNNLanguageModel(LanguageModel):
    """From tokens to the logits of the next tokens; it is built when it is made.

    Dropout applies to the connections between layers, not to the recurrent ones (the paper's
    section 3), so that every layer can use its fused kernel.

    Args:
        vocabulary_size: number of ids.
        hidden_size: units of each LSTM layer, and dimension of the token vectors.
        num_layers: number of LSTM layers.
        dropout_rate: fraction of activations dropped before, between and after the layers in
            training.
        initial_scale: all parameters are initially uniform in [-initial_scale, initial_scale).
        name, options: of every Keras model.
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        hidden_size: int = 200,
        num_layers: int = 2,
        dropout_rate: float = 0.0,
        initial_scale: float = 0.1,
        name: str = "rnn_lm",
        **options: Any,
    ):
        super().__init__(name=name, **options)
        check_at_least(1, hidden_size=hidden_size, num_layers=num_layers)
        check_fraction(dropout_rate=dropout_rate)
        check_above_0(initial_scale=initial_scale)
        self.vocabulary_size = vocabulary_size
        self.hidden_size = hidden_size
        self.initial_scale = initial_scale
        self.embedding = Embedding(
            vocabulary_size, hidden_size, initializer=uniform(initial_scale), name="embedding"
        )
        self.lstm_layers = [
            lstm(hidden_size, initial_scale, f"lstm_{index}") for index in range(num_layers)
        ]
        self.dropouts = [
            layers.Dropout(dropout_rate, name=f"dropout_{index}") for index in range(num_layers + 1)
        ]
        self.build()

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables of every layer."""
        self.embedding.build()
        for layer in self.lstm_layers:
            layer.build((None, None, self.hidden_size))
        shape = (self.vocabulary_size, self.hidden_size)
        scale = self.initial_scale
        self.kernel = self.add_weight(shape=shape, initializer=uniform(scale), name="kernel")
        self.bias = self.add_weight(shape=shape[:1], initializer=uniform(scale), name="bias")

    def hidden(
        self, token_ids: tf.Tensor, state: State | None = None, training: bool = False
    ) -> tuple[tf.Tensor, State]:
        """Returns the outputs of the last layer, and the state, as `LanguageModel` does."""
        state = self.zero_state(tf.shape(token_ids)[0]) if state is None else state
        first, *others = self.dropouts
        x = first(self.embedding(token_ids), training=training)
        after = []
        for layer, dropout, own in zip(self.lstm_layers, others, state, strict=True):
            x, h, c = layer(x, initial_state=[own["h"], own["c"]])
            x = dropout(x, training=training)
            after.append({"h": h, "c": c})
        return x, tuple(after)

    def step(self, tokens: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        """Returns the logits after one more token, and the state, as `LanguageModel` does."""
        x = self.embedding(tokens)
        after = []
        for layer, own in zip(self.lstm_layers, state, strict=True):
            x, (h, c) = layer.cell(x, [own["h"], own["c"]])
            after.append({"h": h, "c": c})
        return self.projection(x), tuple(after)

    def projection(self, hidden: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        """Returns the logits, [..., vocabulary], in at least float32, of hidden [..., size]."""
        return logits_of(hidden, *self.kernel_and_bias())

    def kernel_and_bias(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the output projection, [vocabulary, hidden_size] and [vocabulary]."""
        dtype = self.compute_dtype
        return tf.cast(self.kernel.value, dtype), tf.cast(self.bias.value, dtype)

    @property
    def output_bias(self) -> keras.Variable:
        """The bias of the output projection, [vocabulary]."""
        return self.bias

    def layers_in_order(self) -> list[list[layers.Layer]]:
        """Returns the layers in the order in which they run; those of a block belong together."""
        first, *others = self.dropouts
        blocks: list[list[layers.Layer]] = [[self.embedding, first]]
        blocks += [list(pair) for pair in zip(self.lstm_layers, others, strict=True)]
        blocks[-1].append(self)  # Its own variables are the output projection.
        return blocks

    def state_specs(self) -> tuple[dict[str, tf.TensorSpec], ...]:
        """Returns the specs of one row of the state."""
        row = tf.TensorSpec([self.hidden_size], self.compute_dtype)
        return tuple({"h": row, "c": row} for _ in self.lstm_layers)


def lstm(units: int, scale: float, name: str) -> layers.Layer:
    """Returns an LSTM layer without a special initial bias of the forget gate, as in the paper."""
    return LSTM(
        units,
        return_sequences=True,
        return_state=True,
        kernel_initializer=uniform(scale),
        recurrent_initializer=uniform(scale),
        bias_initializer=uniform(scale),
        unit_forget_bias=False,
        name=name,
    )


def uniform(scale: float) -> keras.initializers.Initializer:
    """Returns a new initializer, since each returns the same numbers every time."""
    return keras.initializers.RandomUniform(-scale, scale)
