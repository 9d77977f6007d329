"""Questions to answers: a bidirectional encoder, attention, and a deep decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras import layers

from towers.ground.arguments import check_at_least, check_choice, check_fraction
from towers.ground.private_apis import in_xla
from towers.ground.special_ids import PAD
from towers.models.answering import AnsweringModel
from towers.models.attention import KINDS, Attention, Memory
from towers.models.recurrent import GRU, LSTM
from towers.models.text_layers import Embedding, Projection

CELLS = {"lstm": LSTM, "gru": GRU}


class State(NamedTuple):
    """The state of the decoder between two tokens.

    Attributes:
        cells: the states of each layer, [batch, hidden_size] each.
        attended: [batch, output size], the last attentional vector; an input with input feeding.
        memory: the encoder's outputs.
    """

    cells: tuple[tuple[tf.Tensor, ...], ...]
    attended: tf.Tensor
    memory: Memory


@keras.saving.register_keras_serializable(package="towers")
class Seq2Seq(AnsweringModel):
    """From (question, answer inputs) to logits, with recurrent layers; it is built when it is made.

    Padding changes nothing: an answer's logits do not depend on the padding of its question. No
    layer receives a mask, so that each can use its fused kernel: the backward direction reads the
    question reversed by its true length, and a dense layer computes the decoder's first state from
    the encoder's outputs at the true ends (Bahdanau et al. 2015, section A.2.2).

    Args:
        vocabulary_size: number of ids, which questions and answers share.
        cell: lstm or gru.
        embedding_size: dimension of the token vectors.
        hidden_size: units of each decoder layer, and of both directions of an encoder layer
            together; even.
        encoder_layers: number of bidirectional layers.
        decoder_layers: number of layers of the decoder.
        attention: luong, luong_scaled or bahdanau.
        input_feeding: whether the decoder's input includes the attentional vector of the previous
            token (Luong et al. 2015, section 3.3). The decoder then runs token by token, without
            the kernels for whole sequences.
        tied_output: whether the output projection is the embedding table (Press and Wolf 2017).
        residual: whether each layer adds its input to its output, if both have the same size; with
            embedding_size equal to hidden_size the encoder's outputs contain the embeddings of the
            words, which makes it easy to repeat them.
        dropout_rate: fraction of activations dropped between layers in training.
        name, options: of every Keras model.
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        cell: str = "lstm",
        embedding_size: int = 256,
        hidden_size: int = 256,
        encoder_layers: int = 1,
        decoder_layers: int = 1,
        attention: str = "luong",
        input_feeding: bool = False,
        tied_output: bool = False,
        residual: bool = False,
        dropout_rate: float = 0.0,
        name: str = "seq2seq",
        **options: Any,
    ):
        super().__init__(name=name, **options)
        check_at_least(
            1,
            embedding_size=embedding_size,
            hidden_size=hidden_size,
            encoder_layers=encoder_layers,
            decoder_layers=decoder_layers,
        )
        check_fraction(dropout_rate=dropout_rate)
        check_choice("cell", cell, CELLS)
        check_choice("attention", attention, KINDS)
        if hidden_size % 2:
            raise ValueError(
                f"hidden_size must be even, half for each direction. Received {hidden_size}."
            )
        self.input_feeding = input_feeding
        self.residual = residual
        self.hidden_size = hidden_size
        self.tied_output = tied_output
        # A table that is also the output projection must give small logits at first.
        scale = embedding_size**-0.5 if tied_output else 1.0
        self.embedding = Embedding(vocabulary_size, embedding_size, scale=scale, name="embedding")
        self.forward_layers = [
            recurrent(cell, hidden_size // 2, f"encoder_forward_{index}")
            for index in range(encoder_layers)
        ]
        self.backward_layers = [
            recurrent(cell, hidden_size // 2, f"encoder_backward_{index}")
            for index in range(encoder_layers)
        ]
        self.decoder_layers = [
            recurrent(cell, hidden_size, f"decoder_{index}") for index in range(decoder_layers)
        ]
        states = 2 if cell == "lstm" else 1
        self.bridges = [
            [
                layers.Dense(hidden_size, activation="tanh", name=f"bridge_{index}_{state}")
                for state in range(states)
            ]
            for index in range(decoder_layers)
        ]
        self.attention = Attention(attention, hidden_size, name="attention")
        self.output_size = embedding_size if tied_output else hidden_size
        self.combine = layers.Dense(
            self.output_size, activation="tanh", use_bias=False, name="combine"
        )
        self.projection = Projection(
            vocabulary_size,
            self.output_size,
            self.embedding if tied_output else None,
            name="projection",
        )
        self.dropouts = [
            layers.Dropout(dropout_rate, name=f"dropout_{index}")
            for index in range(encoder_layers + decoder_layers + 1)
        ]
        self.build()

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables of every layer."""
        hidden, embedded = self.hidden_size, self.embedding.size
        self.embedding.build()
        for index, pair in enumerate(zip(self.forward_layers, self.backward_layers, strict=True)):
            for layer in pair:
                layer.build((None, None, hidden if index else embedded))
        for index, layer in enumerate(self.decoder_layers):
            fed = self.output_size if self.input_feeding and index == 0 else 0
            layer.build((None, None, hidden if index else embedded + fed))
        for bridges in self.bridges:
            for bridge in bridges:
                bridge.build((None, hidden))
        self.attention.build()
        self.combine.build((None, None, 2 * hidden))
        self.projection.build()

    def hidden(
        self, question: tf.Tensor, answer_inputs: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Returns the inputs of the projection, [batch, answer_length, output size]."""
        with tf.name_scope("encoder"):
            state = self.start(question, training=training)
        with tf.name_scope("decoder"):
            inputs = self.embedding(answer_inputs)
            if self.input_feeding:
                return self._fed(inputs, state, training)
            for index, layer in enumerate(self.decoder_layers):
                x = self._drop(len(self.forward_layers) + index, inputs, training)
                outputs, *_ = layer(x, initial_state=list(state.cells[index]))
                inputs = self._add(inputs, outputs)
            attended = self._attended(self.attention(inputs, state.memory), inputs)
            return self._drop(len(self.dropouts) - 1, attended, training)

    def start(self, question: tf.Tensor, training: bool = False) -> State:
        """Returns the state before the first token of the answers.

        Args:
            question: int32 [batch, question_length], padded at the end.
            training: whether dropout is on.
        """
        mask = tf.not_equal(question, PAD)
        # The first token always counts: attention needs something.
        mask = tf.concat([tf.ones_like(mask[:, :1]), mask[:, 1:]], 1)
        lengths = tf.reduce_sum(tf.cast(mask, tf.int32), 1)
        outputs, ends = self._encode(question, lengths, training)
        cells = tuple(tuple(bridge(ends) for bridge in bridges) for bridges in self.bridges)
        attended = tf.zeros([tf.shape(question)[0], self.output_size], ends.dtype)
        return State(cells, attended, self.attention.remember(outputs, mask))

    def step(self, tokens: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        """Returns the logits after one more token, float32 [batch, vocabulary], and the state.

        Args:
            tokens: int32 [batch], the previous tokens.
            state: of `start`, or of the previous step.
        """
        attended, state = self._advance(self.embedding(tokens), state)
        return self.projection(attended), state

    def attention_weights(self, question: tf.Tensor, answer_inputs: tf.Tensor) -> tf.Tensor:
        """Returns how much each answer token attends to each question token; rows have sum 1.

        Args:
            question: int32 [batch, question_length].
            answer_inputs: int32 [batch, answer_length], of known length: the decoder's inputs.

        Returns:
            Floating point [batch, answer_length, question_length], 0 at padding of the question.
        """
        state = self.start(question)
        weights = []
        for tokens in tf.unstack(answer_inputs, axis=1):
            inputs = self.embedding(tokens)
            queries, _ = self._query(inputs, state)
            weights.append(self.attention.weights_of(queries[:, None, :], state.memory)[:, 0])
            _, state = self._advance(inputs, state)
        return tf.stack(weights, 1)

    def layers_in_order(self) -> list[list[layers.Layer]]:
        """Returns the layers in the order in which they run; those of a block belong together."""
        count = len(self.forward_layers)
        encoder = [
            list(one)
            for one in zip(self.forward_layers, self.backward_layers, self.dropouts, strict=False)
        ]
        decoder = [
            [*bridges, layer, dropout]
            for bridges, layer, dropout in zip(
                self.bridges, self.decoder_layers, self.dropouts[count:], strict=False
            )
        ]
        decoder[-1] += [self.attention, self.combine, self.dropouts[-1], self.projection]
        home = decoder[-1] if self.tied_output else encoder[0]
        home.append(self.embedding)
        return [*encoder, *decoder]

    def _encode(
        self, question: tf.Tensor, lengths: tf.Tensor, training: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all outputs, [batch, length, hidden_size], and the last of both directions."""
        inputs = self.embedding(question)
        pairs = zip(self.forward_layers, self.backward_layers, strict=True)
        for index, (ahead, back) in enumerate(pairs):
            x = self._drop(index, inputs, training)
            forward = ahead(x)[0]
            backward = reverse(back(reverse(x, lengths))[0], lengths)
            inputs = self._add(inputs, tf.concat([forward, backward], -1))
        last = tf.gather(forward, lengths - 1, batch_dims=1)
        return inputs, tf.concat([last, backward[:, 0]], -1)

    def _fed(self, inputs: tf.Tensor, state: State, training: bool) -> tf.Tensor:
        """Returns the attentional vectors with input feeding, token by token."""
        masks = self._masks(inputs, training)
        length = tf.shape(inputs)[1]
        outputs = tf.TensorArray(inputs.dtype, length, element_shape=state.attended.shape)
        steps = tf.transpose(inputs, [1, 0, 2])

        def advance(index, cells, attended, outputs):  # type: ignore[no-untyped-def]
            now = State(cells, attended, state.memory)
            attended, after = self._advance(steps[index], now, masks)
            return index + 1, after.cells, attended, outputs.write(index, attended)

        *_, outputs = tf.while_loop(
            lambda index, *_: index < length,
            advance,
            (tf.constant(0), state.cells, state.attended, outputs),
            # XLA reserves memory for the gradients of so many. Else it is a second condition, which
            # a GPU would compute while the host waits for each token.
            maximum_iterations=length if in_xla() else None,
        )
        return self._drop(
            len(self.dropouts) - 1, tf.transpose(outputs.stack(), [1, 0, 2]), training
        )

    def _masks(self, inputs: tf.Tensor, training: bool) -> list[tf.Tensor]:
        """Returns the dropout masks of the inputs of each decoder layer.

        They are the same for all tokens of an answer (Gal and Ghahramani 2016), because a loop
        body cannot use a layer's seed.
        """
        if not training:
            return []
        sizes = [inputs.shape[-1]] + [self.hidden_size] * (len(self.decoder_layers) - 1)
        ones = [tf.ones([tf.shape(inputs)[0], size], inputs.dtype) for size in sizes]
        first = len(self.forward_layers)
        return [self._drop(first + index, one, training) for index, one in enumerate(ones)]

    def _advance(
        self, inputs: tf.Tensor, state: State, masks: Sequence[tf.Tensor] = ()
    ) -> tuple[tf.Tensor, State]:
        """Returns the attentional vector after one token, [batch, output size], and the state."""
        queries, cells = self._query(inputs, state, masks)
        context = self.attention(queries[:, None, :], state.memory)[:, 0]
        attended = self._attended(context, queries)
        return attended, State(cells, attended, state.memory)

    def _query(
        self, inputs: tf.Tensor, state: State, masks: Sequence[tf.Tensor] = ()
    ) -> tuple[tf.Tensor, tuple[tuple[tf.Tensor, ...], ...]]:
        """Returns the last layer's output after one token, [batch, hidden_size], and all states."""
        cells = []
        for index, layer in enumerate(self.decoder_layers):
            x = inputs * masks[index] if masks else inputs
            if self.input_feeding and index == 0:
                x = tf.concat([x, state.attended], -1)
            outputs, after = layer.cell(x, list(state.cells[index]))
            cells.append(tuple(after) if isinstance(after, (list, tuple)) else (after,))
            inputs = self._add(inputs, outputs)
        return inputs, tuple(cells)

    def _attended(self, context: tf.Tensor, queries: tf.Tensor) -> tf.Tensor:
        """Returns tanh(C [context; query]), Luong et al. 2015, equation 5."""
        return self.combine(tf.concat([context, queries], -1))

    def _add(self, inputs: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Returns a layer's outputs, plus its inputs if the model is residual and they fit."""
        fits = inputs.shape[-1] == outputs.shape[-1]
        return inputs + outputs if self.residual and fits else outputs

    def _drop(self, index: int, x: tf.Tensor, training: bool) -> tf.Tensor:
        return self.dropouts[index](x, training=training)


def recurrent(cell: str, units: int, name: str) -> layers.Layer:
    """Returns a recurrent layer that returns all outputs and its last states."""
    return CELLS[cell](units, return_sequences=True, return_state=True, name=name)


def reverse(x: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns each row of [batch, length, ...] reversed up to its length; padding stays."""
    return tf.reverse_sequence(x, lengths, seq_axis=1, batch_axis=0)
