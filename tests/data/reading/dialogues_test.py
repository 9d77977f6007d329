"""The kind of a file is recognised, and what cannot be read is refused with the reason."""

import os
import pathlib
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.reading.helpers import DIRT, read, read_bytes
from towers.data.prepared.dialogues import labelled_files
from towers.data.prepared.digests import digest_files
from towers.data.reading.dialogues import KINDS, read_dialogues
from towers.data.reading.weights import weighted_paths

CONTENTS = {
    "conv": b"E\nM q\nM a\n",
    "tsv": b"q\ta\n",
    "json_lines": b'{"question": "q", "answer": "a"}\n',
    "speakers": b"A|q|qo\nB|a|sd\n",
}


def digest_of(folder):
    return digest_files(labelled_files(weighted_paths([folder]), "auto"))


def test_linked_folders_are_read_and_digested(tmp_path):
    for name in ("talks", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "talk.tsv").write_text(f"{name}\ta\n")
    alone = digest_of(tmp_path / "talks")
    (tmp_path / "talks" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "talks" / "once_more").symlink_to(tmp_path / "elsewhere")
    assert read(tmp_path / "talks")[0] == [["talks", "a"], ["elsewhere", "a"]]
    assert digest_of(tmp_path / "talks") != alone
    (tmp_path / "talks" / "round").symlink_to(tmp_path)
    with pytest.raises(ValueError, match=r"round is a link to .*which holds it"):
        read(tmp_path / "talks")


@pytest.mark.parametrize("name", ["talk", "talk.txt", "talk.tsv"])
@pytest.mark.parametrize("kind", CONTENTS)
def test_the_kind_is_told_by_the_content(tmp_path, kind, name):
    assert read_bytes(tmp_path, CONTENTS[kind], name)[0] == [["q", "a"]]
    assert read_bytes(tmp_path, CONTENTS[kind], name, kind=kind)[0] == [["q", "a"]]


def test_the_name_helps_where_the_content_is_dirty(tmp_path):
    content = b"q\ta\n" + b"a remark\n" * 2
    assert read_bytes(tmp_path, content, "talk.tsv")[0] == [["q", "a"]]
    with pytest.raises(ValueError, match="lines of no known kind"):
        read_bytes(tmp_path, content, "talk.txt")


def test_files_are_read_in_order_and_once(tmp_path):
    paths = [tmp_path / f"{number}.txt" for number in (2, 1)]
    for path in paths:
        path.write_text(f"q\t{path.stem}\n")
    (tmp_path / ".hidden").write_text("q\t3\n")
    assert read(paths)[0] == [["q", "2"], ["q", "1"]]
    assert read([str(paths[0]), tmp_path, tmp_path])[0] == [["q", "2"], ["q", "1"]]


def test_a_folder_may_hold_several_kinds_and_more(tmp_path):
    for kind, content in CONTENTS.items():
        (tmp_path / kind).write_bytes(content)
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "more.tsv").write_bytes(b"q2\ta2\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (tmp_path / "labels.bin").write_bytes(bytes(range(10)) * 99)
    (tmp_path / "LICENSE").write_text("Do what you like.\n")
    dialogues, report = read(tmp_path)
    assert dialogues == [["q", "a"]] * len(CONTENTS) + [["q2", "a2"]]
    assert report.skipped == {"files of no known kind": 3}


@pytest.mark.parametrize("kind", ["auto", *KINDS])
@given(content=DIRT, encoding=st.sampled_from(["utf-8", "gb18030", "utf-16", "shift_jis", "utf-7"]))
def test_no_bytes_crash_a_reader(tmp_path_factory, kind, content, encoding):
    folder = tmp_path_factory.mktemp("dirt")
    (folder / "movie_lines.txt").write_bytes(content)
    try:
        dialogues, report = read_bytes(
            folder, content, "movie_conversations.txt", kind=kind, encoding=encoding
        )
    except ValueError as error:
        assert str(folder) in str(error)
    else:
        assert report.num_dialogues == len(dialogues)
        assert report.num_turns == sum(bool(turn) for turns in dialogues for turn in turns) > 0
        assert all(turn == turn.strip() for turns in dialogues for turn in turns)


def test_a_wrong_kind_suggests_the_nearest(tmp_path):
    with pytest.raises(ValueError, match=r"Received 'jsonl'\. Did you mean json_lines\?"):
        read_dialogues(tmp_path, kind="jsonl")
    with pytest.raises(ValueError, match=f"auto, {', '.join(KINDS)}"):
        read_dialogues(tmp_path, kind="#")


@pytest.mark.parametrize("encoding", ["utf8mb4", "base64", "idna", "", "a\0b", "ü"])
def test_a_wrong_encoding_is_refused(tmp_path, encoding):
    with pytest.raises(ValueError, match="such as utf-8, gb18030 or utf-16"):
        read_dialogues(tmp_path, encoding=encoding)


def test_paths_that_are_not_there_are_named_at_once(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere.conv: expected a file or folder"):
        read_dialogues(tmp_path / "nowhere.conv")
    with pytest.raises(ValueError, match="no file in it"):
        read_dialogues(tmp_path)
    with pytest.raises(ValueError, match=r"at least one file or folder. Received none"):
        read_dialogues([])


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "an empty file"),
        (b"\n \n\r\n", "only lines that are blank or too long"),
        (b"Once upon a time\n", "lines of no known kind, first 'Once upon a time'"),
        ("E\nM 你\n".encode("utf-16-le"), r"lines .*try another \(--encoding\)"),
    ],
)
def test_a_file_of_no_known_kind_is_described(tmp_path, content, found):
    with pytest.raises(ValueError, match=rf"talk.txt: expected dialogues, found {found}") as error:
        read_bytes(tmp_path, content)
    is_text = bool(content.strip()) and b"\0" not in content
    assert ("question TAB answer" in str(error.value)) == is_text


def test_a_spreadsheet_is_to_be_saved_as_csv(tmp_path):
    with zipfile.ZipFile(tmp_path / "talk.xlsx", "w") as archive:
        archive.writestr("sheet.xml", b"<a/>")
    with pytest.raises(ValueError, match="a spreadsheet, which must be saved as CSV first"):
        read(tmp_path / "talk.xlsx")


def test_chats_compressed_by_zstandard_are_read(tmp_path):
    content = pytest.importorskip("backports.zstd").compress(CONTENTS["tsv"])
    assert read_bytes(tmp_path, content, "talk.tsv.zst")[0] == [["q", "a"]]
    with pytest.raises(ValueError, match=r"talk.tsv.zst cannot be read to its end"):
        read_bytes(tmp_path, content[:9] + b"?" * 9, "talk.tsv.zst")


@pytest.mark.parametrize("kind", ["auto", "conv"])
def test_nothing_usable_is_refused_with_what_was_found(tmp_path, kind):
    with pytest.raises(
        ValueError, match=r"(?s)talk.txt: .* 4 lines: skipped .*: 2 .*names question and answer"
    ):
        read_bytes(tmp_path, b"E\nM ...\nM ?\nM \n", kind=kind)


def test_every_path_has_to_hold_something(tmp_path):
    (tmp_path / "good").write_bytes(CONTENTS["conv"])
    (tmp_path / "empty").write_bytes(b"E\nE\n")
    dialogues = read_dialogues([tmp_path / "good", tmp_path / "empty"])
    assert next(dialogues) == ["q", "a"]
    with pytest.raises(ValueError, match="empty: expected dialogues"):
        next(dialogues)


def test_another_encoding_is_suggested(tmp_path):
    content = "E\nM 今天天气真不错啊\nM 是的我们出去走走吧\n".encode("gb18030") * 3
    with pytest.raises(ValueError, match=r"try another \(--encoding\), such as gb18030"):
        read_bytes(tmp_path, content)
    _, report = read_bytes(tmp_path, content + b"E\nM yes\nM no\n")
    assert "gb18030" in report.lines()[-1]


def test_pipes_in_a_folder_are_left_out_and_named(tmp_path):
    (tmp_path / "a.tsv").write_text("q\ta\n")
    os.mkfifo(tmp_path / "b.tsv")
    found, report = read(tmp_path)
    assert found == [["q", "a"]]
    assert report.skipped == {"files of another sort, such as pipes": 1}


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    path = tmp_path / "talk.conv"
    path.write_bytes(CONTENTS["conv"])

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "open", refuse)
    with pytest.raises(ValueError, match=r"talk.conv cannot be read .* Permission denied"):
        read(path)
