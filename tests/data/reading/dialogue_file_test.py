"""Lines of any length are read in bounded memory; what cannot be used is counted."""

import gzip
import tracemalloc

import pytest

from tests.data.reading.helpers import read_bytes
from towers.data.compression import CHUNK_BYTES
from towers.data.reading.dialogue_file import MAX_LINE_CHARACTERS, read_lines
from towers.data.reading.dialogues import read_dialogues

MEGABYTE = 1 << 20


def test_megabytes_in_a_line_are_skipped(tmp_path):
    content = b"E\nM a\nM " + b"x" * (2 * MEGABYTE) + b"\nM b\nM c\n"
    dialogues, report = read_bytes(tmp_path, content)
    assert dialogues == [["a", "", "b", "c"]]
    assert report.skipped == {"lines or turns that are too long": 1}
    assert report.places["skipped lines or turns that are too long"] == [f"{tmp_path}/talk.txt:3"]


@pytest.mark.parametrize("kind", ["tsv", "json_lines", "speakers"])
def test_ten_megabytes_without_a_line_end_are_refused(tmp_path, kind):
    with pytest.raises(ValueError, match="skipped lines or turns that are too long: 1"):
        read_bytes(tmp_path, b"x\t" * (5 * MEGABYTE), kind=kind)


@pytest.mark.parametrize("length", [MAX_LINE_CHARACTERS - 1, MAX_LINE_CHARACTERS])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_the_longest_line_is_whole(tmp_path, length, end):
    path = tmp_path / "lines"
    path.write_bytes(b"x" * length + end)
    assert [(len(text), is_cut) for _, text, is_cut in read_lines(path, "utf-8")] == [
        (length, False)
    ]
    path.write_bytes(b"x" * (MAX_LINE_CHARACTERS + 1) + end)
    assert [is_cut for *_, is_cut in read_lines(path, "utf-8")] == [True]


def test_lines_that_cross_the_pieces_are_whole(tmp_path):
    path = tmp_path / "lines"
    lines = ["你好" * number for number in range(1, 300)]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert path.stat().st_size > 3 * CHUNK_BYTES
    assert [line.text for line in read_lines(path, "utf-8")] == lines
    assert [line.number for line in read_lines(path, "utf-8")] == [*range(1, 300)]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "gb18030", "big5", "utf-16", "utf-32-be"])
def test_any_encoding_is_read(tmp_path, encoding):
    content = "E\r\nM 你好\r\nM 你也好\r\n".encode(encoding)
    assert read_bytes(tmp_path, content, encoding=encoding)[0] == [["你好", "你也好"]]


@pytest.mark.parametrize("mark", ["\ufeff", ""])
def test_byte_order_marks_are_taken_off(tmp_path, mark):
    content = f"{mark}E\nM a\n{mark}E\nM {mark}b\n".encode()  # As when such files are put together.
    assert [len(turns) for turns in read_bytes(tmp_path, content)[0]] == [1, 1]


@pytest.mark.parametrize("name", ["talk.conv.gz", "talk.conv"])
def test_gzipped_files_are_told_by_their_content(tmp_path, name):
    content = gzip.compress(b"E\nM a\nM b\n")
    assert read_bytes(tmp_path, content, name)[0] == [["a", "b"]]


@pytest.mark.parametrize("spoil", [lambda whole: whole[:-9], lambda whole: whole[:12] + whole[14:]])
def test_damaged_gzip_is_refused(tmp_path, spoil):
    whole = gzip.compress(b"E\nM a\nM b\n" * 9)
    with pytest.raises(ValueError, match=r"talk.txt cannot be read to its end"):
        read_bytes(tmp_path, spoil(whole))


def test_carriage_returns_within_turns_are_told(tmp_path):
    found, report = read_bytes(tmp_path, b"q\ta\rq2\ta2\nq3\ta3\r\n", "talk.tsv")
    assert found == [["q", "a\rq2", "a2"], ["q3", "a3"]]
    assert report.notes == [
        f"{tmp_path / 'talk.tsv'}: carriage returns within turns end no line there"
    ]


TALK = b"how are you today, " * 50


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("conv", b"E\nM " + TALK + b"\nM " + TALK + b"\n"),
        ("conv", b"M an opening that is never followed by another " + TALK + b"\n"),
        ("tsv", TALK + b"\t" + TALK + b"\n"),
        ("json_lines", b'["' + TALK + b'", "' + TALK + b'"]\n'),
        ("speakers", b"A|" + TALK + b"|qo\nB|" + TALK + b"|sd\n"),
        ("speakers", b"A|" + TALK + b"|sd\n"),
        ("speakers", TALK),
    ],
)
def test_memory_does_not_grow_with_the_file(tmp_path, kind, lines):
    path = tmp_path / "talk"
    path.write_bytes(b"B|hi|fp\n" + lines * (12 * MEGABYTE // len(lines)))
    tracemalloc.start()
    try:
        num_turns = sum(len(turns) for turns in read_dialogues(path, kind=kind))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert num_turns
    assert peak < 4 * MEGABYTE
