"""What `towers.fit` writes beside its checkpoints, as `towers train` does."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from towers.compiled.data import ArrayData, Data
from towers.compiled.described import plain, rate_of
from towers.compiled.together import compared_arrays
from towers.compiled.tower_function import LOSS
from towers.devices.kernels import levels_to_caller
from towers.ground.arguments import check_folder
from towers.ground.private_apis import compile_loss_of
from towers.loop.actions import Reporting, with_rates
from towers.loop.curves import report_values, to_floats, write_summaries
from towers.loop.rates import Rates
from towers.loop.updates import Position, StepReport
from towers.processes.agreement import digest
from towers.processes.processes import Processes
from towers.saving.metrics_file import MetricsFile
from towers.saving.run_record import NAME, record_start
from towers.saving.summaries import SummaryWriters, remove_events_after
from towers.step.options import StepOptions
from towers.step.results import StepResults

RECIPE = "towers.fit"
REPORT_STEPS = 10
EVALUATION = "evaluation"  # The curve of evaluations.


class FitFiles:
    """The record, the metrics and the curves of a training; arguments as in `describe_fit`.

    Attributes:
        run_dir: as in `towers.fit`.
        metrics, curves: the lines of metrics.jsonl, and TensorBoard's files.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        model: keras.Model,
        data: Data,
        settings: Mapping[str, Any],
        options: StepOptions,
    ):
        check_folder(run_dir=run_dir)
        self.run_dir = Path(run_dir)
        self.metrics = MetricsFile(self.run_dir / "metrics.jsonl")
        self.curves = SummaryWriters(self.run_dir / "summaries")
        self._record = describe_fit(model, data, settings, options)
        self._is_new, self._is_over, self._is_chief, self._first_tower = False, False, True, 0
        self._before = self._read()

    def _read(self) -> dict[str, Any] | None:
        """Returns what was recorded before; ValueError if it is a run of something else."""
        path = self.run_dir / NAME
        before: Any = None
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, RecursionError):
            pass
        match before:
            case {"recipe": str(recipe)} if recipe != RECIPE:
                raise ValueError(
                    f"{self.run_dir} holds a run of {recipe}, which `towers train` goes on with. "
                    "Give towers.fit another run_dir."
                )
            case {"recipe": str(), "fields": {}, "seed": int(), "starts": [*_, {"devices": [*_]}]}:
                return dict(before)
        text = f"{path} is damaged. It is begun anew, so no setting is compared with before."
        warnings.warn(text, RuntimeWarning, stacklevel=levels_to_caller())
        return None

    def begin(
        self,
        position: Position,
        model: keras.Model,
        devices: Sequence[str],
        processes: Processes,
    ) -> None:
        """Records a process that begins, and removes what a killed one wrote after its position.

        A run that has more epochs than asked for, or ended with as many, stays as it is. A warning
        names what differs from the run that goes on.
        """
        self._is_chief = processes.is_chief
        self._first_tower = processes.first_tower(len(devices))
        epochs = self._record["fields"]["epochs"]
        is_done = position.epoch == epochs and self.metrics.has_finished()
        self._is_over = position.step > 0 and (position.epoch > epochs or is_done)
        if self._is_over:
            return
        remove_events_after(self.run_dir / "summaries", position.step)
        if not self._is_chief:
            return
        self.metrics.cut(position.step, position.step)
        before = self._before if position.step else None
        if before is not None and (found := self.differences(model, devices, processes)):
            text = f"{self.run_dir} goes on with other settings: {found}."
            warnings.warn(text, RuntimeWarning, stacklevel=levels_to_caller())
        record_start(self.run_dir, self._record, devices, before, processes.count)
        self._is_new = position.step == 0
        about = {name: self._record[name] for name in ("recipe", "seed", "precision")}
        self.curves.write_hyperparameters(
            EVALUATION, {**self._record["fields"], **about}, name=str(self.run_dir)
        )

    def differences(self, model: keras.Model, devices: Sequence[str], processes: Processes) -> str:
        """Returns what a run was begun with, and this call gives otherwise; empty if nothing is."""
        before = self._before
        if before is None:
            return ""
        one = {**before["fields"], "data": before.get("data_key"), "seed": before["seed"]}
        own = json.loads(json.dumps(self._record))
        other = {**own["fields"], "data": own["data_key"], "seed": own["seed"]}
        rate = rate_of(model)  # The saved one; a schedule is not saved.
        if isinstance(rate, float) and other["learning_rate"] == rate:
            one.pop("learning_rate", None)
        last = before["starts"][-1]
        one["towers"] = len(last["devices"]) * last.get("processes", 1)
        other["towers"] = len(devices) * processes.count
        names = sorted(one.keys() - {"epochs", "model"})  # Keras numbers the names of models.
        return "; ".join(
            "other data" if name == "data" else f"{name} {one[name]} before, {other.get(name)} now"
            for name in names
            if one[name] != other.get(name)
        )

    def reports(self, model: keras.Model) -> Reporting:
        """Returns an action that writes the losses of each tower every so many steps."""

        def write(report: StepReport, rates: Rates) -> None:
            chief = self._is_chief
            report = dataclasses.replace(report, results=only_losses(report.results, model))
            write_summaries(self.curves, first_tower=self._first_tower, average=chief)(
                report, rates
            )
            if chief:
                self.metrics.write(MetricsFile.TRAIN, report.step, report_values(report, rates))

        return with_rates(write, steps=REPORT_STEPS)

    def add_epoch(
        self,
        step: int,
        epoch: int,
        logs: Mapping[str, Any],
        graph: tf.Graph | None = None,
    ) -> None:
        """Writes the logs of an epoch, those of its validation apart, and a new run's graph.

        With a graph, which towers' own steps have, there are reports of the losses besides.
        """
        if not self._is_chief:
            return
        if self._is_new and graph is not None:
            self.curves.write_graph(graph)
            self._is_new = False
        values = to_floats(logs)
        held_out = {
            name.removeprefix("val_"): value
            for name, value in values.items()
            if name.startswith("val_")
        }
        own = {name: value for name, value in values.items() if not name.startswith("val_")}
        reported = () if graph is None else ("loss",)  # Each report has a point of the losses.
        new = {name: value for name, value in own.items() if not name.endswith(reported)}
        self.curves.write("average", step, new)
        self.metrics.write(MetricsFile.TRAIN, step, {"epoch": epoch + 1, **own})
        if held_out:
            self.curves.write(EVALUATION, step, held_out)
            self.metrics.write(MetricsFile.TEST, step, held_out)

    def sync(self) -> None:
        """Waits until curves and metrics are on the disk: those of a checkpoint come before it."""
        self.curves.flush()
        self.metrics.sync()

    def end(self, position: Position, epochs: int, reason: str) -> None:
        """Writes how the training ended."""
        if self._is_chief and not self._is_over:
            values = {"reason": reason, "finished": position.epoch >= epochs}
            self.metrics.write(MetricsFile.END, position.step, values)


def describe_fit(
    model: keras.Model, data: Data, settings: Mapping[str, Any], options: StepOptions
) -> dict[str, Any]:
    """Returns what run.json says of a training; the settings are named as in `towers.fit`."""
    names = ("epochs", "steps_per_epoch", "shuffle", "class_weight")
    fields = {
        "model": model.name,
        "batch_size": plain(getattr(data, "batch_size", None)),
        **{name: plain(settings[name]) for name in names},
        "loss": plain(getattr(model, "loss", None)),
        "optimizer": plain(getattr(model, "optimizer", None)),
        "learning_rate": rate_of(model),
        "clip_norm": options.clip_norm,
        "accumulate": options.accumulate,
    }
    return {
        "recipe": RECIPE,
        "fields": fields,
        "seed": options.seed,
        "precision": model.dtype_policy.name,
        "batch_norm": "mean",
        "updates": "sync",
        "data": None,
        "data_key": digest_of(data),
        "about": {"evaluated": "validation"},
        "best_metric": "loss",
        "chooses": False,
    }


def digest_of(data: Data) -> str:
    """Returns a digest of arrays; of other data, whose rows may come in any order, the specs."""
    if isinstance(data, ArrayData):
        return digest(compared_arrays(data))
    return repr(data.spec)


def only_losses(results: StepResults, model: keras.Model) -> StepResults:
    """Returns results whose metrics are the single losses, by Keras's names for them."""
    loss = compile_loss_of(model)
    trackers = [] if loss is None else loss.metrics
    names = {tracker.name: LOSS.format(index) for index, tracker in enumerate(trackers)}
    metrics, towers = results.metrics, results.towers
    return results._replace(
        metrics={name: metrics[key] for name, key in names.items()},
        towers=towers._replace(metrics={name: towers.metrics[key] for name, key in names.items()}),
    )
