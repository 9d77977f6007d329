"""A run of `towers train`: planned, claimed, opened, and trained to its end."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import Any

import towers
from towers.scripts.training.claim import claim
from towers.scripts.training.metrics_file import END
from towers.scripts.training.open import OpenRun, open_run
from towers.scripts.training.options import TrainOptions
from towers.scripts.training.plan import plan_run
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.run_files import EVALUATION
from towers.scripts.training.run_output import describe_evaluation
from towers.scripts.wrong_input import wrong_input

SIGNAL_CODES = {"SIGHUP": 129, "SIGINT": 130, "SIGPIPE": 141, "SIGTERM": 143}
Interruptible = Callable[[], contextlib.AbstractContextManager[None]]


def run_recipe(recipe: Recipe, options: TrainOptions) -> str:
    """Trains a recipe, or goes on with its run, and returns why it ended.

    Args:
        recipe: what to train, with its fields.
        options: how.

    Raises:
        WrongInputError: the options, the directory or the data cannot be used together.
    """
    with contextlib.ExitStack() as scope:
        with wrong_input():
            plan = plan_run(recipe, options)
            before = scope.enter_context(claim(plan))
            opened = scope.enter_context(open_run(plan, before))
        with wrong_input(OSError):  # Such as a full disk.
            return Training(opened).train()


class Training:
    """An open run that trains, reports, evaluates and saves.

    Args:
        run: what trains.
    """

    def __init__(self, run: OpenRun):
        self._record = run.record
        self._session = run.session
        self._options = run.plan.options
        self._directory = run.plan.directory
        self._processes = run.session.processes
        self._updates = run.updates
        self._output = run.output
        self._write = run.output.write
        self._files = run.files
        self._total_steps = run.total_steps

    def train(self) -> str:
        """Trains to the end, evaluates and saves, and returns why it ended."""
        is_new = not self._updates.position.step
        if is_new and self._processes.is_chief:
            self._files.curves.write_graph(self._updates.step.graph)
            self._files.curves.write_hyperparameters(EVALUATION, hyperparameters(self._record))
        with towers.actions.stop_on_signals() as signals:
            actions = towers.actions.share_stop_requests(
                self._processes, [*self._actions(), signals]
            )
            reason = self._run(towers.Trainer.making(self._updates, actions))
            self._compare_processes()
            if self._processes.is_chief:
                reason = self._end(reason, signals)
            self._print_end(reason)
            self._processes.wait()  # A process that leaves early looks like one that died.
        return reason

    def _end(self, reason: str, signals: towers.actions.StopSignals) -> str:
        """Evaluates and saves what the training reached, and returns why it ended."""
        if reason not in SIGNAL_CODES and self._files.evaluated_step != self._updates.position.step:
            self._save()  # Whatever happens to the evaluation.
            try:
                self._evaluate(signals.at_once)
            except towers.StopTraining as stop:
                reason = str(stop)
        self._save()
        return reason

    def _run(self, trainer: towers.Trainer) -> str:
        try:
            self._check_patience()  # A run that stopped early has nothing left to do.
        except towers.StopTraining as stop:
            return str(stop)
        steps = self._options.steps
        epochs = None if steps else self._session.recipe.fields.epochs
        if self._options.log_placement and trainer.position.step < self._total_steps:
            with towers.devices.record_op_devices() as op_devices:
                self._updates.dry_run()
                reason = trainer.train(steps=trainer.position.step + 1)
            for line in towers.devices.format_op_devices(op_devices):
                self._write(line)
            if reason in SIGNAL_CODES:
                return reason
        return trainer.train(epochs=epochs, steps=steps)

    def _check_patience(self) -> None:
        """Raises StopTraining if a continued run has stopped early; only the chief would know."""
        early = self._options.periods.early_stopping
        if early is not None and self._processes.count == 1:
            self._files.best.check(early)

    def _actions(self) -> Iterator[towers.actions.Action]:
        """Yields the actions in the order in which they run; the save is the last.

        Of several processes, only the chief evaluates and saves.
        """
        periods, is_chief = self._options.periods, self._processes.is_chief
        if self._output.bar is not None:
            yield self._output.bar
        yield self._files.reporting
        yield self._output.check_reader
        if self._options.max_minutes is not None:
            yield towers.actions.stop_after(self._options.max_minutes)
        if self._processes.count > 1:
            every = periods.checkpoint_every
            yield towers.actions.every(self._compare_processes, steps=every, epochs=every is None)
        if not is_chief:
            return
        if self._options.output.histograms is not None:
            yield towers.actions.every(
                self._write_histograms(), steps=self._options.output.histograms
            )
        if self._options.output.profile is not None:
            first, last = map(int, self._options.output.profile.split("-"))
            last = max(first, min(last, self._total_steps))
            yield towers.actions.profile_steps(self._directory.summaries, first=first, last=last)
        every = periods.evaluate_every
        yield towers.actions.every(
            lambda report: self._pause_and_evaluate(), steps=every, epochs=every is None
        )
        if periods.early_stopping:
            yield towers.actions.stop_early(self._files.best, patience=periods.early_stopping)
        every = periods.checkpoint_every
        yield towers.actions.every(
            self._save_after,
            steps=every,
            epochs=every is None,
            seconds=60 * periods.checkpoint_minutes,
        )

    def _write_histograms(self) -> towers.actions.Action:
        write = towers.actions.write_histograms(
            self._files.curves, self._session.model.trainable_variables
        )

        def paused(report: towers.StepReport) -> None:
            with self._updates.paused():
                write(report)

        return paused

    def _compare_processes(self, report: towers.StepReport | None = None) -> None:
        with self._updates.paused():
            towers.processes.check_variables(self._processes, self._updates.step.groups())

    def _pause_and_evaluate(self) -> None:
        with self._updates.paused():
            self._evaluate()

    def _evaluate(self, interruptible: Interruptible = contextlib.nullcontext) -> None:
        with interruptible():
            metrics = self._session.evaluate()
        line = describe_evaluation(self._session, self._updates.position.step, metrics)
        del metrics["examples"]
        better = self._files.add_evaluation(metrics)
        self._write(line + (" | best so far" if better else ""))
        if self._session.answer_evaluator is not None:
            samples: list[str] = []
            with interruptible():
                self._session.answer_evaluator.show_samples(samples.append)
            for line in samples:
                self._write(line)
            self._files.add_samples(samples)

    def _save_after(self, report: towers.StepReport) -> None:
        if bool(report.results.finite):
            with self._updates.paused():
                self._save()

    def _save(self) -> None:
        path = self._files.save()
        if path is not None and self._options.output.verbose:
            size = path.stat().st_size / 1e6
            self._write(f"saved | step {self._updates.position.step} | {path} | {size:.1f} MB")

    def _print_end(self, reason: str) -> None:
        position, best = self._updates.position, self._files.best
        is_chief = self._processes.is_chief
        if is_chief:
            early = self._options.periods.early_stopping
            finished = position.step >= self._total_steps
            finished |= early is not None and best.stale >= early
            self._files.metrics.write(END, position.step, {"reason": reason, "finished": finished})
        saved = f", step {position.step} saved in {self._directory.path}" if is_chief else ""
        self._write(f"done: {reason}{saved}")
        if is_chief and best.value is not None:
            self._write(f"best {best.metric}: {best.value:.4f} at step {best.step}")
        if reason in SIGNAL_CODES and self._processes.count > 1:
            self._write("continue with the commands that started all processes")
        elif reason in SIGNAL_CODES:
            again = [one for one in sys.argv[1:] if not one.startswith("--ov")]  # --overwrite
            self._write(f"continue with: towers {shlex.join(again)}")


def hyperparameters(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a run's settings by name, as TensorBoard shows them."""
    names = ("recipe", "seed", "precision", "batch_norm", "updates", "parameters")
    return {**{name: record[name] for name in names}, **record["fields"]}
