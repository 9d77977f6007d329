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


def train_subwords(
    texts: Iterable[str], size: int, path: str | Path, *, exact: bool = False
) -> None:
    """Writes a model of at most `size` pieces, learned from normalised texts.

    An exact one keeps every blank, and has each byte as a piece for what else it does not have.

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
            sentence_iterator=(text.replace(_BLANK, "_").replace("<0x", "<0 x") for text in texts),
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
            **(_EXACT if exact else {}),
        )
    except (RuntimeError, OSError) as error:
        raise ValueError(_what_is_needed(size, str(error))) from error
    write_file(path, model.getvalue())


_EXACT = {
    "byte_fallback": True,
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
}


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
        exact: whether it is an exact one; any text comes back from its pieces then.

    Attributes:
        alphabet: the pieces of an exact model.

    Raises:
        ValueError: there is no such file, it is no model or no exact one, or the library is not
            installed.
    """

    def __init__(self, model: str | None, *, exact: bool = False) -> None:
        if model is None:
            raise ValueError(
                "The tokenizer subwords needs a subword_model. Received None; write one with "
                "train_subwords, or prepare a corpus, which learns one."
            )
        self._processor = _load(Path(model))
        self._exact = exact
        self.alphabet: Sequence[str] = ()
        if exact:
            ids = range(self._processor.get_piece_size())
            if not any(map(self._processor.is_byte, ids)):
                raise ValueError(
                    f"{model}: expected a model with pieces for bytes (byte_fallback), found none, "
                    "so that it would change a text. Leave subword_model out to learn one."
                )
            self.alphabet = [
                self._processor.id_to_piece(one)
                for one in ids
                if not self._processor.is_unknown(one)
            ]

    def tokenize(self, text: str) -> list[str]:
        if not self._exact:
            return self._processor.encode(text.replace(_BLANK, "_"), out_type=str)
        first, *others = text.encode("utf-8", "replace").decode().split(_BLANK)
        tokens = self._processor.encode(first, out_type=str)
        for part in others:
            tokens += _BLANK_AS_BYTES + self._processor.encode(part, out_type=str)
        return tokens

    def detokenise(self, tokens: Sequence[str]) -> str:
        if not self._exact:
            return "".join(tokens).replace(_BLANK, " ").strip()
        content = b"".join(
            bytes([int(token[3:5], 16)])
            if _BYTE.fullmatch(token)
            else token.replace(_BLANK, " ").encode()
            for token in tokens
        )
        return content.decode("utf-8", "replace")


_BYTE = re.compile("<0x[0-9A-F]{2}>")
_BLANK_AS_BYTES = [f"<0x{byte:02X}>" for byte in _BLANK.encode()]


def _load(path: Path) -> Any:
    try:
        return import_extra(*LIBRARY).SentencePieceProcessor(model_proto=path.read_bytes())
    except (OSError, RuntimeError) as error:
        raise ValueError(
            f"{path}: expected a SentencePiece model as train_subwords writes it, found: {error}."
        ) from error
