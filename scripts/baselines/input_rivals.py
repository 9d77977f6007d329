"""Pipelines over a folder of pictures as others write them, timed beside that of the recipe."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from towers.scripts.baselines.options import BenchmarkOptions
from towers.scripts.shown import show
from towers.scripts.training.recipe import Data, Recipe
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


def check_input_rivals(recipe: Recipe, options: BenchmarkOptions) -> None:
    """Raises ValueError unless these pipelines can be compared with that of the recipe."""
    for name in options.against:
        if name not in INPUT_RIVALS:
            raise ValueError(f"There is no input rival {name!r}.{nearest(name, INPUT_RIVALS)}")
    if options.against and recipe.name != "images":
        raise ValueError(
            f"--input compares pipelines over picture files. Received recipe {recipe.name}; "
            "leave out --against, or use recipe images."
        )
    if options.against and not (options.data and Path(options.data[0]).is_dir()):
        raise ValueError("--input --against reads a folder of class folders: give --data FOLDER.")


def compare_inputs(recipe: Recipe, data: Data, options: BenchmarkOptions) -> dict[str, list[float]]:
    """Returns examples/s of each pipeline, one number for each of the interleaved repetitions.

    All give global batches of the same size; where the folder has a `train/`, its pictures are
    read. The rivals decode and resize only: compare with augmentation=none.
    """
    folder = Path((options.data or ("",))[0])
    folder = folder / "train" if (folder / "train").is_dir() else folder
    fields = recipe.fields
    running = {recipe.name: endless(lambda epoch: data.train(epoch, 0))}
    for name in options.against:
        dataset = INPUT_RIVALS[name](str(folder), fields.size, fields.batch_size, options.seed)
        running[name] = endless(lambda epoch, dataset=dataset: dataset)
    for batches in running.values():
        read(batches, WARM_UP_BATCHES)
    rates: dict[str, list[float]] = {name: [] for name in running}
    for repetition in range(options.repetitions):
        names = list(running) if repetition % 2 == 0 else list(reversed(running))
        for name in names:
            rates[name].append(read(running[name], options.steps))
    return rates


def endless(of_epoch: Callable[[int], tf.data.Dataset]) -> Iterator[Any]:
    """Yields the batches of one epoch after the other."""
    for epoch in itertools.count():
        yield from of_epoch(epoch)


def read(batches: Iterator[Any], count: int) -> float:
    """Returns examples/s of the next batches."""
    started, examples = time.perf_counter(), 0
    for images, _ in itertools.islice(batches, count):
        examples += len(images)
    return examples / (time.perf_counter() - started)


def print_inputs(rates: dict[str, list[float]]) -> None:
    """Prints the medians, and those of the ratios to the first pipeline."""
    first = next(iter(rates))
    show(f"| pipeline | examples/s (min - max) | {first} / it |")
    show("|---|---|---|")
    for name, own in rates.items():
        ratio = statistics.median(a / b for a, b in zip(rates[first], own, strict=True))
        show(f"| {name} | {statistics.median(own):.0f} ({min(own):.0f} - {max(own):.0f}) "
             f"| {ratio:.2f} |")  # fmt: skip
