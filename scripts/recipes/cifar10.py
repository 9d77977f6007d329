"""CIFAR-10 with the network and the distortions of the TensorFlow tutorial.

Source:   the TensorFlow CIFAR-10 tutorial (cifar10.py), after Krizhevsky 2009
Data:     towers download cifar10
Command:  towers train cifar10 --towers 2
Expected: 66.2 % test accuracy (best of 20 tests) with 10,000 images, pixels after JPEG, in
          3 minutes on two CPU cores; the tutorial states about 86 % after 100,000 updates on all
          images
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from towers.scripts.recipes.shapes import ImageFields, image_data, make_tower_fn
from towers.scripts.training import fields as common
from towers.scripts.training.recipe import Data, Recipe

if TYPE_CHECKING:
    import keras

INPUT_SHAPE, NUM_CLASSES = (24, 24, 3), 10


@dataclasses.dataclass(frozen=True)
class Fields(ImageFields):
    """The common fields, and:

    Attributes:
        response_normalization: whether to use the tutorial's normalisation layers.
        weight_decay: L2 penalty on the two dense layers.
    """

    response_normalization: bool = True
    weight_decay: Annotated[float, common.NOT_NEGATIVE] = 0.004


def make_data(fields: Fields, folder: Path, seed: int) -> Data:
    """Returns the batches: 24x24 crops, standardised; distorted for training."""
    from towers.data.images import augmentation
    from towers.data.images import cifar10 as cifar10_files

    train, test = (cifar10_files.load(folder, split) for split in ("train", "test"))
    distorted, plain = augmentation.tutorial_training(), augmentation.tutorial_evaluation()
    return image_data(fields, seed, (train, distorted), (test, plain))


def make_model(fields: Fields, data: Data) -> keras.Model:
    """Returns the network."""
    from towers.models import cnn

    return cnn.cifar_cnn(INPUT_SHAPE, NUM_CLASSES, **common.arguments_for(cnn.cifar_cnn, fields))


RECIPE = Recipe(
    name="cifar10",
    fields=Fields(epochs=40, schedule="cosine", warmup_steps=100),
    data_set="cifar10",
    make_data=make_data,
    make_model=make_model,
    make_tower_fn=make_tower_fn,
)
