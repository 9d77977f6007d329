"""A run of `towers train`: planned, claimed, opened, and trained to its end."""

from __future__ import annotations

import contextlib
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator

import towers
from towers.scripts.options.flags import words_to_continue
from towers.scripts.shown import decimals, show
from towers.scripts.training.open import OpenRun, open_run
from towers.scripts.training.options import TrainOptions
from towers.scripts.training.plan import plan_run
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.run_files import EVALUATION
from towers.scripts.training.run_output import describe_evaluation
from towers.scripts.wrong_input import wrong_input

SIGNAL_CODES = {"SIGHUP": 129, "SIGINT": 130, "SIGPIPE": 141, "SIGTERM": 143}
SENTENCES = {
    "SIGHUP": "stopped because the terminal was closed (SIGHUP)",
    "SIGINT": "stopped by Ctrl-C (SIGINT)",
    "SIGTERM": "stopped by another program (SIGTERM)",
}
Interruptible = Callable[[], contextlib.AbstractContextManager[None]]


def run_recipe(recipe: Recipe, options: TrainOptions, after_save: Callable[[], None] | None) -> str:
    """Trains a recipe, or goes on with its run, and returns why it ended.

    WrongInputError if the options, the directory or the data cannot be used together.
    """
    with contextlib.ExitStack() as scope:
        with wrong_input():
            plan = plan_run(recipe, options)
            if plan.is_chief:  # Of several processes it alone writes the run's files.
                with plan.directory.named_failure():
                    scope.enter_context(towers.checkpoints.locked(plan.directory.path))
            before = plan.directory.find_run(plan.record, overwrite=options.overwrite)
            try:
                opened = scope.enter_context(open_run(plan, before))
            except towers.StopTraining as stop:
                if not options.output.quiet:
                    show(f"done: {stop}")
                return str(stop)
        with wrong_input(OSError):  # Such as a full disk.
            return Training(*opened).train(after_save)


class Training(OpenRun):
    """An open run that trains, reports, evaluates and saves."""

    def train(self, after_save: Callable[[], None] | None) -> str:
        """Trains to the end, evaluates and saves, and returns why it ended."""
        if self.session.processes.is_chief:
            if not self.updates.position.step:
                self.files.curves.write_graph(self.updates.step.graph)
            names = ("recipe", "seed", "precision", "batch_norm", "updates", "parameters")
            own = {name: self.record[name] for name in names}
            self.files.curves.write_hyperparameters(
                EVALUATION, {**own, **self.record["fields"]}, name=str(self.plan.directory.path)
            )
            self._save()  # If it goes on from its best: it was killed before it saved that step.
        with self.files.checkpoints, towers.actions.stop_on_signals() as signals:
            actions: list[towers.actions.Action] = [*self._actions(after_save), signals]
            trainer = towers.Trainer.making(self.updates, actions)
            reason = self._run(trainer)
            trainer.restore_weights()  # They are saved, not the averages.
            with self.updates.paused():
                self._compare_processes()
            if self.session.processes.is_chief:
                reason = self._end(reason, signals)
            self._tell_saved(after_save)
            self._print_end(reason)
            self.session.processes.wait()  # A process that leaves early looks like one that died.
        return reason

    def _end(self, reason: str, signals: towers.actions.StopSignals) -> str:
        """Evaluates and saves what the training reached, and returns why it ended."""
        if reason not in SIGNAL_CODES and self.files.evaluated_step != self.updates.position.step:
            self._save()  # Whatever happens to the evaluation.
            try:
                self._evaluate(signals.at_once)
            except towers.StopTraining as stop:
                reason = str(stop)
            self._save_evaluated()
        else:
            self._save()
        return reason

    def _save_evaluated(self) -> None:
        """Saves a step that is saved again, now with its evaluation; warns if it finds no room."""
        self.files.checkpoints.wait()  # The step, and the best.
        try:
            self._save()
            self.files.checkpoints.wait()
        except OSError as error:
            step = self.updates.position.step
            warnings.warn(
                f"Step {step} is saved, but not that it was evaluated. {error}",
                RuntimeWarning,
                stacklevel=2,
            )

    def _run(self, trainer: towers.Trainer) -> str:
        early = self.plan.options.periods.early_stopping
        try:  # A run that stopped early has nothing left to do; of several, only the chief knows.
            if early is not None and self.session.processes.count == 1:
                self.files.best.check(early)
        except towers.StopTraining as stop:
            return str(stop)
        steps = self.plan.options.steps
        epochs = None if steps else self.session.recipe.fields.epochs
        if self.plan.options.log_placement and trainer.position.step < self.total_steps:
            with towers.devices.record_op_devices() as op_devices:
                self.updates.dry_run()
                reason = trainer.train(steps=trainer.position.step + 1)
            for line in towers.devices.format_op_devices(op_devices):
                self.output.write(line)
            if reason in SIGNAL_CODES:
                return reason
        return trainer.train(epochs=epochs, steps=steps)

    def _actions(self, after_save: Callable[[], None] | None) -> Iterator[towers.actions.Action]:
        """Yields the actions in the order in which they run."""
        yield from self._common_actions()
        if self.session.processes.is_chief:
            yield from self._chief_actions()
        every = self.plan.options.periods.checkpoint_every
        if after_save is not None:
            yield self._every(every, lambda report: self._tell_saved(after_save))

    def _common_actions(self) -> Iterator[towers.actions.Action]:
        """Yields what every process does."""
        periods = self.plan.options.periods
        if self.output.bar is not None:
            yield self.output.bar
        yield self.files.alarm.keep_first
        yield self.files.reporting
        yield self.output.check_reader
        if self.plan.options.max_minutes is not None:
            yield towers.actions.stop_after(self.plan.options.max_minutes)
        if self.session.processes.count > 1:
            yield self._every(periods.checkpoint_every, self._compare_processes)

    def _chief_actions(self) -> Iterator[towers.actions.Action]:
        """Yields what only the chief of several processes does; the save is the last."""
        periods = self.plan.options.periods
        if self.plan.options.output.histograms is not None:
            curves, variables = self.files.curves, self.session.model.trainable_variables
            write = towers.actions.write_histograms(curves, variables)
            yield self._every(self.plan.options.output.histograms, write)
        if self.plan.options.output.profile is not None:
            first, last = map(int, self.plan.options.output.profile.split("-"))
            yield towers.actions.profile_steps(
                self.plan.directory.summaries, first=first, last=min(last, self.total_steps)
            )
        yield self._every(periods.evaluate_every, lambda report: self._evaluate())
        if periods.early_stopping:
            yield towers.actions.stop_early(self.files.best, patience=periods.early_stopping)
        seconds = 60 * periods.checkpoint_minutes
        yield self._every(periods.checkpoint_every, self._save_after, seconds=seconds)

    def _every(
        self, steps: int | None, act: towers.actions.Action, **periods: float
    ) -> towers.actions.Action:
        """Returns an action every so many steps, or every epoch, while nothing updates."""

        def paused(report: towers.StepReport) -> None:
            with self.updates.paused():
                act(report)

        return towers.actions.every(paused, steps=steps, epochs=steps is None, **periods)

    def _compare_processes(self, report: towers.StepReport | None = None) -> None:
        towers.processes.check_variables(self.session.processes, self.updates.step.groups())

    def _evaluate(self, interruptible: Interruptible = contextlib.nullcontext) -> None:
        with interruptible(), self.updates.step.averaged():
            metrics = self.session.evaluate()
        line = describe_evaluation(self.session, self.updates.position.step, metrics)
        del metrics["examples"]
        better = self.files.add_evaluation(metrics)
        self.output.write_dated(line + (" | best so far" if better else ""))
        if self.session.answer_evaluator is not None:
            samples: list[str] = []
            with interruptible(), self.updates.step.averaged():
                self.session.answer_evaluator.show_samples(samples.append)
            for line in samples:
                self.output.write(line)
            self.files.add_samples(samples)

    def _save_after(self, report: towers.StepReport) -> None:
        if bool(report.results.finite):
            self._save()

    def _save(self) -> None:
        path = self.files.save()
        if path is not None and self.plan.options.output.verbose:
            self.files.checkpoints.wait()
            size = path.stat().st_size / 1e6
            self.output.write(f"saved | step {self.updates.position.step} | {path} | {size:.1f} MB")

    def _tell_saved(self, after_save: Callable[[], None] | None) -> None:
        """Waits until what was saved is on the disk, and calls the function if there is one."""
        self.files.checkpoints.wait()
        if after_save is not None:
            after_save()

    def _print_end(self, reason: str) -> None:
        position, best = self.updates.position, self.files.best
        is_chief = self.session.processes.is_chief
        if is_chief:
            early = self.plan.options.periods.early_stopping
            finished = position.step >= self.total_steps
            finished |= early is not None and best.stale >= early
            metrics, values = self.files.metrics, {"reason": reason, "finished": finished}
            metrics.write(metrics.END, position.step, values)
        self.output.close()
        saved = f", step {position.step} saved in {self.plan.directory.path}" if is_chief else ""
        self.output.write(f"{SENTENCES.get(reason, f'done: {reason}')}{saved}")
        if is_chief and best.value is not None:
            part, value = self.session.data.evaluated, decimals(best.value)
            self.output.write(f"best {part} {best.metric}: {value} at step {best.step}")
        if reason in SIGNAL_CODES and self.session.processes.count > 1:
            self.output.write("to continue, run the commands that started all processes again")
        elif reason in SIGNAL_CODES:
            again = words_to_continue(sys.argv[1:], str(self.plan.directory.path))
            self.output.write(f"continue with: towers {shlex.join(again)}")
