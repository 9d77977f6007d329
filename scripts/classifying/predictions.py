"""What an image network says: its classes, and the most probable ones of image files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from towers.data.folders import open_file
from towers.data.image_files.decoding import CHANNELS, SUFFIXES, decode, examine, viewable
from towers.data.image_files.listing import pictures_below
from towers.ground.progress import counted
from towers.models.views import over_views
from towers.scripts.training.catalogue import find_recipe
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.session import Session
from towers.scripts.wrong_input import describe

BATCH_SIZE = 64


class Prediction(NamedTuple):
    """What the network says about a file: probabilities by class name, the most probable first."""

    path: Path
    probabilities: dict[str, float]


class Refusal(NamedTuple):
    """Why a file has no prediction: the message of the error, which names it."""

    path: Path
    reason: str


def find_images(paths: Sequence[str]) -> list[Path]:
    """Returns paths with the image files in folders for these, in order, each once.

    A folder without an image stays: reading it says so.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        inside = list(pictures_below(path)) if path.is_dir() else []
        found += inside or [path]
    return list(dict.fromkeys(found))


def predict(session: Session, paths: Sequence[Path], most: int) -> Iterator[Prediction | Refusal]:
    """Yields a prediction for each file, or why it has none, batch by batch.

    A network of a recipe that reads files gets their bytes. For the others, an image of another
    size is scaled to the network's, without regard to its proportions, and one in colour becomes
    grey if the network takes grey images.
    """
    names, spec = class_names(session), session.data.test.source.input_spec
    shape = spec.shape[1:]
    classify = classify_images(session)
    for start in counted(range(0, len(paths), BATCH_SIZE), "predicting"):
        inputs = {}
        for path in paths[start : start + BATCH_SIZE]:
            try:
                content = read_picture(path)
                is_file = spec.dtype == tf.string
                inputs[path] = tf.constant(content) if is_file else pixels_of(content, shape)
            except (ValueError, OSError) as error:
                yield Refusal(path, describe(error))
        if not inputs:
            continue
        images = tf.stack(list(inputs.values()))
        for path, values in zip(inputs, classify(images)["probabilities"].numpy(), strict=True):
            best = (-values).argsort(kind="stable")[:most]
            yield Prediction(path, {names[number]: float(values[number]) for number in best})


def classify_images(session: Session) -> Callable[..., Any]:
    """Returns `classify(images) -> dict`, one graph for every number of images."""
    classify = classify_pixels(session)
    spec = session.data.test.source.input_spec
    return tf.function(classify, input_signature=[spec], autograph=False)


def classify_pixels(session: Session) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Returns `classify(images)`, which also takes pixels as the network sees them, float32."""
    source, network = session.data.test.source, network_of(session)
    has_several = getattr(session.recipe.fields, "multi_label", False)
    probabilities_of = tf.sigmoid if has_several else tf.nn.softmax

    def classify(images: tf.Tensor) -> dict[str, tf.Tensor]:
        pixels = source.pixels_of(images) if images.dtype == source.input_spec.dtype else images
        logits = network(pixels, training=False)
        probabilities = probabilities_of(tf.cast(logits, tf.float32))
        return {"probabilities": probabilities, "classes": tf.argmax(probabilities, -1)}

    return classify


def network_of(session: Session) -> Callable[..., tf.Tensor]:
    """Returns the network that maps pixels to logits, over the views of the session's fields."""
    views = getattr(session.recipe.fields, "test_views", "none")
    return over_views(session.model, views)


def read_picture(path: Path) -> bytes:
    """Returns the bytes of a picture that TensorFlow decodes; ValueError that names the file.

    OSError if it cannot be read.
    """
    if path.is_dir():
        raise ValueError(f"The folder {path} holds no images ({', '.join(SUFFIXES)}).")
    with open_file(path) as file:
        content = file.read()
    try:
        examine(content)
        return viewable(content)
    except ValueError as error:
        raise ValueError(
            f"{path} cannot be predicted: {error}. Expected one of {', '.join(SUFFIXES)}."
        ) from error


def pixels_of(content: bytes, shape: Sequence[int]) -> tf.Tensor:
    """Returns the pixels of a picture file, uint8 [height, width, channels]."""
    height, width, channels = shape
    image = decode(tf.constant(content))
    image = image if channels == CHANNELS else tf.image.rgb_to_grayscale(image)
    if image.shape[:2] != (height, width):
        scaled = tf.image.resize(image, (height, width), method="area")
        image = tf.cast(tf.round(scaled), tf.uint8)
    return image


def check_images(run_dir: str, what: str) -> None:
    """Raises ValueError unless the recipe of a run takes images; its data is not read."""
    recipe = find_recipe(RunDirectory(run_dir).read()["recipe"])
    if recipe.command:
        raise ValueError(
            f"{what} needs a run with images. Received a run of {recipe.name}, which answers with "
            f"`towers {recipe.command}`."
        )


def check_one_label(session: Session) -> None:
    """Raises ValueError if an image of the session may have several labels."""
    if getattr(session.recipe.fields, "multi_label", False):
        raise ValueError(
            "--classes counts which class was mistaken for which. Received a run with "
            "multi_label=true, whose pictures have several classes; leave --classes out."
        )


def class_names(session: Session) -> tuple[str, ...]:
    """Returns the names of the classes, in the order of the labels."""
    about = session.data.about or {}
    if "classes" in about:
        return tuple(about["classes"])
    return session.data.test.source.image_set.class_names
