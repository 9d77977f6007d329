"""A process reads its own rows only; they are those of the global batch, for any number of them."""

import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from tests.data.images.batches_test import numbered_images
from tests.data.prepared.helpers import LIMITS, corpus_of
from towers.batches.shards import OwnRows
from towers.data.batches.pairs import pair_batches
from towers.data.batches.texts import piece_batches, sentence_batches, stream_batches
from towers.data.image_files.augmentation import Augmentation
from towers.data.image_files.batches import image_file_batches
from towers.data.image_files.decoding import PLAIN
from towers.data.image_files.image_files import Part
from towers.data.images import augmentation
from towers.data.images.batches import image_batches
from towers.ground.special_ids import WORD_END as END

PARTS = [
    (3, 2),
    *(pytest.param(*part, marks=pytest.mark.slow) for part in ((2, 1), (2, 3), (7, 1))),
]


def sentences():
    random = np.random.default_rng(0)
    lines = [[*random.integers(4, 60, length), END] for length in random.integers(1, 12, 41)]
    return np.concatenate(lines).astype(np.int32)


def files(folder, **options):
    paths = [folder / f"{number}.png" for number in range(11)]
    for number, path in enumerate(paths):
        pixels = np.full((8, 8, 3), 20 * number, np.uint8)
        path.write_bytes(tf.io.encode_png(pixels).numpy())
    whole_files = -np.ones(len(paths), np.int64)
    names = list(map(str, paths))
    labels = [(number % 3,) for number in range(len(paths))]
    part = Part(names, names, whole_files, whole_files, labels, PLAIN)
    return image_file_batches(part, 3, 5, Augmentation(4, "flip", known=PLAIN), **options)


SOURCES = {
    "images": lambda folder: image_batches(
        numbered_images(23, size=8), 9, transform=augmentation.tutorial_training(size=6)
    ),
    "pairs": lambda folder: pair_batches(
        corpus_of(folder, [(1 + n % 7, 1 + n % 11) for n in range(60)]), "train", **LIMITS
    ),
    "fixed_pairs": lambda folder: pair_batches(
        corpus_of(folder, [(1 + n % 7, 1 + n % 11) for n in range(60)]),
        "train",
        fixed_shapes=True,
        **LIMITS,
    ),
    "sentences": lambda folder: sentence_batches(sentences(), 8),
    "files": files,
    "mixed_files": lambda folder: files(folder, mixup=0.4),
    "pieces": lambda folder: piece_batches(sentences(), 6, 5, first=END),
    "streams": lambda folder: stream_batches(sentences(), 5, 4),
    "arrays": lambda folder: towers.batches_from((sentences(),), 6, shuffle=True),
}


@pytest.fixture(scope="module", params=SOURCES)
def batches(request, tmp_path_factory):
    return SOURCES[request.param](tmp_path_factory.mktemp("rows"))


def numbers_in(dataset):
    """Returns the elements with NumPy arrays in the place of tensors."""
    return list(dataset.as_numpy_iterator())


@pytest.mark.parametrize(("count", "num_towers"), PARTS)
def test_the_shards_of_all_processes_are_those_of_the_global_batch(batches, count, num_towers):
    whole = numbers_in(towers.engine.split(batches(1, 1), count * num_towers))
    assert len(whole) > 1
    own = []
    for index in range(count):
        process = towers.processes.Processes(None, count, index)
        own.append(numbers_in(process.shards(batches, num_towers, 1, 1)))
    for step, expected in enumerate(whole):
        shards = [shard for process in own for shard in process[step]]
        assert [shard.size for shard in shards] == [shard.size for shard in expected]
        for shard, wanted in zip(shards, expected, strict=True):
            for actual, part in zip(shard.batch, wanted.batch, strict=True):
                np.testing.assert_array_equal(actual[: shard.size], part[: wanted.size])
                assert len(actual) and actual.shape[1:] == part.shape[1:]


def test_a_process_reads_no_row_of_the_others(batches):
    sizes = [len(batch[0]) for batch in numbers_in(batches(0))]
    own = OwnRows(4, 2, 6)
    read = numbers_in(batches.take_rows(own.choose, 0))
    assert [num_rows for _, num_rows in read] == sizes
    for rows, num_rows in read:
        expected = max(1, sum(own.sizes(int(num_rows))))  # A process without rows has the first.
        assert all(len(part) == expected for part in rows)


def test_batches_that_cannot_be_read_in_part_are_read_whole():
    dataset = tf.data.Dataset.range(9).batch(5)
    process = towers.processes.Processes(None, 2, 1)
    expected = numbers_in(process.split(dataset, 2))
    actual = numbers_in(process.shards(towers.batches_from(dataset), 2, 0))
    assert str(actual) == str(expected)


class Halves:
    """Batches in memory that tell which rows were taken."""

    def __init__(self, batches):
        self.arrays, self.taken = batches, []

    def __call__(self, epoch, first_step=0):
        return helpers.dataset_of(self.arrays[first_step:])

    def take_rows(self, choose, epoch, first_step=0):
        pairs = []
        for batch in self.arrays[first_step:]:
            rows = choose(len(batch[0]))
            self.taken.append(rows)
            own = tuple(part[rows] for part in batch)
            pairs.append(tf.data.Dataset.from_tensors((own, np.int32(len(batch[0])))))
        return pairs[0].concatenate(pairs[1])


def test_the_shards_of_one_of_several_processes_are_made_of_its_own_rows():
    batches = Halves(helpers.dense_batches([8, 6]))
    process = towers.processes.Processes(None, 2, 1)
    assert len(list(process.shards(batches, 2, 0))) == 2
    assert batches.taken == [slice(4, 8), slice(3, 6)]
