"""Updates: what a trainer makes, the report of each, and the check that its gradient is finite."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from towers.batches.calls import in_calls
from towers.batches.feed import Feed, StopTraining, check_end, open_feed
from towers.batches.shards import Batches, check_shards, order_of
from towers.batches.sources import as_batches
from towers.devices.placement import check_present
from towers.processes.agreement import check_same_batches, take_from_chief
from towers.processes.processes import Processes
from towers.saving.checkpoint_files import Groups
from towers.saving.run_record import package_versions
from towers.step.results import StepResults


@dataclasses.dataclass(frozen=True)
class Position:
    """The progress of a training: all that a checkpoint saves of the loop and of the data.

    Attributes:
        step: the number of steps done since the beginning of the run.
        epoch: the epoch of the next step, from 0.
        epoch_step: the number of steps done in that epoch; its data continues there.
    """

    step: int = 0
    epoch: int = 0
    epoch_step: int = 0

    def after_step(self, *, epoch_end: bool) -> Position:
        """Returns the position after one more step.

        >>> Position(3, 0, 3).after_step(epoch_end=True)
        Position(step=4, epoch=1, epoch_step=0)
        """
        if epoch_end:
            return Position(self.step + 1, self.epoch + 1, 0)
        return Position(self.step + 1, self.epoch, self.epoch_step + 1)

    def after_empty_epoch(self) -> Position:
        """Returns the position after an epoch that had no batch left.

        Raises:
            ValueError: the epoch has no data at all.
        """
        if self.epoch_step == 0:
            raise ValueError(
                "No training step can run: the data set has no batch in epoch "
                f"{self.epoch}. Is it empty, or smaller than one batch with the remainder "
                "dropped?"
            )
        return Position(self.step, self.epoch + 1, 0)


@dataclasses.dataclass(frozen=True)
class StepReport:
    """The report of one update, the argument of every action.

    Attributes:
        step: the number of the update, from 1.
        epoch: the number of its epoch, from 0.
        epoch_end: whether it was the last update of its epoch.
        position: where the training continues after it. For an asynchronous update this is only a
            count; to save, use `Trainer.position` within `Trainer.paused()`.
        results: the update's results; reading one waits for the devices.
        seconds: the time of the update in seconds, the longest of `waits` included, actions
            excluded.
        waits: for each tower, the time in seconds that its shard was waited for.
        tower: the tower of an asynchronous update; None if all towers took part.
        staleness: for an asynchronous update, how many updates of other towers came between its
            tower's read of the variables and its write.
        call_end: whether it was the last update of its call of the step, and so the variables and
            the trainer's position are those after it.
    """

    step: int
    epoch: int
    epoch_end: bool
    position: Position
    results: StepResults
    seconds: float
    waits: Sequence[float]
    tower: int | None = None
    staleness: int = 0
    call_end: bool = True


Action = Callable[[StepReport], Any]


class Step(Protocol):
    """What every step has: a `TrainStep`, a `JointStep`, an `AsyncStep`, or one of your own.

    One that all towers make jointly is called `step(shards, number) -> StepResults`. It may have
    more: the `specs` of the shards, `steps_per_call`, `several(queued, first)`, which makes so many
    updates, and `settings()`, by name, which must be equal in several processes.
    """

    def __call__(self, *args: Any) -> Any:
        """Makes one update and returns its results."""

    @property
    def devices(self) -> Sequence[str]:
        """The towers' devices."""

    @property
    def processes(self) -> Processes:
        """The processes that train this model."""

    @property
    def graph(self) -> tf.Graph:
        """The step's graph."""

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint saves, by group name."""

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Returns the scope in which the variables hold the optimizer's averages, if it keeps any.

        Afterwards they hold their own values again, with which the training goes on. It is entered
        while paused. At the end of a training it is entered and not left: no generator, which
        Python leaves when it throws it away.
        """

    def check_copies(self) -> None:
        """Raises RuntimeError unless all copies of the variables are bit-identical."""


def updates_of(step: Any, batches: Batches | tf.data.Dataset) -> Updates:
    """Returns the updates of a step: its own kind (`make_updates`), or those of all towers."""
    make: Callable[..., Updates] = getattr(
        step, "make_updates", functools.partial(SynchronousUpdates, step)
    )
    return make(batches)


class Updates:
    """The updates that a `Trainer` makes with a step: each way of training is a class of its own.

    Args:
        step: the step.
        batches: `batches(epoch, first_step) -> tf.data.Dataset` of global batches, or a data set
            of them, as `batches_from` takes it.
        position: where to begin.

    Attributes:
        step: as given.
        position: where the training continues; a trainer that resumes sets it.
    """

    def __init__(
        self, step: Step, batches: Batches | tf.data.Dataset, *, position: Position = Position()
    ):
        self.step = step
        self.position = position
        self._batches = as_batches(batches)
        self._finite = FiniteCheck(step.processes.first_tower(len(step.devices)))

    @property
    def order(self) -> dict[str, int]:
        """What the batches of a step follow from, besides the data, as far as it is known."""
        return order_of(self._batches)

    def take_from_chief(self) -> None:
        """Takes the variables and the position of the chief of several processes.

        Raises:
            ValueError: in every process, if not all have such variables, settings and batches.
        """
        processes = self.step.processes
        if processes.count == 1:
            return
        settings = {
            "towers": len(self.step.devices),
            **getattr(self.step, "settings", dict)(),
            "versions": package_versions(),
        }
        check_same_batches(processes, self._batches, settings)
        take_from_chief(processes, self.step.groups())
        self.position = Position(*processes.of_chief(dataclasses.astuple(self.position)))

    def run_epoch(self, steps: int | None, report: Action) -> None:
        """Makes the updates from `position` to the end of its epoch and reports each.

        Args:
            steps: the number of the last step to make, counted from the beginning of the run, or
                None.
            report: called with a `StepReport` after each update. An exception that it raises ends
                the epoch and passes through; `position` is up to date then.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define `run_epoch`, which makes its updates."
        )

    def _check(self, dataset: tf.data.Dataset, steps: int | None) -> None:
        """Raises ValueError for shards that have no end, no devices, or another step's specs."""
        check_shards(dataset, getattr(self.step, "specs", dataset.element_spec))
        check_end(dataset, steps)
        check_present(self.step.devices)

    def finish(self) -> None:
        """Raises NonFiniteGradientError if the last gradient was not finite; checks the copies."""
        self._finite.check()
        self.step.check_copies()

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """Returns the scope in which no variable changes and `position` is up to date.

        Between updates that all towers make jointly, none changes anyway.
        """
        return contextlib.nullcontext()

    def dry_run(self) -> None:
        """Runs the towers that the first update leaves out; no variable changes."""


class SynchronousUpdates(Updates):
    """The updates that all towers make jointly, for `Trainer`.

    Args:
        step: the step from `build_train_step`.
        batches, position: as in `Updates`.
        split: `split(dataset, num_towers)` cuts global batches into shards; by default into the
            shards of this process, which reads only their rows where the batches can
            (`towers.engine.RowBatches`).
    """

    step: Any  # It may have more than every step has.

    def __init__(
        self,
        step: Step,
        batches: Batches | tf.data.Dataset,
        *,
        position: Position = Position(),
        split: Callable[[tf.data.Dataset, int], tf.data.Dataset] | None = None,
    ):
        super().__init__(step, batches, position=position)
        self._split = split

    def run_epoch(self, steps: int | None, report: Action) -> None:
        """Makes the updates from `position` to the end of its epoch and reports each."""
        devices, dataset = self.step.devices, self._open_shards()
        self._check(dataset, steps)
        if self._per_call > 1:
            left = None if steps is None else steps - self.position.step
            dataset = in_calls(dataset, self._per_call, self.position.step % self._per_call, left)
        with open_feed(dataset, devices, may_stop=self.step.processes.count == 1) as feed:
            if feed.exhausted():
                self.position = self.position.after_empty_epoch()
            for shards in feed:
                self._call(shards, feed, report)
                if self._per_call > 1:  # Its results are numbers already: nothing is waited for.
                    self._finite.check()
                if steps is not None and self.position.step >= steps:
                    break
        self.step.check_copies()

    @property
    def _per_call(self) -> int:
        """How many updates one call of the step makes."""
        return getattr(self.step, "steps_per_call", 1)

    def _open_shards(self) -> tf.data.Dataset:
        """Returns this process's shards of the rest of the epoch."""
        position, num_towers = self.position, len(self.step.devices)
        if self._split is not None:
            return self._split(self._batches(position.epoch, position.epoch_step), num_towers)
        processes = self.step.processes
        return processes.shards(self._batches, num_towers, position.epoch, position.epoch_step)

    def _call(self, batches: Any, feed: Feed, report: Action) -> None:
        """Makes the updates of one call, and reports each.

        They are reported, and the position counts them, also if the check or the wait for the next
        batch fails or is interrupted.
        """
        before, waits = self.position, feed.waits
        started, several = time.perf_counter(), self._per_call > 1
        make = self.step.several if several else self.step
        made = make(batches, before.step + 1)
        made = made if several else [made]
        is_cut = several and len(made) < len(batches)
        ended, is_end = None, False
        try:
            with contextlib.suppress(StopTraining):  # It comes again after the reports.
                for step, results in enumerate(made, before.step + 1):
                    self._finite.add(step, results)  # Waits for the one before and checks it.
                ended = time.perf_counter()
                is_end = not is_cut and feed.exhausted()
        finally:
            seconds = (max(waits) + (ended or time.perf_counter()) - started) / len(made)
            waits, reports = [wait / len(made) for wait in waits], []
            for step, results in enumerate(made, before.step + 1):
                call_end = step == before.step + len(made)
                epoch, epoch_end = before.epoch, is_end and call_end
                self.position = position = self.position.after_step(epoch_end=epoch_end)
                own = (step, epoch, epoch_end, position, results, seconds, waits)
                reports.append(StepReport(*own, call_end=call_end))
            tell([report], reports)


def tell(actions: Sequence[Action], reports: Sequence[StepReport]) -> None:
    """Calls every action with each report, even if one of them requests a stop."""
    stop: StopTraining | None = None
    for report, action in itertools.product(reports, actions):
        try:
            action(report)
        except StopTraining as request:
            stop = stop or request
    if stop is not None:
        raise stop


class NonFiniteGradientError(RuntimeError):
    """A gradient is NaN or infinite; the update that it belongs to changed no variable."""


class FiniteCheck:
    """Raises for an update with a non-finite gradient, unless a smaller loss scale may help."""

    def __init__(self, first_tower: int = 0):
        self._first_tower = first_tower
        self._unchecked: tuple[int, StepResults, int | None] | None = None

    def add(self, step: int, results: StepResults, tower: int | None = None) -> None:
        """Checks the previous update, which is done by now, and stores this one for the next check.

        Args:
            tower: the tower of an asynchronous update, or None.

        Raises:
            NonFiniteGradientError: as `check`.
        """
        self.check()
        self._unchecked = (step, results, tower)

    def check(self) -> None:
        """Checks the last update that was added.

        Raises:
            NonFiniteGradientError: the gradient was not finite, and the loss scale is not above 1.
        """
        if self._unchecked is None:
            return
        (step, results, tower), self._unchecked = self._unchecked, None
        if bool(results.finite) or float(results.loss_scale) > 1:
            return
        raise NonFiniteGradientError(describe(step, results, tower, self._first_tower))


def describe(step: int, results: StepResults, tower: int | None, first_tower: int) -> str:
    """Returns a message that names the step and the towers with a non-finite gradient."""
    norms = results.towers.gradient_norm
    not_finite = [
        f"tower {first_tower + index} (loss {float(results.towers.loss[index]):.4g})"
        for index in (range(norms.shape[0]) if tower is None else [tower])
        if not bool(tf.math.is_finite(norms[index]))
    ]
    where = ", ".join(not_finite) or (
        "on no tower of this process, only in the sum over all processes"
    )
    return (
        f"The gradient is not finite at step {step}: {where}. The update changed no variable. Try "
        "a lower learning rate, warm-up or clipping, and check the data for bad examples."
    )
