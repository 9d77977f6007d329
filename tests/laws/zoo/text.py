"""Networks for text and sequences of tokens."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.laws.zoo.members import Batch, Member, classified, each_position_classified, tokens

VOCABULARY = 13


class TokensAndPositions(layers.Layer):
    """Adds the embeddings of tokens and of their positions; 0 is padding."""

    def __init__(self, length: int, width: int, **options):
        super().__init__(**options)
        self.words = layers.Embedding(VOCABULARY, width, mask_zero=True)
        self.places = layers.Embedding(length, width)
        self.supports_masking = True

    def build(self, shape):
        self.words.build(shape)
        self.places.build(shape)

    def call(self, ids):
        return self.words(ids) + self.places(ops.arange(ops.shape(ids)[-1]))

    def compute_mask(self, ids, mask=None):
        return ops.not_equal(ids, 0)


class Block(layers.Layer):
    """A Transformer's block; one with a memory attends to that too."""

    def __init__(self, width: int, *, causal: bool = False, remembers: bool = False):
        super().__init__()
        self.causal = causal
        self.attend = layers.MultiHeadAttention(2, width // 2)
        self.look = layers.MultiHeadAttention(2, width // 2) if remembers else None
        self.inner = layers.Dense(2 * width, activation="relu")
        self.outer = layers.Dense(width)
        self.norms = [layers.LayerNormalization() for _ in range(2 + remembers)]
        self.supports_masking = True

    def build(self, shape, *_):
        for attention in (self.attend, self.look):
            if attention is not None:
                attention.build(shape, shape)
        self.inner.build(shape)
        self.outer.build((*shape[:-1], 2 * shape[-1]))
        for norm in self.norms:
            norm.build(shape)

    def call(self, hidden, memory=None):
        attended = self.attend(hidden, hidden, use_causal_mask=self.causal)
        hidden = self.norms[0](hidden + attended)
        if self.look is not None:
            hidden = self.norms[2](hidden + self.look(hidden, memory))
        return self.norms[1](hidden + self.outer(self.inner(hidden)))


def mini_gpt() -> keras.Model:
    """A causal language model."""
    ids = keras.Input((6,), dtype="int32")
    hidden = TokensAndPositions(6, 8)(ids)
    for _ in range(2):
        hidden = Block(8, causal=True)(hidden)
    return keras.Model(ids, layers.Dense(VOCABULARY)(hidden))


class Translator(keras.Model):
    """Vaswani et al. 2017: encoder and decoder."""

    def __init__(self):
        super().__init__()
        self.read, self.write = TokensAndPositions(6, 8), TokensAndPositions(5, 8)
        self.encoder, self.decoder = Block(8), Block(8, causal=True, remembers=True)
        self.logits = layers.Dense(VOCABULARY)

    def call(self, inputs):
        memory = self.encoder(self.read(inputs["source"]))
        return self.logits(self.decoder(self.write(inputs["target"]), memory))


def sentences(random: np.random.Generator, rows: int) -> Batch:
    """Data: source and target sentences of different lengths; 0 is padding."""
    source = random.integers(1, VOCABULARY, (rows, 6)).astype("int32")
    target = random.integers(1, VOCABULARY, (rows, 6)).astype("int32")
    source[np.arange(6) >= random.integers(2, 7, rows)[:, None]] = 0
    target[np.arange(6) >= random.integers(3, 7, rows)[:, None]] = 0
    return {"source": source, "target": target[:, :-1], "next": target[:, 1:]}


def translated(model: keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """The sum over the words of an example that are no padding."""
    logits = model({"source": batch["source"], "target": batch["target"]})
    losses = keras.losses.sparse_categorical_crossentropy(batch["next"], logits, from_logits=True)
    return tf.reduce_sum(losses * tf.cast(batch["next"] > 0, losses.dtype), -1)


def bidirectional() -> keras.Model:
    """A sentiment classifier of two LSTM layers, of which padding is masked."""
    ids = keras.Input((None,), dtype="int32")
    hidden = layers.Embedding(VOCABULARY, 6, mask_zero=True)(ids)
    hidden = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(hidden)
    hidden = layers.Bidirectional(layers.LSTM(4))(hidden)
    return keras.Model(ids, layers.Dense(4)(hidden))


class Seq2Seq(keras.Model):
    """Sutskever et al. 2014, with GRUs and additive attention (Bahdanau et al. 2015)."""

    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(VOCABULARY, 6)
        self.encoder = layers.GRU(5, return_sequences=True, return_state=True)
        self.decoder = layers.GRU(5, return_sequences=True)
        self.attention = layers.AdditiveAttention()
        self.logits = layers.Dense(VOCABULARY)

    def call(self, inputs):
        memory, state = self.encoder(self.table(inputs["source"]))
        said = self.decoder(self.table(inputs["target"]), initial_state=state)
        return self.logits(ops.concatenate([said, self.attention([said, memory])], -1))


def text_cnn() -> keras.Model:
    """Kim 2014."""
    ids = keras.Input((7,), dtype="int32")
    hidden = layers.Embedding(VOCABULARY, 6)(ids)
    found = [
        layers.GlobalMaxPooling1D()(layers.Conv1D(4, width, activation="relu")(hidden))
        for width in (2, 3)
    ]
    return keras.Model(ids, layers.Dense(4)(layers.Concatenate()(found)))


def tied() -> keras.Model:
    """A language model whose table is its output projection (Press and Wolf 2017)."""
    ids = keras.Input((6,), dtype="int32")
    table = layers.ReversibleEmbedding(VOCABULARY, 6)
    hidden = layers.LSTM(6, return_sequences=True)(table(ids))
    return keras.Model(ids, table(hidden, reverse=True))


class Experts(layers.Layer):
    """A switch of experts: each token goes to its likeliest (Fedus et al. 2021)."""

    def __init__(self, width: int, count: int):
        super().__init__()
        self.gate = layers.Dense(count, activation="softmax")
        self.experts = [layers.Dense(width, activation="relu") for _ in range(count)]
        self.supports_masking = True

    def call(self, hidden):
        shares = self.gate(hidden)
        chosen = ops.one_hot(ops.argmax(shares, -1), len(self.experts), dtype=shares.dtype)
        outputs = ops.stack([expert(hidden) for expert in self.experts], -2)
        return ops.sum(ops.expand_dims(shares * chosen, -1) * outputs, -2)


def switch() -> keras.Model:
    """A classifier with a mixture of experts."""
    ids = keras.Input((6,), dtype="int32")
    hidden = TokensAndPositions(6, 8)(ids)
    hidden = layers.LayerNormalization()(hidden + Experts(8, 3)(hidden))
    return keras.Model(ids, layers.Dense(4)(layers.Flatten()(hidden)))


def fourier() -> keras.Model:
    """FNet: a Fourier transform mixes the tokens (Lee-Thorp et al. 2021)."""
    ids = keras.Input((8,), dtype="int32")
    hidden = layers.Embedding(VOCABULARY, 6)(ids)

    def mix(inputs):
        transformed = tf.signal.fft2d(tf.cast(inputs, tf.complex128))
        return tf.cast(tf.math.real(transformed), inputs.dtype)

    hidden = layers.LayerNormalization()(hidden + layers.Lambda(mix)(hidden))
    return keras.Model(ids, layers.Dense(4)(layers.GlobalAveragePooling1D()(hidden)))


def recogniser() -> keras.Model:
    """Speech or handwriting: frames to characters."""
    frames = keras.Input((12, 3))
    hidden = layers.Conv1D(6, 3, padding="same", activation="relu")(frames)
    hidden = layers.Bidirectional(layers.GRU(4, return_sequences=True))(hidden)
    return keras.Model(frames, layers.Dense(6)(hidden))


def spoken(random: np.random.Generator, rows: int) -> Batch:
    """Data: frames and the shorter sequences of their characters."""
    return {
        "x": random.normal(size=(rows, 12, 3)),
        "y": random.integers(1, 6, (rows, 4)).astype("int32"),
        "length": random.integers(1, 5, rows).astype("int32"),
    }


def aligned(model: keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """Graves et al. 2006, connectionist temporal classification."""
    frames = tf.fill([tf.shape(batch["x"])[0]], 12)
    return keras.ops.ctc_loss(batch["y"], model(batch["x"]), batch["length"], frames, 0)


MEMBERS = {
    "mini_gpt": Member(mini_gpt, tokens(6, VOCABULARY), each_position_classified),
    "translator": Member(Translator, sentences, translated),
    "bidirectional_lstm": Member(bidirectional, tokens(6, VOCABULARY, 4), classified),
    "seq2seq": Member(Seq2Seq, sentences, translated),
    "text_cnn": Member(text_cnn, tokens(7, VOCABULARY, 4), classified),
    "tied_language_model": Member(tied, tokens(6, VOCABULARY), each_position_classified),
    "switch_of_experts": Member(switch, tokens(6, VOCABULARY, 4), classified),
    "fourier_mixer": Member(fourier, tokens(8, VOCABULARY, 4), classified),
    "ctc": Member(recogniser, spoken, aligned),
}
