"""The embedded shapes with a small CNN: needs no download and no GPU.

Data:     ten kinds of drawn, textured shapes, carried by this project in CIFAR-10's format
Command:  towers train shapes --towers 2
Expected: 91.8 % test accuracy (best of 10 epochs) in 20 seconds on two CPU cores
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from towers.scripts.training import fields as common
from towers.scripts.training.recipe import Data, Recipe

if TYPE_CHECKING:
    import keras

INPUT_SHAPE, NUM_CLASSES = (32, 32, 3), 10


@dataclasses.dataclass(frozen=True)
class Fields(common.Fields):
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
    from towers.data.images import cifar10 as cifar10_files
    from towers.data.images.batches import image_batches
    from towers.data.images.image_set import content_key
    from towers.data.samples import shapes

    folder = folder or shapes.folder()
    train, test = (cifar10_files.load(folder, split) for split in ("train", "test"))
    scaled = augmentation.scaled()
    return Data(
        image_batches(train, fields.batch_size, seed=seed, transform=scaled),
        image_batches(test, fields.batch_size, shuffle=False, transform=scaled),
        key=content_key(train, test),
    )


def make_model(fields: Fields, data: Data) -> keras.Model:
    """Returns the network."""
    from towers.models import cnn

    return cnn.lenet(
        INPUT_SHAPE, NUM_CLASSES, filters=fields.filters, hidden_size=fields.hidden_size
    )


def make_tower_fn(fields: common.Fields, model: keras.Model, training: bool) -> Any:
    """Returns the tower function."""
    from towers.models import losses

    return losses.classification(model, training=training)


RECIPE = Recipe(
    name="shapes",
    fields=Fields(batch_size=50, epochs=10, schedule="cosine"),
    make_data=make_data,
    make_model=make_model,
    make_tower_fn=make_tower_fn,
)
