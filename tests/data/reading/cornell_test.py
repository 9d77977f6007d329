"""The Cornell movie dialogs are read from their folder or one of its files."""

import gzip

import pytest

from tests.data.reading.helpers import read

LINES = (
    b"L1 +++$+++ u0 +++$+++ m0 +++$+++ ANN +++$+++ They do not!\n"
    b"L2 +++$+++ u2 +++$+++ m0 +++$+++ BOB +++$+++ They do +++ too\r\n"
    b"L3 +++$+++ u0 +++$+++ m0 +++$+++ ANN +++$+++ caf\xe9\n"
    b"L4 +++$+++ u2 +++$+++ m0 +++$+++ BOB +++$+++ \n"
    b"L5 +++$+++ u2\n"
)
CONVERSATIONS = (
    b"u0 +++$+++ u2 +++$+++ m0 +++$+++ ['L1', 'L2', 'L3']\n"
    b"u0 +++$+++ u2 +++$+++ m0 +++$+++ ['L4', 'L9']\n"
    b"u0 +++$+++ u2 +++$+++ m0 +++$+++ []\n"
)
DIALOGUES = [["They do not!", "They do +++ too", "café"], ["", ""]]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "movie_lines.txt").write_bytes(LINES)
    (tmp_path / "movie_conversations.txt").write_bytes(CONVERSATIONS)
    (tmp_path / "movie_titles_metadata.txt").write_bytes(b"m0 +++$+++ a film +++$+++ 1999\n")
    (tmp_path / "README.txt").write_bytes(b"About this corpus\n")
    return tmp_path


@pytest.mark.parametrize("kind", ["auto", "cornell"])
@pytest.mark.parametrize("name", [".", "movie_conversations.txt", "movie_lines.txt"])
def test_the_folder_and_its_files_are_the_same(folder, name, kind):
    dialogues, report = read(folder / name, kind=kind, encoding="cp1252")
    assert dialogues == DIALOGUES
    assert dict(report.skipped) == {
        "blank turns": 1,
        "lines of other than 5 columns separated by +++$+++": 1,
        "turns that movie_lines.txt does not have": 1,
        "lines that name no turns": 1,
    }


def test_all_paths_together_are_read_once(folder):
    assert len(read([folder, *folder.glob("movie_[cl]*s.txt")], encoding="cp1252")[0]) == 2


def test_a_byte_that_does_not_decode_is_taken_out(folder):
    dialogues, report = read(folder)
    assert dialogues[0][2] == "caf"
    assert sum(report.repaired.values()) == 1


def test_gzipped_files_are_read(tmp_path):
    (tmp_path / "movie_lines.txt.gz").write_bytes(gzip.compress(LINES))
    (tmp_path / "movie_conversations.txt.gz").write_bytes(gzip.compress(CONVERSATIONS))
    assert read(tmp_path, encoding="cp1252")[0] == DIALOGUES


@pytest.mark.parametrize("removed", ["movie_lines.txt", "movie_conversations.txt"])
def test_one_file_without_the_other_is_refused(folder, removed):
    (folder / removed).unlink()
    rest = next(folder.glob("movie_[cl]*s.txt"))
    with pytest.raises(ValueError, match=r"movie_conversations.txt with movie_lines.txt beside it"):
        read(rest)
