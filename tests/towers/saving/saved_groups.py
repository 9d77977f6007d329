"""Groups of variables for checkpoints, known by a single number."""

import numpy as np
import tensorflow as tf

from towers.saving.checkpoint_files import take_snapshot, write_snapshot


def group_of(value, *, size=3):
    """One group of three variables that all hold the same number."""
    return {"variables": [tf.Variable(tf.fill([size], float(value))) for _ in range(3)]}


def write_checkpoint(path, step, groups, state):
    """Writes groups of variables as a checkpoint of its own."""
    write_snapshot(path, take_snapshot(step, groups, state))


def values_of(checkpoint):
    """The set of all numbers in a checkpoint."""
    arrays = [array for saved in checkpoint.groups.values() for _, array in saved]
    return {number for array in arrays for number in np.unique(array).tolist()}
