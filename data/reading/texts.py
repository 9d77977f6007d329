"""Reading the files of a text as lines, in bounded memory, whatever their bytes are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from towers.data.compression import Progress, decoded
from towers.data.reading.dialogue_file import read_lines
from towers.data.reading.encodings import check_decoded
from towers.data.reading.parquet import rows_of
from towers.data.reading.report import (
    CUT_LINE,
    FEW_UNDECODED,
    NUL_LINE,
    UNDECODED_LINE,
    TextReport,
)
from towers.data.reading.text_files import TextFile

CHUNK_BYTES = 1 << 18
MAX_LINE_CHARACTERS = 10_000
PASSAGE_CHARACTERS = 500
MAX_RECORD_CHARACTERS = 16_000_000
ENOUGH_RECORDS = 1000  # If so many have no text, the others will not either.
DAMAGED = "\ufffd"
DOCUMENT_END = "\0"  # Stands for a line; no line has it.
WRITTEN_END = "<|endoftext|>"  # As a line it says the same.
_BLANK = re.compile(r"\s")


class Piece(str):
    """What a line begins with, or goes on with: the next text goes on with the line."""

    __slots__ = ()


class Reader(NamedTuple):
    """How texts are read.

    Attributes:
        encoding: the codec of texts and JSON Lines; Parquet is UTF-8.
        field: the name of the text in JSON Lines, or the column in Parquet.
        report: counts what is skipped.
        progress: called with the number of bytes of a file that were read since the last call.
        as_written: whether blank lines are lines, and a carriage return ends none.
        documents: whether DOCUMENT_END follows the lines of each record, and of other files.
        whole_words: whether what blanks separate is not cut.
    """

    encoding: str
    field: str
    report: TextReport
    progress: Progress
    as_written: bool = False
    documents: bool = False
    whole_words: bool = False

    def blocks(self, file: TextFile) -> Iterator[list[str]]:
        """Yields the lines of a file that are not blank, without their ends, a few at a time.

        A line that is too long becomes several, cut at blanks. As it is written it stays one: its
        pieces, of which each but the last is a `Piece`.

        Raises:
            ValueError: the file cannot be read to its end, is of another encoding, or its records
                have no such field.
        """
        self.report.num_files += 1
        end_all = self.documents and file.kind != "text"
        is_open = False
        for lines in self._blocks(file):
            if usable := self._usable(lines, file):
                if end_all:
                    usable.append(DOCUMENT_END)
                    self.report.num_documents += 1
                is_open = self.documents and usable[-1] != DOCUMENT_END
                yield usable
        if is_open:
            self.report.num_documents += 1
            yield [DOCUMENT_END]

    def _blocks(self, file: TextFile) -> Iterator[list[str]]:
        if file.kind != "parquet":
            check_decoded(file.path, self.encoding)
        if file.kind == "text":
            return _plain(file.path, self)
        records = _parquet if file.kind == "parquet" else _json_lines
        return (
            self.lines_of(text.removesuffix("\n"), file.path) for text in records(file.path, self)
        )

    def lines_of(self, text: str, path: Path) -> list[str]:
        """Returns the lines of a text, long ones in pieces."""
        if "\r" in text and not self.as_written:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        if max(map(len, lines)) > self.most:
            lines = [piece for line in lines for piece in self.cut(line, path)]
        return lines

    @property
    def most(self) -> int:
        """The number of characters of the longest line; longer ones are cut."""
        return PASSAGE_CHARACTERS if self.as_written else MAX_LINE_CHARACTERS

    def cut(self, line: str, path: Path) -> list[str]:
        """Returns the pieces of a line, each of which ends at a blank if it has one."""
        pieces, start = list[str](), 0
        while len(line) - start > self.most and (end := self._end(line, start)) < len(line):
            pieces.append(line[start:end])
            start = end
        if self.as_written:
            self.report.num_lines -= len(pieces)  # They are counted, and are no lines.
            return [*map(Piece, pieces), line[start:]]
        for _ in pieces:
            self.report.repair(CUT_LINE, f"{path}, {line[:20]!r}")
        return [*pieces, line[start:]]

    def _end(self, line: str, start: int) -> int:
        """Returns where the piece of a line that begins somewhere ends."""
        end = start + self.most
        blank = line.rfind(" ", start + self.most // 2, end)
        if blank >= 0:
            return blank + (not self.as_written)
        if not self.whole_words:
            return end
        most = start + MAX_RECORD_CHARACTERS
        found = _BLANK.search(line, end, most)
        return found.start() if found else most

    def _usable(self, lines: list[str], file: TextFile) -> list[str]:
        if not self.as_written:
            lines = [line for line in lines if line and not line.isspace()]
        block = "\n".join(lines)
        if "\0" in block or DAMAGED in block:
            lines = [line for line in lines if self._is_whole(line, file)]
        self.report.num_lines += len(lines)
        if self.documents and WRITTEN_END in block:
            lines = [DOCUMENT_END if line.strip() == WRITTEN_END else line for line in lines]
            num_ends = lines.count(DOCUMENT_END)
            self.report.num_lines -= num_ends
            self.report.num_documents += num_ends
        return lines

    def _is_whole(self, line: str, file: TextFile) -> bool:
        if "\0" in line:
            self.report.skip(NUL_LINE, f"{file.path}, {line[:20]!r}")
            return False
        if line.count(DAMAGED) > max(1, len(line) // 10):
            self.report.skip(UNDECODED_LINE, f"{file.path}, {line[:20]!r}")
            return False
        if DAMAGED in line:
            self.report.repair(FEW_UNDECODED, f"{file.path}, {line[:20]!r}")
        return True


def _plain(path: Path, reader: Reader) -> Iterator[list[str]]:
    """Yields the lines of a file of text."""
    rest = ""
    for chunk in _decoded(path, reader):
        whole, end, rest = (rest + chunk).rpartition("\n")
        if end:
            yield reader.lines_of(whole, path)
        if len(rest) > reader.most:
            *pieces, rest = reader.cut(rest, path)
            yield pieces
    if rest:
        yield [rest]


def _json_lines(path: Path, reader: Reader) -> Iterator[str]:
    """Yields the field of each record of a file."""
    num_read, other = 0, ""
    expected = f"expected an object with the text in {reader.field!r}"
    advice = "Name the field with --set text_field=NAME."
    for line in read_lines(path, reader.encoding, reader.progress, MAX_RECORD_CHARACTERS):
        place = f"{path}:{line.number}"
        if line.is_cut:
            reader.report.skip("records that are too long", place)
        elif line.text.strip():
            value, found = _field_of(line.text, reader.field)
            if value is None:
                other = other or f"{place}: {expected}, found {found}. {advice}"
                if not num_read and line.number >= ENOUGH_RECORDS:
                    raise ValueError(other)
                reader.report.skip(f"records without a text in {reader.field!r}", place)
            else:
                num_read += 1
                yield value
    if other and not num_read:
        raise ValueError(other)


def _field_of(line: str, name: str) -> tuple[str | None, str]:
    """Returns the text of a record, None without one, and what the record is instead."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None, f"no JSON: {line[:40]!r}"
    if not isinstance(record, dict):
        return None, f"JSON of another kind: {line[:40]!r}"
    value = record.get(name)
    if isinstance(value, str):
        return value, ""
    if name in record:
        return None, f"{json.dumps(value)[:40]} in it"
    return None, f"the fields {', '.join(map(repr, list(record)[:8])) or 'of nothing'}"


def _parquet(path: Path, reader: Reader) -> Iterator[str]:
    """Yields the values of a column that are texts."""

    def chosen(schema: Any) -> list[str]:
        if reader.field not in schema.names:
            raise ValueError(
                f"{path}: expected a column {reader.field!r} with the text, found the columns "
                f"{', '.join(map(repr, schema.names[:8]))}. Name it with --set text_field=NAME."
            )
        return [reader.field]

    for row in rows_of(path, chosen, reader.progress):
        value = row[reader.field]
        if isinstance(value, str):
            yield value
        else:
            reader.report.skip("rows without a text", str(path))


def _decoded(path: Path, reader: Reader) -> Iterator[str]:
    """Yields the decoded text of a file, compressed or not, whose ends of lines are \\n.

    Marks of byte order are removed. As it is written, ends of lines stay, and a mark inside.
    """
    is_first, how = True, (path, reader.encoding, reader.progress, CHUNK_BYTES)
    for text in decoded(*how, any_line_end=not reader.as_written):
        if not reader.as_written:
            yield text.replace("\ufeff", "")
        else:
            yield text.removeprefix("\ufeff") if is_first else text
        is_first = False
