"""Causal attention with rotary positions, grouped heads, and a memory of the tokens before."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from towers.ground.arguments import check_at_least
from towers.models.multi_head import MultiHeadAttention, rotate, softmax_of_scores


class GroupedAttention(MultiHeadAttention):
    """Attention of each token to itself and to the `window` tokens before it.

    Several heads share their keys and values (Ainslie et al. 2023, "GQA: Training Generalized
    Multi-Query Transformer Models", section 2.2). The memory holds keys that are not rotated yet:
    only distances count (Su et al. 2021), so positions begin anew with each memory and do not grow
    with the text. Keras's `GroupQueryAttention` has neither rotation nor memory.

    Args:
        size: of the inputs and outputs, an even multiple of `heads`.
        heads: number of heads, a multiple of `key_value_heads`.
        key_value_heads: number of heads of the keys and values.
        window: how many earlier tokens a token attends to.
        options: of every Keras layer.
    """

    def __init__(self, size: int, heads: int, key_value_heads: int, window: int, **options: Any):
        check_at_least(1, key_value_heads=key_value_heads, window=window)
        super().__init__(size, heads, rotary=True, key_value_heads=key_value_heads, **options)
        if heads % key_value_heads:
            raise ValueError(
                "heads must be a multiple of key_value_heads. Received "
                f"heads={heads} and key_value_heads={key_value_heads}."
            )
        self.key_value_heads = key_value_heads
        self.window = window

    def call(  # type: ignore[override]
        self,
        inputs: tf.Tensor,
        memory: dict[str, tf.Tensor] | None = None,
        present: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the outputs, [batch, length, size], and the memory after the last token.

        Args:
            inputs: [batch, length, size].
            memory: `keys` and `values` of the window before, [batch, window, memory_size]; None
                for none.
            present: [batch, window], 1 where the memory holds a token and 0 elsewhere.
        """
        own = {"keys": self.key(inputs), "values": self.value(inputs)}
        seen = own if memory is None else _joined(memory, own)
        num_before = 0 if memory is None else self.window
        visible = self._visible(tf.shape(inputs)[1], num_before, present)
        queries = rotate(self._in_heads(self.query(inputs)), num_before)
        outputs = self._attend(queries, seen, visible)
        attended = tf.reshape(tf.transpose(outputs, [0, 2, 1, 3]), tf.shape(inputs))
        if memory is None:
            batch_size = tf.shape(inputs)[0]
            nothing = tf.zeros([batch_size, self.window, self.memory_size], inputs.dtype)
            seen = _joined({"keys": nothing, "values": nothing}, own)
        shape = [None, self.window, self.memory_size]
        last = {
            name: tf.ensure_shape(part[:, -self.window :], shape) for name, part in seen.items()
        }
        return self.output_layer(attended), last

    def _attend(
        self, queries: tf.Tensor, seen: dict[str, tf.Tensor], visible: tf.Tensor
    ) -> tf.Tensor:
        """Returns the values that the queries select, [batch, heads, length, head size].

        Args:
            queries: [batch, heads, length, head size], rotated.
            seen: the keys, not rotated, and the values, [batch, number seen, memory_size].
            visible: bool [batch or 1, 1, 1, length, number seen].
        """
        keys, values = rotate(self._in_heads(seen["keys"])), self._in_heads(seen["values"])
        batch, _, length, size = tf.unstack(tf.shape(queries))
        groups = tf.stack([batch, self.key_value_heads, -1, length, size])
        weights = softmax_of_scores(tf.reshape(queries, groups), keys[:, :, None], visible)
        weights = tf.cast(weights, values.dtype)
        return tf.reshape(tf.matmul(weights, values[:, :, None]), tf.shape(queries))

    def _visible(self, length: tf.Tensor, num_before: int, present: tf.Tensor | None) -> tf.Tensor:
        """Returns which tokens each token attends to, bool [batch or 1, 1, 1, length, seen]."""
        positions = tf.range(num_before + length)
        distances = positions[num_before:, None] - positions
        visible = ((distances >= 0) & (distances <= self.window))[None]
        if present is not None:
            own = tf.ones(tf.stack([tf.shape(present)[0], length]), tf.bool)
            visible &= tf.concat([present > 0, own], 1)[:, None]
        return visible[:, None, None]


def _joined(before: dict[str, tf.Tensor], own: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns keys and values one after the other."""
    return {name: tf.concat([before[name], own[name]], 1) for name in own}
