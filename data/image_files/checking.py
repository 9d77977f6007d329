"""The check of every picture before the training: each is decoded once, and the finding is kept."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from towers.data.image_files.decoding import examine
from towers.data.image_files.records import Example, read_picture
from towers.ground.cores import num_cores
from towers.ground.durable import make_folder
from towers.ground.progress import progress

FINDINGS = "pictures.sqlite"
CHUNK = 512  # Examples that are checked at a time.
SEPARATOR = ","  # Of traits.
COMMIT_SECONDS = 10.0  # The most that a killed check loses.
TABLE = """CREATE TABLE IF NOT EXISTS findings (
    path TEXT, offset INTEGER, stamp TEXT, digest BLOB, labels TEXT, traits TEXT, highest INTEGER,
    problem TEXT, PRIMARY KEY (path, offset))"""


class Finding(NamedTuple):
    """What the check of an example found.

    Attributes:
        digest: of the picture's bytes.
        labels: those of the record, None for another file.
        traits, highest: as in `Picture`.
        problem: why it cannot be used, or nothing.
        is_of_content: whether it follows from the file's content; not from an error of the system.
    """

    digest: bytes = b""
    labels: tuple[str, ...] | None = None
    traits: frozenset[str] = frozenset()
    highest: int = 0
    problem: str = ""
    is_of_content: bool = True


def check_examples(
    examples: Iterable[Example], folder: Path, *, threads: int | None = None
) -> Iterator[tuple[Example, Finding]]:
    """Yields each example with what its check found, in their order.

    What was found is kept in `folder`, so that only new and changed files are read again, and a
    killed check continues.

    By default one thread per core decodes. Raises OSError if the findings cannot be read or
    written.
    """
    make_folder(folder)
    path, examples = folder / FINDINGS, iter(examples)
    bar = progress(None, "checking pictures", "picture")
    try:
        database = sqlite3.connect(path, timeout=60, isolation_level="DEFERRED")
        with (
            contextlib.closing(database),
            ThreadPoolExecutor(threads or num_cores()) as pool,
            bar,
        ):
            database.execute(TABLE)
            while chunk := list(itertools.islice(examples, CHUNK)):
                findings = check_chunk(chunk, database, pool.map)
                bar.update(len(chunk))
                yield from zip(chunk, findings, strict=True)
    except sqlite3.Error as error:
        found = f"{error}. Make room on its disk, or delete it: what it keeps is found again"
        if "locked" in str(error):
            found = (
                "another process has written to it for a minute. Begin again when it has checked "
                "the pictures"
            )
        raise OSError(f"{path} cannot be used: {found}.") from error


def check_chunk(
    chunk: list[Example],
    database: sqlite3.Connection,
    map_all: Callable[..., Iterator[Finding]],
) -> list[Finding]:
    """Returns the findings about some examples, from the database where they are up to date.

    What is new is written at the end, or every few seconds, so that no other process waits long.
    """
    stamps = stamps_of(chunk)
    findings = [known_finding(database, *pair) for pair in zip(chunk, stamps, strict=True)]
    missing = [index for index, finding in enumerate(findings) if finding is None]
    new = map_all(check_example, [chunk[index] for index in missing])
    unwritten, written = [], time.monotonic()
    for index, finding in zip(missing, new, strict=True):
        findings[index] = finding
        if finding.is_of_content:
            unwritten.append((chunk[index], stamps[index], finding))
        if time.monotonic() - written > COMMIT_SECONDS:
            remember(database, unwritten)
            unwritten, written = [], time.monotonic()
    remember(database, unwritten)
    return [finding for finding in findings if finding is not None]


def stamps_of(chunk: list[Example]) -> list[str]:
    """Returns what changes with each example's file: its size and its time."""
    stamps: dict[Path, str] = {}
    for example in chunk:
        if example.path not in stamps:
            with contextlib.suppress(OSError):
                status = example.path.stat()
                stamps[example.path] = f"{status.st_size} {status.st_mtime_ns}"
    return [stamps.get(example.path, "") for example in chunk]


def known_finding(database: sqlite3.Connection, example: Example, stamp: str) -> Finding | None:
    """Returns what an earlier check found about an unchanged file, or None."""
    row = database.execute(
        "SELECT stamp, digest, labels, traits, highest, problem FROM findings"
        " WHERE path=? AND offset=?",
        key_of(example),
    ).fetchone()
    if row is None or not stamp or row[0] != stamp:
        return None
    labels = None if row[2] is None else tuple(json.loads(row[2]))
    traits = frozenset(filter(None, row[3].split(SEPARATOR)))
    return Finding(row[1], labels, traits, row[4], row[5])


def remember(
    database: sqlite3.Connection, findings: Sequence[tuple[Example, str, Finding]]
) -> None:
    """Keeps what was found about examples with these stamps."""
    rows = [
        (
            *key_of(example),
            stamp,
            finding.digest,
            None if finding.labels is None else json.dumps(finding.labels),
            SEPARATOR.join(sorted(finding.traits)),
            finding.highest,
            finding.problem,
        )
        for example, stamp, finding in findings
    ]
    if rows:
        with database:
            database.executemany("INSERT OR REPLACE INTO findings VALUES (?,?,?,?,?,?,?,?)", rows)


def key_of(example: Example) -> tuple[str, int]:
    """Returns the key of an example; a name that is no UTF-8 keeps its bytes, escaped."""
    path = os.fsencode(os.path.abspath(example.path)).decode("utf-8", "backslashreplace")
    return path, example.offset


def check_example(example: Example) -> Finding:
    """Returns what reading and decoding an example finds."""
    labels: tuple[str, ...] | None = None
    try:
        encoded, labels = read_picture(example.path, example.offset, example.length)
        picture = examine(encoded)
    except FileNotFoundError:
        return Finding(problem="there is no such file", is_of_content=False)
    except OSError as error:
        problem = f"it cannot be read: {error.strerror}"
        return Finding(problem=problem, is_of_content=False)
    except ValueError as error:
        return Finding(labels=labels, problem=str(error))
    digest = hashlib.blake2b(encoded, digest_size=16).digest()
    return Finding(digest, labels, picture.traits, picture.highest)
