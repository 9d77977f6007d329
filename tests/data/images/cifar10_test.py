"""CIFAR-10's binary files are read as published, and damaged ones refused."""

import gzip

import numpy as np
import pytest

from tests.paths import CORPORA, missing
from towers.data.images import cifar10

PUBLISHED = CORPORA / "cifar10"


def random_images(num_images, *, seed=0):
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (num_images, 32, 32, 3), dtype=np.uint8)
    return images, random.integers(0, 10, num_images, dtype=np.uint8)


def record_bytes(images, labels):
    """Returns the records one by one: the label, then each channel's rows."""
    return b"".join(
        bytes([label]) + b"".join(image[:, :, channel].tobytes() for channel in range(3))
        for image, label in zip(images, labels, strict=True)
    )


def test_records_are_read_as_written(tmp_path):
    images, labels = random_images(5)
    (tmp_path / "test_batch.bin").write_bytes(record_bytes(images, labels))
    image_set = cifar10.load(tmp_path, "test")
    np.testing.assert_array_equal(image_set.images, images)
    assert image_set.labels.tolist() == labels.tolist()
    assert image_set.class_names[:2] == ("airplane", "automobile")


def test_training_files_are_joined_in_order(tmp_path):
    for index in (3, 1):
        content = record_bytes(*random_images(index, seed=index))
        (tmp_path / f"data_batch_{index}.bin").write_bytes(content)
    (tmp_path / "data_batch_2.bin.gz").write_bytes(
        gzip.compress(record_bytes(*random_images(2, seed=2)))
    )
    expected = np.concatenate([random_images(index, seed=index)[0] for index in (1, 2, 3)])
    np.testing.assert_array_equal(cifar10.load(str(tmp_path), "train").images, expected)


def test_subfolder_of_the_archive_is_found(tmp_path):
    subfolder = tmp_path / "cifar-10-batches-bin"
    subfolder.mkdir()
    (subfolder / "test_batch.bin").write_bytes(record_bytes(*random_images(2)))
    assert len(cifar10.load(tmp_path, "test")) == 2


def test_class_names_of_the_folder_are_used(tmp_path):
    (tmp_path / "test_batch.bin").write_bytes(record_bytes(*random_images(2)))
    (tmp_path / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n\n")
    assert cifar10.load(tmp_path, "test").class_names == tuple("abcdefghij")


def test_wrong_number_of_class_names_is_refused(tmp_path):
    (tmp_path / "test_batch.bin").write_bytes(record_bytes(*random_images(2)))
    (tmp_path / "batches.meta.txt").write_text("cat\ndog\n")
    with pytest.raises(ValueError, match="expected 10 class names, found 2: cat, dog"):
        cifar10.load(tmp_path, "test")


@pytest.mark.parametrize("change", [slice(0, 0), slice(0, -1), slice(0, 3072)])
def test_file_that_is_not_whole_records_is_refused(tmp_path, change):
    content = record_bytes(*random_images(2))[change]
    (tmp_path / "test_batch.bin").write_bytes(content)
    expected = f"test_batch.bin: expected .* of 3073 bytes, found {len(content)} bytes"
    with pytest.raises(ValueError, match=expected):
        cifar10.load(tmp_path, "test")


def test_label_out_of_range_is_refused(tmp_path):
    images, labels = random_images(3)
    labels[1] = 200
    (tmp_path / "data_batch_1.bin").write_bytes(record_bytes(images, labels))
    with pytest.raises(ValueError, match=r"data_batch_1.bin: .* 0\.\.9, found 200 in record 1"):
        cifar10.load(tmp_path, "train")


def test_damaged_gzip_is_refused(tmp_path):
    content = gzip.compress(record_bytes(*random_images(2)))
    (tmp_path / "test_batch.bin.gz").write_bytes(content[:-5])
    with pytest.raises(ValueError, match=r"test_batch.bin.gz: expected a whole gzip file"):
        cifar10.load(tmp_path, "test")


@pytest.mark.parametrize(("split", "name"), [("train", "data_batch_1"), ("test", "test_batch")])
def test_missing_files_say_how_to_get_them(tmp_path, split, name):
    expected = rf"{tmp_path} has no file {name}\.bin .*`towers download cifar10`"
    with pytest.raises(FileNotFoundError, match=expected):
        cifar10.load(tmp_path, split)


def test_unknown_split_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"one of train, test. Received 'dev'"):
        cifar10.load(tmp_path, "dev")


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason=missing("cifar10"))
@pytest.mark.parametrize("split", ["train", "test"])
def test_published_cifar10_is_read(split):
    image_set = cifar10.load(PUBLISHED, split)
    assert image_set.class_names == cifar10.CLASS_NAMES
    assert set(image_set.labels.tolist()) == set(range(10))
    # Neighbouring rows of a photograph are alike, which they are not if planes were mixed up.
    images = image_set.images[:200].astype(float)
    assert np.abs(np.diff(images, axis=1)).mean() < 20 < images.std()
