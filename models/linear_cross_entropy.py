"""The output projection and the softmax loss, fused, with a bounded number of logits in memory."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from towers.ground.host import device_type
from towers.ground.private_apis import in_xla, is_op_determinism_enabled
from towers.models.precision import at_least_float32, wide_dtype

CHUNK_SIZE = 1024


class TokenSums(NamedTuple):
    """Sums over tokens.

    Attributes:
        loss: scalar, cross-entropy times the weights.
        correct: scalar, sum of the weights of tokens whose most probable prediction is the label.
    """

    loss: tf.Tensor
    correct: tf.Tensor


class Chunk(NamedTuple):
    """Some of the tokens: hidden [n, units], labels [n], weights [n]."""

    hidden: tf.Tensor
    labels: tf.Tensor
    weights: tf.Tensor


def tower_sums(
    hidden: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    labels: tf.Tensor,
    counted: tf.Tensor,
    *,
    training: bool,
    label_smoothing: float = 0.0,
) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
    """Returns what a tower function does: the summed loss, the number of tokens that count, and
    `{"accuracy": number of them that were the most probable prediction}`.

    Args:
        hidden: floating point [batch, length, units].
        kernel, bias, training, label_smoothing: as in `linear_cross_entropy`.
        labels: int32 [batch, length].
        counted: bool [batch, length], whether a token counts.
    """
    counted = tf.reshape(counted, [-1])
    weights = tf.cast(counted, wide_dtype(hidden.dtype))
    sums = linear_cross_entropy(
        tf.reshape(hidden, [-1, kernel.shape[-1]]),
        kernel,
        bias,
        tf.reshape(labels, [-1]),
        weights,
        training=training,
        label_smoothing=label_smoothing,
        counted=counted,
    )
    return sums.loss, tf.reduce_sum(weights), {"accuracy": sums.correct}


def linear_cross_entropy(
    hidden: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor,
    *,
    training: bool,
    label_smoothing: float = 0.0,
    chunk_size: int = CHUNK_SIZE,
    counted: tf.Tensor | None = None,
) -> TokenSums:
    """Returns the summed loss of the logits `hidden @ kernel^T + bias`, computed in chunks.

    The forward pass also computes the gradients of each chunk, while its softmax is in memory:
    three matrix products in all, as without chunks, and none for tokens of weight zero. Compiled by
    XLA, which must know their number in advance, these count as well.

    Args:
        hidden: floating point [num_tokens, units].
        kernel: [vocabulary, units].
        bias: [vocabulary].
        labels: int32 [num_tokens], each in 0..vocabulary - 1 where the weight is not zero.
        weights: [num_tokens]; 0 for a token that does not count.
        training: whether gradients are computed; they are two thirds of the work.
        label_smoothing: fraction of each target that is spread over the vocabulary.
        chunk_size: the most rows of logits in memory at a time.
        counted: bool [num_tokens], whether the weight of a token is not zero; by default found from
            the weights. The host need not wait for a GPU if it follows from ids alone.
    """
    counted = tf.not_equal(weights, 0) if counted is None else counted
    if in_xla():
        tokens = Chunk(hidden, tf.where(counted, labels, 0), weights)
    else:
        indices = tf.where(counted)[:, 0]
        tokens = Chunk(*(tf.gather(part, indices) for part in (hidden, labels, weights)))
    if not training:
        return forward_sums(tokens, kernel, bias, label_smoothing, chunk_size)

    @tf.custom_gradient
    def with_gradients(hidden: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor):  # type: ignore[no-untyped-def]
        sums, gradients = sums_and_gradients(
            tokens._replace(hidden=hidden), kernel, bias, label_smoothing, chunk_size
        )

        def backward(loss: tf.Tensor, correct: tf.Tensor) -> tuple[tf.Tensor, ...]:
            scaled = [tf.cast(loss, part.dtype) * part for part in gradients]
            pairs = zip(scaled, (hidden, kernel, bias), strict=True)
            return tuple(tf.cast(part, given.dtype) for part, given in pairs)

        return sums, backward

    return TokenSums(*with_gradients(tokens.hidden, kernel, bias))


def forward_sums(
    tokens: Chunk, kernel: tf.Tensor, bias: tf.Tensor, label_smoothing: float, chunk_size: int
) -> TokenSums:
    """Returns the sums without gradients."""

    def add(chunk: Chunk, index: tf.Tensor, *sums: tf.Tensor) -> tuple[tf.Tensor, ...]:
        own, *_ = chunk_sums(chunk, kernel, bias, label_smoothing)
        return tuple(total + part for total, part in zip(sums, own, strict=True))

    chunks = cut(tokens, chunk_size)
    return TokenSums(*over_chunks(add, chunks, [tf.zeros([], tokens.weights.dtype)] * 2))


def sums_and_gradients(
    tokens: Chunk, kernel: tf.Tensor, bias: tf.Tensor, label_smoothing: float, chunk_size: int
) -> tuple[TokenSums, tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
    """Returns the sums, and the loss's gradients with respect to hidden, kernel and bias.

    Those of kernel and bias are sums over the chunks, in at least float32.
    """

    def add(chunk, index, loss, correct, of_kernel, of_bias, parts):  # type: ignore[no-untyped-def]
        own, of_logits, weights = chunk_sums(chunk, kernel, bias, label_smoothing)
        of_logits, weights = (tf.cast(one, kernel.dtype) for one in (of_logits, weights[:, None]))
        # Small matrices are weighted: the logits are read and written as rarely as can be.
        return (
            loss + own.loss,
            correct + own.correct,
            of_kernel
            + at_least_float32(tf.matmul(of_logits, chunk.hidden * weights, transpose_a=True)),
            of_bias + at_least_float32(tf.matmul(weights, of_logits, transpose_a=True)[0]),
            parts.write(index, tf.matmul(of_logits, kernel) * weights),
        )

    chunks = cut(tokens, chunk_size)
    parts = tf.TensorArray(tokens.hidden.dtype, num_chunks(chunks), infer_shape=False)
    of_weights = [at_least_float32(tf.zeros_like(one)) for one in (kernel, bias)]
    zero = tf.zeros([], tokens.weights.dtype)
    initial = [zero, zero, *of_weights, parts]
    loss, correct, of_kernel, of_bias, parts = over_chunks(add, chunks, initial)
    of_hidden = tf.reshape(parts.stack(), tf.shape(chunks.hidden))
    return TokenSums(loss, correct), (joined(of_hidden, tokens.hidden), of_kernel, of_bias)


def log_probabilities(
    hidden: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor
) -> tf.Tensor:
    """Returns the log probability of each label, [num_tokens], with few logits in memory.

    Arguments as in `linear_cross_entropy`; there is no gradient.
    """
    tokens = Chunk(hidden, labels, tf.ones(tf.shape(labels), wide_dtype(hidden.dtype)))

    def add(chunk: Chunk, index: tf.Tensor, parts: tf.TensorArray) -> tuple[tf.TensorArray]:
        losses, *_ = token_losses(chunk_logits(chunk, kernel, bias), chunk.labels, 0.0)
        return (parts.write(index, -losses),)

    chunks = cut(tokens, CHUNK_SIZE)
    parts = tf.TensorArray(tokens.weights.dtype, num_chunks(chunks), infer_shape=False)
    (parts,) = over_chunks(add, chunks, [parts])
    return tf.reshape(parts.stack(), [-1])[: tf.shape(labels)[0]]


def cut(tokens: Chunk, chunk_size: int) -> Chunk:
    """Returns the tokens in equal chunks, as many as are needed, at least one.

    Parts of [n, ...] are [num_chunks, size, ...] with `size <= chunk_size`. Tokens of weight zero
    fill the last chunk: fewer than there are chunks, or one if there was none.
    """
    num_tokens = tf.shape(tokens.labels)[0]
    count = tf.maximum(-(-num_tokens // chunk_size), 1)
    size = tf.maximum(-(-num_tokens // count), 1)

    def cut_part(part: tf.Tensor) -> tf.Tensor:
        rest = [[0, 0]] * (part.shape.rank - 1)
        padded = tf.pad(part, [[0, count * size - num_tokens], *rest])
        return tf.reshape(padded, tf.concat([[count, size], tf.shape(part)[1:]], 0))

    chunks = Chunk(*map(cut_part, tokens))
    # In GPU memory, unlike int32: the loop over the chunks does not ask the host for them.
    return chunks._replace(labels=tf.cast(chunks.labels, tf.int64))


def joined(parts: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Returns what `cut` made of a tensor as it was, [n, units]."""
    return tf.reshape(parts, [-1, like.shape[-1]])[: tf.shape(like)[0]]


def num_chunks(chunks: Chunk) -> tf.Tensor:
    """Returns the number of chunks, an int32 scalar."""
    return tf.shape(chunks.labels)[0]


def over_chunks(add, chunks: Chunk, initial: list) -> list:  # type: ignore[no-untyped-def]
    """Returns the sums after the last chunk; `add(chunk, index, *sums)` returns them after one."""
    count = num_chunks(chunks)

    def step(index: tf.Tensor, *sums: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return (index + 1, *add(Chunk(*(part[index] for part in chunks)), index, *sums))

    _, *sums = tf.while_loop(
        lambda index, *_: index < count,
        step,
        [tf.constant(0), *initial],
        parallel_iterations=1,  # More keep the logits of several chunks in memory.
    )
    return sums


def chunk_logits(chunk: Chunk, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns the logits, [n, vocabulary], in at least float32."""
    logits = tf.nn.bias_add(tf.matmul(chunk.hidden, kernel, transpose_b=True), bias)
    return tf.cast(logits, chunk.weights.dtype)


def chunk_sums(
    chunk: Chunk, kernel: tf.Tensor, bias: tf.Tensor, label_smoothing: float
) -> tuple[TokenSums, tf.Tensor, tf.Tensor]:
    """Returns a chunk's sums, its losses' gradients with respect to the logits, and its weights.

    The gradients, [n, vocabulary], are those without the weights, [n], which are NaN for a label
    outside of the vocabulary.
    """
    losses, of_logits, best = token_losses(
        chunk_logits(chunk, kernel, bias), chunk.labels, label_smoothing
    )
    size = tf.cast(tf.shape(kernel)[0], chunk.labels.dtype)
    nan = tf.constant(float("nan"), chunk.weights.dtype)
    is_token = (chunk.labels >= 0) & (chunk.labels < size)
    weights = tf.where(is_token, chunk.weights, nan)
    correct = tf.cast(tf.equal(best, chunk.labels), weights.dtype)
    sums = TokenSums(tf.reduce_sum(losses * weights), tf.reduce_sum(correct * chunk.weights))
    return sums, of_logits, weights


def token_losses(
    logits: tf.Tensor, labels: tf.Tensor, label_smoothing: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the cross-entropy of each token, its gradient, and the most probable prediction.

    The smoothed target is `(1 - s) * one_hot(label) + s / vocabulary` (Szegedy et al. 2016).

    TensorFlow's kernel for all of it takes twice as long on CPUs: its exponentials are no vectors.

    Args:
        logits: [n, vocabulary], at least float32.
        labels: int64 [n]. On CPUs, one outside of the vocabulary is an error.
        label_smoothing: s.

    Returns:
        The losses [n], the gradients [n, vocabulary], and the predictions, int64 [n].
    """
    likely, best = tf.nn.softmax(logits), tf.argmax(logits, -1, labels.dtype)
    at_best, at_label = of_rows(logits, best), of_rows(logits, labels)
    losses = at_best - at_label - tf.math.log(of_rows(likely, best))
    of_logits = less_at(likely, labels, 1 - label_smoothing)
    if label_smoothing:
        losses += label_smoothing * (at_label - tf.reduce_mean(logits, 1))
        of_logits -= label_smoothing / tf.cast(tf.shape(logits)[1], logits.dtype)
    return losses, of_logits, best


def of_rows(values: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Returns the value in one column of each row, [n]."""
    return tf.gather_nd(values, places(columns))


def less_at(values: tf.Tensor, columns: tf.Tensor, amount: float) -> tf.Tensor:
    """Returns values [n, size] less an amount in one column of each row.

    TensorFlow's deterministic kernel for it copies all of them from a GPU to the host and back.
    """
    if is_op_determinism_enabled() and may_run_on_gpu(values):
        return values - tf.one_hot(columns, tf.shape(values)[1], amount, 0.0, dtype=values.dtype)
    amounts = tf.fill(tf.shape(columns), tf.constant(amount, values.dtype))
    return tf.tensor_scatter_nd_sub(values, places(columns), amounts)


def places(columns: tf.Tensor) -> tf.Tensor:
    """Returns the indices of one column in each row, [n, 2]."""
    rows = tf.range(tf.shape(columns)[0])  # In int32, on the host: GPUs would ask it for int64.
    return tf.stack([tf.cast(rows, columns.dtype), columns], 1)


def may_run_on_gpu(tensor: tf.Tensor) -> bool:
    """Returns whether the tensor's device is a GPU, or is left to a TensorFlow that has GPUs."""
    kind = device_type(tensor.device)
    return bool(tf.config.list_logical_devices("GPU")) if kind is None else kind == "GPU"
