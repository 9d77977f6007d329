"""Requests to stop: the signals that a training has received and not acted upon yet."""

from __future__ import annotations

import queue
import signal
import time
from typing import Any

from towers.loop.updates import StopTraining

PATIENCE = 1.0  # Seconds for which a request to stop leaves a data set to yield its next batch.
POLL_SECONDS = 0.2
_RECEIVED: list[list[int]] = []  # The signals of each `stop_on_signals`, the innermost last.


def listen(received: list[int]) -> None:
    """Takes the first of these signals, which arrive later, for a request to stop."""
    _RECEIVED.append(received)


def forget(received: list[int]) -> None:
    """Withdraws the request of such a list."""
    _RECEIVED[:] = [one for one in _RECEIVED if one is not received]


def request() -> str:
    """Returns the name of the signal that requests to stop, or an empty string."""
    numbers = [one[0] for one in _RECEIVED if one]
    return signal.Signals(numbers[0]).name if numbers else ""


def take(items: queue.SimpleQueue[Any] | queue.Queue[Any], *, may_stop: bool) -> Any:
    """Returns the next item of a queue that a data set fills.

    Signals are handled meanwhile, as Python does only where its main thread does not wait within
    TensorFlow.

    Args:
        items: the queue.
        may_stop: whether a request to stop ends the wait.

    Raises:
        StopTraining: a stop is requested, and no item has come for `PATIENCE` seconds.
    """
    requested_at: float | None = None
    while True:
        try:
            return items.get(timeout=POLL_SECONDS)
        except queue.Empty:
            now = time.monotonic()
            reason = request() if may_stop else ""
            if reason and requested_at is None:
                requested_at = now
            elif requested_at is not None and now - requested_at > PATIENCE:
                raise StopTraining(reason) from None
