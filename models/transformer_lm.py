"""A decoder-only Transformer language model: pre-norm, rotary positions, grouped heads, tied.

Every token attends to itself and to the `window` tokens before it, so that a text read in pieces,
each with the keys and values of the piece before, gives the numbers of the text read at once.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from towers.ground.arguments import check_at_least, check_choice, check_fraction
from towers.models.grouped_attention import GroupedAttention
from towers.models.language_model import LanguageModel
from towers.models.text_layers import Embedding, FeedForward, Projection

FEED_FORWARDS = ("gelu", "swiglu")
INITIAL_SCALE = 0.02  # With larger ones the tied table predicts that each token comes again.
State = dict[str, Any]  # present: [batch, window]; layers: keys and values of each layer.


class Block(layers.Layer):
    """A layer of the Transformer: attention and feed-forward, each `x + dropout(part(norm(x)))`."""

    def __init__(
        self,
        attention: GroupedAttention,
        feed_forward: FeedForward,
        dropout_rate: float,
        **options: Any,
    ):
        super().__init__(**options)
        self.attention, self.feed_forward = attention, feed_forward
        self.norms = [
            layers.LayerNormalization(dtype=self.dtype_policy, name=f"norm_{index}")
            for index in range(2)
        ]
        self.dropouts = [
            layers.Dropout(dropout_rate, dtype=self.dtype_policy, name=f"dropout_{index}")
            for index in range(2)
        ]

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables."""
        for norm in self.norms:
            norm.build((None, None, self.attention.size))
        self.attention.build()
        self.feed_forward.build()

    def call(
        self,
        inputs: tf.Tensor,
        memory: dict[str, tf.Tensor] | None,
        present: tf.Tensor | None,
        training: bool = False,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the outputs, [batch, length, size], and the memory after the last token.

        Args:
            inputs: [batch, length, size].
            memory, present: as in `GroupedAttention`.
            training: whether dropout is on.
        """
        attended, memory = self.attention(self.norms[0](inputs), memory, present)
        x = inputs + self.dropouts[0](attended, training=training)
        outputs = self.feed_forward(self.norms[1](x))
        return x + self.dropouts[1](outputs, training=training), memory


@keras.saving.register_keras_serializable(package="towers")
class TransformerLanguageModel(LanguageModel):
    """From tokens to the logits of the next tokens; it is built when it is made.

    The decoder of Vaswani et al. 2017 with the normalisation before each part (Xiong et al. 2020),
    rotary positions (Su et al. 2021) and keys and values that groups of heads share (Ainslie et
    al. 2023, "GQA"). The output projection is the embedding table (Press and Wolf 2017), which
    begins with the standard deviation of GPT-2 (Radford et al. 2019): all tokens are about as
    likely then.

    Args:
        vocabulary_size: number of ids.
        size: of the vectors between the layers.
        heads: attention heads; `size` is an even multiple of them.
        key_value_heads: heads of the keys and values; `heads` is a multiple of them.
        feed_forward_size: units of the hidden layer of each feed-forward part.
        feed_forward: gelu, or swiglu (Shazeer 2020, "GLU Variants Improve Transformer").
        num_layers: number of layers.
        window: how many earlier tokens a token attends to. Each layer looks that much further
            back (Child et al. 2019; Dai et al. 2019 for the carried keys and values).
        dropout_rate: fraction of numbers dropped after each part and from the embeddings.
        name, options: of every Keras model.
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        size: int = 256,
        heads: int = 4,
        key_value_heads: int = 2,
        feed_forward_size: int = 1024,
        feed_forward: str = "swiglu",
        num_layers: int = 4,
        window: int = 128,
        dropout_rate: float = 0.1,
        name: str = "transformer_lm",
        **options: Any,
    ):
        super().__init__(name=name, **options)
        check_at_least(1, feed_forward_size=feed_forward_size, num_layers=num_layers)
        check_fraction(dropout_rate=dropout_rate)
        check_choice("feed_forward", feed_forward, FEED_FORWARDS)
        gated = feed_forward == "swiglu"
        blocks = [
            Block(
                GroupedAttention(size, heads, key_value_heads, window, name="attention"),
                FeedForward(size, feed_forward_size, gated=gated, name="feed_forward"),
                dropout_rate,
                name=f"block_{index}",
            )
            for index in range(num_layers)
        ]
        self.window = window
        self.hidden_size = size
        self.embedding = Embedding(vocabulary_size, size, scale=INITIAL_SCALE, name="embedding")
        self.embedding_dropout = layers.Dropout(dropout_rate, name="embedding_dropout")
        self.blocks = blocks
        self.norm = layers.LayerNormalization(name="norm")
        self.projection = Projection(vocabulary_size, size, self.embedding, name="projection")
        self.build()

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables of every layer."""
        self.embedding.build()
        for block in self.blocks:
            block.build()
        self.norm.build((None, None, self.hidden_size))
        self.projection.build()

    def hidden(
        self, token_ids: tf.Tensor, state: State | None = None, training: bool = False
    ) -> tuple[tf.Tensor, State]:
        """Returns the inputs of the projection, and the state, as `LanguageModel` does.

        The state has the keys and values before the first token.
        """
        x = self.embedding(token_ids) * tf.constant(self.hidden_size**0.5, self.compute_dtype)
        x = self.embedding_dropout(x, training=training)
        present = None if state is None else state["present"]
        memories = [None] * len(self.blocks) if state is None else state["layers"]
        after = []
        for block, memory in zip(self.blocks, memories, strict=True):
            x, new = block(x, memory, present, training=training)
            after.append(new)
        return self.norm(x), {"present": self._advance(present, x), "layers": tuple(after)}

    def layers_in_order(self) -> list[list[layers.Layer]]:
        """Returns the layers in the order in which they run; those of a block belong together."""
        blocks: list[list[layers.Layer]] = [[block] for block in self.blocks]
        table = [self.projection, self.embedding]  # They have one.
        blocks[-1] += [self.norm, *table, self.embedding_dropout]
        return blocks

    def _advance(self, present: tf.Tensor | None, x: tf.Tensor) -> tf.Tensor:
        """Returns which positions of the memory hold a token after those of x."""
        own = tf.ones(tf.shape(x)[:2], x.dtype)
        before = tf.zeros([tf.shape(x)[0], self.window], x.dtype) if present is None else present
        return tf.ensure_shape(tf.concat([before, own], 1)[:, -self.window :], [None, self.window])

    def state_specs(self) -> State:
        """Returns the specs of one row of the state."""
        memory_size = self.blocks[0].attention.memory_size
        memory = tf.TensorSpec([self.window, memory_size], self.compute_dtype)
        return {
            "present": tf.TensorSpec([self.window], self.compute_dtype),
            "layers": tuple({"keys": memory, "values": memory} for _ in self.blocks),
        }
