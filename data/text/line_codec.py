"""Text of several lines to ids and back: each line ends with the id of its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .codec import TextCodec
from .vocabulary import Vocabulary


class LineCodec:
    """The codec of a language model; `codec` is that of a line.

    Args:
        codec: text to ids and back, without ends of lines.
    """

    def __init__(self, codec: TextCodec):
        self.codec = codec

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the codec."""
        return self.codec.vocabulary

    def __len__(self) -> int:
        """Returns the number of ids, padding included."""
        return len(self.codec.vocabulary)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, the end after each line but the last."""
        first, *others = text.split("\n")
        ids = self.codec.encode(first)
        for line in others:
            ids += [self.vocabulary.end, *self.codec.encode(line)]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids, a line end for each end."""
        lines: list[list[int]] = [[]]
        for one in map(int, ids):
            if one == self.vocabulary.end:
                lines.append([])
            else:
                lines[-1].append(one)
        return "\n".join(map(self.codec.decode, lines))

    def save(self, folder: str | Path) -> None:
        """Writes the settings and the vocabulary into a folder."""
        self.codec.save(folder)

    @classmethod
    def load(cls, folder: str | Path) -> LineCodec:
        """Returns the codec that `save` wrote; errors as of `TextCodec.load`."""
        return cls(TextCodec.load(folder))
