"""Questions to answers by a Transformer: pre-norm encoder and decoder, rotary positions."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras import layers

from towers.ground.arguments import check_at_least, check_fraction
from towers.ground.special_ids import PAD
from towers.models.answering import AnsweringModel
from towers.models.multi_head import KeysAndValues, MultiHeadAttention
from towers.models.text_layers import Embedding, FeedForward, Projection


class DecoderState(NamedTuple):
    """The state of the decoder between two tokens.

    Attributes:
        caches: the keys and values of the tokens so far, for each layer.
        memories: the keys and values of the question, for each layer.
        visible: bool [batch, 1, 1, question_length], False at padding.
    """

    caches: tuple[KeysAndValues, ...]
    memories: tuple[KeysAndValues, ...]
    visible: tf.Tensor


class Sublayer(layers.Layer):
    """A part of a Transformer layer: `x + dropout(part(norm(x)))`."""

    def __init__(self, part: MultiHeadAttention | FeedForward, dropout_rate: float, **options: Any):
        super().__init__(**options)
        self.part = part
        self.norm = layers.LayerNormalization(dtype=self.dtype_policy, name="norm")
        self.dropout = layers.Dropout(dropout_rate, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables."""
        self.norm.build((None, None, self.part.size))
        self.part.build()

    def call(
        self,
        inputs: tf.Tensor,
        *,
        memory: KeysAndValues | None = None,
        visible: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Returns the outputs, [batch, length, size].

        Args:
            inputs: [batch, length, size].
            memory: of an attention to something else; None for self-attention.
            visible: which positions the inputs attend to; None for all.
            training: whether dropout is on.
        """
        x = self.norm(inputs)
        if isinstance(self.part, MultiHeadAttention):
            memory = self.part.remember(x) if memory is None else memory
            outputs = self.part(x, memory, visible)
        else:
            outputs = self.part(x)
        return inputs + self.dropout(outputs, training=training)

    def advance(self, inputs: tf.Tensor, cache: KeysAndValues) -> tuple[tf.Tensor, KeysAndValues]:
        """Returns the self-attention of one more token, [batch, 1, size], and the longer cache."""
        x, position = self.norm(inputs), tf.shape(cache.keys)[2]
        own = self.part.remember(x, position)
        cache = KeysAndValues(
            *(tf.concat([old, new], 2) for old, new in zip(cache, own, strict=True))
        )
        return inputs + self.part(x, cache, None, position), cache


@keras.saving.register_keras_serializable(package="towers")
class Transformer(AnsweringModel):
    """From (question, answer inputs) to logits, with attention alone; it is built when it is made.

    The encoder-decoder of Vaswani et al. 2017 with the normalisation before each part (Xiong et
    al. 2020, "On Layer Normalization in the Transformer Architecture") and rotary positions in
    self-attention (Su et al. 2021).

    Padding changes nothing: nothing attends to it.

    Args:
        vocabulary_size: number of ids, which questions and answers share.
        size: of the vectors between the layers.
        heads: attention heads; `size` is an even multiple of them.
        feed_forward_size: units of the hidden layer of each feed-forward part.
        encoder_layers: number of layers that read the question.
        decoder_layers: number of layers that write the answer.
        tied_output: whether the output projection is the embedding table (Press and Wolf 2017).
        dropout_rate: fraction of numbers dropped after each part and from the embeddings, in
            training.
        name, options: of every Keras model.
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        size: int = 256,
        heads: int = 4,
        feed_forward_size: int = 1024,
        encoder_layers: int = 2,
        decoder_layers: int = 2,
        tied_output: bool = True,
        dropout_rate: float = 0.0,
        name: str = "transformer",
        **options: Any,
    ):
        super().__init__(name=name, **options)
        check_at_least(
            1,
            feed_forward_size=feed_forward_size,
            encoder_layers=encoder_layers,
            decoder_layers=decoder_layers,
        )
        check_fraction(dropout_rate=dropout_rate)
        self.output_size = size
        self.tied_output = tied_output

        def attention(name: str, *, rotary: bool) -> Sublayer:
            return Sublayer(MultiHeadAttention(size, heads, rotary=rotary), dropout_rate, name=name)

        def feed_forward(name: str) -> Sublayer:
            return Sublayer(FeedForward(size, feed_forward_size), dropout_rate, name=name)

        self.embedding = Embedding(vocabulary_size, size, scale=size**-0.5, name="embedding")
        self.embedding_dropout = layers.Dropout(dropout_rate, name="embedding_dropout")
        self.encoder = [
            (
                attention(f"encoder_{index}_self", rotary=True),
                feed_forward(f"encoder_{index}_feed_forward"),
            )
            for index in range(encoder_layers)
        ]
        self.decoder = [
            (
                attention(f"decoder_{index}_self", rotary=True),
                attention(f"decoder_{index}_cross", rotary=False),
                feed_forward(f"decoder_{index}_feed_forward"),
            )
            for index in range(decoder_layers)
        ]
        self.encoder_norm = layers.LayerNormalization(name="encoder_norm")
        self.decoder_norm = layers.LayerNormalization(name="decoder_norm")
        table = self.embedding if tied_output else None
        self.projection = Projection(vocabulary_size, size, table, name="projection")
        self.build()

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables of every layer."""
        self.embedding.build()
        for parts in (*self.encoder, *self.decoder):
            for part in parts:
                part.build()
        for norm in (self.encoder_norm, self.decoder_norm):
            norm.build((None, None, self.output_size))
        self.projection.build()

    def hidden(
        self, question: tf.Tensor, answer_inputs: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Returns the inputs of the projection, [batch, answer_length, size]."""
        with tf.name_scope("encoder"):
            memories, visible = self._encode(question, training)
        with tf.name_scope("decoder"):
            causal = causal_of(answer_inputs)
            x = self._embed(answer_inputs, training)
            for (own, cross, feed_forward), memory in zip(self.decoder, memories, strict=True):
                x = own(x, visible=causal, training=training)
                x = cross(x, memory=memory, visible=visible, training=training)
                x = feed_forward(x, training=training)
            return self.decoder_norm(x)

    def attention_weights(self, question: tf.Tensor, answer_inputs: tf.Tensor) -> tf.Tensor:
        """Returns how much each answer token attends to each question token, as `Seq2Seq` does.

        They are means over the decoder's layers and heads.
        """
        memories, visible = self._encode(question, training=False)
        causal = causal_of(answer_inputs)
        x, weights = self._embed(answer_inputs, training=False), []
        for (own, cross, feed_forward), memory in zip(self.decoder, memories, strict=True):
            x = own(x, visible=causal)
            weights.append(cross.part.weights_of(cross.norm(x), memory, visible))
            x = feed_forward(cross(x, memory=memory, visible=visible))
        return tf.reduce_mean(tf.stack(weights), [0, 2])

    def start(self, question: tf.Tensor, training: bool = False) -> DecoderState:
        """Returns the state before the first token of the answers; arguments as in `Seq2Seq`."""
        memories, visible = self._encode(question, training)
        empty = memories[0].keys[:, :, :0]
        caches = tuple(KeysAndValues(empty, empty) for _ in self.decoder)
        return DecoderState(caches, memories, visible)

    def step(self, tokens: tf.Tensor, state: DecoderState) -> tuple[tf.Tensor, DecoderState]:
        """Returns the logits after one more token, and the state, as `Seq2Seq` does."""
        x, caches = self._embed(tokens[:, None], training=False), []
        layers_and_states = zip(self.decoder, state.caches, state.memories, strict=True)
        for (own, cross, feed_forward), cache, memory in layers_and_states:
            x, cache = own.advance(x, cache)
            x = feed_forward(cross(x, memory=memory, visible=state.visible))
            caches.append(cache)
        logits = self.projection(self.decoder_norm(x)[:, 0])
        return logits, state._replace(caches=tuple(caches))

    def layers_in_order(self) -> list[list[layers.Layer]]:
        """Returns the layers in the order in which they run; those of a block belong together."""
        encoder, decoder = (
            [list(parts) for parts in side] for side in (self.encoder, self.decoder)
        )
        encoder[-1].append(self.encoder_norm)
        decoder[-1] += [self.decoder_norm, self.projection]
        home = decoder[-1] if self.tied_output else encoder[0]
        home += [self.embedding, self.embedding_dropout]
        return [*encoder, *decoder]

    def _embed(self, tokens: tf.Tensor, training: bool) -> tf.Tensor:
        """Returns vectors of about unit variance, [batch, length, size]."""
        x = self.embedding(tokens) * tf.constant(self.output_size**0.5, self.compute_dtype)
        return self.embedding_dropout(x, training=training)

    def _encode(
        self, question: tf.Tensor, training: bool
    ) -> tuple[tuple[KeysAndValues, ...], tf.Tensor]:
        """Returns the keys and values for each decoder layer, and which positions are visible."""
        # In a question of padding alone all are: a softmax needs something.
        visible = tf.not_equal(question, PAD)
        visible |= ~tf.reduce_any(visible, 1, keepdims=True)
        visible = visible[:, None, None, :]
        x = self._embed(question, training)
        for own, feed_forward in self.encoder:
            x = feed_forward(own(x, visible=visible, training=training), training=training)
        x = self.encoder_norm(x)
        return tuple(cross.part.remember(x) for _, cross, _ in self.decoder), visible


def causal_of(answer_inputs: tf.Tensor) -> tf.Tensor:
    """Returns which positions of an answer each one sees: itself and those before it."""
    positions = tf.range(tf.shape(answer_inputs)[1])
    return positions[:, None] >= positions
