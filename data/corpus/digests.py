"""The digests of a corpus's content, and the choice of its held-out dialogues by a hash."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from towers.data.folders import folders_below
from towers.data.text.files import reason_of

Dialogues = Iterable[Sequence[str]]
Item = TypeVar("Item")
_FEW = 1000  # Dialogues that are in memory at a time.
_BLOCK_BYTES = 1 << 20


def digest_files(paths: Sequence[str | os.PathLike[str]], kind: str) -> str:
    """Returns a digest of the contents of files and folders, about 1 GB/s.

    If the kind is to be recognised, the suffixes of the files are part of the digest.

    Raises:
        ValueError: a file cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in all_files(map(Path, paths)):
        suffixes = "".join(path.suffixes[-2:]).lower() if kind == "auto" else ""
        digest.update(os.fsencode(f"{suffixes}|{digest_file(path)}\n"))
    return digest.hexdigest()


def all_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yields the files, the files in the folders, and the second file of a Cornell pair."""
    for path in paths:
        if not path.is_dir():
            yield from dict.fromkeys([path, *_partners(path)])
            continue
        for parent, names in folders_below(path):
            yield from (parent / name for name in names if (parent / name).is_file())


def _partners(path: Path) -> list[Path]:
    names = ("lines", "conversations")
    partners = [path.with_name(path.name.replace(*pair)) for pair in (names, names[::-1])]
    return sorted(partner for partner in partners if partner.is_file())


def digest_file(path: Path) -> str:
    """Returns the digest of a file's content; ValueError if it cannot be read."""
    try:
        begun = _begun.pop(_identity(path), None)
        return begun.result() if begun else _digest_content(path)
    except OSError as error:
        raise ValueError(
            f"{path}: expected a file to read, found: {reason_of(error)}. Check the path and its "
            "permissions."
        ) from error


def begin_digests(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Begins the digests of files beside what follows, such as an import; `digest_file` takes them.

    Those of folders, and of what is no file, do not begin. What `digest_file` finds changed it
    reads again.
    """
    files = {_identity(path): path for path in map(Path, paths) if path.is_file()}
    begun: dict[Identity, Future[str]] = {identity: Future() for identity in files}
    _begun.update(begun)

    def digest_all() -> None:
        for identity, path in files.items():
            try:
                begun[identity].set_result(_digest_content(path))
            except Exception as error:  # `digest_file` waits for it, and raises it.
                begun[identity].set_exception(error)

    threading.Thread(target=digest_all, daemon=True, name="digests").start()


Identity = tuple[int, int, int, int]
_begun: dict[Identity, Future[str]] = {}


def _identity(path: Path) -> Identity:
    """Returns what a file has by any of its names, and another if its content was changed."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _digest_content(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def digest_dialogues(parts: Iterable[Dialogues]) -> str:
    """Returns a digest of the dialogues of some parts; the part of a dialogue counts."""
    digest = hashlib.blake2b(digest_size=16)
    for number, part in enumerate(parts):
        for turns in part:
            digest.update(json.dumps([number, *turns]).encode() + b"\n")
    return digest.hexdigest()


def split(dialogues: Iterable[Item], share: float) -> Iterator[tuple[bool, Item]]:
    """Yields (whether it is held out, dialogue); a hash of its number decides, always the same.

    Where this would leave one of the parts of a few dialogues empty, the last one goes there.
    """
    waiting: list[tuple[bool, Item]] = []
    parts: set[bool] = set()
    for number, dialogue in enumerate(dialogues):
        part = is_held_out(number, share)
        parts.add(part)
        waiting.append((part, dialogue))
        if len(parts) == 2 or number >= _FEW:
            yield from waiting
            waiting = []
    if len(waiting) > 1:
        part, last = waiting[-1]
        waiting[-1] = (not part, last)
    yield from waiting


def is_held_out(number: int, share: float) -> bool:
    """Returns whether the hash holds out the dialogue of this number."""
    digest = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=8).digest()
    return int.from_bytes(digest, "little") < share * 2**64
