"""A prepared text: the ids of its parts, memory-mapped."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

from towers.data.corpus.digests import digest_file
from towers.data.text_corpus.line_codec import LineCodec
from towers.data.text_corpus.settings import VERSION
from towers.data.text_corpus.text_files import PARTS

MANIFEST = "manifest.json"
TEXT = "text"
COUNTED, BLOCK = 2**20, 2**14  # Tokens, for the shares of words; they are read in blocks.


class TextCorpus:
    """A prepared text.

    Args:
        folder: of its files.

    Attributes:
        folder: of its files.
        key: the digest of its content and of all settings.
        summary: lines about what was read.
        num_characters: {part: its characters without blanks, each line's end counted as one}.

    Raises:
        ValueError: a file is missing, damaged or of another version.
    """

    def __init__(self, folder: Path):
        manifest = _read_manifest(folder)
        self.folder = folder
        self.key: str = manifest["key"]
        self.summary: list[str] = manifest["summary"]
        self.num_characters: dict[str, int] = manifest["characters"]
        self._num_tokens: dict[str, int] = manifest["tokens"]
        self._dtype = np.dtype(manifest["dtype"])
        for part, number in self._num_tokens.items():
            path = ids_file(folder, part)
            found = path.stat().st_size if path.exists() else 0
            if found != number * self._dtype.itemsize or (
                number and digest_file(path) != manifest["digests"][part]
            ):
                raise ValueError(
                    f"{path} of a prepared text is damaged: expected the {number} ids that were "
                    f"written, found {found} bytes that are not these."
                )

        # Those of earlier versions have no digests of their vocabulary.
        if manifest.get("text", expected := digests_of_text(folder)) != expected:
            raise ValueError(
                f"{folder / TEXT} of a prepared text is damaged: expected the files that were "
                "written, found others."
            )

    @functools.cached_property
    def text(self) -> LineCodec:
        """The codec, made at its first use, since jieba is slow to load."""
        return LineCodec.load(self.folder / TEXT)

    def part(self, name: str) -> np.ndarray:
        """Returns the ids of a part, memory-mapped; every line ends with END.

        Raises:
            ValueError: the text has no such part.
        """
        parts = [part for part, number in self._num_tokens.items() if number]
        if name not in parts:
            raise ValueError(f"The text has the parts {', '.join(parts)}. Received {name!r}.")
        return np.memmap(ids_file(self.folder, name), self._dtype, "r")

    @functools.cached_property
    def unigram_counts(self) -> np.ndarray:
        """How often each token occurs in the training part, int64 [vocabulary].

        Of a long text a million tokens are counted, from everywhere in it.
        """
        ids = self.part("train")
        if len(ids) > COUNTED:
            starts = np.linspace(0, len(ids) - BLOCK, COUNTED // BLOCK, dtype=np.int64)
            ids = np.concatenate([ids[start : start + BLOCK] for start in starts])
        return np.bincount(ids, minlength=len(self.text))


def digests_of_text(folder: Path) -> dict[str, str]:
    """Returns {file: its digest} of the codec in a folder."""
    files = sorted(path for path in (folder / TEXT).glob("*") if path.is_file())
    return {path.name: digest_file(path) for path in files}


def ids_file(folder: Path, part: str) -> Path:
    """Returns the file of a part's ids: unsigned integers, nothing else."""
    return folder / f"{part}.ids"


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["version"] != VERSION:
            raise ValueError(f"its version is {manifest['version']}, not {VERSION}")
        for name in ("key", "summary", "characters", "tokens", "dtype", "digests"):
            manifest[name]
        return manifest
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is no manifest of a prepared text: {error!r}.") from error


__all__ = ["MANIFEST", "PARTS", "TEXT", "TextCorpus", "digests_of_text", "ids_file"]
