"""A recurrent language model with tied weights, variational dropout and dropped recurrent weights.

Merity, Keskar and Socher 2018, "Regularizing and Optimizing LSTM Language Models" (AWD-LSTM). Its
optimizer NT-ASGD (section 3) is not here.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from towers.ground.arguments import check_at_least, check_fraction, check_not_negative
from towers.models.language_model import LanguageModel
from towers.models.rnn_lm import lstm
from towers.models.text_layers import Embedding, Projection

State = tuple[dict[str, tf.Tensor], ...]  # The h and c of each layer, [batch, units] each.
EMBEDDING_SCALE = 0.1  # Section 5: embeddings are uniform in [-0.1, 0.1].


@keras.saving.register_keras_serializable(package="towers")
class AWDLanguageModel(LanguageModel):
    """From tokens to the logits of the next tokens; it is built when it is made.

    Args:
        vocabulary_size: number of ids.
        embedding_size: dimension of the token vectors, and units of the last layer, whose outputs
            are compared with the same vectors (Press and Wolf 2017).
        hidden_size: units of the other LSTM layers.
        num_layers: number of LSTM layers.
        dropout_rate: fraction of numbers dropped between the layers, the same ones at every token
            of a row (Gal and Ghahramani 2016).
        input_dropout_rate: the same, of the token vectors.
        output_dropout_rate: the same, of the last layer's outputs.
        weight_dropout_rate: fraction of the recurrent weights dropped (DropConnect, section 2).
        word_dropout_rate: fraction of the vocabulary's words whose vectors are zero in a batch
            (section 4.3).
        activation_penalty: factor of the mean square of the last layer's outputs after dropout,
            which training adds to the loss of each token (section 4.6, AR; 2 in the paper).
        temporal_penalty: the same of the mean square by which these outputs change from token to
            token (TAR; 1 in the paper).
        name, options: of every Keras model.
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        embedding_size: int = 200,
        hidden_size: int = 400,
        num_layers: int = 2,
        dropout_rate: float = 0.25,
        input_dropout_rate: float = 0.3,
        output_dropout_rate: float = 0.4,
        weight_dropout_rate: float = 0.5,
        word_dropout_rate: float = 0.1,
        activation_penalty: float = 0.0,
        temporal_penalty: float = 0.0,
        name: str = "awd_lstm",
        **options: Any,
    ):
        super().__init__(name=name, **options)
        check_at_least(
            1, embedding_size=embedding_size, hidden_size=hidden_size, num_layers=num_layers
        )
        check_fraction(
            dropout_rate=dropout_rate,
            input_dropout_rate=input_dropout_rate,
            output_dropout_rate=output_dropout_rate,
            weight_dropout_rate=weight_dropout_rate,
            word_dropout_rate=word_dropout_rate,
        )
        check_not_negative(activation_penalty=activation_penalty, temporal_penalty=temporal_penalty)
        self.activation_penalty = activation_penalty
        self.temporal_penalty = temporal_penalty
        units = [*[hidden_size] * (num_layers - 1), embedding_size]
        self.vocabulary_size = vocabulary_size
        self.hidden_size = units[-1]
        scale = keras.initializers.RandomUniform(-EMBEDDING_SCALE, EMBEDDING_SCALE)
        self.embedding = Embedding(
            vocabulary_size, self.hidden_size, initializer=scale, name="embedding"
        )
        self.word_dropout = layers.Dropout(word_dropout_rate, name="word_dropout")
        # The same at every token of a row.
        self.input_dropout = layers.SpatialDropout1D(input_dropout_rate, name="input_dropout")
        self.lstm_layers = [
            WeightDroppedLSTM(size, weight_dropout_rate, name=f"lstm_{index}")
            for index, size in enumerate(units)
        ]
        after = [dropout_rate] * (len(units) - 1) + [output_dropout_rate]
        self.dropouts = [
            layers.SpatialDropout1D(rate, name=f"dropout_{index}")
            for index, rate in enumerate(after)
        ]
        self.projection = Projection(
            vocabulary_size, self.hidden_size, self.embedding, name="projection"
        )
        self.build()

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables of every layer."""
        self.embedding.build()
        size = self.hidden_size
        for layer in self.lstm_layers:
            layer.build((None, None, size))
            size = layer.units
        self.projection.build()

    def hidden(
        self, token_ids: tf.Tensor, state: State | None = None, training: bool = False
    ) -> tuple[tf.Tensor, State]:
        """Returns the inputs of the projection, and the state, as `LanguageModel` does."""
        state = self.zero_state(tf.shape(token_ids)[0]) if state is None else state
        x = self.embedding(token_ids)
        if training and self.word_dropout.rate:
            words = tf.ones([self.vocabulary_size, 1], x.dtype)
            x *= tf.gather(self.word_dropout(words, training=True), token_ids)
        x = self.input_dropout(x, training=training)
        after = []
        for layer, dropout, own in zip(self.lstm_layers, self.dropouts, state, strict=True):
            x, new = layer(x, own, training=training)
            x = dropout(x, training=training)
            after.append(new)
        return x, tuple(after)

    def penalty(self, hidden: tf.Tensor, counted: tf.Tensor) -> tf.Tensor | None:
        """Returns the penalties of the last layer's outputs, as `LanguageModel` does.

        The paper's TAR takes the outputs before dropout; here the factor makes up for what dropout,
        the same at every token, adds to the squares on average.
        """
        if not self.activation_penalty and not self.temporal_penalty:
            return None
        hidden = tf.cast(hidden, self.variable_dtype)  # That of the loss.
        counted = tf.cast(counted, hidden.dtype)
        sizes = tf.reduce_mean(tf.square(hidden), axis=-1) * counted
        moves = hidden[:, 1:] - hidden[:, :-1]
        changes = tf.reduce_mean(tf.square(moves), axis=-1) * counted[:, 1:]
        temporal = self.temporal_penalty * (1 - self.dropouts[-1].rate)
        return self.activation_penalty * tf.reduce_sum(sizes) + temporal * tf.reduce_sum(changes)

    def layers_in_order(self) -> list[list[layers.Layer]]:
        """Returns the layers in the order in which they run; those of a block belong together."""
        blocks = [list(pair) for pair in zip(self.lstm_layers, self.dropouts, strict=True)]
        blocks[0] += [self.word_dropout, self.input_dropout]
        blocks[-1] += [self.projection, self.embedding]  # The same table.
        return blocks

    def state_specs(self) -> tuple[dict[str, tf.TensorSpec], ...]:
        """Returns the specs of one row of the state."""
        rows = [tf.TensorSpec([layer.units], self.compute_dtype) for layer in self.lstm_layers]
        return tuple({"h": row, "c": row} for row in rows)


class WeightDroppedLSTM(layers.Layer):
    """An LSTM layer that drops recurrent weights, the same ones for all rows and tokens of a batch.

    Keras's LSTM takes no mask for its weights; here it runs with values in their place, so that it
    may use its fused kernel. They are made before its loop, which reads no variable.
    """

    def __init__(self, units: int, weight_dropout_rate: float, **options: Any):
        super().__init__(**options)
        self.units = units
        self.lstm = lstm(units, units**-0.5, "lstm")  # The initial values of section 5.
        self.weight_dropout = layers.Dropout(weight_dropout_rate, name="weight_dropout")

    def build(self, input_shape: Any) -> None:
        """Creates the variables."""
        self.lstm.build(input_shape)

    def call(
        self, inputs: tf.Tensor, state: dict[str, tf.Tensor], training: bool = False
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the outputs, [batch, length, units], and the state after the last token.

        Args:
            inputs: [batch, length, size].
            state: h and c, [batch, units] each.
            training: whether weights are dropped.
        """
        dropped = self.lstm.cell.recurrent_kernel
        values = [(variable, variable.value) for variable in self.lstm.variables]
        if training and self.weight_dropout.rate:
            values.append((dropped, self.weight_dropout(dropped.value, training=True)))
        # The inner scope hides an outer one, whose values it takes over.
        with keras.StatelessScope(state_mapping=values):
            outputs, h, c = self.lstm(inputs, initial_state=[state["h"], state["c"]])
        return outputs, {"h": h, "c": c}
