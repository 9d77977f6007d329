"""Synchronous updates: each batch is cut into one shard per tower and makes one update."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from towers.batches.feed import Feed, check_end, open_feed
from towers.batches.shards import Batches, Shard
from towers.batches.stop_signals import StopTraining
from towers.devices.placement import check_present
from towers.loop.updates import Action, Position, Step, StepReport, Updates
from towers.step.results import StepResults

Split = Callable[[tf.data.Dataset, int], tf.data.Dataset]


class SynchronousStep(Step, Protocol):
    """The step that all towers make jointly."""

    def __call__(self, shards: tuple[Shard, ...], step: int) -> StepResults:
        """Runs the step with this number (the first is 1) and returns its results."""


def updates_of(step: Any, batches: Batches | tf.data.Dataset) -> Updates:
    """Returns the updates of a step: its own kind (`make_updates`), or those of all towers."""
    make: Callable[..., Updates] = getattr(
        step, "make_updates", functools.partial(SynchronousUpdates, step)
    )
    return make(batches)


class SynchronousUpdates(Updates):
    """The updates that all towers make jointly, for `Trainer`.

    Args:
        step: the step from `build_train_step`.
        batches, position: as in `Updates`.
        split: `split(dataset, num_towers)` cuts global batches into shards; by default into the
            shards of this process, which reads only their rows where the batches can
            (`towers.engine.RowBatches`).
    """

    step: SynchronousStep

    def __init__(
        self,
        step: SynchronousStep,
        batches: Batches | tf.data.Dataset,
        *,
        position: Position = Position(),
        split: Split | None = None,
    ):
        super().__init__(step, batches, position=position)
        self._split = split

    def run_epoch(self, steps: int | None, report: Action) -> None:
        """Makes the updates from `position` to the end of its epoch and reports each."""
        devices = self.step.devices
        dataset = self._open_shards()
        check_end(dataset, steps)
        check_present(devices)
        with open_feed(dataset, devices, may_stop=self.step.processes.count == 1) as feed:
            if feed.exhausted():
                self.position = self.position.after_empty_epoch()
            for shards in feed:
                report(self._run_step(shards, feed))
                if steps is not None and self.position.step >= steps:
                    break
        self.step.check_copies()

    def _open_shards(self) -> tf.data.Dataset:
        """Returns this process's shards of the rest of the epoch."""
        position, num_towers = self.position, len(self.step.devices)
        if self._split is not None:
            dataset = self._batches(position.epoch, position.epoch_step)
            return self._split(dataset, num_towers)
        processes = self.step.processes
        return processes.shards(self._batches, num_towers, position.epoch, position.epoch_step)

    def _run_step(self, shards: tuple[Shard, ...], feed: Feed) -> StepReport:
        before, waits = self.position, list(feed.waits)
        step = before.step + 1
        started = time.perf_counter()
        results = self.step(shards, step)
        self._finite.add(step, results)  # Checks the previous step, so this one need not be done.
        seconds = max(waits) + time.perf_counter() - started
        try:
            epoch_end = feed.exhausted()
        except StopTraining:  # The step is reported; then the training ends.
            epoch_end = False
        self.position = before.after_step(epoch_end=epoch_end)
        return StepReport(step, before.epoch, epoch_end, self.position, results, seconds, waits)
