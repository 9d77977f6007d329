"""Fashion-MNIST with a LeNet-style CNN.

Paper:    Xiao et al. 2017, "Fashion-MNIST: a Novel Image Dataset for Benchmarking
          Machine Learning Algorithms"
Data:     towers download fashion_mnist
Command:  towers train fashion_mnist --towers 2
Expected: 92.3 % test accuracy in 3 minutes on two CPU cores
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from towers.scripts.recipes import mnist
from towers.scripts.recipes.mnist import make_model, make_tower_fn
from towers.scripts.training import recipe

DATA_SET = "fashion_mnist"
__all__ = ["DATA_SET", "Fields", "make_data", "make_model", "make_tower_fn"]


@dataclasses.dataclass(frozen=True)
class Fields(mnist.Fields):
    """The fields of mnist with other values."""

    epochs: int = 14
    learning_rate: float = 2e-3
    schedule: str = "cosine"
    warmup_steps: int = 100
    dropout_rate: float = 0.3


def make_data(fields: Fields, folder: Path, seed: int) -> recipe.Data:
    """Returns the batches, pixels in [0, 1]."""
    return mnist.make_data(fields, folder, seed, name="fashion_mnist")
