"""Files and folders of any known kind, read as dialogues."""

from __future__ import annotations

import copy
import difflib
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import towers.data.dialogues.conv as conv
import towers.data.dialogues.cornell as cornell
import towers.data.dialogues.json_lines as json_lines
import towers.data.dialogues.speakers as speakers
import towers.data.dialogues.tsv as tsv
from towers.data.dialogues.report import ENCODING_ADVICE, ReadingReport, count
from towers.data.dialogues.source import DAMAGED, Dialogue, Source, check_encoding


class Format(NamedTuple):
    """A kind of file: its form in words, how to tell and read it, what its name may end in."""

    form: str
    looks: Callable[[str], bool]
    read: Callable[[Source], Iterator[Dialogue]]
    suffixes: tuple[str, ...] = ()


# Where lines look like several kinds alike, the first is taken: the strictest come first.
FORMATS = {
    "cornell": Format(
        "movie_conversations.txt beside movie_lines.txt, columns parted by +++$+++",
        cornell.looks,
        cornell.read,
    ),
    "json_lines": Format(
        "an object with question and answer, or a list of turns, on each line",
        json_lines.looks,
        json_lines.read,
        (".jsonl", ".ndjson"),
    ),
    "conv": Format("`E` opens a dialogue, `M text` is a turn", conv.looks, conv.read, (".conv",)),
    "speakers": Format(
        "a file for each dialogue, its lines `speaker|text|act`", speakers.looks, speakers.read
    ),
    "tsv": Format(
        "question TAB answer, further columns are further turns", tsv.looks, tsv.read, (".tsv",)
    ),
}
KINDS = {kind: file_format.form for kind, file_format in FORMATS.items()}
KIND_SHARE = 0.5  # Of the first lines have to look like the kind.
NAME_HINT = 0.25  # What a fitting name adds to that share.


def read_dialogues(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    kind: str = "auto",
    encoding: str = "utf-8",
    report: ReadingReport | None = None,
) -> Iterator[Dialogue]:
    """Returns an iterator over the dialogues of files and folders, each a list of turns.

    A turn is stripped, but otherwise as it is in the file. One that cannot be used (blank, no
    letter or digit, undecodable, ...) is an empty string, which keeps questions and answers at
    their places. Files are read a piece at a time, so memory does not grow with them (for
    Cornell, the texts of its lines are held).

    Args:
        paths: files, gzipped or not, or folders, whose files are read in the order of their names.
            A file that is named twice is read once.
        kind: one of `KINDS`, or auto: told by the first lines of each file, and its name.
        encoding: the codec of the text. Byte order marks are taken off.
        report: where to count what is kept, skipped and repaired.

    Raises:
        ValueError: an argument is wrong, or a path is not there. While reading: a file is of no
            known kind or damaged, or nothing in a path can be used.
    """
    _check_kind(kind)
    check_encoding(encoding)
    files = _files_of(_as_paths(paths), kind)
    return _read(files, kind, encoding, ReadingReport() if report is None else report)


def _check_kind(kind: str) -> None:
    kinds = ["auto", *KINDS]
    if kind not in kinds:
        nearest = difflib.get_close_matches(kind, kinds, 1, cutoff=0)[0]
        raise ValueError(
            f"kind must be one of {', '.join(kinds)}. Received {kind!r}; did you mean {nearest}?"
        )


def _as_paths(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    found = [Path(path) for path in paths]
    if not found:
        raise ValueError("paths must name at least one file or folder. Received none.")
    for path in found:
        if not path.is_file() and not path.is_dir():
            raise ValueError(f"{path}: expected a file or folder with dialogues, found neither.")
    return found


def _files_of(paths: list[Path], kind: str) -> dict[Path, list[Path]]:
    """Returns {path: its files that no path before it has}; a path without such is left out."""
    taken: set[Path] = set()
    files_of: dict[Path, list[Path]] = {}
    for path in paths:
        files = list(_files_in(path, kind)) if path.is_dir() else [_whole_of(path, kind)]
        if not files:
            raise ValueError(f"{path}: expected a folder with dialogues, found no file in it.")
        new = [file for file in files if file.resolve() not in taken]
        taken.update(file.resolve() for file in new)
        if new:
            files_of[path] = new
    return files_of


def _files_in(folder: Path, kind: str) -> Iterator[Path]:
    """Yields the files in a folder and its folders, in the order of names, but not hidden ones."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        conversations = cornell.find_conversations(Path(parent))
        if conversations and kind in ("auto", "cornell"):
            yield conversations
        else:
            files = (Path(parent, name) for name in sorted(names) if not name.startswith("."))
            yield from (file for file in files if file.is_file())


def _whole_of(path: Path, kind: str) -> Path:
    """Returns the file, or that of the conversations if it holds Cornell's lines only."""
    if path.name.startswith(cornell.LINES) and kind in ("auto", "cornell"):
        return cornell.find_conversations(path) or path
    return path


def _read(
    files_of: dict[Path, list[Path]], kind: str, encoding: str, report: ReadingReport
) -> Iterator[Dialogue]:
    for path, files in files_of.items():
        before = copy.deepcopy(report)
        for file in files:
            source = Source(file, encoding=encoding, report=report)
            yield from _read_file(source, kind, is_alone=not path.is_dir())
        found = report.since(before)
        if not found.num_turns:
            raise ValueError(_nothing_usable(path, kind, found))


def _read_file(source: Source, kind: str, *, is_alone: bool) -> Iterator[Dialogue]:
    chosen = _recognise(source) if kind == "auto" else kind
    if chosen is None and is_alone:
        raise ValueError(_not_recognised(source))
    if chosen is None:
        source.report.skip("files of no known kind", str(source.path))
        return
    for dialogue in FORMATS[chosen].read(source):
        source.report.keep(dialogue)
        yield dialogue


def _recognise(source: Source) -> str | None:
    """Returns the kind that most of the first lines look like, or None."""
    sample = source.sample()
    lines = [line for line in sample if "\0" not in line]  # Bytes that are no text have tabs too.
    suffix = Path(source.path.name.removesuffix(".gz")).suffix.lower()
    shares = {}
    for kind, file_format in FORMATS.items():
        share = sum(map(file_format.looks, lines)) / max(1, len(sample))
        shares[kind] = share + NAME_HINT * (share > 0 and suffix in file_format.suffixes)
    best = max(shares, key=lambda kind: shares[kind])
    return best if shares[best] >= KIND_SHARE else None


def _not_recognised(source: Source) -> str:
    return (
        f"{source.path}: expected dialogues, found {_description(source)}. Name the kind (kind=) "
        f"if it is one of these. {_kinds()}"
    )


def _description(source: Source) -> str:
    if not source.path.stat().st_size:
        return "an empty file"
    if zipfile.is_zipfile(source.path):
        return "a zip archive, which has to be unpacked first"
    lines = source.sample()
    if not lines:
        return "only lines that are blank or too long"
    does_decode = not any("\0" in line or DAMAGED.search(line) for line in lines)
    return f"lines of no known kind, first {lines[0][:60]!r}" + (
        "" if does_decode else f" ({ENCODING_ADVICE})"
    )


def _nothing_usable(path: Path, kind: str, found: ReadingReport) -> str:
    reasons = "; ".join(found.summary_lines()[1:])
    return (
        f"{path}: expected dialogues (kind {kind}), found no turn that can be used in "
        f"{count(found.num_lines, 'line')}{': ' if reasons else ''}{reasons}. {_kinds()}"
    )


def _kinds() -> str:
    return "The kinds are " + "; ".join(f"{kind} ({form})" for kind, form in KINDS.items()) + "."
