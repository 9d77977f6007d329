"""Stop signals: those that a training has received and not acted upon yet."""

from __future__ import annotations

import signal

_RECEIVED: list[list[int]] = []  # The signals of each `stop_on_signals`, the innermost last.


class StopTraining(Exception):  # noqa: N818 - a request, like StopIteration.
    """An action raises it to end the training after this step; the message says why."""


def watch(received: list[int]) -> None:
    """Takes the first of these signals, which arrive later, for a request to stop."""
    _RECEIVED.append(received)


def unwatch(received: list[int]) -> None:
    """Withdraws the request of such a list."""
    _RECEIVED[:] = [one for one in _RECEIVED if one is not received]


def pending_signal() -> str:
    """Returns the name of the signal that requests to stop, or an empty string."""
    numbers = [one[0] for one in _RECEIVED if one]
    return signal.Signals(numbers[0]).name if numbers else ""
