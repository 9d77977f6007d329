"""The files of a text: which ones a folder has, what they are, and the part that a name says."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from towers.data.corpus.digests import digest_file
from towers.data.text.files import reason_of

PARTS = ("train", "valid", "test")
KINDS = {
    "text": (".txt", ".text", ".md", ".tokens"),
    "json_lines": (".jsonl", ".ndjson"),
    "parquet": (".parquet",),
}
COMPRESSIONS = (".gz", ".zst")
PARQUET_MAGIC = b"PAR1"
_PART_NAMES = {"valid": "valid", "validation": "valid", "dev": "valid"} | {
    part: part for part in PARTS
}


class TextFile(NamedTuple):
    """A file of a text.

    Attributes:
        path: of the file.
        kind: text, json_lines or parquet.
        part: train, valid or test; None for a file whose passages are dealt out to all three.
    """

    path: Path
    kind: str
    part: str | None


def find_texts(paths: Iterable[str | os.PathLike[str]]) -> list[TextFile]:
    """Returns the files of some files and folders, each once, folders in the order of their names.

    In a folder only files with a suffix of `KINDS` are texts, compressed or not. If the name of a
    file has `valid`, `validation` or `dev` as a word of its own (`ptb.valid.txt`), or a folder of
    such a name is between the file and the folder that was given (`texts/valid/a.txt`), the names
    tell the parts of all: a file without such a word is for training.

    Raises:
        ValueError: a path is missing, or there is no text in it.
    """
    found: dict[Path, Path] = {}
    named: list[str | None] = []
    for path in map(Path, paths):
        files = list(_files_in(path)) if path.is_dir() else [path]
        if not path.exists():
            raise ValueError(
                f"{path}: expected a file or folder with text, found neither."
                + (" Texts have no weights." if _is_weighted(path) else "")
            )
        if not files:
            suffixes = ", ".join(suffix for kind in KINDS.values() for suffix in kind)
            raise ValueError(
                f"{path}: expected a folder with texts ({suffixes}, also with .gz or .zst), found "
                "no such file in it. Name the files themselves if their names end otherwise."
            )
        for file in files:
            if file.resolve() not in found:
                found[file.resolve()] = file
                named.append(_part_of(file, file.relative_to(path).parts[:-1]))
    if not found:
        raise ValueError("A text needs at least one file or folder. Received none.")
    files = list(found.values())
    by_names = "valid" in named and not all(part == "valid" for part in named)
    return [
        TextFile(file, kind_of(file), (part or "train") if by_names else None)
        for file, part in zip(files, named, strict=True)
    ]


def _files_in(folder: Path) -> Iterator[Path]:
    suffixes = {suffix for kind in KINDS.values() for suffix in kind}
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and _suffix(Path(name)) in suffixes:
                yield Path(parent, name)


def _suffix(path: Path) -> str:
    """Returns the suffix of a name in small letters, without that of a compression."""
    return Path(path.stem if path.suffix.lower() in COMPRESSIONS else path.name).suffix.lower()


def kind_of(path: Path) -> str:
    """Returns the kind of a file by its name; any other name is that of a text."""
    try:
        with path.open("rb") as file:
            if file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC:
                return "parquet"
    except OSError as error:
        raise ValueError(
            f"{path}: expected a file to read, found: {reason_of(error)}. Check the path and its "
            "permissions."
        ) from error
    suffix = _suffix(path)
    return next((kind for kind, suffixes in KINDS.items() if suffix in suffixes), "text")


def _part_of(path: Path, folders: Sequence[str]) -> str | None:
    """Returns the part that the name of a file tells, else that of a folder above it."""
    words = re.split(r"[._\-]+", path.name.lower())
    words += [folder.lower() for folder in reversed(folders)]
    return next((_PART_NAMES[word] for word in words if word in _PART_NAMES), None)


def _is_weighted(path: Path) -> bool:
    name, _, weight = str(path).rpartition(":")
    return weight.replace(".", "").isdigit() and Path(name).exists()


def digest_texts(files: Sequence[TextFile]) -> str:
    """Returns a digest of the files' contents, kinds and parts, about 1 GB/s."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(f"{file.kind}|{file.part}|{digest_file(file.path)}\n".encode())
    return digest.hexdigest()
