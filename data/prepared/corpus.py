"""A prepared corpus: ids in memory-mapped arrays, their codec, and a manifest that vouches for all.

A corpus is complete or absent: its folder is written by `open_or_prepare` under another name.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from towers.data.folders import PARTS
from towers.data.prepared.digests import digest_file
from towers.data.text import LineCodec, TextCodec

VERSION = 3
MANIFEST = "manifest.json"
CODEC = "text"
STORED = dict(zip(PARTS, ("train", "valid", "test"), strict=True))  # As version 0.2.0 wrote them.
LONGEST_LINE = 10_000  # Tokens of a line that is shown.
COUNTED, BLOCK = 2**20, 2**14  # Tokens, for the fractions of words; they are read in blocks.

Codec = TypeVar("Codec", TextCodec, LineCodec)


class Corpus(Generic[Codec]):
    """What a preparation left in a folder.

    Attributes:
        key: the digest of the content that was prepared and of all settings.
        summary: lines about what was read, what was skipped and why.
        facts: further numbers about it.

    Raises:
        ValueError: a file is missing, damaged or of another version.
    """

    codec_class: type[Codec]

    def __init__(self, folder: Path):
        manifest = _read_manifest(folder)
        _check_files(folder, manifest["files"])
        self.folder = folder
        self.key: str = manifest["key"]
        self.summary: list[str] = manifest["summary"]
        self.facts: dict[str, Any] = manifest["facts"]
        self._arrays: dict[str, list[Any]] = manifest["arrays"]

    @functools.cached_property
    def text(self) -> Codec:
        """The codec, made at its first use, since jieba is slow to load."""
        return self.codec_class.load(self.folder / CODEC)

    def remarks(self, fields: Any) -> list[str]:
        """Returns what a training with some fields should know of the content."""
        return []

    def array(self, name: str) -> np.ndarray:
        """Returns an array, memory-mapped unless it is empty."""
        dtype, *row_shape = self._arrays[name]
        path = array_file(self.folder, name)
        if not path.stat().st_size:
            return np.empty([0, *row_shape], dtype)
        return np.memmap(path, dtype, "r").reshape(-1, *row_shape)


def array_file(folder: Path, name: str) -> Path:
    """Returns the file of an array: its numbers, nothing else."""
    return folder / f"{name}.array"


def dtype_of_ids(num_ids: int) -> np.dtype:
    """Returns the smallest type of unsigned integers that the arrays use for so many ids."""
    return np.dtype(np.uint16 if num_ids <= 1 << 16 else np.uint32)


def write_manifest(
    folder: Path,
    key: str,
    summary: Sequence[str],
    arrays: Mapping[str, Sequence[Any]],
    facts: Mapping[str, Any],
) -> None:
    """Writes the manifest of the files in a folder, the last file of a corpus.

    `arrays` has for each name that of its type, then the shape of a row.
    """
    (folder / MANIFEST).unlink(missing_ok=True)  # Of a process that was killed after it.
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    manifest = {
        "version": VERSION,
        "key": key,
        "summary": summary,
        "arrays": arrays,
        "facts": facts,
        "files": {path.relative_to(folder).as_posix(): digest_file(path) for path in files},
    }
    manifest["digest"] = _digest(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _digest(manifest: Mapping[str, Any]) -> str:
    text = json.dumps(manifest, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["version"] != VERSION:
            raise ValueError(f"its version is {manifest['version']}, not {VERSION}")
        if manifest.pop("digest") != _digest(manifest):
            raise ValueError("it has other bytes than were written")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is no manifest of a prepared corpus: {error!r}.") from error
    return manifest


def _check_files(folder: Path, digests: Mapping[str, str]) -> None:
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file() or digest_file(path) != digest:
            found = "other bytes" if path.is_file() else "no file"
            raise ValueError(
                f"{path} of a prepared corpus is damaged: expected the bytes that were written, "
                f"found {found}."
            )


class TextCorpus(Corpus[LineCodec]):
    """A prepared text; the other attributes are those of `Corpus`.

    Attributes:
        num_characters: {part: its characters without blanks, each line's end counted as one}.
    """

    codec_class = LineCodec

    def __init__(self, folder: Path):
        super().__init__(folder)
        characters, stored = self.facts["characters"], self.facts["parts"]
        self.num_characters: dict[str, int] = {part: characters[STORED[part]] for part in PARTS}
        parts = [part for part in PARTS if STORED[part] in stored]
        self.facts = {"characters": self.num_characters, "parts": parts}

    def part(self, name: str) -> np.ndarray:
        """Returns the ids of a part, memory-mapped; every line ends with the id of its end.

        Raises:
            ValueError: the text has no such part.
        """
        parts = self.facts["parts"]
        if name not in parts:
            raise ValueError(f"The text has the parts {', '.join(parts)}. Received {name!r}.")
        return self.array(STORED[name])

    def examples(self, number: int) -> list[dict[str, Any]]:
        """Returns the first lines of the training part as a model sees them, each as `text`.

        Blank ones, and ends of documents, are left out, unless the text is as written.
        """
        ids, end = self.part("train"), self.text.vocabulary.end
        found: list[dict[str, Any]] = []
        start = 0
        while len(found) < number and start < len(ids):
            line = ids[start : start + LONGEST_LINE].tolist()
            size = line.index(end) if end in line else len(line)
            is_end = line[0] == self.text.stop  # Of a document.
            if not is_end and (size or self.text.settings.as_written):
                found.append({"text": self.text.decode(line[:size])})
            start += 1 if is_end else size + 1
        return found

    def unknown_rate(self, part: str) -> float:
        """Returns the fraction of the tokens of a part that the vocabulary does not have."""
        ids, unknown = self.part(part), self.text.vocabulary.unknown
        starts = range(0, len(ids), COUNTED)
        found = sum(np.count_nonzero(ids[start : start + COUNTED] == unknown) for start in starts)
        return int(found) / max(1, len(ids))

    @functools.cached_property
    def unigram_counts(self) -> np.ndarray:
        """How often each token occurs in the training part, int64 [vocabulary].

        In a long text a million tokens are counted, from everywhere in it.
        """
        ids = self.part("train")
        if len(ids) > COUNTED:
            starts = np.linspace(0, len(ids) - BLOCK, COUNTED // BLOCK, dtype=np.int64)
            ids = np.concatenate([ids[start : start + BLOCK] for start in starts])
        return np.bincount(ids, minlength=len(self.text.vocabulary))
