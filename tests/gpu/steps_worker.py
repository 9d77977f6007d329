"""Steps on two GPUs; prints what the GPUs did, as JSON. Run by the tests."""

import json

import keras
import numpy as np
import tensorflow as tf

import towers
from tests.gpu.counts_worker import facts_of
from tests.pretended_gpu.pretended_gpu import record
from towers.devices.determinism import enable_determinism
from towers.models.language_model import sentences
from towers.models.linear_cross_entropy import linear_cross_entropy
from towers.models.rnn_lm import RNNLanguageModel

VOCABULARY, HIDDEN, ROWS, LENGTH = 1000, 32, 64, 32  # ROWS of each tower.
PROJECTION_BYTES = 4 * VOCABULARY * HIDDEN


def build(parameters, devices):
    """Returns a function that runs one step on shards that are already there."""
    placement = towers.Placement(devices, parameters)
    with placement.scope():
        model = RNNLanguageModel(VOCABULARY, hidden_size=HIDDEN, num_layers=1)
        optimizer = keras.optimizers.SGD(0.1)
    batch = np.random.default_rng(0).integers(1, VOCABULARY, (2 * ROWS, LENGTH)).astype("int32")
    dataset = tf.data.Dataset.from_tensors((batch, batch))
    tower_fn = sentences(model, training=True)
    options = towers.StepOptions(probe=False)  # Pretended GPUs compute no values.
    step = towers.build_train_step(tower_fn, model, optimizer, placement, dataset, options)
    (shards,) = towers.engine.split(dataset, len(devices))
    placed = []
    for device, shard in zip(devices, shards, strict=True):
        with tf.device(device):
            placed.append(tf.nest.map_structure(tf.identity, shard))
    return lambda number: float(step(tuple(placed), number).finite)


def commands_of(run):
    """Returns what the GPUs do in one step, once the first is over."""
    run(1)
    with record() as log:
        run(2)
    return log


def loss_ops(device):
    """Returns the types of the ops of a smoothed loss with gradients, after it has run."""

    @tf.function(autograph=False)
    def loss(hidden, kernel, bias, labels, weights):
        with tf.device(device):
            return linear_cross_entropy(
                hidden, kernel, bias, labels, weights, training=True, label_smoothing=0.1
            )

    tokens = tf.zeros([4, 3]), tf.zeros([7, 3]), tf.zeros([7]), tf.zeros([4], tf.int32), tf.ones(4)
    loss(*tokens)
    graph = loss.get_concrete_function(*tokens).graph.as_graph_def()
    return sorted({node.op for function in graph.library.function for node in function.node_def})


def main():
    devices = towers.select_devices(2).towers
    on_cpu = commands_of(build("cpu", devices))
    tell("peer_bytes", on_cpu.peer_bytes())
    tell("kernels", [on_cpu.kernels(device) for device in (0, 1)])
    tell("budgets", facts_of("shapes", 2, "replicated", {}))
    enable_determinism()
    sent = commands_of(build("tower0", devices)).of("p2p", device=0)["bytes"]
    tell("projections", int((sent == PROJECTION_BYTES).sum()))
    tell("loss_ops", {str(device): loss_ops(device) for device in ("CPU:0", "GPU:0", None)})


def tell(name, value):
    """Prints a line for the tests, which also see what is told before an error."""
    print(json.dumps({name: value}), flush=True)


if __name__ == "__main__":
    main()
