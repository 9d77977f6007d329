"""The files of a prepared corpus: complete or absent, and read by memory mapping."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from towers.data.corpus.digests import digest_file
from towers.data.text import TextCodec
from towers.ground.arguments import check_choice
from towers.ground.special_ids import END, UNKNOWN

VERSION = 2
PARTS = ("train", "held_out")
ARRAYS = ("tokens", "offsets", "characters", "train_pairs", "held_out_pairs", "unigram_counts")
MANIFEST = "manifest.json"
UNKNOWN_WORDS = "unknown_words.json"


class Corpus:
    """A prepared corpus: dialogues as ids, memory-mapped.

    Attributes:
        folder: the folder of its files.
        key: the digest of the corpus's content and of all settings.
        text: the codec, with the vocabulary.
        tokens: unsigned integers, all turns one after the other, a SEPARATOR after each that is
            not empty, so that a question of several turns is a slice. With a vocabulary that
            copies, the ids after its own are those of `unknown_words`.
        offsets: int64 [num_turns + 1], where each turn begins in `tokens`.
        characters: uint32 [num_turns], without blanks.
        train_pairs, held_out_pairs: int32 [n, 2], the first turn of the question and the turn of
            the answer; the question is all turns between.
        unigram_counts: int64 [vocabulary], of the tokens of the training answers with their END.
        summary: lines about what was kept, what was skipped and why.
    """

    def __init__(self, folder: Path):
        manifest = read_manifest(folder)
        self.folder = folder
        self.key: str = manifest["key"]
        self.summary: list[str] = manifest["summary"]
        self.unknown_rate: float = manifest["unknown_rate"]
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS}
        self.tokens, self.offsets, self.characters = (arrays[name] for name in ARRAYS[:3])
        self.train_pairs, self.held_out_pairs = arrays["train_pairs"], arrays["held_out_pairs"]
        self.unigram_counts = arrays["unigram_counts"]

    @functools.cached_property
    def text(self) -> TextCodec:
        """The codec, made at its first use, since jieba is slow to load."""
        return TextCodec.load(self.folder / "text")

    @functools.cached_property
    def unknown_words(self) -> list[str]:
        """The words that a vocabulary with copies does not have, in the order of their ids."""
        return json.loads((self.folder / UNKNOWN_WORDS).read_text(encoding="utf-8"))

    def pairs(self, part: str) -> np.ndarray:
        """Returns the pairs of `train` or `held_out`."""
        check_choice("part", part, PARTS)
        return self.train_pairs if part == "train" else self.held_out_pairs

    def texts(self, pair: Sequence[int]) -> tuple[list[str], str]:
        """Returns the turns of a pair's question, and its answer, as the vocabulary spells them."""
        first, answer = (int(number) for number in pair)
        question = [text for turn in range(first, answer) if (text := self._turn(turn))]
        return question, self._turn(answer)

    def _turn(self, turn: int) -> str:
        start, stop = self.offsets[turn], self.offsets[turn + 1]
        ids = self.tokens[start : max(start, stop - 1)].tolist()
        size = len(self.text.vocabulary)
        if not any(one >= size for one in ids):
            return self.text.decode(ids)
        tokens = [
            [self.unknown_words[one - size]] if one >= size else self.text.vocabulary.tokens([one])
            for one in ids
        ]
        return self.text.detokenise([token for part in tokens for token in part])

    @functools.cached_property
    def target_counts(self) -> np.ndarray:
        """How often each id is a target in the training answers, float64 [vocabulary].

        UNKNOWN never is. Only a batch tells which unknown words its answers copy: here the copies
        share all of them.
        """
        counts = np.array(self.unigram_counts, np.float64)
        copies = self.text.vocabulary.copies
        counts[copies.start : copies.stop] = counts[UNKNOWN] / max(len(copies), 1)
        counts[UNKNOWN] = 0
        return counts

    @functools.cached_property
    def unigram_perplexity(self) -> float:
        """The perplexity of a unigram model on the held-out answers.

        Its probabilities are the frequencies in the training answers with one added to each count.
        UNKNOWN is left out, as in the perplexity of a trained model, and so are copied words.
        """
        counts = np.asarray(self.unigram_counts, np.float64) + 1
        counts[UNKNOWN] = 0
        with np.errstate(divide="ignore"):
            log_probabilities = np.log(counts / counts.sum())
        turns = np.asarray(self.held_out_pairs[:, 1])
        answers = [self.tokens[self.offsets[turn] : self.offsets[turn + 1] - 1] for turn in turns]
        tokens = np.concatenate(answers).astype(np.int64)
        tokens = tokens[(tokens != UNKNOWN) & (tokens < len(counts))]
        total = log_probabilities[tokens].sum() + len(turns) * log_probabilities[END]
        return math.exp(-total / (len(tokens) + len(turns)))


def open_corpus(folder: str | os.PathLike[str]) -> Corpus:
    """Returns the corpus that was prepared into a folder.

    Raises:
        ValueError: it is missing, damaged or of another version.
    """
    folder = Path(folder)
    check_files(folder)
    return Corpus(folder)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest of a cache; ValueError if there is no usable one."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["version"] != VERSION:
            raise ValueError(f"its version is {manifest['version']}, not {VERSION}")
        manifest["key"], manifest["summary"], manifest["unknown_rate"]
        dict[str, int](manifest["sizes"])
        digest = manifest.pop("digest", None)  # Earlier versions wrote no digests.
        if (digest or "digests" in manifest) and digest != digest_manifest(manifest):
            raise ValueError("it has other bytes than were written")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is no manifest of a prepared corpus: {error!r}.") from error
    return manifest


def digest_manifest(manifest: dict[str, Any]) -> str:
    """Returns the digest of a manifest."""
    text = json.dumps(manifest, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def check_files(folder: Path) -> None:
    """Raises ValueError unless every file of the cache is as it was written.

    Caches of earlier versions have sizes and no digests.
    """
    manifest = read_manifest(folder)
    digests = manifest.get("digests", {})
    for name, size in manifest["sizes"].items():
        path = folder / name
        found = path.stat().st_size if path.exists() else None
        if found != size:
            raise ValueError(
                f"{path} of a prepared corpus is damaged: expected {size} bytes, found "
                f"{'no file' if found is None else found}."
            )
        if name in digests and digest_file(path) != digests[name]:
            raise ValueError(
                f"{path} of a prepared corpus is damaged: it has other bytes than were written."
            )


def write_cache(
    folder: Path,
    arrays: dict[str, np.ndarray],
    codec: TextCodec,
    unknown_words: Sequence[str],
    manifest: dict[str, Any],
) -> None:
    """Writes the files of a cache into its folder, which is not finished yet."""
    (folder / MANIFEST).unlink(missing_ok=True)  # Of a process that was killed after it.
    words = json.dumps(unknown_words, ensure_ascii=False, indent=0)
    (folder / UNKNOWN_WORDS).write_text(words, encoding="utf-8")
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    codec.save(folder / "text")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
    digests = {name: digest_file(folder / name) for name in sizes}
    content = {"version": VERSION, **manifest, "sizes": sizes, "digests": digests}
    content["digest"] = digest_manifest(content)
    (folder / MANIFEST).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
