"""Micro-batches save memory: however many there are, only two of their gradients are alive."""

import sys

import pytest

from tests.programs import run

MEGABYTES = 40
SCRIPT = f"""
import resource, sys, keras, numpy as np, tensorflow as tf, towers

unit = 2**20 if sys.platform == "darwin" else 2**10

layer = keras.layers.Dense({MEGABYTES * 2**20 // 4 // 1024}, use_bias=False)
layer.build((None, 1024))
batches = towers.batches_from(tf.data.Dataset.from_tensors(np.ones((32, 1024), "float32")))
(shards,) = towers.engine.split(batches(0, 0), 1)


def tower_fn(batch):
    return tf.reduce_sum(layer(batch) ** 2), tf.shape(batch)[0], {{}}


for accumulate in (2, 10):
    step = towers.build_train_step(
        tower_fn, [layer.kernel], keras.optimizers.SGD(1e-9), towers.Placement(["/CPU:0"]),
        batches, towers.StepOptions(accumulate=accumulate),
    )
    for number in (1, 2):
        float(step(shards, number).loss)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit)
"""


@pytest.mark.slow
def test_many_micro_batches_need_the_memory_of_two():
    of_two, of_many = map(int, run([sys.executable, "-c", SCRIPT], stderr=None).split())
    assert of_two > MEGABYTES
    assert of_many - of_two < 1.5 * MEGABYTES
