"""A chatbot as a plain Keras program trains it, judged as `towers evaluate` judges a run."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import layers

from benchmarks.fit import open_model
from benchmarks.rivals import keras_batches
from towers.models.answering import AnsweringModel
from towers.models.text_layers import Projection
from towers.scripts.chatbot.ranking import score_answers
from towers.scripts.shown import show
from towers.scripts.training.recipe import Data, Recipe, perplexity
from towers.scripts.wrong_input import wrong_input

State = tuple[tf.Tensor, tf.Tensor]


class PlainSeq2Seq(AnsweringModel):
    """Sutskever et al. 2014 (arXiv:1409.3215) in Keras's layers: one LSTM reads, another answers.

    It has what Keras's own example of a seq2seq model has: no attention, and a table of embeddings
    for each side beside the output projection.

    Args:
        vocabulary_size: number of ids, which questions and answers share.
        size: of the embeddings and of both LSTM layers.
    """

    def __init__(self, vocabulary_size: int, size: int, **options: Any):
        super().__init__(**options)
        self.questions = layers.Embedding(vocabulary_size, size, mask_zero=True, name="questions")
        self.encoder = layers.LSTM(size, return_state=True, name="encoder")
        self.answers = layers.Embedding(vocabulary_size, size, name="answers")
        self.decoder = layers.LSTM(size, return_sequences=True, return_state=True, name="decoder")
        self.projection = Projection(vocabulary_size, size, None, name="projection")
        self.output_size = size
        self.projection.build()

    def hidden(
        self, question: tf.Tensor, answer_inputs: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Returns the inputs of the projection, [batch, answer_length, size]."""
        state = list(self.start(question))
        outputs, *_ = self.decoder(self.answers(answer_inputs), initial_state=state)
        return outputs

    def start(self, question: tf.Tensor) -> State:
        """Returns the encoder's last state, of questions int32 [batch, question_length]."""
        _, hidden, cell = self.encoder(self.questions(question))
        return hidden, cell

    def step(self, tokens: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        """Returns the logits after one more token, float32 [batch, vocabulary], and the state."""
        inputs = self.answers(tokens[:, None])
        outputs, hidden, cell = self.decoder(inputs, initial_state=list(state))
        return self.projection(outputs[:, 0]), (hidden, cell)


class Budget(keras.callbacks.Callback):
    """Ends a training after so many seconds of processor time of the process, from now on."""

    def __init__(self, seconds: float):
        super().__init__()
        self.end = time.process_time() + seconds

    @property
    def is_spent(self) -> bool:
        """Whether the time is over."""
        return time.process_time() >= self.end

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Ends the epoch when the time is over."""
        self.model.stop_training = self.is_spent


def train(
    recipe: Recipe, data: Sequence[str] | None, seed: int, minutes: float
) -> dict[str, float]:
    """Trains by `fit` on the batches of the recipe chatbot, and returns the metrics of the best.

    The best weights are those after the epoch with the lowest perplexity of the held-out pairs.

    Args:
        recipe: the recipe; its network is not used.
        data: the files, None for the embedded dialogues.
        seed: of the initial values and of the data's order.
        minutes: of processor time for all epochs, with their evaluation.

    Raises:
        WrongInputError: the recipe is another one, or the data cannot be used.
    """
    with wrong_input():
        if recipe.make_answer_evaluator is None or recipe.command != "chat":
            raise ValueError(f"This trains the recipe chatbot. Received {recipe.name}.")
        plain = dataclasses.replace(recipe, make_model=make_model, initialize=None)
        model, batches = open_model(plain, 1, data, seed)
        evaluator = recipe.make_answer_evaluator(recipe.fields, model, batches)
        if evaluator is None:
            raise ValueError("This trains a model that answers; leave out --set direction.")
    score, budget = score_answers(model), Budget(60 * minutes)
    best, weights, epoch = math.inf, model.get_weights(), 0
    while epoch < recipe.fields.epochs and not budget.is_spent:
        pairs = keras_batches(recipe, batches.train(epoch, 0))
        model.fit(pairs, shuffle=False, verbose=0, callbacks=[budget])
        epoch += 1
        found = perplexity(mean_loss(score, batches.test(0, 0)))
        show(f"epoch {epoch} | held-out perplexity {found:.1f}", flush=True)
        if found < best:
            best, weights = found, model.get_weights()
    model.set_weights(weights)
    metrics = {"perplexity": best, "epochs": epoch, **evaluator.evaluate(show)}
    show(" | ".join(f"{name} {value:.4g}" for name, value in metrics.items()), flush=True)
    return metrics


def make_model(fields: Any, data: Data) -> PlainSeq2Seq:
    """Returns the network, of the recipe's size."""
    return PlainSeq2Seq(len(data.text.vocabulary), fields.hidden_size)


def mean_loss(score: Any, pairs: tf.data.Dataset) -> float:
    """Returns the mean loss of an answer's token in nats, by a function of `score_answers`."""
    gained, tokens = sum(score(*pair).numpy().astype("float64").sum(1) for pair in pairs)
    return float(-gained / tokens)
