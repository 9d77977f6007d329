"""An image set: each picture once, in its class and part, broken ones named and left out."""

import concurrent.futures
import contextlib
import csv
import os
import re
import shutil
import sqlite3

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.image_files.pictures import CLASSES, NUM_BROKEN, write_pictures
from towers.data.image_files import checking
from towers.data.image_files.image_files import open_image_files
from towers.data.image_files.listing import Reading, list_examples
from towers.data.image_files.preparation import prepare_records
from towers.data.image_files.records import class_names_beside, make_record, read_bytes

SILENT = {"write": lambda line: None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("pictures") / "all"
    write_pictures(path)
    return path


def contents(image_files):
    """Returns what an image set has: names and labels by part."""
    return {
        name: list(zip(part.names, part.labels, strict=True))
        for name, part in image_files.parts.items()
    }


def test_each_picture_is_in_its_class_and_broken_ones_are_named(folder, tmp_path):
    found = open_image_files(folder, tmp_path, validation_share=0.25)
    assert found.class_names == tuple(sorted(CLASSES))
    everything = [pair for pairs in contents(found).values() for pair in pairs]
    assert len(everything) == 8 * len(CLASSES)
    for name, (label,) in everything:
        assert (folder / name).is_file() and name.startswith(found.class_names[label] + "/")
    assert len(found.broken) == NUM_BROKEN * len(CLASSES)
    assert "绿色/empty.webp: the file is empty" in found.broken
    assert "left out 9 pictures" in "\n".join(found.summary)


def test_pipes_are_named_and_not_read(folder, tmp_path):
    root = tmp_path / "more"
    copied(folder, root)
    os.mkfifo(root / "blue" / "pipe.png")
    broken = open_image_files(root, tmp_path).broken
    assert "blue/pipe.png: it cannot be read: a pipe or a device, no file" in broken
    os.mkfifo(tmp_path / "table.csv")
    with pytest.raises(OSError, match=r"a pipe or a device, no file.*table\.csv"):
        open_image_files(tmp_path / "table.csv", tmp_path)


def test_too_many_broken_pictures_are_an_error(folder, tmp_path):
    with pytest.raises(ValueError, match=r"More than 2 pictures .*blue/.*max_broken=N"):
        open_image_files(folder, tmp_path, max_broken=2)


def test_new_pictures_move_no_others_to_another_part(folder, tmp_path):
    before = open_image_files(folder, tmp_path / "cache", validation_share=0.3)
    shutil.copytree(folder, tmp_path / "more")
    shutil.copy(folder / "blue" / "3.bmp", tmp_path / "more" / "blue" / "0.bmp")
    after = open_image_files(tmp_path / "more", tmp_path / "cache", validation_share=0.3)
    for name, pairs in contents(before).items():
        assert set(pairs) <= set(contents(after)[name])
    assert before.key != after.key


def test_only_new_and_changed_files_are_checked_again(folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / "copy")
    first = open_image_files(tmp_path / "copy", tmp_path / "cache")
    checked = []
    check = checking.check_example

    def noting(example):
        checked.append(example.name)
        return check(example)

    monkeypatch.setattr(checking, "check_example", noting)
    assert open_image_files(tmp_path / "copy", tmp_path / "cache").key == first.key
    assert checked == []
    shutil.copy(folder / "blue" / "3.bmp", tmp_path / "copy" / "blue" / "empty.webp")
    changed = open_image_files(tmp_path / "copy", tmp_path / "cache")
    assert checked == ["blue/empty.webp"]
    assert changed.key != first.key and len(changed.broken) == len(first.broken) - 1


def test_a_damaged_file_of_findings_is_named(folder, tmp_path):
    (tmp_path / checking.FINDINGS).write_bytes(b"no database " * 100)
    with pytest.raises(OSError, match=r"pictures.sqlite cannot be used: .* or delete it"):
        open_image_files(folder, tmp_path)


def test_folders_name_the_parts(tmp_path):
    for part in ("train", "val", "test"):
        write_pictures(tmp_path / "set" / part, 2, broken=False)
    found = open_image_files(tmp_path / "set", tmp_path / "cache")
    assert {name: len(part) for name, part in found.parts.items()} == dict.fromkeys(
        ("train", "validation", "test"), 6
    )
    with pytest.raises(ValueError, match=r"has no nothing part. It has: train, validation, test"):
        found.part("nothing")


def write_table(path, rows, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)


def test_a_table_lists_the_same_pictures(folder, tmp_path):
    expected = open_image_files(folder, tmp_path, validation_share=0)
    rows = [["label", "path"]]
    for name, (label,) in contents(expected)["train"]:
        rows.append([expected.class_names[label], str(folder / name)])
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        table = tmp_path / f"table{suffix}"
        write_table(table, rows, delimiter)
        assert open_image_files(table, tmp_path, validation_share=0).key == expected.key


def test_a_table_may_give_several_labels_and_parts(folder, tmp_path):
    names = ["red things/a b 0.jpg", "blue/a b 0.jpg", "绿色/missing.jpg"]
    labels = ["x|y", "", "y"]
    rows = [
        ["path", "labels", "split"],
        *zip(names, labels, ["train", "val", "train"], strict=True),
    ]
    shutil.copytree(folder, tmp_path / "copy")
    write_table(tmp_path / "copy" / "table.csv", rows)
    found = open_image_files(tmp_path / "copy", tmp_path, Reading(several_labels=True))
    assert contents(found) == {"train": [(names[0], (0, 1))], "validation": [(names[1], ())]}
    assert found.broken == ["绿色/missing.jpg: there is no such file"]
    with pytest.raises(ValueError, match=r"table.csv:2: a row has one label.*multi_label=true"):
        open_image_files(tmp_path / "copy", tmp_path)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", r"t.csv:1: the first row has to name .*an empty row"),
        ("when,where\n", r"t.csv:1: .*Received when, where"),
        ("path,label\na.jpg\n", r"t.csv:2: the row has only 1 columns"),
        ("path,label\na.jpg,x\n,y\n", r"t.csv:3: the path is empty"),
        ("path,label,split\na.jpg,x,other\n", r"t.csv:2: split must be .*'other'"),
        ('path,label\n"a.jpg,x\n', r"t.csv:2: unexpected end of data"),
        (b"path,label\n\xff\xfe,x\n", r"t.csv is not in UTF-8"),
    ],
)
def test_wrong_tables_name_the_file_and_the_line(text, message, tmp_path):
    content = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(list_examples(tmp_path / "t.csv"))


@settings(max_examples=40, deadline=None)
@given(content=st.binary(max_size=60), header=st.booleans())
def test_whatever_is_in_a_table_or_a_record_file_there_are_examples_or_a_clear_error(
    content, header, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("any")
    (folder / "t.csv").write_bytes(b"path,label\n" * header + content)
    (folder / "t.tfrecord").write_bytes(content)
    for name in ("t.csv", "t.tfrecord"):
        try:
            for example in list_examples(folder / name):
                checking.check_example(example)
        except ValueError as error:
            assert re.search(rf"{name}.*", str(error))


def test_records_hold_the_same_set_and_any_record_is_found(folder, tmp_path):
    files = open_image_files(folder, tmp_path, validation_share=0.25)
    prepared = prepare_records(files, tmp_path, **SILENT)
    found = open_image_files(prepared.folder, tmp_path)
    assert found.key == files.key and found.class_names == files.class_names
    assert found.broken == []
    assert [part.labels for part in found.parts.values()] == [
        part.labels for part in files.parts.values()
    ]
    again = prepare_records(found, tmp_path, **SILENT)
    assert again.folder == prepared.folder


def test_two_preparations_at_once_make_the_same_folder(folder, tmp_path, monkeypatch):
    from towers.data.image_files import preparation

    files = open_image_files(folder, tmp_path)
    monkeypatch.setattr(preparation, "EXAMPLES_OF_SHARD", 5)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        starts = [pool.submit(prepare_records, files, tmp_path, **SILENT) for _ in range(3)]
        folders = {start.result().folder for start in starts}
    assert len(folders) == 1
    assert open_image_files(folders.pop(), tmp_path).key == files.key


def test_a_killed_preparation_goes_on_where_it_was(folder, tmp_path, monkeypatch):
    from towers.data.image_files import preparation

    files = open_image_files(folder, tmp_path)
    monkeypatch.setattr(preparation, "EXAMPLES_OF_SHARD", 5)
    write_records, written = preparation.write_records, []

    def dying(path, records):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(path.name)
        write_records(path, records)

    monkeypatch.setattr(preparation, "write_records", dying)
    with pytest.raises(KeyboardInterrupt):
        prepare_records(files, tmp_path, **SILENT)
    assert not list(tmp_path.glob("images-*"))
    monkeypatch.setattr(
        preparation, "write_records", lambda *a: (written.append(a), write_records(*a))
    )
    prepared = prepare_records(files, tmp_path, **SILENT)
    assert len(written) == len(list(prepared.folder.glob("*.tfrecord")))
    assert open_image_files(prepared.folder, tmp_path).key == files.key


def test_pictures_are_stored_smaller_if_asked(folder, tmp_path):
    files = open_image_files(folder, tmp_path)
    small = prepare_records(files, tmp_path, stored_side=16, **SILENT)
    found = open_image_files(small.folder, tmp_path)
    assert sum(map(len, found.parts.values())) == sum(map(len, files.parts.values()))
    assert found.parts["train"].known == "jpeg" and found.key != files.key


def test_published_records_are_read_with_their_labels(folder, tmp_path):
    pictures = sorted(folder.glob("*/a b *.jpg"))
    for part, labels in (("train", (1, 7)), ("validation", (7, 1))):
        path = tmp_path / "set" / f"name-{part}.tfrecord-00000-of-00001"
        path.parent.mkdir(exist_ok=True)
        with tf.io.TFRecordWriter(str(path)) as writer:
            for label, picture in zip(labels, pictures, strict=False):
                writer.write(make_record(picture.read_bytes(), [label], picture.name))
            writer.write(b"no example")
    found = open_image_files(tmp_path / "set", tmp_path)
    assert found.class_names == ("1", "7") and len(found.broken) == 2
    assert [part.labels for part in found.parts.values()] == [[(0,), (1,)], [(1,), (0,)]]


def test_a_record_file_that_is_cut_off_is_named(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        writer.write(b"x" * 100)
    whole = (tmp_path / "a.tfrecord").read_bytes()
    (tmp_path / "a.tfrecord").write_bytes(whole[:-5])
    with pytest.raises(ValueError, match=r"a.tfrecord is cut off.*byte 116 of 111"):
        list(list_examples(tmp_path / "a.tfrecord"))


def test_what_is_no_image_set_is_refused_with_the_forms_that_are(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("x")
    for name, kind in (("empty", ValueError), ("text.txt", ValueError), ("no", FileNotFoundError)):
        with pytest.raises(kind, match=r"Expected class folders .*ArrayRecord files"):
            list(list_examples(tmp_path / name))
    write_pictures(tmp_path / "one", 2, classes=["blue"], broken=False)
    with pytest.raises(ValueError, match=r"needs at least two classes.* Received blue\."):
        open_image_files(tmp_path / "one", tmp_path)


def copied(folder, target, parts=("",)):
    """Returns a folder with the class folders under each part."""
    for part in parts:
        shutil.copytree(folder, target / part, dirs_exist_ok=True)
    return target


def test_links_that_lead_back_are_refused(folder, tmp_path):
    root = copied(folder, tmp_path / "all")
    (root / "blue" / "again").symlink_to(root / "blue")
    with pytest.raises(ValueError, match=r"blue/again is a link to .*which holds it"):
        open_image_files(root, tmp_path / "cache")
    (root / "blue" / "again").unlink()
    (tmp_path / "more").mkdir()
    shutil.copy(folder / "blue" / "3.bmp", tmp_path / "more" / "other.bmp")
    (root / "blue" / "more").symlink_to(tmp_path / "more")
    names = {example.name for example in list_examples(root, Reading(nested="one"))}
    assert "blue/more/other.bmp" in names


def test_what_the_system_could_not_read_is_tried_again(folder, tmp_path, monkeypatch):
    def refuse(*place):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(checking, "read_picture", refuse)
        with pytest.raises(ValueError, match="Input/output error"):
            open_image_files(folder, tmp_path)
    assert len(open_image_files(folder, tmp_path).broken) == NUM_BROKEN * len(CLASSES)


def test_another_process_does_not_wait_for_a_check(folder, tmp_path, monkeypatch):
    """While the pictures are decoded, the file of findings may be written."""
    examine, connected = checking.examine, []

    def writing(encoded):
        if not connected:
            connected.append(1)
            path = tmp_path / checking.FINDINGS
            with contextlib.closing(sqlite3.connect(path, timeout=0)) as other, other:
                other.execute("INSERT INTO findings (path, offset) VALUES ('other', 0)")
        return examine(encoded)

    list(checking.check_examples(list(list_examples(folder))[:1], tmp_path))
    monkeypatch.setattr(checking, "examine", writing)
    assert open_image_files(folder, tmp_path).num_classes == len(CLASSES) and connected


@pytest.mark.parametrize("names", [("train",), ("train", "test")])
def test_a_share_of_train_is_held_out_where_there_is_no_validation_part(folder, tmp_path, names):
    root = copied(folder, tmp_path / "all", names)
    found = open_image_files(root, tmp_path / "cache", validation_share=0.3)
    assert set(found.parts) == {*names, "validation"}


def test_class_folders_beside_a_part_are_refused(folder, tmp_path):
    root = copied(folder, tmp_path / "all")
    shutil.copytree(folder, root / "train")
    with pytest.raises(ValueError, match=r"holds pictures in \w+/ beside the part train/"):
        open_image_files(root, tmp_path / "cache")


def test_names_of_classes_are_kept_in_records(folder, tmp_path):
    root = tmp_path / "all"
    for name, own in zip(("4:3", "0:cat", "16:9\u3000"), CLASSES, strict=True):
        shutil.copytree(folder / own, root / name)
    found = open_image_files(root, tmp_path / "cache")
    prepared = prepare_records(found, tmp_path / "cache", **SILENT)
    again = open_image_files(prepared.folder, tmp_path / "cache")
    assert again.class_names == found.class_names == ("0:cat", "16:9\u3000", "4:3")
    assert again.key == found.key
    (root / "4:3").rename(root / "a\nb")
    with pytest.raises(ValueError, match="cannot hold"):
        prepare_records(open_image_files(root, tmp_path / "cache"), tmp_path / "other", **SILENT)


@pytest.mark.parametrize(
    "content, expected",
    [
        (b"2:c\n0:a\n1:b\n", ("a", "b", "c")),
        ("\ufeff猫\r\n狗\r\n\r\n".encode(), ("猫", "狗")),
        (b"4:3\n16:9\n", ("4:3", "16:9")),
    ],
)
def test_names_of_classes_are_read(tmp_path, content, expected):
    (tmp_path / "labels.txt").write_bytes(content)
    assert class_names_beside(tmp_path) == expected
    (tmp_path / "labels.txt").write_bytes("你好".encode("gbk"))
    with pytest.raises(ValueError, match=r"labels.txt is not in UTF-8"):
        class_names_beside(tmp_path)


def test_classes_that_are_numbers_have_one_order(folder, tmp_path):
    for name, own in zip(("1", "01", "001"), CLASSES, strict=True):
        shutil.copytree(folder / own, tmp_path / "all" / name)
    found = open_image_files(tmp_path / "all", tmp_path / "cache")
    assert found.class_names == ("001", "01", "1")


@pytest.mark.parametrize(("one", "other"), [("Blue", "blue"), ("0", "0.0")])
def test_classes_that_differ_in_spelling_alone_are_named(one, other, tmp_path):
    write_pictures(tmp_path / "pictures", broken=False)
    (tmp_path / "pictures" / "blue").rename(tmp_path / "pictures" / other)
    shutil.copytree(tmp_path / "pictures" / other, tmp_path / "pictures" / one)
    found = open_image_files(tmp_path / "pictures", tmp_path / "cache")
    assert f"classes that differ in spelling alone: {one}, {other}" in found.summary


def test_a_part_is_what_a_name_says_last(folder, tmp_path):
    record = make_record((folder / "blue" / "3.bmp").read_bytes(), [0], "3.bmp")
    for name in ("my_test-train.tfrecord", "my_test-validation.tfrecord"):
        with tf.io.TFRecordWriter(str(tmp_path / name)) as writer:
            writer.write(record)
    assert [one.part for one in list_examples(tmp_path)] == ["train", "validation"]


def test_a_record_file_that_was_cut_off_later_is_named(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(b"0123456789")
    with pytest.raises(ValueError, match=r"a.tfrecord has been cut off since it was checked"):
        read_bytes(tmp_path / "a.tfrecord", 4, 20)


def test_files_that_are_no_pictures_are_told_by_their_suffixes(folder, tmp_path):
    root = copied(folder, tmp_path / "all")
    for name in ("a.psd", "b.PSD", "notes", ".hidden"):
        (root / "blue" / name).write_bytes(b"?")
    images = open_image_files(root, tmp_path / "cache")
    assert images.summary[-1].endswith("left out other files: 3 .txt, 2 .psd, 1 without a suffix")
    assert images.key == open_image_files(folder, tmp_path / "cache").key


def test_a_folder_with_other_files_alone_says_what_it_holds(tmp_path):
    (tmp_path / "all" / "cats").mkdir(parents=True)
    (tmp_path / "all" / "cats" / "a.psd").write_bytes(b"?")
    with pytest.raises(ValueError, match=r"no picture in a class folder\. It holds 1 \.psd\. No "):
        open_image_files(tmp_path / "all", tmp_path / "cache")
