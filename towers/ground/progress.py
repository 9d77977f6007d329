"""How much of a long piece of work is done, and how long the rest will take."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from towers.ground.interrupts import end_if_interrupted

if TYPE_CHECKING:
    import tqdm

DELAY_SECONDS = 2
_SECONDS_BETWEEN_LINES = 30.0
Item = TypeVar("Item")


def progress(total: int | None, what: str, unit: str) -> tqdm.tqdm:
    """Returns a bar that shows nothing unless stderr is a terminal, and goes when it is closed.

    Args:
        total: how many there are to count, by `update`; None if that is not known.
        what: is done.
        unit: of what is counted; bytes (`B`) are shown in thousands and millions.

    Raises:
        KeyboardInterrupt: a Ctrl-C was lost before (`towers.ground.interrupts`).
    """
    end_if_interrupted()
    import tqdm  # It takes a while, and no help needs it.

    hidden = (total is not None and total < 2) or not sys.stderr.isatty()
    return tqdm.tqdm(
        desc=what, total=total, unit=unit, disable=hidden, delay=DELAY_SECONDS, leave=False,
        dynamic_ncols=True, unit_scale=unit == "B",
    )  # fmt: skip


def counted(items: Sequence[Item], what: str, unit: str = "batch") -> Iterator[Item]:
    """Yields the items while a bar shows how many are done."""
    with progress(len(items), what, unit) as bar:
        for item in items:
            yield item
            bar.update()


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Shows on a terminal what takes seconds and cannot be counted, until it is done."""
    is_shown = sys.stderr.isatty()
    if is_shown:
        print(f"{what} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)  # ECMA-48, EL.


class Progress(contextlib.AbstractContextManager["Progress"]):
    """A bar on a terminal; elsewhere a line every half a minute."""

    def __init__(self, what: str, num_bytes: int, write: Callable[[str], None]):
        self._what, self._total, self._write = what, max(1, num_bytes), write
        self._done = self._before = 0
        self._began = self._wrote = time.monotonic()
        self._bar = progress(num_bytes, what, "B")

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def restart(self) -> None:
        """Counts what is done so far as that of an earlier process, which tells no speed."""
        self._began, self._before = time.monotonic(), self._done

    def add(self, num_bytes: int) -> None:
        """Counts bytes that are done."""
        self._done += num_bytes
        self._bar.update(num_bytes)
        now = time.monotonic()
        if self._bar.disable and now - self._wrote >= _SECONDS_BETWEEN_LINES:
            self._wrote = now
            seconds = now - self._began
            self._write(describe(self._what, self._done, self._total, seconds, self._before))


def count_of(number: int, noun: str) -> str:
    """Returns a number with its noun.

    >>> count_of(1, "step"), count_of(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def describe(what: str, done: int, total: int, seconds: float, before: int = 0) -> str:
    """Returns a line about work that has taken some seconds so far.

    >>> describe("tokenising", 250_000_000, 1_000_000_000, 60.0)
    'tokenising: 250 of 1,000 MB (25 %), about 3 minutes left'

    Args:
        what: is done.
        done, total: numbers of bytes.
        seconds: since `before` bytes were done.
        before: bytes that took none of these seconds.
    """
    done = min(done, total)
    left = seconds * (total - done) / max(1, done - before)
    minutes = round(left / 60)
    time_left = count_of(minutes, "minute") if minutes else "a minute"
    about = "about" if minutes else "less than"
    return (
        f"{what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB ({100 * done // total} %), "
        f"{about} {time_left} left"
    )
