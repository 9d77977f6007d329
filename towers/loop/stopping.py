"""Reasons to stop: a signal, no improvement, or a request from another process."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

from towers.batches.feed import StopTraining, watched
from towers.ground.arguments import check_above_0
from towers.ground.interrupts import end_if_interrupted, ending_signals, handling
from towers.ground.progress import count_of
from towers.loop.updates import Action, StepReport
from towers.processes.processes import NO_SIGNAL, Processes

STOPPED_ELSEWHERE = "another process was asked to stop"


def stop_early(best: Best, *, patience: int) -> Action:
    """Returns an action that stops after `patience` evaluations without improvement.

    Args:
        best: the best evaluation, updated by the code that evaluates.
        patience: the number of evaluations.
    """

    return lambda report: best.check(patience)


def stop_after(minutes: float) -> Action:
    """Returns an action that stops so many minutes after this call.

    Args:
        minutes: above 0.

    Raises:
        ValueError: minutes is not above 0.
    """
    check_above_0(minutes=minutes)
    last = time.monotonic() + 60 * minutes

    def check(report: StepReport) -> None:
        if time.monotonic() >= last:
            raise StopTraining(f"{minutes:g} minute{' is' if minutes == 1 else 's are'} over")

    return check


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopSignals]:
    """The scope in which Ctrl-C, SIGTERM and a closed terminal end the training after its step.

    Yields the action to give to the trainer. A training that waits for its next batch ends after a
    second. A second signal ends the process at once, except that of a closing terminal, which may
    come twice. Python delivers signals only to the main thread: in another one, such as a Ray
    worker's, only `request_stop` ends the training.

    Raises:
        KeyboardInterrupt: a Ctrl-C was lost before (`towers.ground.interrupts`).
    """
    end_if_interrupted()
    signals = StopSignals()

    def remember(number: int, frame: FrameType | None) -> None:
        if signals.received and number != signal.SIGHUP:
            restore()
            signal.raise_signal(number)
        signals.receive(number)

    is_main = threading.current_thread() is threading.main_thread()
    numbers = ending_signals() if is_main else []
    with handling(numbers, remember) as restore, watched(signals.received):
        yield signals


class StopSignals:
    """An action that ends the training once a signal was received.

    Attributes:
        received: the numbers of the signals, in order.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._interrupts = False

    def __call__(self, report: StepReport | None = None) -> None:
        """Raises `StopTraining` with the name of the first signal, if there was one."""
        if self.received:
            raise StopTraining(signal.Signals(self.received[0]).name)

    def receive(self, number: int) -> None:
        """Notes a signal; in the scope of `at_once`, raises `StopTraining`."""
        self.received.append(number)
        if self._interrupts:
            self._interrupts = False
            self()

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """The scope of work that a signal may interrupt, such as a long evaluation."""
        self()
        self._interrupts = True
        try:
            yield
        except Exception:  # A layer that was being traced has made another of the request.
            self()
            raise
        finally:
            self._interrupts = False


def share_stop_requests(processes: Processes, actions: Sequence[Action]) -> list[Action]:
    """Returns actions with which all processes stop after the same step, as a `Trainer` does.

    A request to stop in any process reaches the others with the next step's sum. If its reason is
    a signal's name, all processes report this reason. What was requested before is forgotten.

    Args:
        processes: the processes that train this model.
        actions: the actions of this process; each may raise `StopTraining`.
    """
    if processes.count == 1:
        return list(actions)
    processes.forget_stop_requests()
    reasons: list[str] = []

    def remember(action: Action) -> Action:
        def act(report: StepReport) -> None:
            try:
                action(report)
            except StopTraining as request:
                reasons.append(str(request))
                signals = signal.Signals.__members__
                processes.request_stop(signals.get(reasons[0], NO_SIGNAL))

        return act

    def stop(report: StepReport) -> None:
        requests = processes.stop_requests()
        if not requests:
            return
        if requests[-1] != NO_SIGNAL:
            raise StopTraining(signal.Signals(requests[-1]).name)
        raise StopTraining(reasons[0] if reasons else STOPPED_ELSEWHERE)

    return [stop, *map(remember, actions)]


@dataclasses.dataclass
class Best:
    """The best evaluation so far, to be saved in checkpoints.

    Args:
        metric: the name of the metric to compare.
        maximize: whether a larger value is better.
        value: the best value, or None before the first evaluation.
        step: the step of the best value.
        stale: the number of evaluations since then.
    """

    metric: str
    maximize: bool
    value: float | None = None
    step: int = 0
    stale: int = 0

    def improves(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Records an evaluation and returns whether it is the best so far; no infinity is."""
        value = metrics[self.metric]
        sign = 1 if self.maximize else -1
        better = math.isfinite(value) and (self.value is None or sign * value > sign * self.value)
        if better:
            self.value, self.step, self.stale = value, step, 0
        else:
            self.stale += 1
        return better

    def check(self, patience: int) -> None:
        """Raises StopTraining if the last `patience` evaluations, or more, were no better."""
        if self.stale >= patience:
            reached = "none" if self.value is None else f"{self.value:.4f} at step {self.step}"
            raise StopTraining(
                f"{self.metric} has not improved for {count_of(self.stale, 'evaluation')} (best: "
                f"{reached})"
            )
