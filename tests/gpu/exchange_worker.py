"""A step with a copy of the variables on each GPU; prints what travels between them, as JSON.

python -m tests.gpu.exchange_worker cifar10_resnet 4
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

import towers
import towers.devices.placement
from tests.pretended_gpu.pretended_gpu import record
from towers.batches.shards import Shard
from towers.scripts.training.catalogue import find_recipe
from towers.scripts.training.recipe import Data

ROWS = 8  # Of each tower.
SIZES = {"cifar10_tutorial": 24, "cifar10_resnet": 32}


def build(recipe, devices):
    """Returns a function that runs one step on shards that are already there."""
    placement = towers.Placement(devices, "replicated")
    with placement.scope():
        model = recipe.make_model(recipe.fields, Data(None, None))
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    size = SIZES[recipe.name]
    batch = (np.zeros((ROWS * len(devices), size, size, 3), "float32"),)
    batch += (np.zeros(len(batch[0]), "int32"),)
    dataset = tf.data.Dataset.from_tensors(batch)
    tower_fn = recipe.make_tower_fn(recipe.fields, model, True)
    options = towers.StepOptions(probe=False)  # Pretended GPUs compute no values.
    step = towers.build_train_step(tower_fn, model, optimizer, placement, dataset, options)
    (shards,) = towers.engine.split(dataset, len(devices))
    placed = []
    for device, shard in zip(devices, shards, strict=True):
        with tf.device(device):
            images = tf.nest.map_structure(tf.identity, shard.batch)
        placed.append(Shard(images, shard.size))
    float(step(tuple(placed), 1).finite)
    gradients = sum(4 * int(np.prod(variable.shape)) for variable in model.trainable_variables)
    return lambda number: float(step(tuple(placed), number).finite), gradients


def main(name, num_gpus):
    towers.devices.placement.wrong_sums = lambda devices: []  # Pretended copies have no values.
    devices = towers.select_devices(num_gpus).towers
    run, gradients = build(find_recipe(name), devices)
    with record() as log:
        run(2)
    sent = log.of("p2p")
    links = {}
    for command in sent:
        link = (int(command["device"]), int(command["peer"]))
        links[link] = links.get(link, 0) + int(command["bytes"])
    facts = {
        "gradients": gradients,
        "copies": len(sent),
        "small_copies": int((sent["bytes"] <= 1024).sum()),
        "bytes": int(sent["bytes"].sum()),
        "sent": [log.peer_bytes(device) for device in range(num_gpus)],
        "busiest_link": max(links.values()),
        "launches": [len(log.of("launch", device=device)) for device in (0, num_gpus - 1)],
    }
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
