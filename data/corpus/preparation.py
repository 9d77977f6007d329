"""How a corpus is prepared, and the key under which it is kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from towers.data.corpus.cache import VERSION
from towers.data.dialogues import pair_turns
from towers.data.text import SPECIALS, TextSettings

Dialogues = Iterable[Sequence[str]]
_BLOCK_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Preparation:
    """How a corpus becomes pairs of ids.

    Args:
        text: how text is cut.
        vocabulary_size: how many tokens get an id at most, the special ones included.
        pairing: `alternate` or `sliding`.
        context: how many earlier turns belong to a question.
        held_out: share of the dialogues that is kept for the evaluation.
        kind: of the files, or `auto`.
        encoding: of the files.
    """

    text: TextSettings
    vocabulary_size: int = 20000
    pairing: str = "alternate"
    context: int = 0
    held_out: float = 0.02
    kind: str = "auto"
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be between 0 and 1. Received {self.held_out}.")
        if self.vocabulary_size <= len(SPECIALS):
            raise ValueError(
                f"vocabulary_size must be at least {len(SPECIALS) + 1}, of which {len(SPECIALS)} "
                f"are special. Received {self.vocabulary_size}."
            )
        pair_turns(0, pairing=self.pairing, context=self.context)  # Checks both.

    def key(self, content: str) -> str:
        """Returns the digest of these settings, the files they name and a content's digest."""
        settings = dataclasses.asdict(self)
        for name in ("dictionary", "user_dictionary", "subword_model"):
            path = settings["text"][name]
            if path is not None:
                settings["text"][name] = _digest_file(Path(path))
        text = json.dumps([VERSION, settings, content], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def digest_files(paths: Sequence[str | os.PathLike[str]], kind: str) -> str:
    """Returns a digest of the contents of files and folders, about 1 GB/s.

    Where the kind is told by the files themselves, what their names end in is part of it.

    Raises:
        ValueError: a file cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in _every_file(map(Path, paths)):
        suffixes = "".join(path.suffixes[-2:]).lower() if kind == "auto" else ""
        digest.update(f"{suffixes}|{_digest_file(path)}\n".encode())
    return digest.hexdigest()


def _every_file(paths: Iterable[Path]) -> Iterator[Path]:
    """Yields the files, those in the folders, and what Cornell's readers open beside them."""
    for path in paths:
        if not path.is_dir():
            yield from dict.fromkeys([path, *_partners(path)])
        for parent, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            files = (Path(parent, name) for name in sorted(names) if not name.startswith("."))
            yield from (file for file in files if file.is_file())


def _partners(path: Path) -> list[Path]:
    names = ("lines", "conversations")
    partners = [path.with_name(path.name.replace(*pair)) for pair in (names, names[::-1])]
    return sorted(partner for partner in partners if partner.is_file())


def _digest_file(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise ValueError(f"{path}: expected a file, found {error}.") from error
    return digest.hexdigest()


def digest_dialogues(parts: Iterable[Dialogues]) -> str:
    """Returns a digest of dialogues, and of the part that each belongs to."""
    digest = hashlib.blake2b(digest_size=16)
    for number, part in enumerate(parts):
        for turns in part:
            digest.update(json.dumps([number, *turns]).encode() + b"\n")
    return digest.hexdigest()


def is_held_out(number: int, share: float) -> bool:
    """Returns whether the dialogue of this number is held out: a draw that never changes."""
    digest = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=8).digest()
    return int.from_bytes(digest, "little") < share * 2**64
