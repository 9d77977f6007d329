"""A cache is whole or not there, is prepared by one process at a time, and is gone on with."""

import multiprocessing
import os
import time
import types

import pytest

from tests.programs import PATIENCE
from towers.data.prepared.caches import open_or_prepare


def open_cache(folder):
    content = folder / "content"
    if not content.exists() or content.read_text() != "whole":
        raise ValueError("it is damaged.")
    return types.SimpleNamespace(summary=["prepared"], folder=folder)


def fill(folder, work):
    (folder / "content").write_text("whole")
    (work / "journal").write_text("")


def must_not_fill(folder, work):
    raise RuntimeError("nothing is to be done")


def prepare(caches, fill=fill, name="key"):
    said = []
    return open_or_prepare(caches / name, open_cache, fill, said.append), said


def names_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_new_cache_is_whole_and_nothing_else_stays(tmp_path):
    opened, said = prepare(tmp_path)
    assert opened.folder == tmp_path / "key" and said == ["prepared"]
    assert names_in(tmp_path) == ["key", "key/content"]
    assert prepare(tmp_path, must_not_fill)[1] == []


def test_what_an_interrupted_process_did_is_there_again(tmp_path):
    def half(folder, work):
        (work / "journal").write_text("half")
        raise KeyboardInterrupt

    def rest(folder, work):
        assert (work / "journal").read_text() == "half"
        fill(folder, work)

    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path, half)
    assert not (tmp_path / "key").exists()
    prepare(tmp_path, rest)
    assert names_in(tmp_path) == ["key", "key/content"]


def test_a_cache_that_only_lacks_its_name_is_not_prepared_again(tmp_path):
    whole = tmp_path / ".key.unfinished" / "cache"
    whole.mkdir(parents=True)
    (whole / "content").write_text("whole")
    prepare(tmp_path, must_not_fill)
    assert names_in(tmp_path) == ["key", "key/content"]


def test_wrong_input_leaves_nothing(tmp_path):
    def refuse(folder, work):
        raise ValueError("there is no pair")

    with pytest.raises(ValueError, match="there is no pair"):
        prepare(tmp_path, refuse)
    assert names_in(tmp_path) == []


def test_a_damaged_cache_is_prepared_again_with_a_warning(tmp_path):
    prepare(tmp_path)
    (tmp_path / "key" / "content").write_text("half")
    _, said = prepare(tmp_path)
    assert said[0] == "warning: it is damaged. It is prepared again."
    assert names_in(tmp_path) == ["key", "key/content"]
    assert (tmp_path / "key" / "content").read_text() == "whole"


def test_a_preparation_that_nobody_goes_on_with_is_removed_after_a_week(tmp_path):
    for name, days in (("old", 8), ("new", 6)):
        work = tmp_path / f".{name}.unfinished" / "work"
        work.mkdir(parents=True)
        for path in (work, work.parent):
            os.utime(path, (time.time() - days * 86400,) * 2)
    prepare(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new.unfinished", "key"]


def hold(caches, began, may_end):
    def wait(folder, work):
        began.set()
        may_end.wait(PATIENCE)
        fill(folder, work)

    open_or_prepare(caches / "key", open_cache, wait, lambda _: None)


def test_a_second_process_waits_and_takes_what_the_first_prepared(tmp_path):
    context = multiprocessing.get_context("fork")
    began, may_end = context.Event(), context.Event()
    process = context.Process(target=hold, args=(tmp_path, began, may_end))
    process.start()
    assert began.wait(PATIENCE)
    said = []

    def write(line):
        said.append(line)
        may_end.set()

    open_or_prepare(tmp_path / "key", open_cache, must_not_fill, write)
    process.join()
    assert process.exitcode == 0
    assert said == ["waiting for another process that prepares the same corpus"]
    assert names_in(tmp_path) == ["key", "key/content"]
