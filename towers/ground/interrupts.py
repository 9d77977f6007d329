"""Signals: who handles those that end a program, and Ctrl-C while it starts, which Python may lose.

Python raises KeyboardInterrupt wherever the program is at that moment, and drops one that was
raised in a callback of a library or of the garbage collector.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, NoReturn

_NOTED: list[int] = []


@contextlib.contextmanager
def handling(
    numbers: Iterable[int], handler: Callable[[int, FrameType | None], object]
) -> Iterator[Callable[[], None]]:
    """The scope in which a function handles signals; yields what ends this early."""
    before: dict[int, Any] = {number: signal.signal(number, handler) for number in numbers}

    def restore() -> None:
        for number, earlier in before.items():
            signal.signal(number, earlier)

    try:
        yield restore
    finally:
        restore()


def ending_signals() -> list[int]:
    """Returns Ctrl-C's, SIGTERM and that of a closed terminal, unless ignored as under nohup."""
    is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if is_ignored else [signal.SIGHUP])]


def note_interrupts() -> None:
    """Has Ctrl-C noted in this program, unless it is ignored; it raises as before."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)


def was_interrupted() -> bool:
    """Returns whether a Ctrl-C was noted."""
    return bool(_NOTED)


def end_if_interrupted() -> None:
    """Raises KeyboardInterrupt if a Ctrl-C was noted; call it before what takes long."""
    if _NOTED:
        raise KeyboardInterrupt


def _note(number: int, frame: FrameType | None) -> NoReturn:
    _NOTED.append(number)
    raise KeyboardInterrupt
