"""Text and other sequences: masks, recurrent layers, attention, translation, tags, captions."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.kinds.registry import (
    Program,
    adam,
    batches,
    kind,
    labels,
    pictures,
    sgd,
    tokens,
    vectors,
)

CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy
VOCABULARY = 11


def embedding(width: int = 4, *, mask: bool = True) -> keras.layers.Layer:
    return layers.Embedding(VOCABULARY, width, mask_zero=mask)


def review_classifier(*body, data=None) -> Program:
    """Returns a classifier of token ids [rows, 6] by what the body makes of them."""
    model = keras.Sequential([*body, layers.Dense(1, "sigmoid")])
    model.compile(sgd(), "binary_crossentropy", metrics=["accuracy"])
    return Program(model, batches((tokens(6, VOCABULARY), labels(2, 1))), {"epochs": 2})


@kind()
def reviews_by_a_convnet() -> Program:
    return review_classifier(
        embedding(mask=False), layers.Conv1D(4, 3, activation="relu"), layers.GlobalMaxPooling1D()
    )


@kind()
def reviews_by_a_masked_mean() -> Program:
    return review_classifier(embedding(), layers.GlobalAveragePooling1D())


@kind()
def reviews_by_a_bidirectional_lstm() -> Program:
    return review_classifier(
        embedding(),
        layers.Bidirectional(layers.LSTM(3)),
    )


@kind()
def reviews_by_a_gru() -> Program:
    return review_classifier(embedding(), layers.GRU(5))


class TransformerBlock(layers.Layer):
    """Attention and a feed-forward part, each with a residual and a normalisation."""

    def __init__(self, width=4, heads=2):
        super().__init__()
        self.attention = layers.MultiHeadAttention(heads, width)
        self.forward = keras.Sequential([layers.Dense(8, "relu"), layers.Dense(width)])
        self.norms = [layers.LayerNormalization(epsilon=1e-6) for _ in range(2)]
        self.supports_masking = True

    def call(self, x, training=False, use_causal_mask=False):
        x = self.norms[0](x + self.attention(x, x, use_causal_mask=use_causal_mask))
        return self.norms[1](x + self.forward(x))


class Positions(layers.Layer):
    """Embeddings of tokens and of their places."""

    def __init__(self, width=4):
        super().__init__()
        self.ids, self.places = embedding(width), layers.Embedding(8, width)

    def call(self, ids):
        return self.ids(ids) + self.places(ops.arange(ops.shape(ids)[-1]))

    def compute_mask(self, ids, mask=None):
        return self.ids.compute_mask(ids)


@kind()
def reviews_by_a_transformer() -> Program:
    return review_classifier(Positions(), TransformerBlock(), layers.GlobalAveragePooling1D())


@kind(repeated_rows=True)
def reviews_by_a_transformer_and_adam() -> Program:
    """Positions are looked up once for all rows, thus on each tower."""
    program = review_classifier(Positions(), TransformerBlock(), layers.GlobalAveragePooling1D())
    program.model.compile(adam(), "binary_crossentropy", metrics=["accuracy"])
    return program


class Mixing(layers.Layer):
    """Fourier transforms over places and features, in place of attention."""

    def call(self, x):
        return ops.fft2((x, ops.zeros_like(x)))[0]


@kind()
def reviews_by_fourier_transforms() -> Program:
    return review_classifier(embedding(mask=False), Mixing(), layers.Flatten())


@kind()
def miniature_gpt() -> Program:
    ids = keras.Input((6,), dtype="int32")
    hidden = TransformerBlock()(Positions()(ids), use_causal_mask=True)
    logits = layers.Dense(VOCABULARY)(hidden)
    model = keras.Model(ids, [logits, hidden])
    model.compile(sgd(0.05), [CROSS_ENTROPY(from_logits=True), None])
    x = tokens(7, VOCABULARY)
    return Program(model, batches((x[:, :-1], x[:, 1:])))


@kind()
def characters_by_an_lstm() -> Program:
    model = keras.Sequential([keras.Input((5, 7)), layers.LSTM(6), layers.Dense(7, "softmax")])
    model.compile(keras.optimizers.RMSprop(0.01, epsilon=1e-3), "categorical_crossentropy")
    return Program(model, batches((np.eye(7)[labels(7, 5)], np.eye(7)[labels(7)])))


@kind()
def translation_by_lstms() -> Program:
    """The encoder's states begin the decoder."""
    source, target = keras.Input((5, 6)), keras.Input((4, 6))
    _, *states = layers.LSTM(5, return_state=True)(source)
    decoded, _, _ = layers.LSTM(5, return_sequences=True, return_state=True)(
        target, initial_state=states
    )
    model = keras.Model([source, target], layers.Dense(6, "softmax")(decoded))
    model.compile(sgd(), "categorical_crossentropy", metrics=["accuracy"])
    x, y = np.eye(6)[labels(6, 5)], np.eye(6)[labels(6, 5)]
    return Program(model, batches(((x, y[:, :-1]), y[:, 1:])))


@kind()
def translation_with_attention() -> Program:
    source = keras.Input((6,), dtype="int32", name="source")
    target = keras.Input((6,), dtype="int32", name="target")
    encoded = layers.Bidirectional(layers.GRU(3, return_sequences=True))(embedding()(source))
    decoded = layers.GRU(6, return_sequences=True)(embedding()(target))
    context = layers.AdditiveAttention()([decoded, encoded])
    logits = layers.Dense(VOCABULARY)(layers.Concatenate()([decoded, context]))
    model = keras.Model({"source": source, "target": target}, logits)
    loss = CROSS_ENTROPY(from_logits=True, ignore_class=0)
    model.compile(sgd(0.05), loss, metrics=["accuracy"])
    x = tokens(7, VOCABULARY)
    return Program(model, batches(({"source": x[::-1, :-1], "target": x[:, :-1]}, x[:, 1:])))


@kind()
def translation_by_a_transformer() -> Program:
    source, target = keras.Input((6,), dtype="int32"), keras.Input((6,), dtype="int32")
    encoded = TransformerBlock()(Positions()(source))
    decoded = TransformerBlock()(Positions()(target), use_causal_mask=True)
    crossed = layers.MultiHeadAttention(2, 4)(decoded, encoded) + decoded
    logits = layers.Dense(VOCABULARY, "softmax")(crossed)
    model = keras.Model([source, target], logits)
    model.compile(sgd(0.05), CROSS_ENTROPY(), weighted_metrics=["accuracy"])
    x = tokens(7, VOCABULARY)
    weights = (x[:, 1:] > 0).astype("float64")
    return Program(model, batches(((x[::-1, :-1], x[:, :-1]), x[:, 1:], weights)))


class MaskedLanguage(keras.Model):
    """Hidden tokens are weights of rows in the data; one loss and its metric in the step."""

    def train_step(self, inputs):
        features, targets, weights = inputs
        with tf.GradientTape() as tape:
            predictions = self(features, training=True)
            losses = keras.losses.sparse_categorical_crossentropy(targets, predictions)
            loss = ops.sum(losses * weights) / ops.sum(weights)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.tracker.update_state(losses, sample_weight=weights)
        return {"loss": self.tracker.result()}

    @property
    def metrics(self):
        return [self.tracker]


@kind("own step")
def masked_language_model() -> Program:
    ids = keras.Input((6,), dtype="int32")
    outputs = layers.Dense(VOCABULARY, "softmax")(TransformerBlock()(Positions()(ids)))
    model = MaskedLanguage(ids, outputs)
    model.tracker = keras.metrics.Mean("loss")
    model.compile(sgd(0.05))
    x, hidden = tokens(6, VOCABULARY), labels(3, 6) == 0
    return Program(model, batches((np.where(hidden, 1, x), x, hidden.astype("float64") + 0.01)))


class Captioner(keras.Model):
    """Frozen features, an encoder, a decoder; the captions of each picture one after the other."""

    def __init__(self):
        super().__init__()
        self.features = keras.Sequential([layers.Conv2D(3, 2), layers.Reshape((9, 3))])
        self.features.trainable = False
        self.encoder = layers.Dense(4, "relu")
        self.places, self.block = Positions(), TransformerBlock()
        self.cross, self.logits = layers.MultiHeadAttention(1, 4), layers.Dense(VOCABULARY)
        self.tracker = keras.metrics.Mean("loss")
        self.accuracy = keras.metrics.Mean("accuracy")

    @property
    def metrics(self):
        return [self.tracker, self.accuracy]

    def decode(self, encoded, ids, mask):
        decoded = self.block(self.places(ids), training=True, use_causal_mask=True)
        crossed = self.cross(decoded, encoded, query_mask=mask)
        return ops.softmax(self.logits(decoded + crossed))

    def train_step(self, data):
        images, captions = data
        features = self.features(images)
        total = total_accuracy = 0.0
        for number in range(2):
            with tf.GradientTape() as tape:
                encoded = self.encoder(features, training=True)
                asked, truth = captions[:, number, :-1], captions[:, number, 1:]
                mask = ops.not_equal(truth, 0)
                predicted = self.decode(encoded, asked, mask)
                losses = keras.losses.sparse_categorical_crossentropy(truth, predicted)
                known = ops.cast(mask, losses.dtype)
                loss = ops.sum(losses * known) / ops.sum(known)
                hit = ops.cast(ops.equal(truth, ops.argmax(predicted, 2)), losses.dtype)
                total += loss / 2
                total_accuracy += ops.sum(hit * known) / ops.sum(known) / 2
            weights = self.trainable_variables
            gradients = tape.gradient(loss, weights)
            self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        self.tracker.update_state(total)
        self.accuracy.update_state(total_accuracy)
        return {"loss": self.tracker.result(), "acc": self.accuracy.result()}


@kind("own step")
def image_captioning() -> Program:
    model = Captioner()
    model.compile(sgd(0.05))
    captions = np.stack([tokens(6, VOCABULARY), tokens(6, VOCABULARY)[::-1]], 1)
    return Program(model, batches((pictures(4), captions)))


class TagLoss(keras.losses.Loss):
    """Over all tokens of the batch that are not padding: a sum over a sum."""

    def __call__(self, y_true, y_pred, sample_weight=None):
        losses = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
        known = ops.cast(y_true > 0, losses.dtype)
        return ops.sum(losses * known) / ops.sum(known)


@kind(couples=True)
def named_entities_with_a_loss_of_one_number() -> Program:
    ids = keras.Input((6,), dtype="int32")
    logits = layers.Dense(4)(TransformerBlock()(Positions()(ids)))
    model = keras.Model(ids, logits)
    model.compile(sgd(0.05), TagLoss())
    x = tokens(6, VOCABULARY)
    return Program(model, batches((x, np.where(x > 0, 1 + x % 3, 0))), {"epochs": 2})


@kind()
def parts_of_speech_with_a_mask() -> Program:
    model = keras.Sequential(
        [
            embedding(), layers.LSTM(5, return_sequences=True),
            layers.TimeDistributed(layers.Dense(4)),
        ]
    )  # fmt: skip
    model.compile(sgd(), CROSS_ENTROPY(from_logits=True), metrics=["sparse_categorical_accuracy"])
    x = tokens(6, VOCABULARY)
    return Program(model, batches((x, x % 4)), {"epochs": 2})


class CtcLayer(layers.Layer):
    """The endpoint of handwriting and captcha readers: it adds the loss that it computes."""

    def call(self, y_true, y_pred):
        rows, frames = ops.shape(y_pred)[0], ops.shape(y_pred)[1]
        lengths = ops.ones((rows,), "int32")
        losses = ops.ctc_loss(y_true, y_pred, 3 * lengths, frames * lengths, mask_index=4)
        self.add_loss(ops.mean(losses))
        return y_pred


@kind(tolerance=1e-6)  # TensorFlow computes CTC in float32.
def captcha_reader_with_ctc() -> Program:
    images, texts = keras.Input((6, 4, 1)), keras.Input((3,), dtype="int32")
    hidden = layers.Conv2D(3, 3, padding="same", activation="relu")(images)
    hidden = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(
        layers.Reshape((6, 12))(hidden)
    )
    outputs = CtcLayer()(texts, layers.Dense(5)(hidden))
    model = keras.Model([images, texts], outputs)
    model.compile(sgd(0.05))
    x = vectors(24).reshape(24, 6, 4, 1)
    return Program(model, batches(((x, labels(4, 3)),)))


@kind(tolerance=1e-6)
def speech_with_a_ctc_function() -> Program:
    def loss(y_true, y_pred):
        rows = ops.ones((ops.shape(y_pred)[0],), "int32")
        return ops.ctc_loss(y_true, y_pred, 3 * rows, 6 * rows, mask_index=4)

    model = keras.Sequential(
        [keras.Input((6, 3)), layers.GRU(4, return_sequences=True), layers.Dense(5)]
    )
    model.compile(sgd(0.05), loss)
    return Program(model, batches((vectors(18).reshape(24, 6, 3), labels(4, 3))))


class Siamese(keras.Model):
    """Distances to a like and an unlike row; the margin's loss in the step."""

    def __init__(self):
        super().__init__()
        self.body = keras.Sequential([embedding(), layers.LSTM(4)])
        self.tracker = keras.metrics.Mean("loss")

    @property
    def metrics(self):
        return [self.tracker]

    def call(self, triple):
        anchor, like, unlike = (self.body(part) for part in triple)
        return ops.sum((anchor - like) ** 2, -1), ops.sum((anchor - unlike) ** 2, -1)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            near, far = self(data)
            loss = ops.maximum(near - far + 0.5, 0.0)
        gradients = tape.gradient(loss, self.body.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.body.trainable_weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


@kind("own step")
def siamese_with_triplets() -> Program:
    """A loss of one number for each row, whose sum the tape takes."""
    model = Siamese()
    model.compile(sgd(0.02))
    x = tokens(6, VOCABULARY)
    return Program(model, batches((x, x[::-1], np.roll(x, 5, 0))), {"epochs": 2})


class Speech(keras.Model):
    """Sounds to letters by a transformer, with `loss` and mask by hand, and a test step."""

    def __init__(self):
        super().__init__()
        self.listen = keras.Sequential(
            [layers.Conv1D(4, 3, strides=2, padding="same", activation="relu"), TransformerBlock()]
        )
        self.places, self.block = Positions(), TransformerBlock()
        self.cross, self.classifier = layers.MultiHeadAttention(2, 4), layers.Dense(VOCABULARY)
        self.tracker = keras.metrics.Mean("loss")

    def call(self, inputs):
        sounds, ids = inputs
        decoded = self.block(self.places(ids), use_causal_mask=True)
        return self.classifier(decoded + self.cross(decoded, self.listen(sounds)))

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, batch):
        sounds, target = batch["source"], batch["target"]
        with tf.GradientTape() as tape:
            predicted = self([sounds, target[:, :-1]])
            one_hot = ops.one_hot(target[:, 1:], VOCABULARY)
            mask = ops.not_equal(target[:, 1:], 0)
            loss = self.compute_loss(None, one_hot, predicted, sample_weight=mask)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


@kind("own step")
def speech_by_a_transformer() -> Program:
    model = Speech()
    model.compile(sgd(0.05), keras.losses.CategoricalCrossentropy(from_logits=True))
    sounds = vectors(24).reshape(24, 8, 3)
    return Program(model, batches({"source": sounds, "target": tokens(6, VOCABULARY)}))


class Matching(keras.Model):
    """Two texts, one encoder, and similarities judged by one number of the whole batch."""

    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([embedding(), layers.GlobalAveragePooling1D()])

    def call(self, pair):
        one, other = (self.encoder(pair[:, side]) for side in range(2))
        return ops.sum(one * other, -1)


@kind()
def semantic_similarity() -> Program:
    model = Matching()
    model.compile(sgd(0.05), "mse", metrics=["mae", keras.metrics.RootMeanSquaredError()])
    x = np.stack([tokens(6, VOCABULARY), tokens(6, VOCABULARY)[::-1]], 1)
    return Program(model, batches((x, vectors(1)[:, 0])))
