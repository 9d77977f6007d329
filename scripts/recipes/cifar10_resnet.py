"""CIFAR-10 with a residual network of 6n+2 layers.

Paper:    He et al. 2015, "Deep Residual Learning for Image Recognition", section 4.2
Data:     towers download cifar10
Command:  towers train cifar10_resnet --gpus 0,1
Expected: 91.25 % test accuracy at depth 20 on the whole training set (the paper's table 6);
          not yet run by this project
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from towers.scripts.recipes import shapes
from towers.scripts.training import fields as common
from towers.scripts.training.recipe import Data, Recipe

if TYPE_CHECKING:
    import keras


@dataclasses.dataclass(frozen=True)
class Fields(shapes.ImageFields):
    """The common fields, and:

    Attributes:
        depth: number of layers, 6n+2.
        weight_decay: L2 penalty on all weights.
    """

    depth: int = 20
    weight_decay: Annotated[float, common.NOT_NEGATIVE] = 1e-4


def make_data(fields: Fields, folder: Path, seed: int) -> Data:
    """Returns the batches, normalised per channel; padded, cropped and flipped for training."""
    from towers.data.images import augmentation

    train, test = shapes.image_sets("cifar10", folder)
    moments = augmentation.channel_moments(train.images)
    augmented = augmentation.resnet_training(*moments)
    plain = augmentation.resnet_evaluation(*moments)
    return shapes.image_data(fields, seed, (train, augmented), (test, plain))


def make_model(fields: Fields, data: Data) -> keras.Model:
    """Returns the network."""
    from towers.models import resnet

    own = common.arguments_for(resnet.cifar_resnet, fields)
    return resnet.cifar_resnet(shapes.INPUT_SHAPE, shapes.NUM_CLASSES, **own)


RECIPE = Recipe(
    name="cifar10_resnet",
    fields=Fields(
        epochs=164,  # 64000 updates of 128 images.
        optimizer="momentum",
        learning_rate=0.1,
        schedule="piecewise",
        boundaries=(82, 123),  # 32000 and 48000 updates.
    ),
    data_set="cifar10",
    make_data=make_data,
    make_model=make_model,
    make_tower_fn=shapes.make_tower_fn,
)
