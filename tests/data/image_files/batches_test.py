"""Batches of picture files: each example once, resumed at any step, augmented by (seed, epoch)."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.data.image_files.pictures import write_pictures
from towers.data.image_files.augmentation import AUGMENTATIONS, Augmentation
from towers.data.image_files.batches import image_file_batches
from towers.data.image_files.decoding import PLAIN
from towers.data.image_files.image_files import open_image_files
from towers.data.image_files.preparation import prepare_records
from towers.data.image_files.rand_augment import operations

SIZE = 16


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Returns the same image set from files and from records."""
    cache = tmp_path_factory.mktemp("pictures")
    write_pictures(cache / "all", broken=False)
    files = open_image_files(cache / "all", cache, validation_share=0)
    records = prepare_records(files, cache, write=lambda line: None)
    return files, open_image_files(records.folder, cache, validation_share=0)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """An image set of the formats that TensorFlow decodes as they are, which is traced fast."""
    cache = tmp_path_factory.mktemp("plain")
    write_pictures(cache / "all", count=3, broken=False)
    files = open_image_files(cache / "all", cache, validation_share=0)
    assert files.parts["train"].known == PLAIN
    return files


def batches_of(image_files, kind="standard", flip="random", **options):
    part = image_files.parts["train"]
    augmentation = Augmentation(SIZE, kind, known=part.known, flip=flip)
    options = {"batch_size": 7, "seed": 3, **options}
    return image_file_batches(part, 3, augmentation=augmentation, **options)


def read(dataset):
    return [tuple(part.numpy() for part in batch) for batch in dataset]


def assert_same(left, right):
    for one, other in zip(itertools.chain(*left), itertools.chain(*right), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"kind": "randaugment", "mixup": 0.2}, marks=pytest.mark.slow)]
)
def test_any_step_resumes_and_records_give_the_same_bits(sets, options):
    files, records = (batches_of(one, **options) for one in sets)
    whole = read(files(1))
    assert [len(images) for images, _ in whole] == [7, 7, 7, 3] and files.steps_per_epoch == 4
    assert whole[0][0].shape == (7, SIZE, SIZE, 3) and whole[0][0].dtype == np.float32
    assert_same(read(records(1)), whole)
    assert_same(read(files(1, 2)), whole[2:])
    assert read(files(1, 4)) == []


def test_every_example_comes_once_in_an_order_of_seed_and_epoch(plain):
    options = {"kind": "none", "batch_size": 4}
    ordered = np.concatenate([x for x, _ in read(batches_of(plain, shuffle=False, **options)(0))])
    assert len(np.unique(ordered.reshape(9, -1), axis=0)) == 9
    orders = []
    for epoch in (0, 1):
        images, labels = zip(*read(batches_of(plain, **options)(epoch)), strict=True)
        images = np.concatenate(images)
        places = [int(np.argmin([np.abs(one - x).sum() for one in ordered])) for x in images]
        assert sorted(places) == list(range(9))
        np.testing.assert_array_equal(images, ordered[places])
        np.testing.assert_array_equal(np.concatenate(labels), np.array(places) // 3)
        orders.append(places)
    assert orders[0] != orders[1]


def test_an_example_is_augmented_alike_in_any_batch(plain):
    large, small = (batches_of(plain, batch_size=size, shuffle=False) for size in (9, 4))
    pixels = np.concatenate([x for x, _ in read(large(2))])
    np.testing.assert_array_equal(np.concatenate([x for x, _ in read(small(2))]), pixels)
    assert not np.array_equal(np.concatenate([x for x, _ in read(large(1))]), pixels)


def test_an_alternating_flip_mirrors_every_example_in_every_second_epoch(plain):
    options = {"kind": "flip", "flip": "alternating", "shuffle": False, "batch_size": 4}
    batches = batches_of(plain, **options)
    epochs = [np.concatenate([x for x, _ in read(batches(epoch))]) for epoch in range(4)]
    np.testing.assert_array_equal(epochs[1], epochs[0][:, :, ::-1])
    np.testing.assert_array_equal(epochs[2:], epochs[:2])
    evaluated = batches_of(plain, kind="none", shuffle=False, batch_size=9)
    ((plainly, _),) = read(evaluated(0))
    unflipped = [np.array_equal(*pair) for pair in zip(epochs[0], plainly, strict=True)]
    assert 0 < sum(unflipped) < 9
    np.testing.assert_array_equal(
        np.concatenate([x for x, _ in read(batches(1, 1))]), epochs[1][4:]
    )


def test_a_shift_moves_a_picture_by_up_to_two_pixels_and_reflects_its_edge(plain):
    options = {"shuffle": False, "batch_size": 9}
    ((plainly, _),) = read(batches_of(plain, kind="none", **options)(0))
    padded = np.pad(plainly, [(0, 0), (2, 2), (2, 2), (0, 0)], mode="reflect")
    ((shifted, _),) = read(batches_of(plain, kind="shift", **options)(0))
    for one, around in zip(shifted, padded, strict=True):
        moved = [
            around[top : top + SIZE, left : left + SIZE] for top in range(5) for left in range(5)
        ]
        assert any(np.array_equal(one, x) or np.array_equal(one, x[:, ::-1]) for x in moved)


@pytest.mark.parametrize("kind", AUGMENTATIONS)
def test_pixels_stay_in_their_range(plain, kind):
    augment = tf.function(Augmentation(SIZE, kind, known=PLAIN), autograph=False)
    for number, path in enumerate(plain.parts["train"].paths[:8]):
        seed = tf.constant([number, 5], tf.int64)
        pixels = augment(tf.io.read_file(path), seed).numpy()
        assert pixels.shape == (SIZE, SIZE, 3) and 0 <= pixels.min() <= pixels.max() <= 255


def test_a_random_crop_of_the_networks_size_keeps_every_pixel_as_it_is():
    """One in nine is the central square that an evaluation sees, here of 3 x 3 places."""
    pixels = np.random.default_rng(0).integers(0, 256, [8, 8, 3], np.uint8)
    encoded = tf.io.encode_png(pixels)
    augment = tf.function(Augmentation(6, "crop", central_share=0.75, known=PLAIN), autograph=False)
    squares = [pixels[top : top + 6, left : left + 6] for top in range(3) for left in range(3)]
    known = [square.tobytes() for square in (*squares, *(square[:, ::-1] for square in squares))]
    seen = [
        known.index(
            augment(encoded, tf.constant([0, n], tf.int64)).numpy().astype(np.uint8).tobytes()
        )
        for n in range(360)
    ]
    assert np.bincount(seen, minlength=18).min() >= 5  # Of 20 that are expected.


@pytest.mark.parametrize("kind", ["none", "crop", "standard"])
def test_a_jpeg_is_cropped_alike_whether_or_not_all_are_jpegs(kind, sets):
    path = next(one for one in sets[0].parts["train"].paths if one.endswith(".jpg"))
    seed, encoded = tf.constant([1, 2], tf.int64), tf.io.read_file(path)
    results = [
        Augmentation(SIZE, kind, known=only)(encoded, seed) for only in ("any", "plain", "jpeg")
    ]
    np.testing.assert_array_equal(*results)


def test_operations_without_strength_leave_a_picture_of_all_levels():
    levels = np.random.default_rng(0).permuted(np.tile(np.linspace(0, 255, 32), (3, 1)), axis=1)
    ramp = np.tile(levels.T.astype(np.float32), [32, 1, 1])
    without = operations(tf.constant(ramp), tf.constant(0.0), tf.constant(1.0))
    for name, moved in operations(tf.constant(ramp), tf.constant(0.9), tf.constant(-1.0)).items():
        # A flat histogram of 32 levels moves by one of them.
        assert np.abs(without[name]().numpy() - ramp).max() <= 9, name
        is_moved = np.abs(moved().numpy() - ramp).max() > 10
        assert is_moved == (name not in ("identity", "auto_contrast", "equalize")), name


def test_mixup_mixes_a_batch_with_itself(plain):
    alone = read(batches_of(plain, batch_size=9)(0))[0]
    images, labels = read(batches_of(plain, batch_size=9, mixup=0.4)(0))[0]
    shares = labels[np.arange(9), alone[1]]
    np.testing.assert_allclose(labels.sum(1), 1, rtol=1e-6)
    others = np.roll(alone[0], 1, 0)
    same = alone[1] == np.roll(alone[1], 1)
    mixed = shares[:, None, None, None] * alone[0] + (1 - shares)[:, None, None, None] * others
    np.testing.assert_allclose(images[~same], mixed[~same], atol=0.01)
    assert shares[~same].std() > 0.05


def test_several_labels_are_rows_of_zeros_and_ones(plain):
    part = plain.parts["train"]
    labels = [(), (0, 2), *part.labels[2:]]
    several = type(part)(part.names, part.paths, part.offsets, part.lengths, labels, part.known)
    batches = image_file_batches(
        several, 3, 4, Augmentation(SIZE, known=PLAIN), True, shuffle=False
    )
    (_, rows), *_ = read(batches(0).take(1))
    np.testing.assert_array_equal(rows, [[0, 0, 0], [1, 0, 1], [1, 0, 0], [0, 1, 0]])


def test_pixels_of_an_exported_network_are_those_of_the_evaluation(sets):
    batches = batches_of(sets[0], kind="none", shuffle=False)
    encoded = tf.constant([Path(one).read_bytes() for one in sets[0].parts["train"].paths[:7]])
    np.testing.assert_array_equal(
        tf.function(batches.source.pixels_of)(encoded), read(batches(0).take(1))[0][0]
    )


def test_a_position_outside_of_the_epoch_is_refused(sets):
    with pytest.raises(ValueError, match="first_step=5"):
        batches_of(sets[0])(0, 5)
    with pytest.raises(ValueError, match="Did you mean flip"):
        Augmentation(SIZE, "flipp")
