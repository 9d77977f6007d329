"""Sums that cannot be; prints what was told, as JSON. Run by the tests."""

import json

import keras
import tensorflow as tf

import towers
from tests import helpers
from tests.conftest import make_logical_cpus
from towers.devices.determinism import enable_determinism
from towers.travel.collectives import Group, fault_of_group


def late():
    """Returns what is told of a sum to which one of two devices does not come."""
    group = Group(["/CPU:1", "/CPU:3"], limit=2.0)

    @tf.function(autograph=False)
    def add():
        with tf.device("/CPU:1"):
            return group._sum_vectors([tf.ones([4])], [7])

    try:
        return str(add())
    except tf.errors.OpError as error:
        return error.message


@tf.function(autograph=False)
def others():
    """Returns what has nothing to do with collective ops."""
    with tf.device("/CPU:1"):
        one = tf.fill([2], 2.0)
    with tf.device("/CPU:2"):
        return one * 2


def deterministic(placement):
    """Returns what is told of collective ops in a deterministic process."""
    enable_determinism()
    model = helpers.dense_model()
    dataset = helpers.dataset_of(helpers.dense_batches([4]))
    optimizer = keras.optimizers.SGD()
    try:
        towers.build_train_step(helpers.classify(model), model, optimizer, placement, dataset)
    except ValueError as error:
        return str(error)
    return "nothing"


def main():
    make_logical_cpus()
    keras.utils.set_random_seed(0)
    placement = helpers.tower_placement(2, "nccl")
    told = {"late": late(), "fault": fault_of_group(("/CPU:1", "/CPU:4"))}
    told["others"] = others().numpy().tolist()
    told["deterministic"] = deterministic(placement)
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
