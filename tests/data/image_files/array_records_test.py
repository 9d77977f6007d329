"""ArrayRecord files hold the same pictures as any others; what is broken in them is named."""

import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.image_files.pictures import write_pictures
from towers.data.image_files import checking
from towers.data.image_files import records as record_files
from towers.data.image_files.augmentation import Augmentation
from towers.data.image_files.batches import image_file_batches
from towers.data.image_files.image_files import open_image_files
from towers.data.image_files.listing import list_examples
from towers.data.image_files.preparation import prepare_records

library = pytest.importorskip("array_record.python.array_record_module")


def write_array_record(path, records):
    writer = library.ArrayRecordWriter(str(path), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Returns the same pictures in TFRecord files and in ArrayRecord files."""
    cache = tmp_path_factory.mktemp("pictures")
    write_pictures(cache / "all", broken=False)
    files = open_image_files(cache / "all", cache, validation_share=0.25)
    prepared = prepare_records(files, cache, write=lambda line: None)
    folder = cache / "arrays"
    folder.mkdir()
    shutil.copy(prepared.folder / "labels.txt", folder / "label.labels.txt")
    for path in prepared.folder.glob("*.tfrecord"):
        part, _, numbers = path.stem.partition("-")
        records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
        write_array_record(folder / f"mine-{part}.array_record-{numbers}", records)
    return open_image_files(prepared.folder, cache), open_image_files(folder, cache)


def test_they_hold_the_same_set_and_give_the_same_batches(sets):
    records, arrays = sets
    assert arrays.key == records.key and arrays.class_names == records.class_names
    assert arrays.broken == [] and arrays.parts.keys() == {"train", "validation"}
    batches = []
    for one in sets:
        part = one.parts["train"]
        augmentation = Augmentation(16, "standard", known=part.known)
        made = image_file_batches(part, 3, augmentation=augmentation, batch_size=7, seed=3)
        batches.append([array for batch in made(1, 1) for array in batch])
    for one, other in zip(*batches, strict=True):
        np.testing.assert_array_equal(one, other)


def test_examples_of_tensorflow_datasets_have_other_keys(tmp_path):
    write_pictures(tmp_path / "all", 4, broken=False)
    pictures = sorted((tmp_path / "all").glob("*/*.jpg"))
    records = []
    for label, picture in enumerate(pictures):
        feature = {
            "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[picture.read_bytes()])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        records.append(example.SerializeToString())
    write_array_record(tmp_path / "set-train.array_record-00000-of-00001", records)
    path = tmp_path / "set-train.array_record-00000-of-00001"
    part = open_image_files(path, tmp_path).parts["train"]
    assert part.labels == [(number,) for number in range(len(pictures))]
    plain = Augmentation(16, "none", known=part.known)
    made = image_file_batches(part, 3, augmentation=plain, batch_size=3, shuffle=False)
    (batch,) = made(0)
    assert batch[0].shape == (3, 16, 16, 3) and np.ptp(batch[0].numpy()) > 0.1


def test_a_changed_byte_costs_its_record_alone(tmp_path):
    random = np.random.default_rng(0)
    pictures = [random.bytes(5000) for _ in range(20)]
    path = tmp_path / "a.array_record"
    write_array_record(path, pictures)
    content = bytearray(path.read_bytes())
    place = content.index(pictures[7][:100]) + 2000
    content[place] ^= 1
    path.write_bytes(content)
    assert record_files.num_records(path) == 20
    with pytest.raises(ValueError, match=r"record 7 cannot be read: .*hash mismatch"):
        record_files.read_record(path, 7)
    for number in (6, 8, 19):
        assert record_files.read_record(path, number) == pictures[number]
    _, finding = list(zip(*checking.check_examples(list_examples(path), tmp_path), strict=True))
    assert finding[7].problem.startswith("record 7 cannot be read")
    with pytest.raises(ValueError, match=r"record 20 cannot be read: .*out of bound"):
        record_files.read_record(path, 20)


@pytest.mark.parametrize("content", [b"", b"text" * 999, None])
def test_what_is_cut_off_or_something_else_is_refused(tmp_path, content):
    path = tmp_path / "a.array_record"
    write_array_record(path, [b"x" * 1000] * 9)
    path.write_bytes(path.read_bytes()[:-9] if content is None else content)
    with pytest.raises(ValueError, match=r"a.array_record is cut off, or is no ArrayRecord file"):
        list(list_examples(path))


@settings(max_examples=30, deadline=None)
@given(place=st.integers(0), change=st.binary(min_size=1, max_size=9))
def test_whatever_is_in_a_file_there_are_records_or_a_clear_error(place, change, tmp_path_factory):
    folder = tmp_path_factory.mktemp("any")
    path = folder / "a.array_record"
    write_array_record(path, [b"some record"] * 5)
    content = bytearray(path.read_bytes())
    place %= len(content)
    content[place : place + len(change)] = change
    path.write_bytes(content)
    try:
        examples = list(list_examples(path))
    except ValueError as error:
        assert "a.array_record is cut off" in str(error)
        return
    assert len(examples) <= 5
    assert all(checking.check_example(one).problem for one in examples)


def test_a_missing_library_is_said_with_the_remedy(tmp_path, monkeypatch):
    path = tmp_path / "a.array_record"
    path.write_bytes(b"anything")
    monkeypatch.setitem(sys.modules, "array_record.python.array_record_module", None)
    with pytest.raises(ValueError, match=r"a.array_record is an ArrayRecord .*\.\[array_record"):
        list(list_examples(path))
