"""What Keras is told of a training: its seed, steps of a call, limits to try things out."""

from __future__ import annotations

import warnings

import keras
import numpy as np

from towers.devices.kernels import levels_to_caller
from towers.ground.private_apis import get_random_seed

AUTO = 16  # Steps of a call: what is left of the host's time for a call is small.


def steps_per_call(model: keras.Model) -> int:
    """Returns how many batches of a compiled model are one call: `steps_per_execution`.

    Keras documents no search for `auto`, with which its own `fit` fails.
    """
    number = model.steps_per_execution
    return AUTO if number == "auto" else int(number)


def seed_of(seed: int | None) -> int:
    """Returns a seed; for None that of `keras.utils.set_random_seed`, or 0 without one."""
    seed = (get_random_seed() or 0) if seed is None else seed
    return int(seed) if isinstance(seed, np.integer) else seed


def limited_epochs(epochs: int) -> int:
    """Returns the number of epochs, at most that of `keras.config.set_max_epochs`."""
    most = keras.config.max_epochs()
    if not most or epochs <= most:
        return epochs
    warnings.warn(f"Limiting epochs to {most}", stacklevel=levels_to_caller())
    return most


def limited_steps(steps: int | None) -> int | None:
    """Returns the steps of an epoch, at most those of `keras.config.set_max_steps_per_epoch`."""
    most = keras.config.max_steps_per_epoch()
    if not most or (steps and steps <= most):
        return steps
    warnings.warn(f"Limiting steps_per_epoch to {most}", stacklevel=levels_to_caller())
    return most
