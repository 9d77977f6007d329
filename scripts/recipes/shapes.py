"""The embedded shapes with a small CNN: needs no download and no GPU.

Data:     ten kinds of drawn, textured shapes, carried by this project in CIFAR-10's format
Command:  towers train shapes --towers 2
Expected: 91.0 % test accuracy (10 epochs) in 20 seconds on two CPU cores
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from towers.scripts.training import fields as common
from towers.scripts.training.recipe import Data, Recipe

if TYPE_CHECKING:
    import keras

    from towers.data.images.augmentation import Transform
    from towers.data.images.image_set import ImageSet

INPUT_SHAPE, NUM_CLASSES = (32, 32, 3), 10


@dataclasses.dataclass(frozen=True)
class ImageFields(common.Fields):
    """The fields of every recipe with sets of small images.

    Attributes:
        validation_share: fraction of each class's training images that is held out to choose the
            best checkpoint.
        part: the part that is evaluated, validation or test; by default, the first one found.
    """

    validation_share: Annotated[float, common.FRACTION] = 0.0
    part: str = ""


@dataclasses.dataclass(frozen=True)
class Fields(ImageFields):
    """The common fields, and:

    Attributes:
        filters: filters of the two convolutions.
        hidden_size: units of the dense layer.
    """

    filters: tuple[int, ...] = (20, 50)
    hidden_size: int = 128


def make_data(fields: Fields, folder: Path | None, seed: int) -> Data:
    """Returns the batches, pixels in [0, 1]; without a folder those of the embedded files."""
    from towers.data.images import augmentation
    from towers.data.samples import shapes

    train, test = image_sets("cifar10", folder or shapes.folder())
    scaled = augmentation.scaled()
    return image_data(fields, seed, (train, scaled), (test, scaled))


def image_sets(name: str, folder: Path) -> tuple[ImageSet, ImageSet]:
    """Returns the training and the test images of a data set: cifar10, or one in MNIST's format."""
    from towers.data.images import cifar10, idx

    load = cifar10.load if name == "cifar10" else functools.partial(idx.load, name=name)
    return load(folder, "train"), load(folder, "test")


def image_data(
    fields: ImageFields,
    seed: int,
    train: tuple[ImageSet, Transform],
    test: tuple[ImageSet, Transform],
) -> Data:
    """Returns the batches of two image sets, each seen through its transform."""
    from towers.data.images.batches import image_batches
    from towers.data.images.image_set import content_key, split_off
    from towers.ground.arguments import check_choice

    kept, held_out = split_off(train[0], fields.validation_share)
    parts = {"validation": held_out, "test": test[0]} if len(held_out) else {"test": test[0]}
    part = fields.part or next(iter(parts))
    check_choice("Field part", part, parts)
    return Data(
        image_batches(kept, fields.batch_size, seed=seed, transform=train[1]),
        image_batches(parts[part], fields.batch_size, shuffle=False, transform=test[1]),
        key=content_key(train[0], test[0]),
        about={"evaluated": part},
    )


def make_model(fields: Fields, data: Data) -> keras.Model:
    """Returns the network."""
    from towers.models import cnn

    return cnn.lenet(INPUT_SHAPE, NUM_CLASSES, **common.arguments_for(cnn.lenet, fields))


def make_tower_fn(fields: common.Fields, model: keras.Model, training: bool) -> Any:
    """Returns the tower function; fields may smooth the labels, or look at several views."""
    from towers.models import losses, views

    if training:
        smoothing = getattr(fields, "label_smoothing", 0.0)
        return losses.classification(model, training=True, label_smoothing=smoothing)
    network = views.over_views(model, getattr(fields, "test_views", "none"))
    return losses.classification(network, training=False)


RECIPE = Recipe(
    name="shapes",
    fields=Fields(batch_size=50, epochs=10, schedule="cosine"),
    make_data=make_data,
    make_model=make_model,
    make_tower_fn=make_tower_fn,
)
