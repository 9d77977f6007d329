"""What every language model is: a state in, the inputs of an output projection and a state out."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from towers.models.projection import Projection

State = Any  # A nest of tensors with rows as their first dimension; zeros before the first token.


class LanguageModel(keras.Model):
    """The base of language models, which define `hidden` and `state_specs`.

    Attributes:
        hidden_size: of the inputs of the output projection.
        padding_id: of targets that do not count.
        projection: the output projection.
    """

    hidden_size: int
    padding_id: int
    projection: Projection

    def call(self, token_ids: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the logits of the token after each token, [batch, length, vocabulary].

        Args:
            token_ids: int32 [batch, length]; nothing comes before.
            training: whether dropout is on.
        """
        hidden, _ = self.hidden(token_ids, training=training)
        return self.projection(hidden)

    def hidden(
        self, token_ids: tf.Tensor, state: State | None = None, training: bool = False
    ) -> tuple[tf.Tensor, State]:
        """Returns the inputs of the projection, [batch, length, hidden_size], and the state.

        Args:
            token_ids: int32 [batch, length].
            state: before the first token, by default zero.
            training: whether dropout is on.
        """
        raise NotImplementedError

    def state_specs(self) -> Any:
        """Returns the specs of one row of the state."""
        raise NotImplementedError

    def step(self, tokens: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        """Returns the logits after one more token, [batch, vocabulary], and the new state.

        Args:
            tokens: int32 [batch].
            state: before these tokens.
        """
        hidden, state = self.hidden(tokens[:, None], state)
        return self.projection(hidden[:, 0]), state

    def kernel_and_bias(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the output projection, [vocabulary, hidden_size] and [vocabulary]."""
        return self.projection.weights_and_bias()

    @property
    def output_bias(self) -> keras.Variable:
        """The bias of the output projection, [vocabulary]."""
        return self.projection.bias

    def zero_state(self, batch_size: int | tf.Tensor) -> State:
        """Returns the state before the first token, `batch_size` rows."""
        return tf.nest.map_structure(
            lambda spec: tf.zeros(tf.stack([batch_size, *spec.shape]), spec.dtype),
            self.state_specs(),
        )
