"""Synchronous updates: each batch is cut into one shard per tower and makes one update."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import tensorflow as tf

from towers.batches.feed import Feed, check_end, open_feed
from towers.batches.shards import Batches, Shard
from towers.batches.sources import as_batches
from towers.batches.stop_signals import StopTraining
from towers.devices.placement import check_present
from towers.loop.finite import FiniteCheck
from towers.loop.updates import Position, Report, StepReport, end_empty_epoch
from towers.processes.processes import Processes
from towers.saving.checkpoint_files import Groups
from towers.step.results import StepResults

Split = Callable[[tf.data.Dataset, int], tf.data.Dataset]


class SynchronousUpdates:
    """The updates that all towers make jointly, for `Trainer`.

    Args:
        step: the step from `build_train_step`.
        batches: `batches(epoch, first_step) -> tf.data.Dataset` of global batches, or a data set
            of them, as `batches_from` takes it.
        position: where to begin.
        split: `split(dataset, num_towers)` cuts global batches into shards; by default into the
            shards of this process, which reads only their rows where the batches can
            (`towers.engine.RowBatches`).

    Attributes:
        position: where the training continues.
    """

    def __init__(
        self,
        step: SynchronousStep,
        batches: Batches | tf.data.Dataset,
        *,
        position: Position = Position(),
        split: Split | None = None,
    ):
        self.position = position
        self._train_step = step
        self._batches = as_batches(batches)
        self._split = split
        self._finite = FiniteCheck(step.processes.first_tower(len(step.devices)))

    @property
    def num_processes(self) -> int:
        """The number of processes that train this model."""
        return self._train_step.processes.count

    def run_epoch(self, steps: int | None, report: Report) -> None:
        """Makes the updates from `position` to the end of its epoch and reports each."""
        devices = self._train_step.devices
        dataset = self._open_shards()
        check_end(dataset, steps)
        check_present(devices)
        with open_feed(dataset, devices, may_stop=self.num_processes == 1) as feed:
            if feed.exhausted():
                self.position = end_empty_epoch(self.position)
            for shards in feed:
                report(self._run_step(shards, feed))
                if steps is not None and self.position.step >= steps:
                    break
        self.check_copies()

    def _open_shards(self) -> tf.data.Dataset:
        """Returns this process's shards of the rest of the epoch."""
        position, num_towers = self.position, len(self._train_step.devices)
        if self._split is not None:
            dataset = self._batches(position.epoch, position.epoch_step)
            return self._split(dataset, num_towers)
        processes = self._train_step.processes
        return processes.shards(self._batches, num_towers, position.epoch, position.epoch_step)

    def _run_step(self, shards: tuple[Shard, ...], feed: Feed) -> StepReport:
        before, waits = self.position, list(feed.waits)
        step = before.step + 1
        started = time.perf_counter()
        results = self._train_step(shards, step)
        self._finite.add(step, results)  # Checks the previous step, so this one need not be done.
        seconds = max(waits) + time.perf_counter() - started
        try:
            epoch_end = feed.exhausted()
        except StopTraining:  # The step is reported; then the training ends.
            epoch_end = False
        self.position = before.after_step(epoch_end=epoch_end)
        return StepReport(step, before.epoch, epoch_end, self.position, results, seconds, waits)

    def finish(self) -> None:
        """Raises NonFiniteGradientError if the last gradient was not finite; checks the copies."""
        self._finite.check()
        self.check_copies()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The scope in which no variable changes; between updates, none does anyway."""
        yield

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """The scope in which the variables hold the optimizer's averages, if it keeps any."""
        return self._train_step.averaged()

    def dry_run(self) -> None:
        """Does nothing: every tower takes part in the first update."""

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint saves, by group name."""
        return self._train_step.groups()

    def check_copies(self) -> None:
        """Raises RuntimeError unless all copies of the variables are bit-identical."""
        self._train_step.check_copies()

    @property
    def graph(self) -> tf.Graph:
        """The step's graph."""
        return self._train_step.graph


class SynchronousStep(Protocol):
    """The step that `SynchronousUpdates` needs, such as a `TrainStep`."""

    @property
    def devices(self) -> Sequence[str]:
        """The towers' devices."""

    @property
    def processes(self) -> Processes:
        """The processes that train this model."""

    def __call__(self, shards: tuple[Shard, ...], step: int) -> StepResults:
        """Runs the step with this number (the first is 1) and returns its results."""

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint saves, by group name."""

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """The scope in which the variables hold the optimizer's averages, if it keeps any."""

    def check_copies(self) -> None:
        """Raises RuntimeError unless all copies of the variables are bit-identical."""

    @property
    def graph(self) -> tf.Graph:
        """The step's graph."""
