"""Dynamic evaluation: the weights of a language model follow the text that was read.

Krause et al. 2018, "Dynamic Evaluation of Neural Sequence Models" (arXiv:1709.07432), section 5:
gradients divided by the root of their mean square over the training text, and a pull back to the
trained weights, as strong as that root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from towers.ground.arguments import check_above_0, check_not_negative
from towers.models.language_model import LanguageModel, State, cross_entropy

EPSILON = 1e-3  # Of their program, as the decay.
Batch = tuple[tf.Tensor, ...]  # (inputs, targets, starts) of one or more streams.
Sums = tuple[tf.Tensor, tf.Tensor, tf.Tensor]  # Of the loss, of the tokens, of the correct ones.


class DynamicEvaluation:
    """An evaluation whose weights change after each batch, and are the trained ones again later.

    Args:
        model: the trained model, in float32 or float64.
        trained_on: batches of the training text, which tell how large gradients are.
        learning_rate: above 0, such as 0.0007.
        decay: share of its change that an average weight loses with each batch.

    Raises:
        ValueError: a number is out of its range, or there is no batch.
    """

    def __init__(
        self,
        model: LanguageModel,
        trained_on: Iterable[Batch],
        *,
        learning_rate: float,
        decay: float = 0.02,
    ):
        check_above_0(learning_rate=learning_rate)
        check_not_negative(decay=decay)
        self._model = model
        self._weights = model.trainable_variables
        self._trained = [tf.identity(weight.value) for weight in self._weights]
        roots = self._find_roots(trained_on)
        total = tf.add_n([tf.reduce_sum(root) for root in roots])
        size = tf.add_n([tf.size(root, tf.int64) for root in roots])
        mean = total / tf.cast(size, total.dtype)
        self._rates = [learning_rate / (root + EPSILON) for root in roots]
        # A weight never goes further back than to where it began.
        self._pulls = [tf.minimum(decay * root / mean, 1.0) for root in roots]

    def evaluate(
        self, batches: Iterable[Batch], after_batch: Callable[[], object] = lambda: None
    ) -> tuple[float, float, float]:
        """Returns (loss, accuracy, number of tokens) of a text, the first two as means over tokens.

        Each token is predicted before the weights know it.

        Args:
            batches: consecutive parts of the same streams, a few tokens each (5 in the paper).
            after_batch: called after each one.
        """
        try:
            loss, tokens, correct = self._run(batches, self._change, after_batch)
        finally:
            for weight, trained in zip(self._weights, self._trained, strict=True):
                weight.assign(trained)
        return loss / tokens, correct / tokens, tokens

    def _find_roots(self, batches: Iterable[Batch]) -> list[tf.Tensor]:
        """Returns the roots of the mean squares of each weight's gradients, in its shape."""
        squares = [tf.Variable(tf.zeros_like(weight)) for weight in self._trained]
        count = tf.Variable(0, dtype=tf.int64)

        def note(gradients: Sequence[tf.Tensor]) -> None:
            count.assign_add(1)
            for total, gradient in zip(squares, gradients, strict=True):
                total.assign_add(tf.square(gradient))

        self._run(batches, note)
        if not count.numpy():
            raise ValueError(
                "Dynamic evaluation needs batches of the training text. Received none."
            )
        return [tf.sqrt(total / tf.cast(count, total.dtype)) for total in squares]

    def _change(self, gradients: Sequence[tf.Tensor]) -> None:
        for weight, trained, rate, pull, gradient in zip(
            self._weights, self._trained, self._rates, self._pulls, gradients, strict=True
        ):
            value = weight.value
            weight.assign(value + pull * (trained - value) - rate * gradient)

    def _run(
        self,
        batches: Iterable[Batch],
        use: Callable[[Sequence[tf.Tensor]], None],
        after_batch: Callable[[], object] = lambda: None,
    ) -> tuple[float, float, float]:
        """Returns the sums of loss, tokens and correct ones; `use` gets each batch's gradients."""
        step = tf.function(lambda batch, state: self._step(batch, state, use))
        totals, state = [0.0, 0.0, 0.0], None
        for batch in batches:
            if state is None:
                state = self._model.zero_state(len(batch[0]))
            sums, state = step(batch, state)
            totals = [total + float(part) for total, part in zip(totals, sums, strict=True)]
            after_batch()
        return totals[0], totals[1], totals[2]

    def _step(
        self, batch: Batch, state: State, use: Callable[[Sequence[tf.Tensor]], None]
    ) -> tuple[Sums, State]:
        inputs, targets, *_ = batch
        values = [weight.value for weight in self._weights]
        with tf.GradientTape() as tape:
            hidden, state = self._model.hidden(inputs, state, training=False)
            loss, tokens, metrics = cross_entropy(self._model, hidden, targets, training=True)
            mean = loss / tf.maximum(tokens, 1.0)
        found = tape.gradient(mean, values, unconnected_gradients="zero")
        use([tf.convert_to_tensor(gradient) for gradient in found])
        return (loss, tokens, metrics["accuracy"]), state
