"""The vocabulary of a chatbot: tokens to ids and back, rare tokens by their characters.

Its special ids are defined here and nowhere else: PAD 0, START 1, END 2, UNKNOWN 3, SEPARATOR 4
(between the turns of a question).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .durable import write_file
from .files import read_text
from .normalisation import is_wide

PAD, START, END, UNKNOWN, SEPARATOR = range(5)
SPECIALS = ("<pad>", "<start>", "<end>", "<unknown>", "<separator>")
CHARACTER_SHARE = 0.5  # Share of a vocabulary that is too small for all characters.


class Unit(NamedTuple):
    """The text of an id: a token, or a character that continues the token before it."""

    text: str
    continues: bool = False


def build_vocabulary(counts: Mapping[str, int], size: int) -> Vocabulary:
    """Returns the vocabulary of at most `size` ids for counted tokens.

    It holds the characters of all tokens (the most frequent ones if they do not fit into
    `CHARACTER_SHARE` of it) and then the most frequent tokens. Units are ordered by their number
    of uses in the counted text, the most used first, then by their text.

    Raises:
        ValueError: the size leaves no id for a token.
    """
    places = size - len(SPECIALS)
    if places < 1:
        raise ValueError(
            f"size must be at least {len(SPECIALS) + 1}, of which {len(SPECIALS)} are special. "
            f"Received {size}."
        )
    characters = _count_characters(counts)
    first = characters[: int(places * CHARACTER_SHARE)]
    candidates = dict.fromkeys([*first, *map(Unit, _by_count(counts)), *characters])
    chosen = list(candidates)[:places]
    uses = _count_uses(Vocabulary(chosen), counts)
    return Vocabulary(sorted(chosen, key=lambda unit: (-uses[unit], unit)))


def _count_characters(counts: Mapping[str, int]) -> list[Unit]:
    """Returns both forms of each character, the most frequent first."""
    characters: Counter[str] = Counter()
    for token, count in counts.items():
        for character in token:
            characters[character] += count
    return [unit for character in _by_count(characters) for unit in _forms(character)]


def _forms(character: str) -> tuple[Unit, ...]:
    start = Unit(character)
    return (start,) if is_wide(character) else (start, Unit(character, continues=True))


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
    """The units in the order of their ids, which follow the ids of `SPECIALS`.

    A token that is no unit is spelled by characters. Narrow characters after the first (`b` in
    `ab`) are continuations, so that the word can be put together again; Chinese needs none.

    Args:
        units: tokens and continuations, all distinct.
    """

    def __init__(self, units: Iterable[Unit]) -> None:
        self._units = tuple(units)
        self._ids = {unit: index for index, unit in enumerate(self._units, len(SPECIALS))}
        if len(self._ids) < len(self._units):
            twice = next(unit for unit, count in Counter(self._units).items() if count > 1)
            raise ValueError(f"units must differ from each other. Received {twice} twice.")

    def __len__(self) -> int:
        return len(SPECIALS) + len(self._units)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self._units == other._units

    def __hash__(self) -> int:
        return hash(self._units)

    def unit(self, unit_id: int) -> Unit:
        """Returns the unit of an id that is not special."""
        return self._units[unit_id - len(SPECIALS)]

    def ids(self, token: str) -> tuple[int, ...]:
        """Returns the id of a token, or the ids of the characters that spell it.

        Only a character that is not in the vocabulary becomes UNKNOWN.
        """
        whole = self._ids.get(Unit(token))
        if whole is not None:
            return (whole,)
        return tuple(
            self._character_id(character, first=not index) for index, character in enumerate(token)
        )

    def _character_id(self, character: str, *, first: bool) -> int:
        start = self._ids.get(Unit(character), UNKNOWN)
        if first or is_wide(character):
            return start
        return self._ids.get(Unit(character, continues=True), start)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Returns the tokens, with continuations joined to them and without special tokens.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        tokens: list[str] = []
        open_token = False
        for unit_id in map(int, ids):
            if not 0 <= unit_id < len(self):
                raise ValueError(f"ids must be in 0..{len(self) - 1}. Received {unit_id}.")
            if unit_id < len(SPECIALS):
                open_token = False
            elif open_token and self.unit(unit_id).continues:
                tokens[-1] += self.unit(unit_id).text
            else:
                tokens.append(self.unit(unit_id).text)
                open_token = True
        return tokens

    def save(self, path: str | Path) -> None:
        """Writes the specials and units as UTF-8 text, one a line, whole or not at all."""
        lines = [*SPECIALS, *map(_to_line, self._units)]
        write_file(path, "".join(f"{line}\n" for line in lines).encode("utf-8"))

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Returns the vocabulary that `save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is damaged; the message says where.
        """
        *lines, rest = read_text(path).split("\n")
        if rest or tuple(lines[: len(SPECIALS)]) != SPECIALS:
            raise ValueError(
                f"{path}: expected lines that begin with {', '.join(SPECIALS)} and the last of "
                f"which is ended, found {lines[: len(SPECIALS)]} and {rest!r} at the end."
            )
        units = [
            _from_line(line, f"{path}, line {number}")
            for number, line in enumerate(lines[len(SPECIALS) :], len(SPECIALS) + 1)
        ]
        try:
            return cls(units)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


_CONTINUES = "##"
_ESCAPES = {"\\": "\\\\", "\n": "\\n"}


def _to_line(unit: Unit) -> str:
    """Returns the unit in one line: `##` begins a continuation, `\\##` a token with `##`."""
    text = "".join(_ESCAPES.get(character, character) for character in unit.text)
    if unit.continues:
        return _CONTINUES + text
    return "\\" + text if text.startswith(_CONTINUES) else text


def _from_line(line: str, place: str) -> Unit:
    continues = line.startswith(_CONTINUES)
    escaped = line[len(_CONTINUES) :] if continues else line
    text = re.sub(r"\\(\\|n|(?=##))", lambda match: "\n" if match[1] == "n" else match[1], escaped)
    unit = Unit(text, continues)
    if not text or _to_line(unit) != line:
        raise ValueError(f"{place}: expected a token, found {line!r}.")
    return unit
