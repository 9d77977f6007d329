"""A training: the trainer of a recipe with its reports, evaluations and checkpoints."""

from __future__ import annotations

import contextlib
import functools
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import towers
from towers.scripts.training.engines import open_engine
from towers.scripts.training.initial_values import fill_from
from towers.scripts.training.metrics_file import END
from towers.scripts.training.options import TrainOptions
from towers.scripts.training.record import describe_model, hyperparameters
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.run_files import EVALUATION, RunFiles
from towers.scripts.training.run_output import RunOutput
from towers.scripts.training.session import Session
from towers.scripts.training.stages import describe_stages

SIGNAL_CODES = {"SIGHUP": 129, "SIGINT": 130, "SIGPIPE": 141, "SIGTERM": 143}
Interruptible = Callable[[], contextlib.AbstractContextManager[None]]


class Training:
    """One process of a run: a trainer with its reports, evaluations and checkpoints.

    Args:
        session: the recipe with its data and its model.
        directory: the place of checkpoints and curves.
        options: how to train, and how often to report, evaluate and save.
        record: what runs; checkpoints hold it too.

    Attributes:
        closing: what `__exit__` closes.
    """

    def __init__(
        self,
        session: Session,
        directory: RunDirectory,
        options: TrainOptions,
        record: dict[str, Any],
    ):
        self.closing = contextlib.ExitStack()
        self._record = record
        self._session = session
        self._options = options
        self._directory = directory
        self._processes = session.processes
        self._first_tower = session.processes.first_tower(len(session.devices.towers))
        self._engine = open_engine(session, options)
        self._updates = self._engine.updates
        self._output = RunOutput(quiet=options.output.quiet)
        self._write = self._output.write
        self._write(
            f"{session.recipe.name}: {session.devices.description}, parameters on "
            f"{self._engine.parameters}{self._engine.description}, "
            f"run in {directory.path}{self._processes.description}"
        )
        for line in describe_stages(session.model, session.placement):
            self._write(line)
        if options.output.verbose:
            self._write(describe_model(session.model))
        self._files = RunFiles(
            directory,
            session,
            self._updates,
            record,
            seed=options.seed,
            keep=options.periods.keep_checkpoints,
        )
        self._begin()
        self._output.bar = towers.actions.ProgressBar(
            self._total_steps(),
            self._updates.position.step,
            steps_per_epoch=session.data.train.steps_per_epoch,
            quiet=options.output.quiet,
        )

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.close()

    def close(self) -> None:
        """Closes the progress bar and the curves."""
        self._output.close()
        self._files.curves.close()

    def _begin(self) -> None:
        """Begins where the newest checkpoint ends, with given weights, or anew.

        Of several processes only the chief needs the files.
        """
        is_chief, options = self._processes.is_chief, self._options
        checkpoint = self._files.restore() if is_chief and not options.overwrite else None
        if checkpoint is not None:
            step = self._updates.position.step
            self._write(f"continues at step {step} from {checkpoint.path}")
        elif is_chief and options.init_from:
            self._write(fill_from(options.init_from, self._session, self._updates))
        self._files.share()

    def train(self) -> str:
        """Trains to the end, evaluates and saves, and returns why it ended."""
        is_new = not self._updates.position.step
        if is_new and self._processes.is_chief and self._updates.graph is not None:
            self._files.curves.write_graph(self._updates.graph)
        if is_new and self._processes.is_chief:
            self._files.curves.write_hyperparameters(EVALUATION, hyperparameters(self._record))
        with towers.actions.stop_on_signals() as signals:
            actions = towers.actions.share_stop_requests(
                self._processes, [*self._actions(), signals]
            )
            reason = self._run(towers.Trainer(self._updates, actions))
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
        if self._options.log_placement and trainer.position.step < self._total_steps():
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
        periods = self._options.periods
        # A short training reports at its end: otherwise it would leave no curve of any tower.
        report = max(1, min(periods.report_every, self._total_steps()))
        is_chief = self._processes.is_chief
        if self._output.bar is not None:
            yield self._output.bar
        write_summaries = towers.actions.write_summaries(
            self._files.curves, first_tower=self._first_tower, average=is_chief
        )
        yield towers.actions.with_rates(write_summaries, steps=report)
        print_report = functools.partial(
            towers.actions.print_report,
            unit=self._session.recipe.unit,
            first_tower=self._first_tower if self._processes.count > 1 else None,
            columns=shutil.get_terminal_size().columns if sys.stdout.isatty() else None,
            write=self._write,
        )
        yield towers.actions.with_rates(print_report, steps=report)
        yield self._output.check_reader
        if self._options.max_minutes is not None:
            yield towers.actions.stop_after(self._options.max_minutes)
        if self._processes.count > 1:
            every = periods.checkpoint_every
            yield towers.actions.every(self._compare_processes, steps=every, epochs=every is None)
        if not is_chief:
            return
        yield towers.actions.with_rates(self._files.metrics.report(), steps=report)
        if self._options.output.histograms is not None:
            yield towers.actions.every(
                self._write_histograms(), steps=self._options.output.histograms
            )
        if self._options.output.profile is not None:
            first, last = map(int, self._options.output.profile.split("-"))
            last = max(first, min(last, self._total_steps()))
            yield towers.actions.profile_steps(self._directory.summaries, first=first, last=last)
        if self._engine.step is not None:
            yield towers.steps.advise_placement(self._engine.step, self._write)
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
            towers.processes.check_variables(self._processes, self._updates.groups())

    def _pause_and_evaluate(self) -> None:
        with self._updates.paused():
            self._evaluate()

    def _evaluate(self, interruptible: Interruptible = contextlib.nullcontext) -> None:
        with interruptible():
            metrics = self._engine.evaluate()
        examples = metrics.pop("examples")
        better = self._files.add_evaluation(metrics)
        values = " | ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        mark = " | best so far" if better else ""
        count = f"{examples:.0f} {self._session.recipe.unit}"
        part, step = self._session.data.evaluated, self._updates.position.step
        self._write(f"{part:<5} | step {step} | {values} | {count}{mark}")
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

    def _total_steps(self) -> int:
        fields, train = self._session.recipe.fields, self._session.data.train
        return self._options.steps or fields.epochs * train.steps_per_epoch

    def _print_end(self, reason: str) -> None:
        position, best = self._updates.position, self._files.best
        is_chief = self._processes.is_chief
        if is_chief:
            early = self._options.periods.early_stopping
            finished = position.step >= self._total_steps()
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
