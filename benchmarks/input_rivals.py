"""Pipelines over a folder of pictures as others write them, timed beside that of the recipe."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import tensorflow as tf

from towers.scripts.shown import show
from towers.scripts.timing.options import TimingOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.session import data_paths
from towers.scripts.wrong_input import nearest

WARM_UP_BATCHES = 10  # Before the measurement: the autotuning finds its numbers meanwhile.


def tf_data(folder: str, size: int, batch_size: int, seed: int) -> tf.data.Dataset:
    """Returns the batches of a pipeline as TensorFlow's guide on performance writes them."""
    classes = tf.constant(sorted(path.name for path in Path(folder).iterdir() if path.is_dir()))

    def files_of(name: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.list_files(tf.strings.join([folder, name, "*"], "/"), seed=seed)

    def load(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pixels = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        name = tf.strings.split(path, "/")[-2]
        return tf.image.resize(pixels, [size, size]), tf.argmax(tf.equal(classes, name))

    return (
        tf.data.Dataset.from_tensor_slices(classes)
        .interleave(files_of, cycle_length=len(classes), num_parallel_calls=tf.data.AUTOTUNE)
        .shuffle(10_000, seed=seed)
        .map(load, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(batch_size)
        .prefetch(tf.data.AUTOTUNE)
    )


def keras_directory(folder: str, size: int, batch_size: int, seed: int) -> tf.data.Dataset:
    """Returns the batches of `keras.utils.image_dataset_from_directory`."""
    return keras.utils.image_dataset_from_directory(
        folder, image_size=(size, size), batch_size=batch_size, seed=seed, verbose=False
    )


INPUT_RIVALS: dict[str, Callable[[str, int, int, int], tf.data.Dataset]] = {
    "tf_data": tf_data,
    "keras_directory": keras_directory,
}


def check_input_rivals(recipe: Recipe, names: Sequence[str], data: Sequence[str] | None) -> None:
    """Raises ValueError unless these pipelines can be compared with that of the recipe."""
    for name in names:
        if name not in INPUT_RIVALS:
            raise ValueError(f"There is no input rival {name!r}.{nearest(name, INPUT_RIVALS)}")
    if recipe.name != "images":
        raise ValueError(
            f"input compares pipelines over picture files. Received recipe {recipe.name}; use "
            "recipe images."
        )
    if not (data and Path(data[0]).is_dir()):
        raise ValueError("input reads a folder of class folders: give --data FOLDER.")


class Rate(NamedTuple):
    """What a pipeline did in a measurement.

    Attributes:
        examples_per_second: in real time.
        cpu_microseconds: CPU time of an example, in all threads.
    """

    examples_per_second: float
    cpu_microseconds: float


def compare_inputs(
    recipe: Recipe, names: Sequence[str], options: TimingOptions
) -> dict[str, list[Rate]]:
    """Returns the rates of each pipeline, one for each of the interleaved repetitions.

    All give global batches of the same size; where the folder has a `train/`, its pictures are
    read. The rivals decode and resize only: compare with augmentation=none. Each measurement
    begins its pipeline anew, since one that waits for its reader fills its buffers meanwhile.

    Raises:
        ValueError: the data cannot be used.
        OSError: a file cannot be read.
    """
    data = recipe.make_data(recipe.fields, data_paths(recipe, options.data), options.seed)
    folder = Path((options.data or ("",))[0])
    folder = folder / "train" if (folder / "train").is_dir() else folder
    fields = recipe.fields
    datasets = {recipe.name: data.train(0, 0)}
    for name in names:
        datasets[name] = INPUT_RIVALS[name](
            str(folder), fields.size, fields.batch_size, options.seed
        )
    rates: dict[str, list[Rate]] = {name: [] for name in datasets}
    for repetition in range(options.repetitions):
        for name in datasets if repetition % 2 == 0 else reversed(datasets):
            rates[name].append(measure_rate(datasets[name], options.steps))
    return rates


def measure_rate(dataset: tf.data.Dataset, num_steps: int) -> Rate:
    """Returns the rate of a pipeline over so many batches, after its start."""
    batches = iter(dataset.repeat())
    for _ in itertools.islice(batches, WARM_UP_BATCHES):
        pass
    examples, started, cpu_started = 0, time.perf_counter(), time.process_time()
    for images, _ in itertools.islice(batches, num_steps):
        examples += len(images)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    return Rate(examples / seconds, 1e6 * cpu / examples)


def print_inputs(rates: dict[str, list[Rate]]) -> None:
    """Prints the medians, and those of the ratios of the first pipeline to each."""
    first = next(iter(rates))
    show(f"| pipeline | examples/s (min - max) | {first} / it | CPU of an example, its / {first} |")
    show("|---|---|---|---|")
    for name, own in rates.items():
        pairs = list(zip(rates[first], own, strict=True))
        speeds = [one.examples_per_second for one in own]
        ratio = statistics.median(a.examples_per_second / b.examples_per_second for a, b in pairs)
        cpu = statistics.median(one.cpu_microseconds for one in own)
        costs = statistics.median(b.cpu_microseconds / a.cpu_microseconds for a, b in pairs)
        show(f"| {name} | {statistics.median(speeds):.0f} ({min(speeds):.0f} - {max(speeds):.0f}) "
             f"| {ratio:.2f} | {cpu:.0f} us, {costs:.2f} |")  # fmt: skip
