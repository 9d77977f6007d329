"""Training by `keras.Model.fit`, with the data, the actions and the checkpoints of the towers."""

from __future__ import annotations

import time
import types
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.loop.trainer import NonFiniteGradientError, Position, StepReport, Trainer
from towers.scripts.baselines.rivals import Task, compile_model, keras_batches
from towers.step.gradients import global_norm
from towers.step.parameters import SharedVariables
from towers.step.results import StepResults, TowerResults


class FitStep:
    """A model compiled for `fit`, with what `FitTrainer` and a checkpoint need of a step.

    Args:
        model: the session's model.
        task: what is trained.
        device: where.

    Attributes:
        devices, parameter_device, shared, optimizer, loss_scale, carried: as in `TrainStep`;
            what is carried are the states of Keras's seed generators.
        num_copies: 1.
        graph: None, since `fit` builds its own when it runs.
        model: the model.
        notes: the norm of the latest gradient and the learning rate that was used, [2].
    """

    def __init__(self, model: keras.Model, task: Task, device: str):
        compile_model(model, task, [NumLabels(name="weight", dtype="float32")])
        model.optimizer.build(model.trainable_variables)
        self.notes = note_gradients(model.optimizer)
        self.model = model
        self.devices = (device,)
        self.parameter_device = device
        self.num_copies = 1
        self.graph = None
        self.shared = SharedVariables(model.variables, [])
        self.optimizer = model.optimizer
        self.loss_scale = None
        self.carried = types.SimpleNamespace(variables=self.shared.seeds)
        self._task = task

    def check_parameters(self) -> None:
        """Does nothing: there is one copy."""

    def batches(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns batches as `fit` takes them."""
        return keras_batches(self._task._replace(dataset=dataset))

    def results(self, logs: dict[str, Any]) -> StepResults:
        """Returns the results of the step that `fit` has done, given what it logs of it alone."""
        norm, learning_rate = tf.unstack(self.notes.value)
        loss, accuracy, weight = (
            tf.convert_to_tensor(logs[name]) for name in ("loss", "accuracy", "weight")
        )
        metrics = {"accuracy": accuracy}
        return StepResults(
            loss=loss,
            weight=weight,
            metrics=metrics,
            gradient_norm=norm,
            learning_rate=learning_rate,
            finite=tf.math.is_finite(norm),
            loss_scale=tf.ones([]),
            towers=TowerResults(loss[None], weight[None], {"accuracy": accuracy[None]}, norm[None]),
        )


class NumLabels(keras.metrics.Sum):
    """How many labels of a batch count: those of examples, or those of tokens but for padding."""

    def update_state(self, labels: Any, outputs: Any, sample_weight: Any = None) -> None:
        """Adds a batch's."""
        super().update_state(tf.ones_like(labels) if sample_weight is None else sample_weight)


def note_gradients(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """Returns a variable in which an optimizer's `apply` notes the norm and the learning rate.

    `fit` itself tells neither. The norm is that of the gradient before it is clipped.
    """
    notes = keras.Variable("zeros", shape=(2,), dtype="float32", trainable=False, name="notes")
    apply = optimizer.apply

    def noting(gradients: Sequence[Any], variables: Any = None) -> None:
        dense = [None if part is None else tf.convert_to_tensor(part) for part in gradients]
        rate = tf.cast(optimizer.learning_rate, tf.float32)
        notes.assign(tf.stack([global_norm(dense), rate]))
        apply(gradients, variables)

    optimizer.apply = noting
    return notes


class FitTrainer(Trainer):
    """The training loop by `model.fit`, epoch after epoch, with the same data and actions.

    How long a batch was waited for is a part of its step's time that `fit` does not tell.
    """

    _train_step: Any  # A FitStep in place of a TrainStep.
    _started = 0.0

    def _train_epoch(self, steps: int | None) -> None:
        begin = self.position
        dataset = self._batches(begin.epoch, begin.epoch_step)
        if steps is not None:
            dataset = dataset.take(steps - begin.step)
        callback = keras.callbacks.LambdaCallback(
            on_train_batch_begin=self._begin_step, on_train_batch_end=self._end_step
        )
        self._train_step.model.fit(
            self._train_step.batches(dataset), shuffle=False, verbose=0, callbacks=[callback]
        )

    def _begin_step(self, batch: int, logs: Any = None) -> None:
        self._train_step.model.reset_metrics()  # Else they are means over the epoch so far.
        self._started = time.perf_counter()

    def _end_step(self, batch: int, logs: dict[str, Any]) -> None:
        results = self._train_step.results(logs)
        seconds = time.perf_counter() - self._started
        before, batches = self.position, self._batches
        step, epoch_step = before.step + 1, before.epoch_step + 1
        epoch_end = epoch_step == getattr(batches, "steps_per_epoch")  # noqa: B009
        next_epoch = Position(step, before.epoch + 1, 0)
        same_epoch = Position(step, before.epoch, epoch_step)
        self.position = next_epoch if epoch_end else same_epoch
        self._check_finite()
        self._unchecked = (step, results)
        self._act(StepReport(step, before.epoch, epoch_end, self.position, results, seconds, [0.0]))

    def _check_finite(self) -> None:
        if self._unchecked is None:
            return
        (step, results), self._unchecked = self._unchecked, None
        if not bool(results.finite):
            raise NonFiniteGradientError(
                f"The gradient is not finite at step {step}, and fit has applied it. Go on from "
                "the checkpoint before with the same command; try a lower learning rate, warm-up "
                "or clipping."
            )
