"""Digests of files, begun beside something else or not."""

import hashlib
import os

import pytest

from towers.data.corpus.digests import begin_digests, digest_file


def digest_of(content):
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"first")
    return path


def test_a_digest_is_that_of_the_content_begun_or_not(file, tmp_path):
    begin_digests([file, str(tmp_path), "nowhere"])
    for _ in range(2):  # The first is taken.
        assert digest_file(file) == digest_of(b"first")


def test_a_file_that_changes_after_its_digest_began_is_read_again(file):
    begin_digests([file])
    file.write_bytes(b"other")
    os.utime(file, ns=(1, 1))
    assert digest_file(file) == digest_of(b"other")


def test_a_file_that_goes_away_is_named(file):
    begin_digests([file])
    file.unlink()
    with pytest.raises(ValueError, match=r"corpus\.txt: expected a file to read"):
        digest_file(file)
