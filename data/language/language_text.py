"""A text in parts, read from files with one sentence a line and blanks between words."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from towers.data.fetching.files import find_file, find_optional_file, read_bytes
from towers.data.language.vocabulary import SPECIALS, UNKNOWN, WordVocabulary, build_words

PARTS = ("train", "valid", "test")
NAMES = ("ptb.{part}.txt", "wiki.{part}.tokens", "{part}.txt")
END_WORD = SPECIALS[1]
REMEDY = (
    "Run `towers download ptb` for the Penn Treebank, or give a folder with such files by --data."
)


@dataclasses.dataclass(frozen=True, eq=False)
class LanguageText:
    """A text as ids.

    Attributes:
        vocabulary: of the training part.
        parts: the tokens of each part, int32 [n]; every line ends with END.
        key: a digest of the text.
    """

    vocabulary: WordVocabulary
    parts: Mapping[str, np.ndarray]
    key: str

    def part(self, name: str) -> np.ndarray:
        """Returns the tokens of a part."""
        if name not in self.parts:
            raise ValueError(f"The text has the parts {', '.join(self.parts)}. Received {name!r}.")
        return self.parts[name]

    def unknown_share(self, name: str) -> float:
        """Returns the share of UNKNOWN among the tokens of a part."""
        return float(np.mean(self.part(name) == UNKNOWN))


def load_language(folder: str | Path, *, vocabulary_size: int) -> LanguageText:
    """Returns the text of a folder's files, gzipped or not: `ptb.train.txt` or `train.txt` etc.

    Args:
        folder: of the files; the test part may be missing.
        vocabulary_size: number of words to keep, the most frequent of the training part.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file has no text or is not UTF-8.
    """
    folder = Path(folder)
    texts = {}
    for part in PARTS:
        names = [name.format(part=part) for name in NAMES]
        path = find_optional_file(folder, names)
        if path is None and part != "test":
            find_file(folder, names, remedy=REMEDY)
        if path is not None:
            texts[part] = read_lines(path)
    return make_language(texts, vocabulary_size=vocabulary_size)


def read_lines(path: Path) -> str:
    """Returns the text of a file; ValueError if it has none or is not UTF-8."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected UTF-8 text, found {error}.") from error
    if "\0" in text or not text.strip():
        found = "a zero byte" if "\0" in text else "none"
        raise ValueError(f"{path}: expected lines of words, found {found}.")
    return text


def make_language(texts: Mapping[str, str], *, vocabulary_size: int) -> LanguageText:
    """Returns the text of parts that are given like the contents of files."""
    words = {part: words_of(text) for part, text in texts.items()}
    vocabulary = build_words(Counter(words["train"]), vocabulary_size)
    digest = hashlib.sha256()
    for part, text in texts.items():
        digest.update(f"{part} {len(text)} {text}".encode())
    parts = {part: np.array(vocabulary.ids(own), np.int32) for part, own in words.items()}
    return LanguageText(vocabulary, parts, digest.hexdigest()[:16])


def words_of(text: str) -> list[str]:
    """Returns the words with `<eos>` at the end of each line; a blank line is one `<eos>`."""
    lines = text.removesuffix("\n").split("\n")
    return [word for line in lines for word in (*line.split(), END_WORD)]
