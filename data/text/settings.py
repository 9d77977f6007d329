"""The settings that say how text is cut: plain values, so that a worker can make the same."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from .normalisation import LANGUAGES, normalise

TOKENIZERS = ("auto", "jieba", "words", "characters", "spaces", "subwords")


@dataclass(frozen=True)
class TextSettings:
    """How a text is normalised and cut into tokens.

    Args:
        language: zh or en.
        tokenizer: jieba (Chinese words), words (English ones), characters, spaces (the blanks of
            the text part its tokens), subwords, or auto: jieba for zh, words for en.
        lowercase: writes everything in lower case; answers are then lower case too.
        dictionary: path of jieba's dictionary, in place of its own.
        user_dictionary: path of words that jieba is to know as well.
        new_words: whether jieba may also guess words that are in no dictionary. What it guesses is
            often rare and odd ("比六多"); without, such words are spelled by shorter ones.
        subword_model: path of the model that `train_subwords` wrote; a corpus that is prepared
            without one learns its own.

    Raises:
        ValueError: a value is not one of these, or a file is given that the tokenizer does not use.
    """

    language: str = "zh"
    tokenizer: str = "auto"
    lowercase: bool = False
    dictionary: str | None = None
    user_dictionary: str | None = None
    new_words: bool = False
    subword_model: str | None = None

    def __post_init__(self) -> None:
        _check_choice("language", self.language, LANGUAGES)
        _check_choice("tokenizer", self.tokenizer, TOKENIZERS)
        self._check_files("jieba", ("dictionary", "user_dictionary"))
        self._check_files("subwords", ("subword_model",))

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
        """The tokenizer that `auto` stands for, or the one that was named."""
        if self.tokenizer != "auto":
            return self.tokenizer
        return "jieba" if self.language == "zh" else "words"

    @property
    def learns_subwords(self) -> bool:
        """Whether a subword model is needed and still to be learned."""
        return self.chosen_tokenizer == "subwords" and self.subword_model is None

    def normalise(self, text: str) -> str:
        """Returns the text as the tokenizer of these settings wants it."""
        return normalise(
            text.lower() if self.lowercase else text,
            self.language,
            keep_blanks=self.chosen_tokenizer == "spaces",
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns the settings by name, as plain values; `TextSettings(**them)` is equal."""
        return dataclasses.asdict(self)


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}. Received {value!r}.")
