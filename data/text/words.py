"""The vocabulary of a text as it is written: the most frequent words, and one id for all others.

Its first ids are PAD, WORD_END and WORD_UNKNOWN (`towers.ground.special_ids`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from towers.ground.special_ids import PAD, WORD_END, WORD_UNKNOWN

from .vocabulary import Unit, Vocabulary

SPECIALS = ("<pad>", "<eos>", "<unk>")


def build_words(counts: Mapping[str, int], size: int) -> WordVocabulary:
    """Returns the `size` most frequent words; alphabetical order decides between equal counts.

    `<eos>` and `<unk>` are always two of them; padding is no word and not counted.
    """
    words = sorted(set(counts) - set(SPECIALS), key=lambda word: (-counts[word], word))
    return WordVocabulary(map(Unit, [*SPECIALS[1:], *words][:size]))


class WordVocabulary(Vocabulary):
    """Whole words. In a text `<eos>` and `<unk>` are the special ones; `<pad>` is unknown.

    Args:
        units: `<eos>`, `<unk>` and other words, all distinct.
    """

    specials = SPECIALS[:1]
    end, unknown = WORD_END, WORD_UNKNOWN
    unspoken = (PAD, WORD_UNKNOWN)

    def __init__(self, units: Iterable[Unit], num_copies: int = 0) -> None:
        super().__init__(units, num_copies)
        first = tuple(unit.text for unit in self._units[:2])
        if first != SPECIALS[1:]:
            raise ValueError(f"units must begin with {', '.join(SPECIALS[1:])}. Received {first}.")

    def ids(self, token: str) -> tuple[int, ...]:
        """Returns the id of a word, WORD_UNKNOWN for one that is not in the vocabulary."""
        whole = self.id_of(token)
        return (self.unknown if whole is None else whole,)
