"""A training: the trainer of a recipe with its reports, evaluations and checkpoints."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

import towers
from towers.scripts.training.engines import check_engine, open_engine
from towers.scripts.training.options import TrainOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.session import Session, open_session
from towers.scripts.training.trial import MeasuredPlacement

SIGNAL_CODES = {"SIGINT": 130, "SIGTERM": 143}


def open_training(recipe: Recipe, options: TrainOptions) -> Training:
    """Returns a training, at the newest checkpoint of its run, and records that it begins.

    Raises:
        ValueError: the options, the data or the run directory cannot be used together.
        OSError: a file cannot be read or written.
    """
    check_engine(recipe, options)
    directory = RunDirectory(options.run_dir or f"runs/{recipe.name}")
    record = describe_run(recipe, options)
    directory.check(record)
    if options.engine.deterministic:
        towers.enable_determinism()
    choose_placement = MeasuredPlacement(recipe, options, directory)
    session = open_session(
        recipe,
        data=options.data,
        devices=options.devices,
        seed=options.seed,
        precision=options.engine.precision,
        join=True,
        choose_placement=choose_placement,
    )
    if session.data.train.steps_per_epoch < 1:
        raise ValueError(f"The data of {recipe.name} has no batch: it is empty, or too small.")
    if session.data.summary:
        print(session.data.summary, flush=True)
    record["data_key"] = session.data.key
    record["about"] = session.data.about
    if choose_placement.record:
        record["trial"] = choose_placement.record
    directory.check(record)
    training = Training(session, directory, options)
    try:
        begin(directory, {**record, "devices": list(session.devices.towers)}, session)
    except BaseException:
        training.close()
        raise
    return training


def begin(directory: RunDirectory, record: dict[str, Any], session: Session) -> None:
    """Records the run, in the chief and in every process that does not share its disk."""
    with session.processes.chief_first():
        if session.processes.is_chief or not directory.exists:
            directory.begin(record)
            if session.data.text is not None:
                session.data.text.save(directory.text)


def describe_run(recipe: Recipe, options: TrainOptions) -> dict[str, Any]:
    """Returns the contents of run.json, without the devices."""
    engine = options.engine
    return {
        "recipe": recipe.name,
        "fields": dataclasses.asdict(recipe.fields),
        "seed": options.seed,
        "precision": engine.precision,
        "batch_norm": engine.batch_norm,
        "engine": engine.engine,
        "updates": engine.updates,
        "data": options.data,
        "parameters": options.devices.parameters,
    }


class Training:
    """One process of a run: a trainer with its reports, evaluations and checkpoints.

    Args:
        session: the recipe with its data and its model.
        directory: the place of checkpoints and curves.
        options: how to train, and how often to report, evaluate and save.
    """

    def __init__(self, session: Session, directory: RunDirectory, options: TrainOptions):
        self._session = session
        self._options = options
        self._directory = directory
        self._processes = session.processes
        self._first_tower = session.processes.first_tower(len(session.devices.towers))
        self._engine = open_engine(session, options)
        self._updates = self._engine.updates
        print(
            f"{session.recipe.name}: {session.devices.description}, parameters on "
            f"{self._engine.parameters}{self._engine.description}, "
            f"run in {directory.path}{self._processes.description}",
            flush=True,
        )
        self._checkpoints = towers.CheckpointFolder(directory.checkpoints)
        recipe = session.recipe
        self._best = towers.Best(recipe.best_metric, recipe.maximize)
        self._updates.position = position = self._restore()
        self._writers = towers.SummaryWriters(directory.summaries)
        self._bar = towers.ProgressBar(self._total_steps(), position.step)
        self._evaluated_step = position.step
        self._saved_step: int | None = position.step

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the progress bar and the curves."""
        self._bar.close()
        self._writers.close()

    def train(self) -> str:
        """Trains to the end, evaluates and saves, and returns why it ended."""
        is_new = not self._updates.position.step
        if is_new and self._processes.is_chief and self._updates.graph is not None:
            self._writers.write_graph(self._updates.graph)
        with towers.stop_on_signals() as check_signals:
            actions = towers.share_stop_requests(self._processes, [*self._actions(), check_signals])
            reason = self._run(towers.Trainer(self._updates, actions))
        if self._processes.is_chief:
            if reason not in SIGNAL_CODES and self._evaluated_step != self._updates.position.step:
                self._evaluate()
            self._save()
        self._print_end(reason)
        self._processes.wait()  # A process that leaves early looks like one that died.
        return reason

    def _run(self, trainer: towers.Trainer) -> str:
        steps = self._options.steps
        epochs = None if steps else self._session.recipe.fields.epochs
        if self._options.log_placement and trainer.position.step < self._total_steps():
            with towers.record_op_devices() as op_devices:
                self._updates.dry_run()
                reason = trainer.train(steps=trainer.position.step + 1)
            for line in towers.format_op_devices(op_devices):
                self._bar.write(line)
            if reason in SIGNAL_CODES:
                return reason
        return trainer.train(epochs=epochs, steps=steps)

    def _actions(self) -> Iterator[towers.Action]:
        """Yields the actions in the order in which they run; the save is the last.

        Of several processes, only the chief evaluates and saves.
        """
        periods = self._options.periods
        report = periods.report_every
        is_chief = self._processes.is_chief
        yield self._bar
        write_summaries = towers.write_summaries(
            self._writers, first_tower=self._first_tower, average=is_chief
        )
        yield towers.with_rates(write_summaries, steps=report)
        print_report = functools.partial(
            towers.print_report,
            unit=self._session.recipe.unit,
            first_tower=self._first_tower if self._processes.count > 1 else None,
            write=self._bar.write,
        )
        yield towers.with_rates(print_report, steps=report)
        if not is_chief:
            return
        if self._engine.step is not None:
            yield towers.advise_placement(self._engine.step, self._bar.write)
        every = periods.evaluate_every
        yield towers.every(
            lambda report: self._pause_and_evaluate(), steps=every, epochs=every is None
        )
        if periods.early_stopping:
            yield towers.stop_early(self._best, patience=periods.early_stopping)
        every = periods.checkpoint_every
        yield towers.every(
            self._save_after,
            steps=every,
            epochs=every is None,
            seconds=60 * periods.checkpoint_minutes,
        )

    def _pause_and_evaluate(self) -> None:
        with self._updates.paused():
            self._evaluate()

    def _evaluate(self) -> None:
        step = self._updates.position.step
        metrics = self._engine.evaluate()
        examples = metrics.pop("examples")
        self._evaluated_step = step
        self._writers.write("evaluation", step, metrics)
        better = self._best.improves(step, metrics)
        values = " | ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        mark = " | best so far" if better else ""
        count = f"{examples:.0f} {self._session.recipe.unit}"
        self._bar.write(f"test  | step {step} | {values} | {count}{mark}")
        if better:
            self._checkpoints.save_best(step, self._updates.groups(), self._state())
            self._saved_step = None  # A checkpoint of this step lacks the new best.
        if self._session.answer_evaluator is not None:
            self._session.answer_evaluator.show_samples(self._bar.write)

    def _save_after(self, report: towers.StepReport) -> None:
        if bool(report.results.finite):
            with self._updates.paused():
                self._save()

    def _save(self) -> None:
        """Saves the training's state; curves first, so that none is missing after a kill."""
        step = self._updates.position.step
        if step == self._saved_step:
            return
        self._writers.flush()
        self._updates.check_copies()
        self._checkpoints.save(step, self._updates.groups(), self._state())
        self._saved_step = step

    def _restore(self) -> towers.Position:
        """Restores the newest checkpoint, if there is one, and returns its position.

        Of several processes only the chief needs the files.
        """
        checkpoint = self._checkpoints.latest() if self._processes.is_chief else None
        position = towers.Position()
        if checkpoint is not None:
            towers.restore(checkpoint, self._updates.groups())
            position = towers.Position(**checkpoint.state["position"])
            self._best = towers.Best(**checkpoint.state["best"])
            print(f"continues at step {position.step} from {checkpoint.path}", flush=True)
        if self._processes.is_chief:
            towers.remove_events_after(self._directory.summaries, position.step)
        return self._share(position)

    def _share(self, position: towers.Position) -> towers.Position:
        """Sends the chief's variables to all processes, and returns its position."""
        if self._processes.count == 1:
            return position
        numbers = tf.Variable(dataclasses.astuple(position), dtype=tf.int64)
        self._processes.broadcast([*itertools.chain(*self._updates.groups().values()), numbers])
        position = towers.Position(*numbers.numpy().tolist())
        if not self._processes.is_chief:
            for tower in range(len(self._session.devices.towers)):
                curve = f"tower_{self._first_tower + tower}"
                towers.remove_events_after(self._directory.summaries / curve, position.step)
        return position

    def _state(self) -> dict[str, Any]:
        return {
            "position": dataclasses.asdict(self._updates.position),
            "best": dataclasses.asdict(self._best),
            "seed": self._options.seed,
        }

    def _total_steps(self) -> int:
        fields, train = self._session.recipe.fields, self._session.data.train
        return self._options.steps or fields.epochs * train.steps_per_epoch

    def _print_end(self, reason: str) -> None:
        position, best = self._updates.position, self._best
        is_chief = self._processes.is_chief
        saved = f", step {position.step} saved in {self._directory.path}" if is_chief else ""
        self._bar.write(f"done: {reason}{saved}")
        if is_chief and best.value is not None:
            self._bar.write(f"best {best.metric}: {best.value:.4f} at step {best.step}")
        if reason in SIGNAL_CODES and self._processes.count > 1:
            self._bar.write("continue with the commands that started all processes")
        elif reason in SIGNAL_CODES:
            self._bar.write(f"continue with: towers {shlex.join(sys.argv[1:])}")
