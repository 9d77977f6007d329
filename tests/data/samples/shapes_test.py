"""The embedded image set is what its generator draws, small and balanced."""

import gzip
import subprocess
import sys

import numpy as np
import pytest

from tests.data.samples import drawing
from tests.paths import ROOT
from towers.data.images import cifar10
from towers.data.samples import shapes


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    output_folder = tmp_path_factory.mktemp("shapes") / "new"
    drawing.main([str(output_folder)])
    return output_folder


@pytest.mark.slow
@pytest.mark.parametrize("name", drawing.FILES)
def test_embedded_files_are_what_the_generator_draws(drawn, name):
    embedded = gzip.decompress((shapes.folder() / name).read_bytes())
    assert gzip.decompress((drawn / name).read_bytes()) == embedded


@pytest.mark.slow
def test_class_names_are_what_the_generator_writes(drawn):
    name = "batches.meta.txt"
    assert (drawn / name).read_bytes() == (shapes.folder() / name).read_bytes()


@pytest.mark.slow
def test_files_hold_no_time(drawn):
    """Bytes 4 to 8 of a gzip file are its time of writing (RFC 1952)."""
    for name in drawing.FILES:
        assert (shapes.folder() / name).read_bytes()[4:8] == bytes(4)
        assert (drawn / name).read_bytes()[4:8] == bytes(4)


def test_embedded_files_are_below_one_megabyte():
    assert sum(path.stat().st_size for path in shapes.folder().iterdir()) < 1_000_000


@pytest.mark.parametrize(("split", "num_images"), [("train", 2000), ("test", 500)])
def test_cifar10_reader_reads_the_embedded_files(split, num_images):
    image_set = cifar10.load(shapes.folder(), split)
    assert image_set.class_names == drawing.CLASS_NAMES
    assert np.bincount(image_set.labels).tolist() == [num_images // 10] * 10
    assert sorted(np.unique(image_set.images)) == sorted(drawing.LEVELS)


def test_no_test_image_is_a_training_image():
    train, test = (cifar10.load(shapes.folder(), split) for split in ("train", "test"))
    images = {image.tobytes() for image in (*train.images, *test.images)}
    assert len(images) == 2500


def test_seed_decides_the_images():
    first, again, other = (drawing.records(20, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("shape", drawing.SHAPES.values(), ids=drawing.SHAPES)
def test_each_shape_fits_into_the_image(shape):
    line = np.linspace(-1.4, 1.4, 281)
    inside = shape(*np.meshgrid(line, line))
    reach = np.hypot(*np.meshgrid(line, line))[inside].max()
    assert 0.05 < inside.mean() < 0.5
    assert 13.0 * reach + 3.0 < 19.0  # At most a corner is cut off.


def test_the_files_are_found_without_tensorflow():
    program = "import sys; import towers.data.samples.shapes; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
