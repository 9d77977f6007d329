"""Ctrl-C while a program starts, which Python may lose.

It raises KeyboardInterrupt wherever the program is at that moment, and drops one that was raised in
a callback of a library or of the garbage collector.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

_NOTED: list[int] = []


def note_interrupts() -> None:
    """Has Ctrl-C noted in this program, unless it is ignored; it raises as before."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)


def was_interrupted() -> bool:
    """Returns whether a Ctrl-C was noted."""
    return bool(_NOTED)


def _note(number: int, frame: FrameType | None) -> NoReturn:
    _NOTED.append(number)
    raise KeyboardInterrupt
