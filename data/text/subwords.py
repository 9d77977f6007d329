"""Subwords: pieces of words learned from a corpus, by the SentencePiece library.

The library is an extra: `pip install -e '.[subwords]'`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from towers.ground.durable import write_file
from towers.ground.extras import import_extra

from .vocabulary import SPECIALS

LIBRARY = ("sentencepiece", "subwords", "The tokenizer is subwords")
SUBWORD_FILE = "subwords.model"  # The name of the model in the folder of a codec.
MAX_TEXT_BYTES = 1_000_000  # Longer texts are not learned from.
_BLANK = "\u2581"  # SentencePiece's sign for the blank before a word.


def train_subwords(texts: Iterable[str], size: int, path: str | Path) -> None:
    """Writes a model of at most `size` pieces, learned from normalised texts.

    The pieces are those of a unigram language model (Kudo 2018, "Subword regularization",
    section 3.2); the same texts give the same file.

    Raises:
        ValueError: there is no text, the size does not hold the characters of the texts, or the
            library is not installed.
    """
    sentencepiece = import_extra(*LIBRARY)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(text.replace(_BLANK, "_") for text in texts),
            model_writer=model,
            model_type="unigram",
            vocab_size=max(1, size),
            hard_vocab_limit=False,
            max_sentence_length=MAX_TEXT_BYTES,
            normalization_rule_name="identity",
            bos_id=-1,
            eos_id=-1,
            num_threads=1,  # More would add the counts in another order each time.
            minloglevel=3,
        )
    except (RuntimeError, OSError) as error:
        raise ValueError(_what_is_needed(size, str(error))) from error
    write_file(path, model.getvalue())


def _what_is_needed(size: int, error: str) -> str:
    """Returns SentencePiece's error in terms of the size of the vocabulary."""
    if "sentences_.empty()" in error:
        return "There is no text to learn subwords from."
    needed = re.search(r"smaller than required_chars. \d+ vs (\d+)", error)
    if needed is None:
        return f"No subwords were learned with size={size}. SentencePiece says: {error}"
    special = len(SPECIALS)
    return (
        f"vocabulary_size must be at least {int(needed[1]) + special} for subwords of these texts: "
        f"{needed[1]} for their common characters, {special} for the special tokens. Received "
        f"{size + special}."
    )


class SubwordTokenizer:
    """Pieces of words; the first piece of a word begins with `\u2581`.

    Args:
        model: path of the file that `train_subwords` wrote.

    Raises:
        ValueError: there is no such file, it is no model, or the library is not installed.
    """

    def __init__(self, model: str | None) -> None:
        if model is None:
            raise ValueError(
                "The tokenizer subwords needs a subword_model. Received None; write one with "
                "train_subwords, or prepare a corpus, which learns one."
            )
        self._processor = _load(Path(model))

    def tokenize(self, text: str) -> list[str]:
        return self._processor.encode(text.replace(_BLANK, "_"), out_type=str)

    def detokenise(self, tokens: Sequence[str]) -> str:
        return "".join(tokens).replace(_BLANK, " ").strip()


def _load(path: Path) -> Any:
    try:
        return import_extra(*LIBRARY).SentencePieceProcessor(model_proto=path.read_bytes())
    except (OSError, RuntimeError) as error:
        raise ValueError(
            f"{path}: expected a SentencePiece model as train_subwords writes it, found: {error}."
        ) from error
