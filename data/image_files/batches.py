"""Batches of pictures in files: read, decoded and augmented ahead of the training, by all cores."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from towers.data.batching.epochs import (
    ChooseRows,
    bounds_of,
    check_position,
    chosen_rows,
)
from towers.data.batching.random_numbers import permutation
from towers.data.batching.row_batches import RowBatches
from towers.data.image_files.augmentation import Augmentation
from towers.data.image_files.image_files import Part
from towers.data.image_files.records import parse_record, read_bytes

NUM_PREFETCHED = 2  # Batches kept ready: enough to hide a slow one, and memory stays bounded.
MIX_STREAM = 2**40  # Beyond every example's number, so that batches draw other random numbers.

Pair = tuple[tf.Tensor, tf.Tensor]


@dataclasses.dataclass(frozen=True, eq=False)
class ImageFileBatches(RowBatches):
    """`batches(epoch, first_step=0) -> tf.data.Dataset` over a part of an image set in files.

    Attributes:
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

    part: Part
    num_classes: int
    batch_size: int
    augmentation: Augmentation
    several_labels: bool = False
    mixup: float = 0.0
    seed: int = 0
    shuffle: bool = True

    def row_counts(self, epoch: int) -> np.ndarray:
        """Returns the number of rows of each batch of an epoch."""
        return np.diff(self._bounds)

    def rows(self, choose: ChooseRows, epoch: int, first_step: int) -> tf.data.Dataset:
        """Returns the chosen rows of each batch of an epoch.

        Each element is (images, labels) with images: float32 [rows, size, size, 3], 0 to 255, and
        labels: int32 [rows] or, with several labels or with mixup, float32 [rows, classes].
        Every example occurs exactly once in an epoch. The order and the augmentation of each
        example follow from (seed, epoch), so no batch before `first_step` is read. With mixup, the
        row before the chosen ones is read as well: the first one is mixed with it.
        """
        check_position(epoch, first_step, self.steps_per_epoch)
        places = self._places(choose)
        num_steps = self.steps_per_epoch - first_step
        read = np.concatenate([np.zeros([0], np.int64), *places[first_step:]])
        examples = tf.data.Dataset.from_tensor_slices(self._order(epoch)[read]).map(
            self._example(epoch), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        )
        # All batches are of one size but the last, which is not larger.
        batches = examples.batch(max(map(len, places), default=1)).apply(
            tf.data.experimental.assert_cardinality(num_steps)
        )
        if self.mixup:
            steps = tf.data.Dataset.range(first_step, self.steps_per_epoch)
            batches = tf.data.Dataset.zip(steps, batches).map(self._mix(epoch, choose))
        return batches.prefetch(NUM_PREFETCHED)

    def _places(self, choose: ChooseRows) -> list[np.ndarray]:
        """Returns, for each step, which places of the epoch's order are read, as int64.

        With mixup the first is that of the row before, or of the last row before the first one.
        """
        places = []
        for begin, end, (start, stop) in zip(
            self._bounds, self._bounds[1:], chosen_rows(self._bounds, choose), strict=False
        ):
            own = np.arange(start, stop)
            before = begin + (start - begin - 1) % (end - begin)
            places.append(np.append(before, own) if self.mixup else own)
        return places

    @property
    def _bounds(self) -> np.ndarray:
        return bounds_of(self.num_examples, self.batch_size)

    @property
    def num_examples(self) -> int:
        """The number of examples in an epoch."""
        return len(self.part)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch, a smaller last one included."""
        return -(-self.num_examples // self.batch_size)

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
        plain = dataclasses.replace(self.augmentation, kind="none", only_jpeg=False)
        seed = tf.zeros([2], tf.int64)
        shape = [plain.size, plain.size, 3]
        return tf.map_fn(
            lambda one: plain(one, seed),
            encoded,
            fn_output_signature=tf.TensorSpec(shape, tf.float32),
        )

    def _example(self, epoch: int) -> Callable[[tf.Tensor], Pair]:
        """Returns the function from the number of an example to its pixels and labels."""
        key = self._key(epoch)
        labels, read = self._labels, self._read

        @tf.autograph.experimental.do_not_convert
        def example(row: tf.Tensor) -> Pair:
            seed = tf.stack([key, tf.cast(row, tf.int64)])
            return self.augmentation(read(row), seed), labels(row)

        return example

    def _mix(self, epoch: int, choose: ChooseRows) -> Callable[..., Pair]:
        """Returns the function that mixes each example with the one before it in its batch.

        It takes the examples of the rows, after the one before them.
        """
        key = self._key(epoch)
        sizes = tf.constant(np.diff(self._bounds))
        rows = tf.constant(chosen_rows(self._bounds, choose) - self._bounds[:-1, None])

        @tf.autograph.experimental.do_not_convert
        def mix(step: tf.Tensor, batch: Pair) -> Pair:
            images, labels = batch
            seeds = tf.random.split(tf.stack([key, MIX_STREAM + step]), 2)
            alpha = tf.fill([sizes[step]], self.mixup)
            first, second = (
                tf.random.stateless_gamma(tf.shape(alpha), seed, alpha)
                for seed in tf.unstack(seeds)
            )
            share = (first + 1e-12) / (first + second + 2e-12)  # Beta(alpha, alpha).
            share = share[rows[step, 0] : rows[step, 1]]
            of_pixels, of_labels = share[:, None, None, None], share[:, None]
            return (
                of_pixels * images[1:] + (1 - of_pixels) * images[:-1],
                of_labels * labels[1:] + (1 - of_labels) * labels[:-1],
            )

        return mix

    def _key(self, epoch: int) -> tf.Tensor:
        """Returns the half of every seed that follows from (seed, epoch), an int64 scalar."""
        (word,) = np.random.SeedSequence([self.seed, epoch]).generate_state(1, np.uint64)
        return tf.constant(word.astype(np.int64))

    def _order(self, epoch: int) -> np.ndarray:
        if self.shuffle:
            return permutation(self.num_examples, seed=self.seed, epoch=epoch)
        return np.arange(self.num_examples, dtype=np.int32)

    @functools.cached_property
    def _read(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """The function from the number of an example to the bytes of its picture."""
        part = self.part
        if not (part.lengths >= 0).any():
            paths = tf.constant([os.fsencode(path) for path in part.paths])
            return lambda row: tf.io.read_file(tf.gather(paths, row))

        def read_record(row: np.ndarray) -> bytes:
            number = int(row)
            offset, length = int(part.offsets[number]), int(part.lengths[number])
            return parse_record(read_bytes(part.paths[number], offset, length))[0]

        def read(row: tf.Tensor) -> tf.Tensor:
            record = tf.numpy_function(read_record, [row], tf.string, stateful=False)
            return tf.ensure_shape(record, [])

        return read

    @functools.cached_property
    def _labels(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """The function from the number of an example to its labels."""
        given = self.part.labels
        if not self.several_labels:
            single = tf.constant(np.array([one for (one,) in given], np.int32))
            if not self.mixup:
                return lambda row: tf.gather(single, row)
            return lambda row: tf.one_hot(tf.gather(single, row), self.num_classes)
        numbers = tf.ragged.constant(given, tf.int32, ragged_rank=1)
        return lambda row: tf.reduce_max(
            tf.concat(
                [tf.zeros([1, self.num_classes]), tf.one_hot(numbers[row], self.num_classes)], 0
            ),
            axis=0,
        )
