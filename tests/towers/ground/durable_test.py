"""A published file or folder is on the disk, or it is not there."""

import json

import pytest

from tests.file_faults import Watch, assert_durable
from tests.programs import exit_code
from towers.ground.durable import make_folder, publish, write_file


def write_and_report(folder, report):
    """Publishes a file, that file anew, and a folder of files; notes what was done."""
    watch = Watch(folder)
    for content in (b"old", b"new"):
        write_file(folder / "a" / "b" / "file", content)
    unfinished = folder / ".folder.tmp"
    make_folder(unfinished / "deep")
    for name in ("one", "deep/two"):
        (unfinished / name).write_bytes(b"content")
    publish(unfinished, folder / "folder")
    report.write_text(json.dumps(watch.operations))


def test_published_files_and_folders_are_durable(tmp_path):
    (tmp_path / "watched").mkdir()
    assert exit_code(write_and_report, tmp_path / "watched", tmp_path / "report.json") == 0
    operations = [tuple(one) for one in json.loads((tmp_path / "report.json").read_text())]
    assert_durable(operations)
    assert sum(kind == "rename" for kind, *_ in operations) == 3
    assert (tmp_path / "watched" / "a" / "b" / "file").read_bytes() == b"new"
    assert (tmp_path / "watched" / "folder" / "deep" / "two").read_bytes() == b"content"


def test_a_left_over_partial_file_does_not_block_and_goes(tmp_path):
    for content in (b"new", b"new"):  # Written, and there already.
        (tmp_path / ".file.partial").write_bytes(b"ha")
        write_file(tmp_path / "file", content)
        assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"new"


def test_what_fails_leaves_the_old_content_and_nothing_else(tmp_path):
    (tmp_path / "name").mkdir()
    (tmp_path / "name" / "old").write_bytes(b"old")
    with pytest.raises(OSError):
        write_file(tmp_path / "name", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["name"]
    assert (tmp_path / "name" / "old").read_bytes() == b"old"
