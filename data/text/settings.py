"""The settings of normalisation and tokenisation: plain values that other processes can receive."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from towers.ground.arguments import check_choice

from .normalisation import LANGUAGES, normalise

TOKENIZERS = ("auto", "jieba", "words", "characters", "spaces", "subwords", "bytes")


@dataclass(frozen=True)
class TextSettings:
    """How a text is normalised and tokenised.

    Args:
        language: zh or en.
        tokenizer: jieba (Chinese words), words (English words), characters, spaces (tokens are
            separated by blanks), subwords, bytes, or auto: jieba for zh, words for en.
        lowercase: whether to convert text to lower case; answers are then lower case too.
        dictionary: path of a dictionary that replaces jieba's own.
        user_dictionary: path of a file of additional words for jieba.
        new_words: whether jieba may guess words that are in no dictionary. Its guesses are often
            rare and wrong ("比六多"); otherwise such words are split into shorter ones.
        split_counts: whether jieba's dictionary gives a number and its measure word as two tokens
            (`三只`: `三`, `只`), so that any number of anything is known. A guess of new_words may
            join them again.
        subword_model: path of the model that `train_subwords` wrote; without one, the preparation
            of a corpus learns a model.
        marks: whether combining marks stay, such as the vowel signs of scripts that have them.
        as_written: whether nothing is normalised, and blank lines count. The vocabulary has whole
            words alone, as in the Penn Treebank, with the tokenizer spaces,
        spelled: unless what it does not have is spelled.
        documents: whether a text consists of documents, each of which has its end.

    Raises:
        ValueError: a value is none of these, or a file is given that the tokenizer does not use.
    """

    language: str = "zh"
    tokenizer: str = "auto"
    lowercase: bool = False
    dictionary: str | None = None
    user_dictionary: str | None = None
    new_words: bool = False
    split_counts: bool = False
    subword_model: str | None = None
    as_written: bool = False
    marks: bool = False
    spelled: bool = False
    documents: bool = False

    def __post_init__(self) -> None:
        check_choice("language", self.language, LANGUAGES)
        check_choice("tokenizer", self.tokenizer, TOKENIZERS)
        self._check_files("jieba", ("dictionary", "user_dictionary"))
        self._check_files("subwords", ("subword_model",))
        if self.has_whole_words and self.tokenizer != "spaces":
            raise ValueError(
                "as_written is of the tokenizer spaces, or spelled. Received it for the tokenizer "
                f"{self.chosen_tokenizer}; choose tokenizer='spaces', or spelled=True."
            )

    def _check_files(self, tokenizer: str, names: tuple[str, ...]) -> None:
        given = [name for name in names if getattr(self, name) is not None]
        if given and self.chosen_tokenizer != tokenizer:
            raise ValueError(
                f"{given[0]} is only used by the tokenizer {tokenizer}. Received "
                f"{given[0]}={getattr(self, given[0])!r} for the tokenizer "
                f"{self.chosen_tokenizer}; leave it out or choose tokenizer={tokenizer!r}."
            )

    @property
    def chosen_tokenizer(self) -> str:
        """The name of the tokenizer, with `auto` resolved."""
        if self.tokenizer != "auto":
            return self.tokenizer
        return "jieba" if self.language == "zh" else "words"

    @property
    def learns_subwords(self) -> bool:
        """Whether the tokenizer needs a subword model and none is given."""
        return self.chosen_tokenizer == "subwords" and self.subword_model is None

    @property
    def has_alphabet(self) -> bool:
        """Whether the tokenizer has all tokens from the beginning, so that none is unknown."""
        chosen = self.chosen_tokenizer
        return chosen == "bytes" or (chosen == "subwords" and self.as_written)

    @property
    def has_whole_words(self) -> bool:
        """Whether the vocabulary has whole words alone."""
        return self.as_written and not self.spelled

    def normalise(self, text: str) -> str:
        """Returns the normalised text for the tokenizer of these settings."""
        if self.as_written:
            return text
        return normalise(
            text.lower() if self.lowercase else text,
            self.language,
            keep_blanks=self.chosen_tokenizer == "spaces",
            keep_marks=self.marks,
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns the settings by name, as plain values that `TextSettings(**values)` takes.

        Settings that once were not there are absent where they are off.
        """
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value or name not in _LATER}


_LATER = ("marks", "spelled", "documents", "split_counts")
