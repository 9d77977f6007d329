"""The codecs: a text or lines to ids and back, saved as a folder that is complete by itself."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from towers.ground.durable import write_file
from towers.ground.special_ids import PAD, SEPARATOR, UNKNOWN

from .settings import TextSettings
from .subwords import SUBWORD_FILE
from .tokenizers import make_tokenizer
from .vocabulary import (
    Unit,
    Vocabulary,
    WordVocabulary,
    build_vocabulary,
    build_words,
    read_text,
)

_SETTINGS_FILE = "text.json"
_VOCABULARY_FILE = "vocabulary.txt"
# The files that settings may name, and their names in the codec's folder.
_COPIES = {
    "dictionary": "dictionary.txt",
    "user_dictionary": "user_dictionary.txt",
    "subword_model": SUBWORD_FILE,
}
Codec = TypeVar("Codec", bound="TextCodec")
_CACHE_SIZE = 1 << 17  # Number of tokens whose ids are cached, some 40 MB.


class Question(NamedTuple):
    """A question as a model reads it.

    Attributes:
        ids: of its turns, with SEPARATOR between them.
        copied: the words that the copies of the vocabulary stand for in it and in its answer.
    """

    ids: list[int]
    copied: list[str]


class TextCodec:
    """Text to ids and back.

    Attributes:
        token_ids: `token_ids(token)`, the ids that spell a token, cached.

    Raises:
        ValueError: a file that the settings name is missing or wrong.
    """

    def __init__(self, settings: TextSettings, vocabulary: Vocabulary) -> None:
        self.settings = settings
        self.vocabulary = vocabulary
        self._tokenizer = make_tokenizer(settings)
        self.token_ids = functools.lru_cache(_CACHE_SIZE)(vocabulary.ids)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without START and END; none for a text without tokens."""
        ids: list[int] = []
        for token in self._tokens(text):
            ids.extend(self.token_ids(token))
        return ids

    def _tokens(self, text: str) -> list[str]:
        return self._tokenizer.tokenize(self.settings.normalise(text))

    def encode_question(self, turns: Sequence[str], max_length: int | None = None) -> Question:
        """Returns the turns, the question the last, as one question without empty turns.

        If it is too long, only the last ids are kept.
        """
        tokens: list[str | None] = []  # None between two turns.
        for turn in filter(None, map(self._tokens, turns)):
            tokens += [None, *turn] if tokens else turn
        if self.vocabulary.copies:
            return self._with_copies(tokens[-max_length:] if max_length else tokens)
        ids: list[int] = []
        for token in tokens:
            ids += (SEPARATOR,) if token is None else self.token_ids(token)
        return Question(ids[-max_length:] if max_length else ids, [])

    def read_question(self, turns: Sequence[str], max_length: int | None = None) -> Question:
        """Returns a question as `encode_question` does; one without a word is UNKNOWN.

        A model answers every question, also that one.
        """
        question = self.encode_question(turns, max_length)
        return question if question.ids else Question([UNKNOWN], [])

    def _with_copies(self, tokens: Sequence[str | None]) -> Question:
        """Returns a question whose unknown words are numbered in the order of first occurrence."""
        question, copies = Question([], []), self.vocabulary.copies
        for token in tokens:
            unit_id = SEPARATOR if token is None else self.vocabulary.id_of(token)
            if token is not None and unit_id is None:
                if token not in question.copied and len(question.copied) < len(copies):
                    question.copied.append(token)
                if token in question.copied:
                    unit_id = copies[question.copied.index(token)]
            question.ids.append(UNKNOWN if unit_id is None else unit_id)
        return question

    def encode_answer(self, text: str, copied: Sequence[str]) -> list[int]:
        """Returns the ids of an answer, without END; words copied from its question are copies."""
        return self.vocabulary.ids_of(self._tokens(text), copied)

    def decode(self, ids: Sequence[int], copied: Sequence[str] = ()) -> str:
        """Returns the text up to its end, if there is one, without special tokens.

        Copied words are those of the question of an answer. An id that is not in the vocabulary is
        a ValueError.
        """
        ids = [int(unit_id) for unit_id in ids]
        end = self.vocabulary.end
        before_end = ids[: ids.index(end)] if end in ids else ids
        return self.detokenise(self.vocabulary.tokens(before_end, copied))

    def detokenise(self, tokens: Sequence[str]) -> str:
        """Returns the text of some tokens."""
        return self._tokenizer.detokenise(tokens)

    def save(self, folder: str | Path) -> None:
        """Writes the settings, the vocabulary and copies of the files that the settings name.

        Each file is durable. What a killed `save` left out is completed by the next one.
        """
        folder = Path(folder)
        copied = _copy_files(self.settings, folder)
        self.vocabulary.save(folder / _VOCABULARY_FILE)
        content = json.dumps(copied.as_dict(), ensure_ascii=False, indent=2) + "\n"
        write_file(folder / _SETTINGS_FILE, content.encode("utf-8"))

    @classmethod
    def load(cls: type[Codec], folder: str | Path) -> Codec:
        """Returns the codec that `save` wrote.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a file is damaged; the message names it.
        """
        folder = Path(folder)
        settings = _read_settings(folder)
        kind = WordVocabulary if settings.has_whole_words else Vocabulary
        return cls(settings, kind.load(folder / _VOCABULARY_FILE))


class LineCodec(TextCodec):
    """The codec of a language model: a text of lines, each of which has its end.

    Where it consists of documents, the last line of each ends with the end of the document.

    Attributes:
        begin: the id that is read before a text.
        stop: the id that ends a generated text; PAD where none ends.
        unspoken: the ids that a model must not say.
    """

    def __init__(self, settings: TextSettings, vocabulary: Vocabulary) -> None:
        super().__init__(settings, vocabulary)
        self.begin, self.stop, self.unspoken = vocabulary.end, PAD, vocabulary.unspoken
        self._ends = {vocabulary.end}
        if settings.documents:
            self.begin = self.stop = SEPARATOR
            self.unspoken = tuple(one for one in self.unspoken if one != SEPARATOR)
            self._ends.add(SEPARATOR)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, the end after each line but the last."""
        first, *others = map(super().encode, text.split("\n"))
        return first + [one for line in others for one in (self.vocabulary.end, *line)]

    def decode(self, ids: Sequence[int], copied: Sequence[str] = ()) -> str:
        """Returns the text of ids, a line end for each end, of a line or a document."""
        lines: list[list[int]] = [[]]
        for one in map(int, ids):
            if one in self._ends:
                lines.append([])
            else:
                lines[-1].append(one)
        return "\n".join(map(super().decode, lines))


def learn_vocabulary(
    settings: TextSettings,
    counts: Mapping[str, int],
    size: int,
    *,
    copies: bool = False,
    min_count: int = 1,
) -> Vocabulary:
    """Returns the vocabulary for tokens that were counted, of at most `size` ids.

    Args:
        settings: of the text; where they tell all tokens that there are, they are the vocabulary.
        counts: the number of occurrences of each token.
        size, copies, min_count: as `build_vocabulary` takes them.
    """
    if settings.has_whole_words:
        return build_words(counts, size)
    if settings.has_alphabet:
        alphabet = make_tokenizer(settings).alphabet
        return Vocabulary(map(Unit, sorted(alphabet, key=lambda one: (-counts.get(one, 0), one))))
    return build_vocabulary(
        counts, size, copies=copies, whole=settings.spelled, min_count=min_count
    )


def _copy_files(settings: TextSettings, folder: Path) -> TextSettings:
    """Copies what the settings name; returns them with the names in the folder."""
    named = {name: path for name, path in settings.as_dict().items() if name in _COPIES and path}
    contents = {name: Path(path).read_bytes() for name, path in named.items()}
    for name, content in contents.items():
        write_file(folder / _COPIES[name], content)
    return TextSettings(**settings.as_dict() | {name: _COPIES[name] for name in named})


def _read_settings(folder: Path) -> TextSettings:
    path = folder / _SETTINGS_FILE
    try:
        settings = TextSettings(**json.loads(read_text(path)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: expected the settings of a text codec, found: {error}"
        ) from error
    named = [name for name in _COPIES if getattr(settings, name)]
    return TextSettings(
        **settings.as_dict() | {name: str(folder / _COPIES[name]) for name in named}
    )
