"""The files of a text: which ones a folder has, what they are, and the part that a name says."""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from towers.data.compression import SUFFIXES as COMPRESSIONS
from towers.data.compression import first_bytes, marked_encoding
from towers.data.folders import (
    PART_NAMES,
    TEST,
    TRAIN,
    VALIDATION,
    files_below,
    format_suffixes,
    part_of_folder,
    suffix_of,
)
from towers.data.reading.parquet import MAGIC

KINDS = {
    "text": (".txt", ".text", ".md", ".tokens"),
    "json_lines": (".jsonl", ".ndjson"),
    "parquet": (".parquet",),
}
RECORD_SUFFIXES = (*KINDS["json_lines"], *KINDS["parquet"])
ABOUT_RECORDS = ("README", "LICENSE", "LICENCE")  # Names of files in capitals, no suffix.
SUFFIXES = tuple(suffix for kind in KINDS.values() for suffix in kind)
CODE = (
    ".py .pyi .pyx .c .h .cc .cpp .cxx .hpp .hh .cu .cuh .m .mm .js .mjs .jsx .ts .tsx .java .kt "
    ".scala .go .rs .rb .php .pl .pm .lua .r .jl .swift .cs .fs .hs .ml .mli .ex .exs .erl .clj "
    ".el .lisp .scm .sh .bash .zsh .ps1 .bat .sql .f90 .pas .asm .s .v .sv .vhd .css .scss .proto "
    ".cmake .gradle .vim .dart .zig .nim .tcl .tex .rst"
)
ADVICE = {
    "subtitles": "write what is spoken into a .txt file",
    "HTML or XML": "write its text into a .txt file",
    "a picture, sound or film": "give a text; `towers train images` takes pictures",
    "dialogues": "`towers train chatbot` takes them; or write their lines into a .txt file",
    "records": "write a JSON object on each line, and let the name end with .jsonl",
    "another format": "unpack it or write its texts into a .txt file; if it has a JSON object on "
    "each line, let its name end with .jsonl",
}
OTHER_KINDS = {
    "subtitles": ".srt .vtt .ass .ssa .sub .sbv .lrc",
    "HTML or XML": ".html .htm .xhtml .mhtml .xml .svg",
    "dialogues": ".conv",
    "another format": ".json .csv .tsv .zip .tar .tgz .7z .rar .pdf .doc .docx .odt .rtf "
    ".ppt .pptx .xls .xlsx .epub .mobi .ipynb",
}
# An element of HTML or XML, with which Markdown may begin, too.
_ELEMENT = re.compile(
    rb'\s*<(?:!--|(?:body|head|div|p|article)\b|[a-z][\w:.-]*\s+[a-z][\w:.-]*=")', re.IGNORECASE
)
_SUBTITLES = (
    rb"(?-i:WEBVTT)[ \t\r\n]|\s*\d+\s*\n\d+:\d\d:\d\d[,.]\d+ --> |\[Script Info\]|\{\d+\}\{\d+\}"
    rb"|\d+:\d\d:\d\d\.\d+,\d+:\d\d|(?:\[\w+:[^\]]*\]\s*)*\[\d+:\d\d\.\d+\]"
)
_MEDIA = (
    rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a|RIFF.{4}(?:WEBP|WAVE|AVI )|.{4}ftyp|II\*\0|MM\0\*"
    rb"|ID3[\2-\4]\0|OggS\0|fLaC\0|\x1aE\xdf\xa3"
)
_ARCHIVE = (
    rb"PK(?:\x03\x04|\x05\x06)|7z\xbc\xaf|Rar!\x1a|.{257}ustar|WARC/\d|\x04\x22M\x18"  # And LZ4.
)
# How files of these kinds begin, whatever their names are.
BEGINNINGS = tuple(
    (kind, re.compile(pattern, re.DOTALL | re.IGNORECASE))
    for kind, pattern in (
        ("subtitles", _SUBTITLES),
        ("HTML or XML", rb"\s*<(?:!doctype\s|html\b|\?xml\s|[\w.-]+:[\w.-]+[\s>])"),
        ("a picture, sound or film", _MEDIA),
        ("PDF", rb"%PDF-"),
        ("RTF", rb"\{\\rtf"),
        ("an archive", _ARCHIVE),
        ("a document of Office", rb"\xd0\xcf\x11\xe0"),
        ("an SQLite database", rb"SQLite format 3\0"),
        (
            "Arrow, NumPy or pickled Python",
            rb"ARROW1\0|\xff{4}|\x93NUMPY|\x80[\2-\5][\x95\x8c}\]c(]",
        ),
    )
)
# Texts in other files, which begin so.
_KEPT = (
    ("HTML or XML", _ELEMENT),
    ("dialogues", re.compile(rb"E\r?\nM ")),
    ("records", re.compile(rb"\s*(?:\[\s*)?\{\s*[\"'][\w ]+[\"']\s*:")),
)
BEGIN_BYTES = 512
# An object, and one on the next line if there is one.
_RECORD = re.compile(rb"\s*\{\s*\"[^\n]*\}\s*(?:\n\s*\{|\Z)")
_RECORD_BYTES = 1 << 20


class TextFile(NamedTuple):
    """A file of a text.

    Attributes:
        path: of the file.
        kind: text, json_lines or parquet.
        part: train, validation or test; None for a file whose passages are dealt out to all three.
    """

    path: Path
    kind: str
    part: str | None


def find_texts(paths: Iterable[str | os.PathLike[str]], *, code: bool = False) -> list[TextFile]:
    """Returns the files of some files and folders, each once, folders in the order of their names.

    In a folder only files with a suffix of `KINDS`, and with `code` those of source code, are
    texts, compressed or not; README and LICENSE beside records are about them. If the name of a
    file has `valid`, `validation`, `val` or `dev` as a word of its own (`ptb.valid.txt`), or a
    folder of such a name is between the file and the folder that was given (`texts/valid/a.txt`),
    the names tell the parts of all: a file without such a word is for training. Of several folders
    that are given, their own names count, too. If the names tell of `test` alone, the other files
    have no part.

    Raises:
        ValueError: a path is missing, or there is no text in it.
    """
    found: dict[Path, Path] = {}
    named: list[str | None] = []
    given = list(map(Path, paths))
    for path in given:
        files = [path]
        if path.is_dir():
            files, _ = _texts_and_others(path, code=code)
        if not path.exists():
            raise ValueError(
                f"{path}: expected a file or folder with text, found neither."
                + (" Texts have no weights." if _is_weighted(path) else "")
            )
        if not files:
            suffixes = f"{', '.join(SUFFIXES)}, also with {', '.join(COMPRESSIONS)}"
            held = format_suffixes(Counter(map(suffix_of, files_below(path)))) or "nothing"
            raise ValueError(
                f"{path}: expected a folder with texts ({suffixes}), found "
                f"{held}. Name the files themselves if their names end otherwise."
            )
        for file in files:
            if file.resolve() not in found:
                found[file.resolve()] = file
                above = file.relative_to(path).parts[:-1]
                named.append(part_name(file, [path.name, *above] if len(given) > 1 else above))
    if not found:
        raise ValueError("A text needs at least one file or folder. Received none.")
    pairs = zip(found.values(), parts_of(named), strict=True)
    return [TextFile(file, kind_of(file), part) for file, part in pairs]


def parts_of(named: Sequence[str | None]) -> list[str | None]:
    """Returns the part of each file, None for one that is dealt out, from what its name tells.

    >>> parts_of(["train", "validation", None])
    ['train', 'validation', 'train']
    >>> parts_of(["train", "test", None])
    [None, 'test', None]
    >>> parts_of(["validation", "validation"])
    [None, None]
    """
    if len(set(named)) == 1:
        return [None] * len(named)
    if VALIDATION in named:
        return [part or TRAIN for part in named]
    return [part if part == TEST else None for part in named]


def describe_parts(files: Sequence[TextFile]) -> list[str]:
    """Returns a line about the parts that the names of the files tell, if they tell any."""
    counts = Counter(file.part or "cut into train and validation" for file in files)
    if all(file.part is None for file in files):
        return []
    return [
        "the names of the files tell: " + ", ".join(f"{n} {part}" for part, n in counts.items())
    ]


def describe_others(paths: Iterable[str | os.PathLike[str]], *, code: bool = False) -> list[str]:
    """Returns a line about the files of some folders that are no texts, if there are any."""
    folders = filter(Path.is_dir, map(Path, paths))
    left = (file for one in folders for file in _texts_and_others(one, code=code)[1])
    others = Counter(map(suffix_of, left))
    return [f"left out files that are no texts: {format_suffixes(others)}"] if others else []


def _texts_and_others(folder: Path, *, code: bool) -> tuple[list[Path], list[Path]]:
    """Returns the texts of a folder, and its other files, with those that are about its records."""
    texts, others = list[Path](), list[Path]()
    for file in files_below(folder):
        is_text = own_suffix(file) in SUFFIXES or (code and is_code(file))
        (texts if is_text else others).append(file)
    if any(own_suffix(file) in RECORD_SUFFIXES for file in texts):
        about = [one for one in texts if one.parent == folder and one.stem.upper() in ABOUT_RECORDS]
        return [one for one in texts if one not in about], others + about
    return texts, others


def is_code(path: Path) -> bool:
    """Returns whether a file is source code by its name."""
    return own_suffix(path) in CODE.split()


def own_suffix(path: Path) -> str:
    """Returns the suffix of a name in small letters, without that of a compression."""
    return Path(path.stem if path.suffix.lower() in COMPRESSIONS else path.name).suffix.lower()


def kind_of(path: Path) -> str:
    """Returns the kind of a file by its name; any other name is that of a text.

    Raises:
        ValueError: it is of a kind that is no text.
    """
    if not path.is_file() and path.exists():
        raise ValueError(f"{path}: expected a file, found a pipe or a device. Save the text first.")
    suffix = own_suffix(path)
    if suffix in (".json", ".txt") and _RECORD.match(beginning_of(path, _RECORD_BYTES)):
        return "json_lines"
    for kind, suffixes in OTHER_KINDS.items():
        if suffix in suffixes.split():
            raise _other_kind(path, f"a {suffix} file ({kind})", kind)
    begin = beginning_of(path)
    if begin.startswith(MAGIC):
        return "parquet"
    own = next((kind for kind, suffixes in KINDS.items() if suffix in suffixes), "text")
    told = () if is_code(path) else BEGINNINGS if suffix == ".md" else (*BEGINNINGS, *_KEPT)
    kind = beginning_kind(begin, told)
    if kind and not (kind == "records" and own == "json_lines"):
        raise _other_kind(path, f"{kind}: {begin[:20]!r}", kind)
    return own


def beginning_kind(begin: bytes, told: Sequence[tuple[str, re.Pattern[bytes]]] = BEGINNINGS) -> str:
    """Returns which kind a file of another program is that begins so, nothing for a text.

    >>> beginning_kind(b"%PDF-1.4"), beginning_kind(b"Once upon a time")
    ('PDF', '')
    """
    return next((kind for kind, pattern in told if pattern.match(begin)), "")


def beginning_of(path: Path, size: int = BEGIN_BYTES) -> bytes:
    """Returns how a file begins, compressed or not; nothing if it cannot be read.

    UTF-16 and UTF-32 with their mark of byte order become UTF-8.
    """
    begin = first_bytes(path, size)
    if codec := marked_encoding(begin):
        return begin.decode(codec, "ignore").encode()
    return begin.removeprefix(codecs.BOM_UTF8)


def _other_kind(path: Path, found: str, kind: str) -> ValueError:
    advice = ADVICE.get(kind, ADVICE["another format"])
    return ValueError(f"{path}: expected a text, found {found}. {advice[0].upper()}{advice[1:]}.")


def part_name(path: Path, folders: Sequence[str]) -> str | None:
    """Returns the part that the name of a file tells, else that of a folder above it.

    The name of source code, such as `test_a.py`, tells none.
    """
    words = [] if is_code(path) else re.split(r"[._\-]+", path.name.lower())
    own = [PART_NAMES.get(word) for word in words]
    return next(filter(None, [*own, *map(part_of_folder, reversed(folders))]), None)


def _is_weighted(path: Path) -> bool:
    name, _, weight = str(path).rpartition(":")
    return weight.replace(".", "").isdigit() and Path(name).exists()
