"""The files that a run adds to: checkpoints, metrics and curves, which tell of the same steps."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import towers
from towers.scripts.training.alarm import Alarm
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.run_output import RunOutput
from towers.scripts.training.session import Session

EVALUATION = "evaluation"  # The curve of evaluations.


class RunFiles:
    """The checkpoints, metrics and curves of a run, as one process writes them.

    Attributes:
        reporting: the action that reports to the terminal, the curves and metrics.jsonl;
            checkpoints hold what it has not reported yet.
        metrics: the lines of metrics.jsonl.
        alarm: warns of a training that goes wrong; its `keep_first` is an action.
        evaluated_step: the step of the last evaluation.
    """

    def __init__(
        self,
        directory: RunDirectory,
        session: Session,
        updates: towers.steps.Updates,
        record: dict[str, Any],
        output: RunOutput,
        *,
        report_every: int,
        keep: int,
    ):
        self.curves = towers.actions.SummaryWriters(directory.summaries)
        self.metrics = towers.actions.MetricsFile(directory.metrics)
        self.best = towers.actions.Best(session.recipe.best_metric, session.recipe.maximize)
        self.alarm = Alarm(session.recipe)
        self.evaluated_step = 0
        self.checkpoints = towers.checkpoints.CheckpointFolder(directory.checkpoints, keep=keep)
        self._summaries = directory.summaries
        self._session = session
        self._updates = updates
        self._record = record
        self._output = output
        self.reporting = towers.actions.with_rates(self._report, steps=report_every)
        self._saved_step: int | None = 0

    def restore(self) -> towers.checkpoints.Checkpoint | None:
        """Restores the newest checkpoint and returns it; None if the run has none."""
        checkpoint = self.checkpoints.latest()
        if checkpoint is not None:
            towers.checkpoints.restore(checkpoint, self._updates.step.groups())
            self._updates.position = towers.steps.Position(**checkpoint.state["position"])
            self.best = self._best_of(checkpoint)
            towers.actions.restore_unreported(
                [self.reporting], checkpoint.state.get("unreported", {})
            )
            self.evaluated_step = checkpoint.state["evaluated_step"]
        is_best = checkpoint is not None and checkpoint.path == self.checkpoints.best_path
        self._saved_step = None if is_best else self._updates.position.step
        return checkpoint

    def cut(self) -> None:
        """Removes what a killed process wrote after the checkpoint that was restored."""
        step = self._updates.position.step
        self.checkpoints.remove_old(step)
        self.metrics.cut(step, self.evaluated_step)
        towers.actions.remove_events_after(self._summaries, step)
        # A killed evaluation may have left a point, which comes again.
        towers.actions.remove_events_after(self._summaries / EVALUATION, self.evaluated_step)

    def _best_of(self, checkpoint: towers.checkpoints.Checkpoint) -> towers.actions.Best:
        """Returns the best evaluation up to a checkpoint, or none if its weights are lost."""
        best = towers.actions.Best(**checkpoint.state["best"])
        if self._session.data.chooses:  # Otherwise an earlier release chose by them.
            if best.value is None or self.checkpoints.has_best:
                return best
            warnings.warn(
                f"{self.checkpoints.best_path} is missing or damaged; the next evaluation counts "
                "as the best so far.",
                RuntimeWarning,
                stacklevel=3,
            )
        return towers.actions.Best(best.metric, best.maximize)

    def broadcast(self) -> None:
        """Sends the chief's variables and position to all processes, whose curves go on there.

        The curves of the other processes' towers begin their first mean anew.
        """
        processes, num_towers = self._session.processes, len(self._session.devices.towers)
        self._updates.take_from_chief()
        chiefs = processes.of_chief(towers.actions.unreported([self.reporting]))
        if not processes.is_chief:
            towers.actions.restore_unreported([self.reporting], chiefs, same_towers=False)
            step = self._updates.position.step
            first = processes.first_tower(num_towers)
            for tower in range(first, first + num_towers):
                towers.actions.remove_events_after(self._summaries / f"tower_{tower}", step)

    def _report(self, report: towers.StepReport, rates: towers.actions.Rates) -> None:
        """Writes and prints what happened since the last report."""
        processes, output = self._session.processes, self._output
        first = processes.first_tower(len(self._session.devices.towers))
        write = towers.actions.write_summaries(
            self.curves, first_tower=first, average=processes.is_chief
        )
        write(report, rates)
        if processes.is_chief:
            values = towers.actions.report_values(report, rates)
            self.metrics.write(self.metrics.TRAIN, report.step, values)
            self.alarm.check(float(report.results.loss))
        towers.actions.print_report(
            report,
            rates,
            unit=self._session.recipe.unit,
            first_tower=first if processes.count > 1 else None,
            columns=output.columns,
            write=output.write_dated,
        )

    def add_evaluation(self, metrics: dict[str, float]) -> bool:
        """Adds an evaluation of the current step, and returns whether it is the best so far.

        The best is saved. On test data none is: nothing is chosen by it.
        """
        step = self._updates.position.step
        self.evaluated_step = step
        self.curves.write(EVALUATION, step, metrics)
        better = self._session.data.chooses and self.best.improves(step, metrics)
        self.metrics.write(self.metrics.TEST, step, {**metrics, "best": better})
        if better:
            state, groups = self._state(), self._updates.step.groups()
            self._sync_curves()  # A run may go on from the best.
            self.checkpoints.save_best(step, groups, state, resumable=True, wait=False)
        self._saved_step = None  # A checkpoint of this step lacks the evaluation.
        return better

    def add_samples(self, lines: list[str]) -> None:
        """Adds sample answers of the current step, for TensorBoard's page Text."""
        text = "\n".join(f"    {line}" for line in lines)  # Indented: shown as it is.
        self.curves.write_text(EVALUATION, self._updates.position.step, "samples", text)

    def save(self) -> Path | None:
        """Saves the current step unless it is saved; returns the checkpoint if it is new.

        Curves come first, so that none is missing after a kill.
        """
        step = self._updates.position.step
        if step == self._saved_step:
            return None
        self._sync_curves()
        self._updates.step.check_copies()
        groups, state = self._updates.step.groups(), self._state()
        path = self.checkpoints.save(step, groups, state, wait=False)
        self._saved_step = step
        return path

    def _sync_curves(self) -> None:
        """Waits until curves and metrics are on the disk: those of a checkpoint come before it."""
        self.curves.flush()
        self.metrics.sync()

    def _state(self) -> dict[str, Any]:
        return {
            "position": dataclasses.asdict(self._updates.position),
            "best": dataclasses.asdict(self.best),
            "evaluated_step": self.evaluated_step,
            "unreported": towers.actions.unreported([self.reporting]),
            "run": self._record,
        }
