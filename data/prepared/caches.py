"""Caches that are prepared once: whole or not there, by one process at a time, and gone on with."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from towers.ground.durable import make_folder, publish
from towers.ground.locks import open_locked

_UNFINISHED = ".unfinished"
_ABANDONED_SECONDS = 7 * 24 * 3600
_WAIT_SECONDS = 0.2

Write = Callable[[str], None]


class Prepared(Protocol):
    """What a cache is opened as; `summary` has lines about what was prepared."""

    summary: list[str]


Cache = TypeVar("Cache", bound=Prepared)


def open_or_prepare(
    cache: Path,
    open_cache: Callable[[Path], Cache],
    fill: Callable[[Path, Path], None],
    write: Write,
    what: str = "corpus",
) -> Cache:
    """Returns what a cache holds; it is prepared first unless it is there and whole.

    What a killed process has prepared stays, and the next call goes on from there. If two
    processes prepare the same cache, one waits for the other.

    Args:
        cache: its folder; the folder above it is that of all caches.
        open_cache: opens a folder; raises ValueError if something in it is damaged.
        fill: is given the folder of the unfinished cache, and one for what is needed only while it
            is prepared; both have what a killed process left in them.
        write: receives warnings, and the summary of a new cache.
        what: the cache holds, for the messages.

    Raises:
        ValueError: as `fill` does; nothing unfinished stays.
        OSError: something cannot be written; what is prepared stays.
    """
    opened = _opened(cache, open_cache, write)
    if opened:
        return opened
    try:
        make_folder(cache.parent)
        _remove_abandoned(cache.parent)
        with alone(cache, what, write):
            opened = _opened(cache, open_cache, lambda _: None)  # Another process was faster.
            if opened:
                return opened
            _prepare(cache, open_cache, fill)
    except OSError as error:
        raise OSError(
            f"The {what} cannot be prepared in {cache.parent}: "
            f"{error.strerror or 'the disk may be full'}. Make room there, or start in another "
            "working folder. What is prepared stays, and the same command goes on."
        ) from error
    corpus = open_cache(cache)
    for line in corpus.summary:
        write(line)
    return corpus


def _opened(cache: Path, open_cache: Callable[[Path], Cache], warn: Write) -> Cache | None:
    """Returns what a cache holds, None without one or, with a warning, if it is damaged."""
    if not cache.exists():
        return None
    try:
        return open_cache(cache)
    except ValueError as error:
        warn(f"warning: {error} It is prepared again.")
        return None


def _prepare(
    cache: Path, open_cache: Callable[[Path], Cache], fill: Callable[[Path, Path], None]
) -> None:
    unfinished = cache.with_name(f".{cache.name}{_UNFINISHED}")
    whole, work = unfinished / "cache", unfinished / "work"
    damaged = unfinished / "damaged"
    make_folder(whole)
    try:
        if work.exists() or _opened(whole, open_cache, lambda _: None) is None:
            make_folder(work)
            fill(whole, work)
    except ValueError:
        shutil.rmtree(unfinished)
        raise
    shutil.rmtree(work, ignore_errors=True)
    if cache.exists():  # Damaged: renamed first, so that its readers keep whole files.
        shutil.rmtree(damaged, ignore_errors=True)
        cache.rename(damaged)
    publish(whole, cache)
    shutil.rmtree(unfinished)


@contextlib.contextmanager
def alone(cache: Path, what: str, write: Write) -> Iterator[None]:
    """Waits until no other process prepares this cache; a killed one does not count."""
    path = cache.with_name(f".{cache.name}.lock")
    told: list[str] = []

    def busy(_: int) -> None:
        if not told:
            told.append(f"waiting for another process that prepares the same {what}")
            write(told[0])
        time.sleep(_WAIT_SECONDS)

    def warn(error: OSError) -> None:
        write(
            f"warning: {path.parent} cannot lock ({error.strerror or error}): prepare it only once."
        )

    descriptor = open_locked(path, busy, warn)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # Still locked: a waiting process sees that it is gone.
        os.close(descriptor)


def _remove_abandoned(caches: Path) -> None:
    """Removes unfinished caches that have not been written to for a week."""
    for unfinished in caches.glob(f".*{_UNFINISHED}"):
        with contextlib.suppress(OSError):
            times = [path.stat().st_mtime for path in [unfinished, *unfinished.rglob("*")]]
            if time.time() - max(times) > _ABANDONED_SECONDS:
                shutil.rmtree(unfinished)
