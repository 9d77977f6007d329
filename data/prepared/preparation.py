"""The settings by which dialogues or a text become ids, and the key of what is prepared by them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from towers.data.prepared.corpus import VERSION
from towers.data.prepared.digests import digest_file
from towers.data.reading.dialogue_file import check_encoding
from towers.data.reading.layout import Layout
from towers.data.text import NUM_COPIES, SPECIALS, TextSettings
from towers.ground.arguments import check_at_least, check_choice

PAIRINGS = ("alternate", "sliding")


@dataclasses.dataclass(frozen=True)
class Preparation:
    """What every preparation has to know.

    Args:
        text: how text is tokenised.
        vocabulary_size: maximum number of ids, the special ones included.
        held_out: fraction of the content that is kept for the evaluation.
        encoding: of the files.
    """

    text: TextSettings
    vocabulary_size: int = 20000
    held_out: float = 0.02
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        special = self._num_special()
        least = special + (256 if self.text.chosen_tokenizer == "bytes" else 1)
        if self.vocabulary_size < least:
            raise ValueError(
                f"vocabulary_size must be at least {least}, of which {special} are special. "
                f"Received {self.vocabulary_size}."
            )
        check_encoding(self.encoding)

    def _num_special(self) -> int:
        return len(SPECIALS)

    def key(self, content: str) -> str:
        """Returns the digest of a content's digest, these settings and the files they name."""
        settings = {**self._settings(), "text": self.text.as_dict()}
        for name in ("dictionary", "user_dictionary", "subword_model"):
            path = settings["text"][name]
            if path is not None:
                settings["text"][name] = digest_file(Path(path))
        text = json.dumps([type(self).__name__, VERSION, settings, content], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _settings(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class DialoguePreparation(Preparation):
    """How dialogues become pairs of ids; whole dialogues are held out. Further settings:

    Args:
        pairing: alternate (turns 0 and 1, 2 and 3, ...; an odd last turn has no answer) or sliding
            (0 and 1, 1 and 2, ...: every turn answers the one before).
        context: the most turns before the one that is answered which belong to a question.
        kind: of the files, or `auto`.
        copy_unknown: whether words that the vocabulary does not have are copied from questions to
            answers; otherwise they are spelled by characters.
        min_dialogues: words that are in fewer dialogues of the training part are not in the
            vocabulary.
        layout: the user's names of columns.
        fix_text: whether letters that were decoded by another codec than theirs are mended.
        simplify: whether traditional Chinese characters become simplified ones.
    """

    pairing: str = "alternate"
    context: int = 0
    kind: str = "auto"
    copy_unknown: bool = False
    min_dialogues: int = 1
    layout: Layout = dataclasses.field(default_factory=Layout)
    fix_text: bool = False
    simplify: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be between 0 and 1. Received {self.held_out}.")
        check_at_least(1, min_dialogues=self.min_dialogues)
        check_at_least(0, context=self.context)
        check_choice("pairing", self.pairing, PAIRINGS)

    def _num_special(self) -> int:
        return len(SPECIALS) + (NUM_COPIES if self.copy_unknown else 0)

    def _settings(self) -> dict[str, Any]:
        """Returns the settings without what is empty of a layout: once there was none."""
        settings = super()._settings()
        layout = settings.pop("layout")
        settings["columns"] = layout.pop("columns")
        if layout["answers"]:
            layout["answers"] = digest_file(Path(layout["answers"]))
        return settings | {f"layout_{name}": value for name, value in layout.items() if value}


@dataclasses.dataclass(frozen=True)
class TextPreparation(Preparation):
    """How a text becomes ids; `held_out` is the fraction of its passages for validation, and
    again for the test, where the names of the files do not tell the parts. Further settings:

    Args:
        field: the name of the text in JSON Lines, or the column in Parquet.
        code: whether the source code in folders is text.
        min_count: words that occur less often have no id, and are spelled.
    """

    field: str = "text"
    code: bool = True
    min_count: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.held_out <= 0.25:
            raise ValueError(f"held_out must be above 0, up to 0.25. Received {self.held_out}.")
        check_at_least(1, min_count=self.min_count)
        if not self.field:
            raise ValueError("text_field must be the name of a field. Received an empty one.")

    def _num_special(self) -> int:
        # Of whole words, the end of a line, and the unknown.
        return 2 if self.text.has_whole_words else super()._num_special()

    def _settings(self) -> dict[str, Any]:
        """Returns the settings without what once was not there and is off."""
        off = {"code": False, "min_count": 1}
        return {n: v for n, v in super()._settings().items() if n not in off or v != off[n]}
