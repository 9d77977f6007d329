"""The settings by which a corpus becomes pairs of ids, and the key of its cache."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from towers.data.corpus.cache import VERSION
from towers.data.corpus.digests import digest_file
from towers.data.dialogues import pair_turns
from towers.data.text import NUM_COPIES, SPECIALS, TextSettings


@dataclasses.dataclass(frozen=True)
class CorpusSettings:
    """How a corpus becomes pairs of ids.

    Args:
        text: how text is tokenised.
        vocabulary_size: maximum number of ids, the special ones included.
        pairing: `alternate` or `sliding`.
        context: number of earlier turns that belong to a question.
        held_out: share of the dialogues that is kept for the evaluation.
        kind: of the files, or `auto`.
        encoding: of the files.
        copy_unknown: whether words that the vocabulary does not have are copied from questions to
            answers; otherwise they are spelled by characters.
        min_dialogues: words that are in fewer dialogues of the training part are not in the
            vocabulary.
        columns: names of the columns of question and answer, of files with named columns.
        fix_text: whether letters that were decoded by another codec than theirs are mended.
        simplify: whether traditional Chinese characters become simplified ones.
    """

    text: TextSettings
    vocabulary_size: int = 20000
    pairing: str = "alternate"
    context: int = 0
    held_out: float = 0.02
    kind: str = "auto"
    encoding: str = "utf-8"
    copy_unknown: bool = False
    min_dialogues: int = 1
    columns: tuple[str, ...] = ()
    fix_text: bool = False
    simplify: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be between 0 and 1. Received {self.held_out}.")
        special = len(SPECIALS) + (NUM_COPIES if self.copy_unknown else 0)
        if self.vocabulary_size <= special:
            raise ValueError(
                f"vocabulary_size must be at least {special + 1}, of which {special} are special. "
                f"Received {self.vocabulary_size}."
            )
        if self.min_dialogues < 1:
            raise ValueError(f"min_dialogues must be at least 1. Received {self.min_dialogues}.")
        if len(self.columns) == 1:
            raise ValueError(
                "columns must name those of question and answer. Received "
                f"{self.columns[0]!r} alone."
            )
        pair_turns(0, pairing=self.pairing, context=self.context)  # Checks both.

    def key(self, content: str) -> str:
        """Returns the digest of a content's digest, these settings and the files they name."""
        settings = dataclasses.asdict(self)
        for name, default in (("columns", ()), ("fix_text", False), ("simplify", False)):
            if settings[name] == default:  # Keys of caches that are older than these settings.
                del settings[name]
        for name in ("dictionary", "user_dictionary", "subword_model"):
            path = settings["text"][name]
            if path is not None:
                settings["text"][name] = digest_file(Path(path))
        text = json.dumps([VERSION, settings, content], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
