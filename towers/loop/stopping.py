"""Reasons to stop: a signal, no improvement, or a request from another process."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence
from types import FrameType

from towers.loop import requests
from towers.loop.actions import Best
from towers.loop.updates import Action, StepReport, StopTraining
from towers.run.processes import NO_SIGNAL, Processes

STOPPED_ELSEWHERE = "another process was asked to stop"


def stop_early(best: Best, *, patience: int) -> Action:
    """Returns an action that stops after `patience` evaluations without improvement.

    Args:
        best: the best evaluation, updated by the code that evaluates.
        patience: the number of evaluations.
    """

    def check(report: StepReport) -> None:
        if best.stale >= patience:
            reached = "none" if best.value is None else f"{best.value:.4f} at step {best.step}"
            raise StopTraining(
                f"{best.metric} has not improved for {best.stale} evaluations (best: {reached})"
            )

    return check


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Action]:
    """The scope in which Ctrl-C and SIGTERM end the training after the current step.

    Yields the action to give to the trainer. A training that waits for its next batch ends after
    a second. A second signal ends the process at once.
    """
    received = requests.listen()

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            restore()
            signal.raise_signal(number)

    def check(report: StepReport) -> None:
        if received:
            raise StopTraining(signal.Signals(received[0]).name)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, remember) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        yield check
    finally:
        requests.forget(received)
        restore()


def share_stop_requests(processes: Processes, actions: Sequence[Action]) -> list[Action]:
    """Returns actions with which all processes stop after the same step.

    A request to stop in any process reaches the others with the next step's sum. If its reason is
    a signal's name, all processes report this reason.

    Args:
        processes: the processes that train this model.
        actions: the actions of this process; each may raise `StopTraining`.
    """
    if processes.count == 1:
        return list(actions)
    reasons: list[str] = []

    def remember(action: Action) -> Action:
        def act(report: StepReport) -> None:
            try:
                action(report)
            except StopTraining as request:
                reasons.append(str(request))
                processes.request_stop(signal_number(reasons[0]))

        return act

    def stop(report: StepReport) -> None:
        requests = processes.stop_requests()
        if not requests:
            return
        if requests[-1] != NO_SIGNAL:
            raise StopTraining(signal.Signals(requests[-1]).name)
        raise StopTraining(reasons[0] if reasons else STOPPED_ELSEWHERE)

    return [stop, *map(remember, actions)]


def signal_number(reason: str) -> int:
    """Returns the number of the signal that a reason names, or `NO_SIGNAL`."""
    return signal.Signals.__members__.get(reason, NO_SIGNAL)
