"""Texts of whole words in three files, one sentence a line, such as the Penn Treebank."""

from __future__ import annotations

from pathlib import Path

from towers.data.compression import marked_encoding
from towers.data.fetching.files import find_file, find_optional_file, read_bytes
from towers.data.folders import PARTS, TEST, VALIDATION

NAMES = ("ptb.{part}.txt", "wiki.{part}.tokens", "{part}.txt")
REMEDY = (
    "Run `towers download ptb` for the Penn Treebank, or give a folder with such files by --data."
)


def read_words(folder: str | Path) -> dict[str, str]:
    """Returns {part: its text} of a folder's files, gzipped or not: `ptb.train.txt`, `train.txt`...

    The test part may be missing.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file has no text or is not UTF-8.
    """
    folder = Path(folder)
    texts = {}
    for part in PARTS:
        words = ("valid", part) if part == VALIDATION else (part,)
        names = [name.format(part=word) for word in words for name in NAMES]
        path = find_optional_file(folder, names)
        if path is None and part != TEST:
            find_file(folder, names, remedy=REMEDY)
        if path is not None:
            texts[part] = _read_lines(path)
    return texts


def _read_lines(path: Path) -> str:
    content = read_bytes(path)
    try:
        text = content.decode(marked_encoding(content) or "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected UTF-8 text, found {error}.") from error
    if "\0" in text or not text.strip():
        found = "a zero byte" if "\0" in text else "none"
        raise ValueError(f"{path}: expected lines of words, found {found}.")
    return text.replace("\r\n", "\n").replace("\r", "\n")
