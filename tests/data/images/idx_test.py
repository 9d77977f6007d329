"""IDX files are read as published, and damaged ones are refused with what is wrong."""

import gzip
import struct

import numpy as np
import pytest

from tests.paths import CORPORA, missing
from towers.data.images import idx

FASHION_MNIST = CORPORA / "fashion_mnist"
IMAGES = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
LABELS = np.array([0, 9, 4], dtype=np.uint8)


def idx_bytes(array):
    header = struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape)
    return header + array.tobytes()


def write_split(folder, images=None, labels=None, *, prefix="t10k"):
    """Writes the two files, with other content than the usual where it is given."""
    images_path = folder / f"{prefix}-images-idx3-ubyte"
    labels_path = folder / f"{prefix}-labels-idx1-ubyte"
    images_path.write_bytes(idx_bytes(IMAGES) if images is None else images)
    labels_path.write_bytes(idx_bytes(LABELS) if labels is None else labels)


@pytest.mark.parametrize(("split", "prefix"), [("train", "train"), ("test", "t10k")])
def test_files_are_read_as_written(tmp_path, split, prefix):
    write_split(tmp_path, prefix=prefix)
    image_set = idx.load(tmp_path, split)
    np.testing.assert_array_equal(image_set.images, IMAGES[..., np.newaxis])
    assert image_set.labels.tolist() == LABELS.tolist()
    assert image_set.class_names == tuple("0123456789")


def test_gzipped_files_are_read(tmp_path):
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(IMAGES)))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(LABELS)))
    np.testing.assert_array_equal(idx.load(str(tmp_path), "train").images[..., 0], IMAGES)


def test_other_spelling_is_read(tmp_path):
    (tmp_path / "train-images.idx3-ubyte").write_bytes(idx_bytes(IMAGES))
    (tmp_path / "train-labels.idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(LABELS)))
    assert len(idx.load(tmp_path, "train")) == 3


def test_fashion_mnist_has_its_own_classes(tmp_path):
    write_split(tmp_path)
    assert idx.load(tmp_path, "test", name="fashion_mnist").class_names[9] == "Ankle boot"


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_missing_file_says_how_to_get_it(tmp_path, name):
    expected = rf"{tmp_path} has no file train-images-idx3-ubyte or .*`towers download {name}`"
    with pytest.raises(FileNotFoundError, match=expected):
        idx.load(tmp_path, "train", name=name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected an IDX header of 16 bytes, found 0 bytes"),
        (idx_bytes(IMAGES)[:15], "expected an IDX header of 16 bytes, found 15 bytes"),
        (idx_bytes(IMAGES)[:-1], r"expected 2352 bytes .* \[3, 28, 28\].* found 2351"),
        (idx_bytes(IMAGES) + b"x", "expected 2352 bytes .* found 2353"),
        (idx_bytes(IMAGES[:0]), "at least one; found 0"),
        (idx_bytes(IMAGES[:, :20]), "expected images of 28 x 28 pixels, found 20 x 28"),
        (idx_bytes(LABELS) + bytes(20), "magic number 2051 .* 3 dimensions, found 2049"),
        (b"\x89PNG" + bytes(20), "magic number 2051 .* found 2303741511"),
        (struct.pack(">4I", 2051, *[2**32 - 1] * 3), r"expected 79228162458924105385300197375"),
    ],
    ids=["empty", "header", "short", "long", "no-images", "size", "labels", "no-idx", "huge"],
)
def test_wrong_images_file_is_refused(tmp_path, content, message):
    write_split(tmp_path, images=content)
    with pytest.raises(ValueError, match=message) as caught:
        idx.load(tmp_path, "test")
    assert "t10k-images-idx3-ubyte: expected" in str(caught.value)


def test_label_out_of_range_is_refused(tmp_path):
    write_split(tmp_path, labels=idx_bytes(np.array([1, 10, 2], np.uint8)))
    with pytest.raises(ValueError, match=r"labels-idx1-ubyte: .* 0\.\.9, found 10 at index 1"):
        idx.load(tmp_path, "test")


def test_unequal_numbers_of_images_and_labels_are_refused(tmp_path):
    write_split(tmp_path, labels=idx_bytes(LABELS[:2]))
    with pytest.raises(ValueError, match=r"expected 3 labels, .* t10k-images.* found 2"):
        idx.load(tmp_path, "test")


def damaged_gzip(damage):
    content = bytearray(gzip.compress(idx_bytes(np.tile(IMAGES, (50, 1, 1)))))
    if damage == "truncated":
        return bytes(content[:-20])
    if damage == "not gzip":
        return idx_bytes(IMAGES)
    position = {"body": len(content) // 2, "checksum": len(content) - 6}[damage]
    content[position] ^= 0xFF
    return bytes(content)


@pytest.mark.parametrize("damage", ["truncated", "not gzip", "body", "checksum"])
def test_damaged_gzip_is_refused(tmp_path, damage):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(damaged_gzip(damage))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(LABELS))
    with pytest.raises(ValueError, match=f"{path}: expected a whole gzip file"):
        idx.load(tmp_path, "train")


def test_unknown_split_and_name_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"one of train, test. Received 'validation'"):
        idx.load(tmp_path, "validation")
    with pytest.raises(ValueError, match=r"one of mnist, fashion_mnist. Received 'kmnist'"):
        idx.load(tmp_path, "train", name="kmnist")


@pytest.mark.skipif(not FASHION_MNIST.is_dir(), reason=missing("fashion_mnist"))
@pytest.mark.parametrize(("split", "num_images"), [("train", 60_000), ("test", 10_000)])
def test_published_fashion_mnist_is_read(split, num_images):
    image_set = idx.load(FASHION_MNIST, split, name="fashion_mnist")
    assert image_set.images.shape == (num_images, 28, 28, 1)
    assert np.bincount(image_set.labels).tolist() == [num_images // 10] * 10
