"""Reading files and folders of any known kind as dialogues."""

from __future__ import annotations

import copy
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import towers.data.reading.comma_separated as comma_separated
import towers.data.reading.conv as conv
import towers.data.reading.cornell as cornell
import towers.data.reading.exports as exports
import towers.data.reading.json_files as json_files
import towers.data.reading.numbered as numbered
import towers.data.reading.paired as paired
import towers.data.reading.parquet as parquet
import towers.data.reading.sms as sms
import towers.data.reading.speakers as speakers
import towers.data.reading.tsv as tsv
import towers.data.reading.yaml_files as yaml_files
from towers.data.folders import TEST, TRAIN, VALIDATION, files_below, folders_below
from towers.data.reading.dialogue_file import (
    DAMAGED,
    Dialogue,
    DialogueFile,
    Progress,
    check_encoding,
)
from towers.data.reading.encodings import check_decoded
from towers.data.reading.layout import Layout
from towers.data.reading.mending import Mending
from towers.data.reading.messages import Turns
from towers.data.reading.report import ENCODING_ADVICE, UNDECODED_FRACTION, ReadingReport
from towers.data.reading.text_files import (
    beginning_kind,
    beginning_of,
    is_code,
    own_suffix,
    part_name,
)
from towers.data.reading.weights import WeightedPath, closest_first, weighted_paths
from towers.ground.arguments import check_choice
from towers.ground.progress import count_of


class Format(NamedTuple):
    """A kind of file.

    Attributes:
        form: in words.
        read: yields the dialogues.
        looks: whether a line could belong to such a file.
        suffixes: of the names of such files.
        fits: whether a file is of this kind by how it begins, whatever its lines look like.
    """

    form: str
    read: Callable[[DialogueFile], Iterator[Dialogue]]
    looks: Callable[[str], bool] = lambda line: False
    suffixes: tuple[str, ...] = ()
    fits: Callable[[DialogueFile], bool] = lambda file: False


def _exported(form: str, heads: exports.Heads) -> Format:
    def fits(file: DialogueFile) -> bool:
        return exports.fits(file, heads) and not comma_separated.names_columns(file)

    return Format(form, lambda file: exports.read(file, heads), fits=fits)


# If lines look like several kinds, the first kind is chosen: the strictest come first.
FORMATS = {
    "cornell": Format(
        "movie_conversations.txt beside movie_lines.txt, columns separated by +++$+++",
        cornell.read,
        cornell.looks,
    ),
    "json_lines": Format(
        "an object with messages, or with question and answer, or a list of turns, on each line",
        json_files.read,
        json_files.looks,
        (".jsonl", ".ndjson"),
    ),
    "conv": Format("`E` opens a dialogue, `M text` is a turn", conv.read, conv.looks, (".conv",)),
    "speakers": Format(
        "a file for each dialogue, its lines `speaker|text|act`", speakers.read, speakers.looks
    ),
    "sms": Format("the XML of SMS Backup & Restore", sms.read, fits=sms.fits),
    "whatsapp": _exported(
        "a chat that WhatsApp exported, or another program in such lines", exports.WHATSAPP
    ),
    "qq": _exported(
        "a record of messages of QQ, Discord, Telegram or iMessage: texts below time and sender",
        exports.QQ,
    ),
    "line": _exported("a chat that LINE or KakaoTalk exported", exports.LINE),
    "marked": Format(
        "lines `User: text` and `Bot: text`, or `### Human: text` and `### Assistant: text`",
        exports.read_marked,
        fits=exports.fits_marked,
    ),
    "numbered": Format(
        "lines `1 question TAB answer`, such as Persona-Chat's", numbered.read, fits=numbered.fits
    ),
    "paired": Format(
        "a file of questions, and one of answers (--set answers=FILE), line by line",
        paired.read,
        fits=paired.fits,
    ),
    "tsv": Format(
        "question TAB answer, further columns are further turns; also divided by | or __eou__",
        tsv.read,
        tsv.looks,
        (".tsv",),
    ),
    "csv": Format(
        "columns that the first line names, such as question,answer or sender,text",
        comma_separated.read,
        fits=comma_separated.fits,
    ),
    "json_array": Format(
        "one array of such objects, objects of several lines, or one object that holds chats",
        json_files.read_array,
        fits=json_files.fits,
    ),
    "parquet": Format(
        "columns of question and answer, or of messages", parquet.read, fits=parquet.fits
    ),
    "yaml": Format("lists of turns under `conversations`", yaml_files.read, fits=yaml_files.fits),
}
KINDS = {kind: file_format.form for kind, file_format in FORMATS.items()}
COLUMNS = (
    "--set columns=NAME,NAME names question and answer, --set sender=NAME --set text=NAME messages"
)
ADVICE = f"Write a line `question TAB answer` for each pair; in CSV, JSON and Parquet, {COLUMNS}."
OTHER_ADVICE = {
    "HTML or XML": "Export the chat as JSON or text: Telegram, Instagram and Discord have JSON, "
    "imessage-exporter has `-f txt`.",
    "subtitles": "They do not say who speaks: write a line `question TAB answer` for each pair.",
    "a picture, sound or film": "Give a chat; `towers train images` takes pictures.",
}
ARCHIVES = {  # By the suffix of the name; documents of Office are archives, too.
    **dict.fromkeys((".xlsx", ".ods"), "a spreadsheet, which must be saved as CSV first"),
    **dict.fromkeys((".docx", ".odt"), "a document, which must be saved as text first"),
}
SHOWN_SENDERS = 20  # Of whom none is the one who answers.
KIND_FRACTION = 0.5  # Fraction of the first lines that must look like the kind.
SUFFIX_BONUS = 0.25  # Added to that fraction if the file has a suffix of the kind.


def read_dialogues(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    kind: str = "auto",
    encoding: str = "utf-8",
    report: ReadingReport | None = None,
    layout: Layout | None = None,
    mendings: Sequence[Mending] = (),
    progress: Progress = lambda _: None,
) -> Iterator[Dialogue]:
    """Returns an iterator over the dialogues of files and folders, each a list of turns.

    The names of files that say train, validation or test tell the parts (`file_parts`).

    A turn is stripped, but otherwise unchanged. An unusable one (blank, no letter or digit,
    undecodable, ...) is an empty string, so that questions and answers keep their places. Files
    are read in pieces, so memory does not grow with them (except the texts of Cornell's lines).

    Args:
        paths: files, compressed by gzip or Zstandard or not, or folders, whose files are read in
            the order of their names. A file that is named twice is read once. One with a weight
            (`a.conv:2`) gives it to its dialogues.
        kind: one of `KINDS`, or auto: recognised by the first lines and the name of each file.
        encoding: the codec of the text. Byte order marks are removed.
        report: counts what is kept, skipped and repaired.
        layout: the user's names of columns in CSV, Parquet and JSON.
        mendings: applied to every turn.
        progress: called with the number of bytes that were read since the last call.

    Raises:
        ValueError: an argument is wrong, or a path does not exist. While reading: a file is of no
            known kind or damaged, or nothing in a path is usable.
    """
    check_choice("kind", kind, ["auto", *KINDS])
    check_encoding(encoding)
    files = _files_of(weighted_paths(paths), kind)
    report = ReadingReport() if report is None else report

    opened = functools.partial(
        DialogueFile,
        encoding=encoding,
        report=report,
        layout=layout or Layout(),
        mendings=tuple(mendings),
        progress=progress,
    )
    return _read(files, kind, opened, report, layout.me if layout else "")


def _files_of(weighted: list[WeightedPath], kind: str) -> dict[WeightedPath, list[Path]]:
    """Returns {path: its files that no other path has}, without paths that have none left."""
    if not weighted:
        raise ValueError("paths must name at least one file or folder. Received none.")
    for path, _ in weighted:
        if not path.is_file() and not path.is_dir():
            raise ValueError(f"{path}: expected a file or folder with dialogues, found neither.")
    taken: dict[Path, tuple[WeightedPath, Path]] = {}
    for one in closest_first(weighted):
        files = list(_files_in(one.path, kind))
        if not files:
            raise ValueError(f"{one.path}: expected a folder with dialogues, found no file in it.")
        for file in files:  # By links a folder may have one twice.
            taken.setdefault(file.resolve(), (one, file))
    files_of: dict[WeightedPath, list[Path]] = {one: [] for one in weighted}
    for one, file in taken.values():
        files_of[one].append(file)
    return {one: files for one, files in files_of.items() if files}


def _files_in(path: Path, kind: str) -> Iterator[Path]:
    """Yields a file, or those below a folder in the order of names, without hidden ones.

    Where Cornell's file of lines is, it is the conversations beside it.
    """
    find = cornell.find_conversations if kind in ("auto", "cornell") else lambda _: None
    if not path.is_dir():
        yield (find(path) if path.name.startswith(cornell.LINES) else None) or path
        return
    for parent, names in folders_below(path):
        if conversations := find(parent):
            yield conversations
        else:
            files = (parent / name for name in names if (parent / name).is_file())
            yield from (file for file in files if not paired.has_questions_beside(file))


def file_parts(files_of: Mapping[Path, Sequence[Path]]) -> dict[Path, str | None]:
    """Returns the part of each file: train, held_out, `unused`, or None where no name tells it.

    Published corpora have a file for each part. Of a part for validation and one for test, the
    first is held out and the second is not read.

    Args:
        files_of: {the path that was given: its files}.
    """
    files = [(file, path) for path, own in files_of.items() for file in own]
    above = [file.relative_to(path).parts[:-1] if path.is_dir() else () for file, path in files]
    named = [part_name(file, names) for (file, _), names in zip(files, above, strict=True)]
    held_out = VALIDATION if VALIDATION in named else TEST
    if held_out not in named or not any(part in (TRAIN, None) for part in named):
        return dict.fromkeys(file for file, _ in files)
    means = {TEST: "unused"} | {held_out: "held_out"}
    return {
        file: means.get(part or "", TRAIN) for (file, _), part in zip(files, named, strict=True)
    }


def _read(
    files_of: dict[WeightedPath, list[Path]],
    kind: str,
    opened: Callable[[Path], DialogueFile],
    report: ReadingReport,
    me: str,
) -> Iterator[Dialogue]:
    parts = file_parts({one.path: files for one, files in files_of.items()})
    numbers = Counter((part or "").replace("_", " ") for part in parts.values())
    if "" not in numbers:
        told = ", ".join(f"{part} {number:,}" for part, number in numbers.items())
        report.note(f"the names of the files tell the parts: {told}")
    for (path, weight), files in files_of.items():
        before = copy.deepcopy(report)
        for other in files_below(path) if path.is_dir() else ():
            if not other.is_file():
                report.skip("files of another sort, such as pipes", str(other))
        for file_path in files:
            part = parts[file_path]
            if part == "unused":
                report.skip("files of a further part, for `towers evaluate --data`", str(file_path))
                continue
            dialogues = _read_file(opened(file_path), kind, is_alone=not path.is_dir())
            if part is None and weight == 1:
                yield from dialogues
                continue
            for dialogue in dialogues:
                turns = dialogue if isinstance(dialogue, Turns) else Turns(dialogue)
                turns.is_held_out = None if part is None else part == "held_out"
                turns.weight = weight
                yield turns
        found = report.since(before)
        if not found.num_turns and any(parts[file] != "unused" for file in files):
            raise ValueError(_nothing_usable(path, kind, found))
    senders = report.senders()
    if me and senders and me.strip().lower() not in map(str.lower, senders):
        check_choice("Field me", me, senders[:SHOWN_SENDERS])


def _read_file(file: DialogueFile, kind: str, *, is_alone: bool) -> Iterator[Dialogue]:
    chosen = _recognise(file) if kind == "auto" else kind
    if chosen is None and is_alone:
        raise ValueError(f"{file.path}: expected dialogues, found {_description(file)}")
    if chosen is None:
        file.report.skip("files of no known kind", str(file.path))
        return
    if chosen == "tsv" and file.layout.columns:
        raise ValueError(
            f"{file.path}: expected a first line with the columns {','.join(file.layout.columns)}, "
            f"found {file.sample[0][:60]!r}. Correct --set columns, or leave it out: then the "
            "first column is the question."
        )
    if chosen != "parquet":
        check_decoded(file.path, file.encoding)
    for dialogue in FORMATS[chosen].read(file):
        file.report.keep(dialogue)
        yield dialogue


def _recognise(file: DialogueFile) -> str | None:
    """Returns the kind that the file's beginning or most of its first lines look like, or None."""
    other = is_code(file.path) or beginning_kind(beginning_of(file.path))
    for kind in ["sms"] if other else FORMATS:
        if FORMATS[kind].fits(file):
            return kind
    if other:
        return None
    sample = file.sample
    lines = [line for line in sample if "\0" not in line]  # Binary files have tabs too.
    suffix, fractions = own_suffix(file.path), dict[str, float]()
    for kind, one in FORMATS.items():
        fraction = sum(map(one.looks, lines)) / max(1, len(sample))
        fractions[kind] = fraction + SUFFIX_BONUS * (fraction > 0 and suffix in one.suffixes)
    best = max(fractions, key=lambda kind: fractions[kind])
    return best if fractions[best] >= KIND_FRACTION else None


def _description(file: DialogueFile) -> str:
    if not file.path.stat().st_size:
        return "an empty file."
    if is_code(file.path):
        return "source code."
    kind = beginning_kind(beginning_of(file.path))
    if kind == "an archive":
        unpacked = "an archive, which must be unpacked first"
        return f"{ARCHIVES.get(file.path.suffix.lower(), unpacked)}."
    if kind:
        return f"{kind}. {OTHER_ADVICE.get(kind, 'Save it as CSV, JSON or text.')}"
    lines = file.sample
    if not lines:
        return "only lines that are blank or too long."
    damaged = sum("\0" in line or DAMAGED.search(line) is not None for line in lines)
    is_decoded = damaged <= UNDECODED_FRACTION * len(lines)
    columns = ",".join(file.layout.columns)
    missing = f"no columns {columns} and " if columns else ""
    advice = f". {ADVICE}" if is_decoded else f"; {ENCODING_ADVICE}."
    return f"{missing}lines of no known kind, first {lines[0][:40]!r}{advice}"


def _nothing_usable(path: Path, kind: str, found: ReadingReport) -> str:
    reasons = "; ".join(found.lines()[1:])
    return (
        f"{path}: expected dialogues (kind {kind}), found no usable turn in "
        f"{count_of(found.num_lines, 'line')}{': ' if reasons else ''}{reasons}. {COLUMNS}"
    )
