"""How much of a long piece of work is done, and how long the rest will take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import tqdm

_SECONDS_BETWEEN_LINES = 30.0


class Progress:
    """A bar on a terminal; elsewhere a line every half a minute.

    Args:
        what: is done.
        num_bytes: in all.
        write: receives the lines.
    """

    def __init__(self, what: str, num_bytes: int, write: Callable[[str], None]):
        self._what, self._total, self._write = what, max(1, num_bytes), write
        self._done = self._before = 0
        self._began = self._wrote = time.monotonic()
        self._bar = tqdm.tqdm(
            desc=what,
            total=num_bytes,
            unit="B",
            unit_scale=True,
            disable=not sys.stderr.isatty(),
        )

    def __enter__(self) -> Progress:
        return self

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
            self._write(self._describe(now - self._began))

    def _describe(self, seconds: float) -> str:
        return describe(self._what, self._done, self._total, seconds, self._before)


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
    time_left = f"{minutes:,} minute{'' if minutes == 1 else 's'}" if minutes else "a minute"
    about = "about" if minutes else "less than"
    return (
        f"{what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB ({100 * done // total} %), "
        f"{about} {time_left} left"
    )
