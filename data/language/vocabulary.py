"""The vocabulary of a language model: the most frequent words, and one id for all others.

Its special ids are defined here and nowhere else: PAD 0, END 1 (of a line), UNKNOWN 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from towers.data.text.files import read_text
from towers.ground.durable import write_file

PAD, END, UNKNOWN = range(3)
SPECIALS = ("<pad>", "<eos>", "<unk>")
FILE_NAME = "words.txt"


def build_words(counts: Mapping[str, int], size: int) -> WordVocabulary:
    """Returns the `size` most frequent words; alphabetical order decides between equal counts.

    `<eos>` and `<unk>` are always two of them.
    """
    kept = size - len(SPECIALS) + 1  # The size does not count padding, which is no word.
    if kept < 1:
        raise ValueError(
            f"size must be at least {len(SPECIALS)}, of which <eos> and <unk> are two. "
            f"Received {size}."
        )
    words = sorted(set(counts) - set(SPECIALS), key=lambda word: (-counts[word], word))
    return WordVocabulary(words[:kept])


class WordVocabulary:
    """The words in the order of their ids, which follow the ids of `SPECIALS`.

    Args:
        words: distinct, without white space, none special.
    """

    def __init__(self, words: Iterable[str]):
        self._words = (*SPECIALS, *words)
        self._ids = {word: index for index, word in enumerate(self._words)}
        del self._ids[SPECIALS[PAD]]  # The word `<pad>` in a text is an ordinary word.
        if len(self._ids) < len(self._words) - 1:
            twice = next(word for word, count in Counter(self._words).items() if count > 1)
            raise ValueError(f"words must differ from each other. Received {twice!r} twice.")

    def __len__(self) -> int:
        """Returns the number of ids, padding included."""
        return len(self._words)

    def ids(self, words: Iterable[str]) -> list[int]:
        """Returns the id of each word, UNKNOWN for one that is not in the vocabulary."""
        return [self._ids.get(word, UNKNOWN) for word in words]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of words separated by white space; a line end becomes END."""
        ends = text.replace("\r\n", "\n").replace("\n", f" {SPECIALS[END]} ")
        return self.ids(ends.split())

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids: blanks between words, a line end for END."""
        lines: list[list[str]] = [[]]
        for index in map(int, ids):
            if not 0 <= index < len(self):
                raise ValueError(f"ids must be in 0..{len(self) - 1}. Received {index}.")
            if index == END:
                lines.append([])
            elif index != PAD:
                lines[-1].append(self._words[index])
        return "\n".join(" ".join(line) for line in lines)

    def save(self, folder: str | Path) -> None:
        """Writes the words into a folder, one a line, whole or not at all."""
        content = "".join(f"{word}\n" for word in self._words)
        write_file(Path(folder) / FILE_NAME, content.encode("utf-8"))

    @classmethod
    def load(cls, folder: str | Path) -> WordVocabulary:
        """Returns the vocabulary that `save` wrote.

        Raises:
            FileNotFoundError: there is none.
            ValueError: the file is damaged.
        """
        path = Path(folder) / FILE_NAME
        *lines, rest = read_text(path).split("\n")
        if rest or tuple(lines[: len(SPECIALS)]) != SPECIALS or not all(lines):
            raise ValueError(
                f"{path}: expected a word in each line, the first {', '.join(SPECIALS)} and the "
                f"last one ended, found {lines[: len(SPECIALS)]} and {rest!r} at the end."
            )
        try:
            return cls(lines[len(SPECIALS) :])
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
