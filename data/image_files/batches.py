"""Batches of pictures in files: read, decoded and augmented ahead of the training, by all cores."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from towers.data.image_files.augmentation import Augmentation
from towers.data.image_files.decoding import ANY
from towers.data.image_files.image_files import Part
from towers.ground.epochs import Epoch, Epochs, even_layout

NUM_PREFETCHED = 2  # Batches kept ready: enough to hide a slow one, and memory stays bounded.
MIX_STREAM = 2**40  # Beyond every example's number, so that batches draw other random numbers.

Pair = tuple[tf.Tensor, tf.Tensor]


def image_file_batches(
    part: Part,
    num_classes: int,
    batch_size: int,
    augmentation: Augmentation,
    several_labels: bool = False,
    *,
    mixup: float = 0.0,
    seed: int = 0,
    shuffle: bool = True,
) -> Epochs:
    """Returns the batches over a part of an image set in files; their source is `Pictures`.

    A batch is (images, labels) with images: float32 [rows, size, size, 3], 0 to 255, and labels:
    int32 [rows] or, with several labels or with mixup, float32 [rows, classes]. The augmentation of
    each example follows from (seed, epoch) as the order does.

    Args:
        part: the examples.
        num_classes: the number of classes.
        batch_size: examples in a global batch; the last batch of an epoch may be smaller.
        augmentation: from the bytes of a picture to pixels.
        several_labels: whether an example has any number of labels.
        mixup: parameter of the beta distribution of mixup (Zhang et al. 2018, arXiv:1710.09412);
            0 for none.
        seed: of the order and of the augmentation.
        shuffle: whether each epoch has its own order.
    """
    source = Pictures(part, num_classes, augmentation, several_labels, mixup)
    layout = even_layout(len(part), batch_size)
    return Epochs(source.load, layout, len(part), seed, shuffle, source)


@dataclasses.dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures in files, as a network takes them; the attributes are as in `image_file_batches`."""

    part: Part
    num_classes: int
    augmentation: Augmentation
    several_labels: bool
    mixup: float

    def load(self, epoch: Epoch) -> tf.data.Dataset:
        """Returns the batches of an epoch.

        With mixup, the row before the chosen ones is read as well: the first one is mixed with it.
        """
        indices = self._indices(epoch)
        left = indices[epoch.first_step :]
        read = np.concatenate([np.zeros([0], np.int64), *left])
        examples = tf.data.Dataset.from_tensor_slices(epoch.order()[read]).map(
            self._example(epoch), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        )
        # All batches are of one size but the last, which is not larger.
        batches = examples.batch(max(map(len, indices), default=1)).apply(
            tf.data.experimental.assert_cardinality(len(left))
        )
        if self.mixup:
            batches = tf.data.Dataset.zip(epoch.steps(), batches).map(self._mix(epoch))
        return batches.prefetch(NUM_PREFETCHED)

    def _indices(self, epoch: Epoch) -> list[np.ndarray]:
        """Returns, for each step, which indices of the epoch's order are read, as int64.

        With mixup the first is that of the row before, or of the last row before the first one.
        """
        indices = []
        for (begin, end), (start, stop) in zip(epoch.bounds, epoch.spans, strict=True):
            own = np.arange(start, stop)
            before = begin + (start - begin - 1) % (end - begin)
            indices.append(np.append(before, own) if self.mixup else own)
        return indices

    @property
    def input_spec(self) -> tf.TensorSpec:
        """What `pixels_of` takes: string [batch], the bytes of picture files."""
        return tf.TensorSpec([None], tf.string, name="images")

    @property
    def input_description(self) -> str:
        """The same in words."""
        return "the bytes of JPEG, PNG, GIF, BMP or WebP files of any size"

    def pixels_of(self, encoded: tf.Tensor) -> tf.Tensor:
        """Returns float32 [batch, size, size, 3] without augmentation, as in evaluation."""
        plain = dataclasses.replace(self.augmentation, kind="none", known=ANY)
        seed = tf.zeros([2], tf.int64)
        shape = [plain.size, plain.size, 3]
        return tf.map_fn(
            lambda one: plain(one, seed),
            encoded,
            fn_output_signature=tf.TensorSpec(shape, tf.float32),
        )

    def _example(self, epoch: Epoch) -> Callable[[tf.Tensor], Pair]:
        """Returns the function from the number of an example to its pixels and labels."""
        key, first_key = key_of(epoch), key_of(dataclasses.replace(epoch, number=0))
        labels, read = self._labels, self._read
        alternates = self.augmentation.flip == "alternating"

        @tf.autograph.experimental.do_not_convert
        def example(row: tf.Tensor) -> Pair:
            seed, first = (tf.stack([one, tf.cast(row, tf.int64)]) for one in (key, first_key))
            flip = (first, epoch.number % 2 == 1) if alternates else None
            return self.augmentation(read(row), seed, flip), labels(row)

        return example

    def _mix(self, epoch: Epoch) -> Callable[..., Pair]:
        """Returns the function that mixes each example with the one before it in its batch.

        It takes the examples of the rows, after the one before them.
        """
        key = key_of(epoch)
        sizes = tf.constant(np.diff(epoch.bounds)[:, 0])
        rows = tf.constant(epoch.chosen)

        @tf.autograph.experimental.do_not_convert
        def mix(step: tf.Tensor, batch: Pair) -> Pair:
            images, labels = batch
            seeds = tf.random.split(tf.stack([key, MIX_STREAM + step]), 2)
            alpha = tf.fill([sizes[step]], self.mixup)
            first, second = (
                tf.random.stateless_gamma(tf.shape(alpha), seed, alpha)
                for seed in tf.unstack(seeds)
            )
            fraction = (first + 1e-12) / (first + second + 2e-12)  # Beta(alpha, alpha).
            fraction = fraction[rows[step, 0] : rows[step, 1]]
            of_pixels, of_labels = fraction[:, None, None, None], fraction[:, None]
            return (
                of_pixels * images[1:] + (1 - of_pixels) * images[:-1],
                of_labels * labels[1:] + (1 - of_labels) * labels[:-1],
            )

        return mix

    @functools.cached_property
    def _read(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """The function from the number of an example to the bytes of its picture."""
        part = self.part
        if not (part.is_rewritten or (part.lengths >= 0).any()):
            paths = tf.constant([os.fsencode(path) for path in part.paths])
            return lambda row: tf.io.read_file(tf.gather(paths, row))

        def read(row: tf.Tensor) -> tf.Tensor:
            picture = tf.numpy_function(
                lambda row: part.picture(int(row)), [row], tf.string, stateful=False
            )
            return tf.ensure_shape(picture, [])

        return read

    @functools.cached_property
    def _labels(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """The function from the number of an example to its labels."""
        given = self.part.labels
        if not self.several_labels:  # A lookup takes half the time of rows that differ in length.
            single = tf.constant(np.array([one for (one,) in given], np.int32))
            if not self.mixup:
                return lambda row: tf.gather(single, row)
            return lambda row: tf.one_hot(tf.gather(single, row), self.num_classes)
        values = np.fromiter(itertools.chain.from_iterable(given), np.int32)
        numbers = tf.RaggedTensor.from_row_lengths(values, list(map(len, given)))

        def in_all_classes(row: tf.Tensor) -> tf.Tensor:
            of_each = tf.one_hot(numbers[row], self.num_classes, on_value=True, off_value=False)
            return tf.cast(tf.reduce_any(of_each, 0), tf.float32)

        return in_all_classes


def key_of(epoch: Epoch) -> tf.Tensor:
    """Returns the half of every seed that follows from (seed, epoch), an int64 scalar."""
    (word,) = np.random.SeedSequence([epoch.seed, epoch.number]).generate_state(1, np.uint64)
    return tf.constant(word.astype(np.int64))
