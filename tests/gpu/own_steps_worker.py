"""Counts what GPUs do in a step of models with train steps of their own; prints it as JSON.

python -m tests.gpu.own_steps_worker MODEL WAY: of `benchmarks.own_steps`, on two GPUs.
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

import towers
from benchmarks.own_steps import MODELS, SIZE, runner
from tests.gpu.counts_worker import FEW, MANY, counts
from tests.pretended_gpu.pretended_gpu import record

BATCH = 32


def main():
    name, way = sys.argv[1:]
    keras.utils.set_random_seed(1)
    devices = list(towers.select_devices().towers)
    run = runner(way, MODELS[name], devices)
    pictures = np.ones((BATCH, SIZE, SIZE, 3), "float32")
    batches = tf.data.Dataset.from_tensors(pictures).repeat()
    logs = []
    for steps in (FEW, FEW, MANY):  # The first one traces.
        with record() as log:
            run(batches.take(steps))
        logs.append(log)
    facts = {"model": name, "way": way}
    facts["devices"] = [counts(*logs[1:], device) for device in range(len(devices))]
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
