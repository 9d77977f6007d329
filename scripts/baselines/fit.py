"""Training by `keras.Model.fit`, with the data, the actions and the checkpoints of the towers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

import towers
from towers.scripts.baselines.rivals import Task, compile_model, keras_batches


class FitUpdates:
    """The updates that `model.fit` makes, epoch after epoch, for `towers.Trainer`.

    `fit` does not report how long it waited for a batch; that time is part of the step's.

    Args:
        model: the session's model, which the constructor compiles.
        task: the model, the data and the optimizer to train.
        batches: `batches(epoch, first_step)` with `steps_per_epoch`.

    Attributes:
        position: where training resumes.
        graph: None; `fit` builds its own when it runs.
        num_processes: 1.
    """

    graph = None
    num_processes = 1

    def __init__(self, model: keras.Model, task: Task, batches: Any):
        compile_model(model, task, [NumLabels(name="weight", dtype="float32")])
        model.optimizer.build(model.trainable_variables)
        self.position = towers.steps.Position()
        self._model = model
        self._task = task
        self._batches = batches
        self._notes = note_gradients(model.optimizer)
        self._unchecked: tuple[int, towers.engine.StepResults] | None = None

    def run_epoch(self, steps: int | None, report: towers.steps.Report) -> None:
        """Makes the updates from `position` to the end of its epoch and reports each one."""
        dataset = self._batches(self.position.epoch, self.position.epoch_step)
        if steps is not None:
            dataset = dataset.take(steps - self.position.step)
        begun = [0.0]

        def begin_step(batch: int, logs: Any = None) -> None:
            self._model.reset_metrics()  # Otherwise they average over the epoch so far.
            begun[0] = time.perf_counter()

        def end_step(batch: int, logs: dict[str, Any]) -> None:
            results = self._results(logs)
            report(self._report(results, time.perf_counter() - begun[0]))

        callback = keras.callbacks.LambdaCallback(
            on_train_batch_begin=begin_step, on_train_batch_end=end_step
        )
        task = self._task._replace(dataset=dataset)
        self._model.fit(keras_batches(task), shuffle=False, verbose=0, callbacks=[callback])

    def _report(self, results: towers.engine.StepResults, seconds: float) -> towers.StepReport:
        before = self.position
        step, epoch_step = before.step + 1, before.epoch_step + 1
        epoch_end = epoch_step == self._batches.steps_per_epoch
        self.position = before.after_step(epoch_end=epoch_end)
        self.finish()
        self._unchecked = (step, results)
        return towers.StepReport(
            step, before.epoch, epoch_end, self.position, results, seconds, [0.0]
        )

    def _results(self, logs: dict[str, Any]) -> towers.engine.StepResults:
        """Returns the results of the last step, given what `fit` logged for this step alone."""
        norm, learning_rate = tf.unstack(self._notes.value)
        loss, accuracy, weight = (
            tf.convert_to_tensor(logs[name]) for name in ("loss", "accuracy", "weight")
        )
        own = towers.engine.TowerResults(
            loss[None], weight[None], {"accuracy": accuracy[None]}, norm[None]
        )
        return towers.engine.StepResults(
            loss=loss,
            weight=weight,
            metrics={"accuracy": accuracy},
            gradient_norm=norm,
            learning_rate=learning_rate,
            finite=tf.math.is_finite(norm),
            loss_scale=tf.ones([]),
            towers=own,
        )

    def finish(self) -> None:
        """Raises NonFiniteGradientError if the last gradient was not finite."""
        if self._unchecked is None:
            return
        (step, results), self._unchecked = self._unchecked, None
        if not bool(results.finite):
            raise towers.actions.NonFiniteGradientError(
                f"The gradient is not finite at step {step}, and fit has applied it. Go on from "
                "the checkpoint before with the same command; try a lower learning rate, warm-up "
                "or clipping."
            )

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A scope in which no variable changes; between the updates of `fit` none does."""
        yield

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """A scope in which nothing changes: `fit` itself puts averages in the weights' place."""
        return contextlib.nullcontext()

    def dry_run(self) -> None:
        """Does nothing: one device takes part in every update."""

    def groups(self) -> towers.checkpoints.Groups:
        """Returns the variables that a checkpoint keeps, with the states of seed generators."""
        shared = towers.engine.SharedVariables(self._model.variables, [])
        groups = {"variables": shared.all, "optimizer": self._model.optimizer.variables}
        return {**groups, "carried": shared.seeds} if shared.seeds else groups

    def check_copies(self) -> None:
        """Does nothing: there is one copy."""


class NumLabels(keras.metrics.Sum):
    """The number of labels that count in a batch: one per example, or one per unpadded token."""

    def update_state(self, labels: Any, outputs: Any, sample_weight: Any = None) -> None:
        """Adds the number of labels in a batch."""
        super().update_state(tf.ones_like(labels) if sample_weight is None else sample_weight)


def note_gradients(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """Returns a variable to which `optimizer.apply` writes the gradient norm and learning rate.

    `fit` itself reports neither. The norm is that of the gradient before clipping.
    """
    notes = keras.Variable("zeros", shape=(2,), dtype="float32", trainable=False, name="notes")
    apply = optimizer.apply

    def noting(gradients: Sequence[Any], variables: Any = None) -> None:
        dense = [None if part is None else tf.convert_to_tensor(part) for part in gradients]
        rate = tf.cast(optimizer.learning_rate, tf.float32)
        notes.assign(tf.stack([towers.steps.global_norm(dense), rate]))
        apply(gradients, variables)

    optimizer.apply = noting
    return notes
