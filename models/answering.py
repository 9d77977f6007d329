"""The interface of question-answering models, and their loss as a tower function."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from towers.ground.arguments import check_fraction
from towers.ground.special_ids import PAD, START, UNKNOWN
from towers.models.linear_cross_entropy import tower_sums
from towers.models.losses import TowerFn
from towers.models.text_layers import Projection, TextModel


class AnsweringModel(TextModel):
    """The base of networks that answer, or the interface of one of your own.

    Attributes:
        projection: from hidden vectors to logits.
    """

    projection: Projection

    def call(self, inputs: tuple[tf.Tensor, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Returns the logits of each answer token, [batch, answer_length, vocabulary].

        Args:
            inputs: question int32 [batch, question_length], and the decoder's inputs int32
                [batch, answer_length]: a start token and the answer without its last token.
            training: whether dropout is on.
        """
        question, answer_inputs = inputs
        return self.projection(self.hidden(question, answer_inputs, training=training))

    def hidden(
        self, question: tf.Tensor, answer_inputs: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Returns the inputs of the projection, [batch, answer_length, size].

        Args:
            question: int32 [batch, question_length].
            answer_inputs: int32 [batch, answer_length], of `decoder_inputs`.
            training: whether dropout is on.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define `hidden`, the inputs of its projection."
        )


def answering(model: AnsweringModel, *, training: bool, label_smoothing: float = 0.0) -> TowerFn:
    """Returns `tower_fn((question, answer)) -> (loss_sum, weight, metrics)`.

    Question and answer are int32 [batch, length], padded at the end; an answer ends with its end
    token. The results are scalars, summed over the tokens of the answers that are
    neither padding nor unknown: the unknown token is never a target, so that the model does not
    learn to generate it.

    - loss_sum: cross-entropy, float32 or, of a float64 model, float64.
    - weight: number of these tokens.
    - metrics: `{"accuracy": number of them that were the most probable prediction}`.

    Args:
        model: the model.
        training: whether dropout is on and gradients are computed.
        label_smoothing: fraction of each target that is spread over the vocabulary.
    """
    check_fraction(label_smoothing=label_smoothing)

    def tower_fn(shard: Any) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        question, answer = shard
        hidden = model.hidden(question, decoder_inputs(answer), training=training)
        with tf.name_scope("loss"):
            counted = (answer != PAD) & (answer != UNKNOWN)
            return tower_sums(
                hidden,
                *model.projection.weights_and_bias(),
                answer,
                counted,
                training=training,
                label_smoothing=label_smoothing,
            )

    return tower_fn


def decoder_inputs(answer: tf.Tensor) -> tf.Tensor:
    """Returns the decoder's inputs for an answer: the start token, then all but its last token."""
    return tf.concat([tf.fill(tf.stack([tf.shape(answer)[0], 1]), START), answer[:, :-1]], 1)
