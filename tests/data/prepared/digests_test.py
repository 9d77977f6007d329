"""Digests of files, begun beside something else or not."""

import hashlib
import os
import sys
import threading
from pathlib import Path

import pytest

from tests.data.prepared.helpers import SPACES, quiet
from tests.data.prepared.text_helpers import settings_of
from towers.data.prepared import DialoguePreparation, dialogues, prepare_files, prepare_texts, texts
from towers.data.prepared.digests import begin_digests, digest_file


def digest_of(content):
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def begin(*paths):
    """Begins the digests of files and waits for them."""
    begin_digests(paths)
    for thread in threading.enumerate():
        if thread.name == "digests":
            thread.join()


def replace(file, content):
    """Replaces a file's content without a trace in its size and time; only its digest knows."""
    before = file.stat()
    assert len(content) == before.st_size
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    begin(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"pipe: expected a file to read, found: a pipe or a dev"):
        digest_file(tmp_path / "pipe")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"first")
    return path


def test_a_digest_is_that_of_the_content(file):
    assert digest_file(file) == digest_of(b"first")


def test_a_begun_digest_is_taken_once_by_any_name_of_the_file(file, tmp_path, monkeypatch):
    begin(file, file, str(tmp_path), "nowhere")
    replace(file, b"other")
    monkeypatch.chdir(tmp_path)
    assert digest_file(Path("corpus.txt")) == digest_of(b"first")
    assert digest_file(file) == digest_of(b"other")


def test_a_file_that_changes_after_its_digest_began_is_read_again(file):
    begin(file)
    file.write_bytes(b"other")
    os.utime(file, ns=(1, 1))
    assert digest_file(file) == digest_of(b"other")


def test_a_file_that_goes_away_is_named(file):
    begin(file)
    file.unlink()
    with pytest.raises(ValueError, match=r"corpus\.txt: expected a file to read"):
        digest_file(file)


@pytest.mark.skipif(sys.platform != "linux", reason="a file that cannot be read, of Linux")
def test_a_file_whose_begun_digest_cannot_be_read_is_named():
    memory = Path("/proc/self/mem")
    begin(memory)
    with pytest.raises(ValueError, match="/proc/self/mem: expected a file to read"):
        digest_file(memory)


@pytest.mark.parametrize(
    ("module", "prepare"),
    [
        (texts, lambda path, cache: prepare_texts([path], settings_of(), cache, write=quiet)),
        (
            dialogues,
            lambda path, cache: prepare_files(
                path, DialoguePreparation(SPACES, held_out=0.2), cache, write=quiet
            ),
        ),
    ],
)
def test_nothing_is_kept_of_a_file_that_changes_while_it_is_read(
    tmp_path, monkeypatch, module, prepare
):
    path = tmp_path / "a.txt"
    whole = "".join(f"What is {number}?\tIt is {number}.\n" for number in range(2000))
    path.write_text(whole)
    fill = module.fill

    def write_anew(*arguments):
        path.write_text(whole[: len(whole) // 2])
        return fill(*arguments)

    monkeypatch.setattr(module, "fill", write_anew)
    with pytest.raises(ValueError, match=r"a\.txt: expected .* changed while it was read"):
        prepare(path, tmp_path / "cache")
    monkeypatch.setattr(module, "fill", fill)
    path.write_text(whole)
    corpus = prepare(path, tmp_path / "cache")
    assert "2,000" in corpus.summary[0]
