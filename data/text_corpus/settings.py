"""The settings by which a text becomes ids, and the key of its cache."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from towers.data.corpus.digests import digest_file
from towers.data.dialogues.dialogue_file import check_encoding
from towers.data.text import SPECIALS, TextSettings

VERSION = 2


@dataclasses.dataclass(frozen=True)
class TextCorpusSettings:
    """How a text becomes ids.

    Args:
        text: how it is tokenised.
        vocabulary_size: maximum number of ids, the special ones included.
        held_out: share of the passages for the part valid, and again for test, where the names of
            the files do not tell the parts.
        encoding: of the files of text.
        field: the name of the text in JSON Lines, or the column in Parquet.
    """

    text: TextSettings
    vocabulary_size: int = 20000
    held_out: float = 0.02
    encoding: str = "utf-8"
    field: str = "text"

    def __post_init__(self) -> None:
        if not 0 < self.held_out <= 0.25:
            raise ValueError(f"held_out must be above 0, up to 0.25. Received {self.held_out}.")
        if self.vocabulary_size <= len(SPECIALS):
            raise ValueError(
                f"vocabulary_size must be at least {len(SPECIALS) + 1}, of which {len(SPECIALS)} "
                f"are special. Received {self.vocabulary_size}."
            )
        if not self.field:
            raise ValueError("text_field must be the name of a field. Received an empty one.")
        check_encoding(self.encoding)

    def key(self, content: str) -> str:
        """Returns the digest of a content's digest, these settings and the files they name."""
        settings = dataclasses.asdict(self)
        for name in ("dictionary", "user_dictionary", "subword_model"):
            path = settings["text"][name]
            if path is not None:
                settings["text"][name] = digest_file(Path(path))
        text = json.dumps(["text", VERSION, settings, content], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
