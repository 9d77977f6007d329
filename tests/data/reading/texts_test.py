"""Every format of a text is read back, and whatever the bytes are, an error names the file."""

import gzip
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towers.data.reading.report import TextReport
from towers.data.reading.text_files import describe_others, describe_parts, find_texts
from towers.data.reading.texts import (
    DOCUMENT_END,
    MAX_LINE_CHARACTERS,
    PASSAGE_CHARACTERS,
    Piece,
    Reader,
)

LINES = st.lists(
    st.text(st.sampled_from('你好aZé9 ,.|"\\{}\x0b\x85\u2028😀'), max_size=9).filter(str.strip),
    max_size=6,
)
JSON_DIRT = [b'{"text": "a"}', b'{"text": 7}', b'{"text"', b"[[", b"7"]
DIRT = st.binary(max_size=200) | st.lists(
    st.sampled_from([*JSON_DIRT, b"\n", b"\r\n", b"\xe4\xbd", b"\0", b"PAR1", b"\x28\xb5\x2f\xfd"]),
    max_size=40,
).map(b"".join)
NAMES = ("a.txt", "a.jsonl", "a.parquet", "a.txt.gz", "a.jsonl.zst")


def read(path, **options):
    """Returns the lines of a path, the report, and the number of bytes of progress."""
    report, done = TextReport(), []
    options = {"encoding": "utf-8", "field": "text", **options}
    reader = Reader(report=report, progress=done.append, **options)
    blocks = [block for file in find_texts([path]) for block in reader.blocks(file)]
    return [line for block in blocks for line in block], report, sum(done)


def compressed(content, how):
    if how == ".zst":
        return pytest.importorskip("backports.zstd").compress(content)
    return gzip.compress(content) if how == ".gz" else content


@pytest.mark.parametrize("how", ["", ".gz", ".zst"])
@given(lines=LINES, end=st.sampled_from(["\n", "\r\n", "\n\n"]))
@settings(max_examples=25, deadline=None)
def test_lines_are_read_back(tmp_path_factory, how, lines, end):
    path = tmp_path_factory.mktemp("text") / f"a.txt{how}"
    content = compressed("".join(line + end for line in lines).encode(), how)
    path.write_bytes(content)
    found, report, num_bytes = read(path)
    assert found == lines
    assert report.num_lines == len(lines)
    assert num_bytes == len(content)


@given(lines=LINES, is_ascii=st.booleans())
@settings(max_examples=25, deadline=None)
def test_records_are_read_back(tmp_path_factory, lines, is_ascii):
    folder = tmp_path_factory.mktemp("text")
    records = [{"id": 7, "body": line} for line in lines]
    text = "".join(json.dumps(record, ensure_ascii=is_ascii) + "\n" for record in records)
    (folder / "a.jsonl").write_text(text, encoding="utf-8")
    assert read(folder, field="body")[0] == lines


def test_a_column_is_read_back(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    values = [f"line {number}\nanother" for number in range(5000)]
    table = arrow.table({"id": range(5001), "body": [*values, None]})
    parquet.write_table(table, tmp_path / "a.parquet")
    found, report, num_bytes = read(tmp_path, field="body")
    assert found == [line for value in values for line in value.split("\n")]
    assert report.skipped["rows without a text"] == 1
    assert num_bytes == (tmp_path / "a.parquet").stat().st_size


@pytest.mark.parametrize("name", NAMES)
@given(content=DIRT, encoding=st.sampled_from(["utf-8", "gb18030", "utf-16"]))
@settings(max_examples=60, deadline=None)
def test_whatever_bytes_give_lines_or_an_error_that_names_the_file(
    tmp_path_factory, name, content, encoding
):
    path = tmp_path_factory.mktemp("text") / name
    path.write_bytes(content)
    try:
        lines, report, _ = read(path, encoding=encoding)
    except ValueError as error:
        assert str(path) in str(error)
    else:
        assert report.num_lines == len(lines)
        assert all(line.strip() and "\n" not in line and "\0" not in line for line in lines)


def test_long_lines_are_cut_at_blanks_and_lose_nothing(tmp_path):
    text = " ".join(["word"] * 100_000) + "x" * 30_000
    (tmp_path / "a.txt").write_text(text + "\nnext\n")
    (*found, last), report, _ = read(tmp_path)
    assert "pieces of lines that are too long" in report.lines()[1]
    assert "".join(found) == text and last == "next"
    assert max(map(len, found)) <= MAX_LINE_CHARACTERS
    (tmp_path / "a.txt").rename(tmp_path / "a.md")
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}))
    assert "".join(read(tmp_path / "a.jsonl")[0]) == text


def lines_of(pieces):
    """Returns the lines of texts, those of pieces in one."""
    text = "".join(one if isinstance(one, Piece) else f"{one}\n" for one in pieces)
    return text.removesuffix("\n").split("\n")


@pytest.mark.parametrize("whole_words", [False, True])
def test_as_written_long_lines_come_in_pieces_and_stay_lines(tmp_path, whole_words):
    text = " ".join(["word"] * 100_000) + "\t" + "x" * 700_000 + " y\n\n" + "z" * 900 + "\nend\n"
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}))
    for name in ("a.txt", "a.jsonl"):
        found, report, _ = read(tmp_path / name, as_written=True, whole_words=whole_words)
        assert lines_of(found) == text.splitlines() and report.num_lines == 4
        assert not report.repaired
        if whole_words:
            assert [word for one in found for word in one.split()] == text.split()
        else:
            assert max(map(len, found)) == PASSAGE_CHARACTERS


def test_a_folder_gives_its_texts_in_order_and_once(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("b/z.txt", "a.txt", "picture.png", ".hidden.txt"):
        (tmp_path / name).write_text(f"{name}\n")
    assert read(tmp_path)[0] == ["a.txt", "b/z.txt"]
    assert [file.path.name for file in find_texts([tmp_path / "a.txt", tmp_path])] == [
        "a.txt",
        "z.txt",
    ]
    assert read(tmp_path / "picture.png")[0] == ["picture.png"]  # It was named.


@pytest.mark.parametrize("records", ["a.jsonl", "a.txt"])
def test_what_is_about_records_is_no_text(tmp_path, records):
    (tmp_path / "docs").mkdir()
    (tmp_path / records).write_text('{"text": "a record"}\n' if "json" in records else "a text\n")
    for name in ("Readme.md", "LICENSE.txt", "docs/README.md"):
        (tmp_path / name).write_text(f"{name}\n")
    texts = read(tmp_path)[0]
    said = describe_others([tmp_path])
    if "json" in records:
        assert texts == ["a record", "docs/README.md"]
        assert said == ["left out files that are no texts: 1 .txt, 1 .md"]
    else:
        assert texts == ["LICENSE.txt", "Readme.md", "a text", "docs/README.md"] and not said


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.jsonl", b'{"body": "a"}', r"a.jsonl:1: expected .* 'text', found the fields 'body'"),
        ("a.jsonl", b'{"text": null}\n' * 2, r"a.jsonl:1: .* found null in it"),
        ("a.jsonl", b'{"body": 1}\n' * 1000 + b'{"text": "a"}', r"a.jsonl:1: .*fields 'body'"),
        ("a.jsonl", b"\n[1]", r"a.jsonl:2: .*JSON of another kind"),
        ("a.jsonl", b"plain", r"a.jsonl:1: .*no JSON: 'plain'.*--set text_field=NAME"),
        ("a.txt", b"\x1f\x8bdamaged", "a.txt cannot be read to its end"),
        ("a.txt", gzip.compress(b"whole" * 99, mtime=0)[:-9], "a.txt cannot be read to its end"),
        ("a.parquet", b"PAR1 but no more", "a.parquet cannot be read to its end"),
        ("a.json", b'[{"text": "a"}]', r"a.json: expected a text, found a .json.*end with .jsonl"),
        ("a.tar.gz", b"?", r"a.tar.gz: expected a text, found a .tar file.*Unpack it"),
    ],
)
def test_wrong_input_is_named_by_file_and_line(tmp_path, name, content, message):
    if name == "a.parquet":
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_a_zstandard_file_that_was_cut_is_an_error(tmp_path, share):
    zstd = pytest.importorskip("backports.zstd")
    text = "".join(f"line {number}\n" for number in range(100_000)).encode()
    frames = zstd.compress(text[:300_000]) + zstd.compress(text[300_000:])
    (tmp_path / "a.txt.zst").write_bytes(frames)
    assert "\n".join(read(tmp_path)[0]).encode() + b"\n" == text
    (tmp_path / "a.txt.zst").write_bytes(frames[: int(share * len(frames))])
    with pytest.raises(
        ValueError, match=r"a.txt.zst cannot be read to its end: .*end-of-stream marker"
    ):
        read(tmp_path)


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
def test_every_kind_of_line_end_ends_a_line(tmp_path, end):
    (tmp_path / "a.txt").write_text(f"one{end}two{end}{end}three", newline="")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": f"four{end}five"}) + end, newline="")
    assert read(tmp_path)[0] == ["one", "two", "three", "four", "five"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_mark_of_byte_order_tells_the_encoding(tmp_path, encoding, suffix):
    (tmp_path / f"a.txt{suffix}").write_bytes(compressed("é你\nb\n".encode(encoding), suffix))
    assert read(tmp_path)[0] == ["é你", "b"]


def test_as_written_nothing_but_a_line_feed_ends_a_line(tmp_path):
    text = "\ta \r\n\n  b\rc\ufeff \n" + "x" * 20_000
    (tmp_path / "a.c").write_text("\ufeff" + text, "utf-8", newline="")
    assert lines_of(read(tmp_path / "a.c", as_written=True)[0]) == text.split("\n")


def test_source_code_is_text_and_its_names_tell_no_parts(tmp_path):
    for name in ("a.py", "test_a.js", "valid/b.c", "d.xyz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    files = {file.path.name: file.part for file in find_texts([tmp_path], code=True)}
    assert files == {"a.py": "train", "test_a.js": "train", "b.c": "validation"}
    with pytest.raises(ValueError, match="expected a folder with texts"):
        find_texts([tmp_path])


@pytest.mark.parametrize(
    "name, content, found",
    [
        ("a.srt", b"1\n", "a .srt file .subtitles.*what is spoken"),
        ("a.VTT.gz", b"1\n", "a .vtt file .subtitles"),
        ("a.html", b"x", "a .html file .HTML or XML"),
        ("a.conv", b"x", "a .conv file .dialogues.*towers train chatbot"),
        ("a.txt", b"1\r\n00:00:01,000 --> 00:00:02,000\r\nHi", "subtitles"),
        ("a.md", b"\xef\xbb\xbf<!DOCTYPE html><p>", "HTML"),
        ("a.text", b"E\nM hello\nM hi\n", "dialogues"),
        ("wiki_00", b'<doc id="1" url="u" title="T">\nT\n', "HTML or XML"),
        ("a.txt", b"<p>Text.</p>\n", "HTML or XML"),
        ("b.txt", b"PK\3\4" + bytes(99), "an archive"),
        (
            "c.txt.gz",
            gzip.compress(b"a.txt".ljust(257, b"\0") + b"ustar", mtime=0),
            "an archive",
        ),
        ("d.txt", b"%PDF-1.4\n", "PDF"),
        ("e.png", b"\x89PNG\r\n\x1a\n" + bytes(99), "a picture, sound or film"),
        ("e.txt", b"{\\rtf1 a}\n", "RTF"),
        ("f.txt", b'[\n {\n  "text": "a"\n }\n]\n', "records.*end with .jsonl"),
        ("g.txt", b"{'text': 'a'}\n{'text': 'b'}\n", "records"),
        ("h.txt", b"<!-- a -->\n<html>\n", "HTML or XML"),
        ("i.txt", b"[Script Info]\nTitle: a\n", "subtitles"),
        ("j.txt", b"[ti:a]\n[00:12.00]Hello\n", "subtitles"),
        ("k.txt", b"{1}{25}Hello\n", "subtitles"),
        ("l.txt", b"7z\xbc\xaf'\x1c" + bytes([1]) * 99, "an archive"),
        ("m.txt", b"\xd0\xcf\x11\xe0" + bytes([1]) * 99, "a document of Office"),
        ("n.txt", "1\n00:00:01,000 --> 00:00:02,000\nHi".encode("utf-16"), "subtitles"),
        ("o.txt", b"\xfe\xff" + "<!DOCTYPE html><p>".encode("utf-16-be"), "HTML or XML"),
        ("p.txt", b"WARC/1.0\r\nWARC-Type: conversion\r\n", "an archive"),
        ("q.arrow", b"\xff\xff\xff\xff\0\1\0\0\x10\0\0\0", "Arrow"),
        ("r.txt.lz4", b"\x04\x22M\x18\x64\x40\xa7a text", "an archive"),
        ("a.ipynb", b"{}", "a .ipynb file .another format"),
        ("one.json", b'[{"text": "a"}]\n', "a .json file .another format"),
        ("two.json", b'{"text": "a",\n "b": 1}\n', "a .json file .another format"),
    ],
)
def test_what_is_no_text_is_refused_by_its_kind(tmp_path, name, content, found):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}: expected a text, found {found}"):
        find_texts([tmp_path / name])


def test_markdown_may_begin_with_html(tmp_path):
    for text in ('<p align="center">Name</p>', "<!-- a remark -->", "WebVTT is a format."):
        (tmp_path / "README.md").write_text(f"{text}\n")
        assert read(tmp_path)[0] == [text]


@pytest.mark.parametrize("name", ["c4-train.00000-of-01024.json", "a.json.gz", "a.txt"])
def test_a_json_file_with_a_record_on_each_line_is_read_if_it_is_named(tmp_path, name):
    content = b'{"text": "a", "url": "u"}\n{"text": "b", "url": "u"}\n'
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert read(tmp_path / name)[0] == ["a", "b"]
    (tmp_path / name).write_bytes(content.decode().encode("utf-16"))
    assert read(tmp_path / name)[0] == ["a", "b"]
    if name.endswith(".txt"):
        return
    with pytest.raises(ValueError, match=r"found 1 \.(json|gz)\. Name the files themselves"):
        find_texts([tmp_path])


def test_words_in_angles_are_text(tmp_path):
    (tmp_path / "a.txt").write_text("<unk> a = b\n<s> <unk>\n")
    assert read(tmp_path)[0] == ["<unk> a = b", "<s> <unk>"]


def test_a_document_ends_after_each_record_and_each_file_of_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a\\nb"}\n{"text": " "}\n{"text": "c"}\n')
    (tmp_path / "b.txt").write_text("d\ne\n")
    (tmp_path / "c.txt").write_text("\n")
    lines, report, _ = read(tmp_path, documents=True)
    end = DOCUMENT_END
    assert lines == ["a", "b", end, "c", end, "d", "e", end]
    assert report.num_documents == 3 and "3 documents" in report.lines()[0]


def test_a_pipe_is_no_text(tmp_path):
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"a.txt: expected a file, found a pipe or a device"):
        find_texts([tmp_path])


def test_linked_folders_are_read_and_no_round_is(tmp_path):
    for name in ("texts", "more"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(f"{name}\n")
    (tmp_path / "texts" / "link").symlink_to(tmp_path / "more")
    assert read(tmp_path / "texts")[0] == ["texts", "more"]
    (tmp_path / "more" / "back").symlink_to(tmp_path / "texts")
    with pytest.raises(ValueError, match=r"back is a link to .*which holds it"):
        read(tmp_path / "texts")


def test_records_without_a_text_are_skipped_and_counted(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"v": 1}\n{"text": "a"}\n{"text": 7}\nno\n{"text": "b"}\n')
    lines, report, _ = read(tmp_path)
    assert lines == ["a", "b"]
    assert report.lines()[1].endswith("a.jsonl:1)") and ": 3 (first" in report.lines()[1]


def test_json_lines_are_decoded_by_the_encoding(tmp_path):
    record = json.dumps({"text": "你好"}, ensure_ascii=False)
    (tmp_path / "a.jsonl").write_bytes(record.encode("gb18030"))
    assert read(tmp_path, encoding="gb18030")[0] == ["你好"]


@pytest.mark.parametrize(
    ("written", "given", "named"),
    [("utf-8", "gb18030", "utf-8"), ("utf-8", "cp1252", "utf-8"), ("big5", "gb18030", "big5hkscs")],
)
def test_an_encoding_that_is_another_one_is_refused(tmp_path, written, given, named):
    text = "這個電視劇說的是甚麼 我們應該來聽聽他們的意見 然後決定。\n" * 3
    for name, content in {
        "a.txt": text,
        "a.jsonl": json.dumps({"text": text}, ensure_ascii=False),
    }.items():
        (tmp_path / name).write_bytes(content.encode(written))
        with pytest.raises(ValueError, match=f"{name}: expected {given}.*--encoding {named}"):
            read(tmp_path / name, encoding=given)


def test_names_of_folders_tell_the_parts(tmp_path):
    names = ["train/a.txt", "valid/a.txt", "Test/deep/a.txt", "more/a.txt", "test/a.valid.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    parts = {str(file.path.relative_to(tmp_path)): file.part for file in find_texts([tmp_path])}
    assert parts == dict(
        zip(names, ["train", "validation", "test", "train", "validation"], strict=True)
    )
    (tmp_path / "valid").rename(tmp_path / "valid_texts")
    assert [one.part for one in find_texts([tmp_path])].count("validation") == 2
    (tmp_path / "valid_texts").rename(tmp_path / "valid")
    assert [file.part for file in find_texts([tmp_path / "valid"])] == [None]
    given = find_texts([tmp_path / "train", tmp_path / "valid"])
    assert [file.part for file in given] == ["train", "validation"]


def test_a_file_for_the_test_alone_is_never_trained_on(tmp_path):
    for name in ("train.txt", "test.txt", "more.txt"):
        (tmp_path / name).write_text(f"{name}\n")
    files = find_texts([tmp_path])
    assert [file.part for file in files] == [None, "test", None]
    assert describe_parts(files) == [
        "the names of the files tell: 2 cut into train and validation, 1 test"
    ]
    (tmp_path / "test.txt").rename(tmp_path / "val.txt")
    assert [file.part for file in find_texts([tmp_path])] == ["train", "train", "validation"]


def test_missing_files_and_columns_are_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere: expected a file or folder with text"):
        find_texts([tmp_path / "nowhere"])
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.txt").write_text("a\n")
    with pytest.raises(ValueError, match=r"found neither. Texts have no weights"):
        find_texts([f"{tmp_path / 'b' / 'a.txt'}:2"])
    (tmp_path / "b" / "a.txt").unlink()
    with pytest.raises(ValueError, match=r"found nothing. Name the files themselves"):
        find_texts([tmp_path])
    with pytest.raises(ValueError, match="Received none"):
        find_texts([])
    parquet, arrow = (pytest.importorskip(f"pyarrow{name}") for name in (".parquet", ""))
    parquet.write_table(arrow.table({"body": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"expected a column 'text' .*found the columns 'body'"):
        read(tmp_path)
