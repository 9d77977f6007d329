"""The interface of language models, and their losses as tower functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.ground.special_ids import PAD
from towers.models.linear_cross_entropy import tower_sums
from towers.models.losses import TowerFn
from towers.models.text_layers import Projection, TextModel

State = Any  # A nest of tensors with rows as their first dimension; zeros before the first token.
StatefulTowerFn = Callable[[Any, State], tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor], State]]


class LanguageModel(TextModel):
    """The base of language models, which define `hidden` and `state_specs`.

    Attributes:
        hidden_size: of the inputs of the output projection.
        projection: the output projection.
    """

    hidden_size: int
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
        raise NotImplementedError(
            f"{type(self).__name__} must define `hidden`, the inputs of its projection."
        )

    def state_specs(self) -> Any:
        """Returns the specs of one row of the state."""
        raise NotImplementedError(
            f"{type(self).__name__} must define `state_specs`, the state that it carries."
        )

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

    def penalty(self, hidden: tf.Tensor, counted: tf.Tensor) -> tf.Tensor | None:
        """Returns what training adds to the sum of the loss, in its dtype, or None for nothing.

        Args:
            hidden: the inputs of the projection in training, [batch, length, hidden_size].
            counted: bool [batch, length], False for padding.
        """
        return None

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


def streams(model: LanguageModel, *, training: bool) -> StatefulTowerFn:
    """Returns `tower_fn((inputs, targets, starts), state) -> (loss_sum, weight, metrics, state)`.

    inputs and targets are int32 [batch, steps]; starts is bool [batch], True for rows whose state
    is reset to zero. The results are scalars, summed over the targets that are not padding:

    - loss_sum: cross-entropy, in training with the model's `penalty`; float32 or, of a float64
      model, float64.
    - weight: number of these tokens.
    - metrics: `{"accuracy": number of them that were the most probable prediction}`.
    - state: for the next batch.
    """

    def tower_fn(
        batch: Sequence[tf.Tensor], state: State
    ) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor], State]:
        inputs, targets, starts = batch
        state = tf.nest.map_structure(
            lambda part: tf.where(over_rows(starts, part), tf.zeros_like(part), part), state
        )
        hidden, state = model.hidden(inputs, state, training=training)
        return *token_sums(model, hidden, targets, training), state

    return tower_fn


def over_rows(starts: tf.Tensor, part: tf.Tensor) -> tf.Tensor:
    """Returns starts [batch] in a shape that broadcasts over a part of a state, [batch, ...]."""
    return tf.reshape(starts, [-1] + [1] * (part.shape.rank - 1))


def sentences(model: LanguageModel, *, training: bool) -> TowerFn:
    """Returns `tower_fn((inputs, targets)) -> (loss_sum, weight, metrics)`, as in `streams`.

    Each row is one example, int32 [batch, length], padded at the end.
    """

    def tower_fn(batch: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        inputs, targets = batch
        hidden, _ = model.hidden(inputs, training=training)
        return token_sums(model, hidden, targets, training)

    return tower_fn


def token_sums(
    model: LanguageModel, hidden: tf.Tensor, targets: tf.Tensor, training: bool
) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
    """Returns the loss, the weight and the metrics of `streams`; arguments as `cross_entropy`."""
    loss, weight, metrics = cross_entropy(model, hidden, targets, training)
    with tf.name_scope("penalty"):
        penalty = model.penalty(hidden, tf.not_equal(targets, PAD)) if training else None
        return loss if penalty is None else loss + penalty, weight, metrics


def cross_entropy(
    model: LanguageModel, hidden: tf.Tensor, targets: tf.Tensor, training: bool
) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
    """Returns what `token_sums` does, without the model's `penalty`.

    Args:
        model: whose projection is used.
        hidden: its inputs, [batch, steps, hidden_size].
        targets: int32 [batch, steps].
        training: whether gradients are computed.
    """
    with tf.name_scope("loss"):
        counted = tf.not_equal(targets, PAD)
        return tower_sums(hidden, *model.kernel_and_bias(), targets, counted, training=training)
