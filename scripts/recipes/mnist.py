"""MNIST with a LeNet-style CNN, a residual network, an MLP or softmax regression.

Papers:   LeCun et al. 1998, "Gradient-based learning applied to document recognition";
          He et al. 2015, "Deep Residual Learning for Image Recognition", section 4.2
Data:     towers download mnist
Command:  towers train mnist --towers 2
          towers train mnist --set network=mlp (or network=softmax)
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from towers.scripts.recipes.shapes import ImageFields, image_data, image_sets, make_tower_fn
from towers.scripts.training import fields as common
from towers.scripts.training.recipe import Data, Recipe

if TYPE_CHECKING:
    import keras

    from towers.data.images import augmentation

INPUT_SHAPE, NUM_CLASSES = (28, 28, 1), 10


@dataclasses.dataclass(frozen=True)
class Fields(ImageFields):
    """The common fields, and:

    Attributes:
        network: lenet, resnet, mlp or softmax.
        filters: filters of the two convolutions of lenet.
        depth: number of layers of resnet, 6n+2.
        augmentation: none, shifts (by up to two pixels) or shifts_and_flips.
        dropout_rate: dropout before the last layer of lenet and mlp.
        label_smoothing: fraction of each label that is spread evenly over all classes.
    """

    network: Literal["lenet", "resnet", "mlp", "softmax"] = "lenet"
    filters: tuple[int, ...] = (20, 50)
    depth: int = 8
    augmentation: Literal["none", "shifts", "shifts_and_flips"] = "none"
    dropout_rate: Annotated[float, common.FRACTION] = 0.0
    label_smoothing: Annotated[float, common.FRACTION] = 0.0


def make_data(fields: Fields, folder: Path, seed: int, *, name: str = "mnist") -> Data:
    """Returns the batches, pixels in [0, 1]."""
    from towers.data.images import augmentation

    train, test = image_sets(name, folder)
    scaled = augmentation.scaled()
    augmented = augmentation.Transform(scaled.operations + shifts(fields.augmentation))
    return image_data(fields, seed, (train, augmented), (test, scaled))


def shifts(name: str) -> tuple[augmentation.Operation, ...]:
    """Returns the operations of an augmentation; the padding is black, as the background is."""
    from towers.data.images import augmentation

    height, width, _ = INPUT_SHAPE
    shift = (augmentation.pad(2), augmentation.random_crop(height, width))
    known = {"none": (), "shifts": shift, "shifts_and_flips": (*shift, augmentation.random_flip())}
    return known[name]


def make_model(fields: Fields, data: Data) -> keras.Model:
    """Returns the network."""
    from towers.models import cnn, mlp, resnet

    networks: dict[str, Any] = {
        "lenet": cnn.lenet,
        "resnet": resnet.cifar_resnet,
        "mlp": mlp.mlp,
        "softmax": mlp.softmax_regression,
    }
    network = networks[fields.network]
    return network(INPUT_SHAPE, NUM_CLASSES, **common.arguments_for(network, fields))


RECIPE = Recipe(
    name="mnist",
    fields=Fields(),
    data_set="mnist",
    make_data=make_data,
    make_model=make_model,
    make_tower_fn=make_tower_fn,
)
