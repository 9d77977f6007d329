"""Vocabularies: tokens to ids and back; that of a chatbot spells or copies what it does not have.

The first ids are the special ones (`towers.ground.special_ids`).

A token that the vocabulary does not have is spelled by its characters or, in a vocabulary with
copies, numbered: the first such word of a question is `<copy_0>`, the second `<copy_1>`, wherever
they occur in it, and an answer repeats a word by its number (Luong et al. 2015, "Addressing the
Rare Word Problem in Neural Machine Translation", section 3.1, the copyable model).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from towers.ground.durable import write_file
from towers.ground.special_ids import (
    END,
    PAD,
    SEPARATOR,
    START,
    UNKNOWN,
    WORD_END,
    WORD_UNKNOWN,
)

from .normalisation import is_wide

SPECIALS = ("<pad>", "<start>", "<end>", "<unknown>", "<separator>")
WORD_SPECIALS = ("<pad>", "<eos>", "<unk>")  # Of a text as it is written.
NUM_COPIES = 16  # So many words of a question that the vocabulary does not have can be told apart.
CHARACTER_FRACTION = 0.5  # Fraction of a vocabulary that is too small for all characters.


class Unit(NamedTuple):
    """The text of an id: a token, or a character that continues the token before it."""

    text: str
    continues: bool = False


def build_vocabulary(
    counts: Mapping[str, int],
    size: int,
    *,
    copies: bool = False,
    whole: bool = False,
    min_count: int = 1,
) -> Vocabulary:
    """Returns the vocabulary of at most `size` ids for counted tokens.

    It holds the most frequent tokens. Without copies it first holds the characters of all tokens
    (the most frequent ones if they do not fit into `CHARACTER_FRACTION` of it). Units are ordered
    by their number of uses in the counted text, the most used first, then by their text.

    Args:
        counts: the number of occurrences of each token.
        size: maximum number of ids, the special ones included; one at least is a token's.
        copies: whether unknown words are numbered instead of spelled.
        whole: whether also a Chinese word that is spelled can be put together again.
        min_count: without copies, tokens with fewer occurrences are spelled. If none were, a model
            would never read the characters by which it has to spell what is new.
    """
    num_copies = NUM_COPIES if copies else 0
    places = size - len(SPECIALS) - num_copies
    if copies:
        return Vocabulary([Unit(token) for token in _by_count(counts)[:places]], num_copies)
    characters = _count_characters(counts, whole=whole)
    first = characters[: int(places * CHARACTER_FRACTION)]
    frequent = (Unit(token) for token in _by_count(counts) if counts[token] >= min_count)
    candidates = dict.fromkeys([*first, *frequent, *characters])
    chosen = list(candidates)[:places]
    uses = _count_uses(Vocabulary(chosen), counts)
    return Vocabulary(sorted(chosen, key=lambda unit: (-uses[unit], unit)))


def _count_characters(counts: Mapping[str, int], *, whole: bool) -> list[Unit]:
    """Returns both forms of each character, the most frequent first."""
    characters: Counter[str] = Counter()
    for token, count in counts.items():
        for character in token:
            characters[character] += count
    return [
        Unit(character, continues)
        for character in _by_count(characters)
        for continues in ((False,) if is_wide(character) and not whole else (False, True))
    ]


def _by_count(counts: Mapping[str, int]) -> list[str]:
    return sorted(counts, key=lambda text: (-counts[text], text))


def _count_uses(vocabulary: Vocabulary, counts: Mapping[str, int]) -> Counter[Unit]:
    uses: Counter[Unit] = Counter()
    for token, count in counts.items():
        for unit_id in vocabulary.ids(token):
            if unit_id != UNKNOWN:
                uses[vocabulary.unit(unit_id)] += count
    return uses


class Vocabulary:
    """The units in the order of their ids, which follow the ids of `SPECIALS` and of the copies.

    Without copies a token that is no unit is spelled by characters. Narrow characters after the
    first (`b` in `ab`) are continuations, so that the word can be put together again; Chinese needs
    none, unless blanks separate its words.

    Args:
        units: tokens and continuations, all distinct.
        num_copies: number of ids for unknown words of a question; 0 spells them.

    Attributes:
        specials: the names of the first ids.
        end, unknown: two of these ids.
        unspoken: those that a model must not say.
        copies: the ids of `<copy_0>`, `<copy_1>`, ...
    """

    specials: tuple[str, ...] = SPECIALS
    end, unknown = END, UNKNOWN
    unspoken: tuple[int, ...] = (PAD, START, UNKNOWN, SEPARATOR)

    def __init__(self, units: Iterable[Unit], num_copies: int = 0) -> None:
        self._units = tuple(units)
        self.copies = range(len(self.specials), len(self.specials) + num_copies)
        self._ids = {unit: index for index, unit in enumerate(self._units, self.copies.stop)}
        if len(self._ids) < len(self._units):
            twice = next(unit for unit, count in Counter(self._units).items() if count > 1)
            raise ValueError(f"units must differ from each other. Received {twice} twice.")

    def __len__(self) -> int:
        return self.copies.stop + len(self._units)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return False
        return (self._units, self.copies) == (other._units, other.copies)

    def __hash__(self) -> int:
        return hash(self._units)

    def unit(self, unit_id: int) -> Unit:
        """Returns the unit of an id that is not special."""
        return self._units[unit_id - self.copies.stop]

    def id_of(self, token: str) -> int | None:
        """Returns the id of a token, None for one that the vocabulary does not have."""
        return self._ids.get(Unit(token))

    def ids(self, token: str) -> tuple[int, ...]:
        """Returns the id of a token, or the ids of the characters that spell it.

        Only a character that is not in the vocabulary becomes UNKNOWN; with copies, the token.
        """
        whole = self.id_of(token)
        if whole is not None:
            return (whole,)
        if self.copies:
            return (UNKNOWN,)
        return tuple(
            self._character_id(character, first=not index) for index, character in enumerate(token)
        )

    def ids_of(self, tokens: Sequence[str], copied: Sequence[str] = ()) -> list[int]:
        """Returns the ids of tokens, the inverse of `tokens`; copied words have those of copies."""
        copies = {word: (unit_id,) for word, unit_id in zip(copied, self.copies, strict=False)}
        return [one for token in tokens for one in copies.get(token) or self.ids(token)]

    def _character_id(self, character: str, *, first: bool) -> int:
        start = self._ids.get(Unit(character), UNKNOWN)
        return start if first else self._ids.get(Unit(character, continues=True), start)

    def tokens(self, ids: Sequence[int], copied: Sequence[str] = ()) -> list[str]:
        """Returns the tokens, with continuations joined to them and without special tokens.

        Args:
            ids: of the vocabulary.
            copied: the words that `<copy_0>`, `<copy_1>`, ... stand for; further ones for nothing.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        tokens: list[str] = []
        open_token = False
        for unit_id in map(int, ids):
            if not 0 <= unit_id < len(self):
                raise ValueError(f"ids must be in 0..{len(self) - 1}. Received {unit_id}.")
            if unit_id < self.copies.stop:
                open_token = False
                number = unit_id - self.copies.start
                tokens += copied[number : number + 1] if number >= 0 else []
            elif open_token and self.unit(unit_id).continues:
                tokens[-1] += self.unit(unit_id).text
            else:
                tokens.append(self.unit(unit_id).text)
                open_token = True
        return tokens

    def save(self, path: str | Path) -> None:
        """Writes the specials and units as UTF-8 text, one a line, whole or not at all."""
        copies = [_copy_line(number) for number in range(len(self.copies))]
        lines = [*self.specials, *copies, *map(_to_line, self._units)]
        write_file(path, "".join(f"{line}\n" for line in lines).encode("utf-8"))

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Returns the vocabulary that `save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is damaged; the message says where.
        """
        *lines, rest = read_text(path).split("\n")
        first = num_specials = len(cls.specials)
        if rest or tuple(lines[:first]) != cls.specials:
            raise ValueError(
                f"{path}: expected lines that begin with {', '.join(cls.specials)} and the last of "
                f"which is ended, found {lines[:first]} and {rest!r} at the end."
            )
        while first < len(lines) and lines[first] == _copy_line(first - num_specials):
            first += 1
        units = [
            _from_line(line, f"{path}, line {number}")
            for number, line in enumerate(lines[first:], first + 1)
        ]
        try:
            return cls(units, first - num_specials)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def build_words(counts: Mapping[str, int], size: int) -> WordVocabulary:
    """Returns the `size` most frequent words of a text as it is written.

    `<eos>` and `<unk>` are always two of them; padding is no word and not counted.
    """
    words = _by_count({word: counts[word] for word in counts.keys() - set(WORD_SPECIALS)})
    return WordVocabulary(map(Unit, [*WORD_SPECIALS[1:], *words][:size]))


class WordVocabulary(Vocabulary):
    """Whole words. In a text `<eos>` and `<unk>` are the special ones; `<pad>` is unknown.

    Args:
        units: `<eos>`, `<unk>` and other words, all distinct.
    """

    specials = WORD_SPECIALS[:1]
    end, unknown = WORD_END, WORD_UNKNOWN
    unspoken = (PAD, WORD_UNKNOWN)

    def __init__(self, units: Iterable[Unit], num_copies: int = 0) -> None:
        super().__init__(units, num_copies)
        first = tuple(unit.text for unit in self._units[:2])
        if first != WORD_SPECIALS[1:]:
            expected = ", ".join(WORD_SPECIALS[1:])
            raise ValueError(f"units must begin with {expected}. Received {first}.")

    def ids(self, token: str) -> tuple[int, ...]:
        """Returns the id of a word, WORD_UNKNOWN for one that is not in the vocabulary."""
        whole = self.id_of(token)
        return (self.unknown if whole is None else whole,)


def read_text(path: str | Path) -> str:
    """Returns the text of a file with its line ends unchanged.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not UTF-8.
    """
    try:
        return Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected UTF-8 text, found {error}.") from error


def _copy_line(number: int) -> str:
    return f"{_COPY}{number}>"


_CONTINUES, _COPY = "##", "<copy_"
_ESCAPES = {"\\": "\\\\", "\n": "\\n"}
_ESCAPED = re.compile(rf"\\(\\|n|(?={_CONTINUES}|{_COPY}))")


def _to_line(unit: Unit) -> str:
    """Returns the unit in one line: `##` begins a continuation, `\\##` a token with `##`.

    A token with `<copy_` is escaped in the same way.
    """
    text = "".join(_ESCAPES.get(character, character) for character in unit.text)
    if unit.continues:
        return _CONTINUES + text
    return "\\" + text if text.startswith((_CONTINUES, _COPY)) else text


def _from_line(line: str, place: str) -> Unit:
    continues = line.startswith(_CONTINUES)
    escaped = line[len(_CONTINUES) :] if continues else line
    text = _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], escaped)
    unit = Unit(text, continues)
    if not text or _to_line(unit) != line:
        raise ValueError(f"{place}: expected a token, found {line!r}.")
    return unit
