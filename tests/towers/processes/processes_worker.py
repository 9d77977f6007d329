"""One of several processes of `processes_test.py`: says what it found in a JSON file."""

import json
import os

import keras
import numpy as np
import tensorflow as tf

import towers
from tests import helpers
from tests.programs import wait_until
from towers import StopTraining
from towers.processes.processes import join_processes
from towers.step.tracing import checked_once, trace

NUM_TOWERS = 4  # Of all processes together.
SIZES = [16, 13, 9, 3]
CASES = {
    "sparse_clipped": {"clip_norm": 0.05, "accumulate": 2},
    "norm_mean": {"batch_norm": "mean"},
    "norm_first": {"batch_norm": "first"},
    "dropout": {},
    "sparse_collective": {"clip_norm": 0.05, "accumulate": 2, "parameters": "nccl"},
}


def sums(processes):
    """Sums dense tensors of two dtypes, repeated sparse rows and nothing, in one graph."""
    own = processes.index + 1.0

    @tf.function(autograph=False)
    def total():
        with tf.device("/CPU:1"):
            rows = tf.constant([[own, own], [own, own]])
            slices = tf.IndexedSlices(rows, tf.constant([processes.index, 2]), tf.constant([4, 2]))
            nest = {
                "matrix": tf.fill([2, 3], own),
                "scalar": tf.constant(own, tf.float64),
                "rows": slices,
                "none": None,
            }
        return processes.sum(nest)

    for _ in range(3):  # Collectives must not mix up calls.
        summed = total()
    order = tf.argsort(summed["rows"].indices)
    return {
        "matrix": summed["matrix"].numpy().tolist(),
        "scalar": float(summed["scalar"]),
        "indices": tf.gather(summed["rows"].indices, order).numpy().tolist(),
        "values": tf.gather(summed["rows"].values, order).numpy().tolist(),
        "none": summed["none"] is None,
    }


def shapes(processes):
    """Sums of vectors whose lengths, new or known, differ from process to process."""
    spec = tf.TensorSpec([None])
    traced = trace(lambda vector: processes.sum([tf.reduce_sum(vector)])[0], "/CPU:0", spec)
    total = checked_once(traced, spec)
    lengths = [2, 2, 2 + processes.index, 2, 2]
    return [float(total(tf.ones([length]))) for length in lengths]


def broadcast(processes):
    """Takes the chief's values of all kinds of numbers, where others have NaN."""
    one = tf.Variable([1.5, 2.5] if processes.is_chief else [float("nan")] * 2)
    two = tf.Variable(7 if processes.is_chief else -1, dtype=tf.int64)
    three = tf.Variable([processes.is_chief, False])
    four = tf.Variable(2**32 - 1 if processes.is_chief else 5, dtype=tf.uint32)
    processes.broadcast([one, two, three, four])
    return [one.numpy().tolist(), int(two), three.numpy().tolist(), int(four.numpy())]


def stopping(processes):
    """The last process wants to stop in step 3; all stop after the same step, and then go on."""

    def ask(report):
        if report.step == 3 and processes.index == processes.count - 1:
            raise StopTraining("enough")

    placement, model = towers.Placement(own_devices(processes)), helpers.dense_model()
    batches = helpers.dataset_of(helpers.dense_batches([8] * 9))
    step = towers.build_train_step(
        helpers.classify(model), model, keras.optimizers.SGD(0.1), placement, batches,
        processes=processes,
    )  # fmt: skip
    trainer = towers.Trainer(step, batches, [ask])
    ends = [(trainer.train(steps=steps), trainer.position.step) for steps in (9, 6)]
    return [list(end) for end in ends]


def shards(processes):
    """The rows of two global batches that reach this process's towers."""
    dataset = tf.data.Dataset.range(9).batch(5)
    return [
        [shard.batch[: shard.size].numpy().tolist() for shard in every]
        for every in processes.split(dataset, len(own_devices(processes)))
    ]


def training(processes, cases):
    """Trains these cases on this process's share of four towers; weights, losses and norms."""
    found = {}
    devices = own_devices(processes)
    for name in cases:
        with helpers.tower_placement(len(devices), CASES[name].get("parameters", "auto")).scope():
            tower_fn, model, batches = make_case(name)
        dataset = helpers.dataset_of(batches)
        step = helpers.build_step_for(
            tower_fn,
            model,
            keras.optimizers.Adam(0.01),
            dataset,
            len(devices),
            processes=processes,
            **CASES[name],
        )
        results = [step(s, n) for n, s in enumerate(processes.split(dataset, len(devices)), 1)]
        found[name] = {
            "weights": [weight.tolist() for weight in helpers.weights_of(model)],
            "losses": [float(result.loss) for result in results],
            "norms": [float(result.gradient_norm) for result in results],
        }
    return found


def evaluation(processes):
    """The means over batches of a data set, and of rows that each process reads for itself."""
    devices, batches = own_devices(processes), helpers.dense_batches(SIZES)
    with helpers.tower_placement(len(devices)).scope():
        keras.utils.set_random_seed(3)
        model = helpers.dense_model()
    rows = tuple(np.concatenate(parts) for parts in zip(*batches, strict=True))
    step = towers.build_evaluation_step(
        helpers.classify(model),
        model,
        helpers.tower_placement(len(devices)),
        helpers.dataset_of(batches),
        processes=processes,
    )
    sources = helpers.dataset_of(batches), towers.batches_from(rows, 7)
    return [towers.evaluate_step(step, source) for source in sources]


def other_evaluations(processes):
    """What is said if the last process has fewer batches, and if it has other weights."""
    differs, said = processes.index == processes.count - 1, []
    placement = towers.Placement(own_devices(processes))
    for sizes, scale in (SIZES[:-1], 1.0), (SIZES, 2.0):
        keras.utils.set_random_seed(3)
        with placement.scope():
            model = helpers.dense_model()
        if differs:
            model.set_weights([weight * scale for weight in model.get_weights()])
        batches = helpers.dataset_of(helpers.dense_batches(sizes if differs else SIZES))
        step = towers.build_evaluation_step(
            helpers.classify(model), model, placement, batches, processes=processes
        )
        try:
            towers.evaluate_step(step, batches)
        except (RuntimeError, ValueError) as error:
            said.append(str(error))
    return said


def trainers(processes):
    """Trains from other first weights in each process, and with what no process may have alone.

    Returns the weights, and what is said of a difference of the last process.
    """
    differs, said = processes.count > 1 and processes.index == processes.count - 1, []
    rows = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
    ids = np.arange(16, dtype="int32") % 3

    def train(first_weights=0, labels=ids, epochs=1, shuffle_seed=0, **options):
        placement = towers.Placement(own_devices(processes))
        keras.utils.set_random_seed(first_weights)
        with placement.scope():
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        batches = towers.batches_from((rows, labels), 8, shuffle=True, seed=shuffle_seed)
        step = towers.build_train_step(
            helpers.classify(model), model, keras.optimizers.SGD(0.5), placement, batches,
            towers.StepOptions(**options), processes,
        )  # fmt: skip
        towers.Trainer(step, batches).train(epochs=epochs)
        return [weight.tolist() for weight in helpers.weights_of(model)]

    for other in (
        {"labels": ids[::-1]},
        {"epochs": 2},
        {"shuffle_seed": 1},
        {"seed": 1},
        {"steps_per_call": 2},
    ):
        try:
            train(**(other if differs else {}))
        except ValueError as error:
            said.append(str(error))
    return {"weights": train(first_weights=processes.index), "said": said}


def own_devices(processes):
    return helpers.tower_devices(NUM_TOWERS // processes.count)


def make_case(name):
    """Returns (tower function, model, batches), the same in every process."""
    keras.utils.set_random_seed(3)
    if name.startswith("sparse"):
        token_ids = keras.Input((None,), dtype="int32")
        rows = helpers.LookupTable(name="table")(token_ids)
        model = keras.Model(token_ids, keras.layers.Dense(helpers.NUM_CLASSES)(rows))
        return helpers.tag(model), model, helpers.token_batches(SIZES)
    inputs = keras.Input((5,))
    x = keras.layers.BatchNormalization(name="norm")(inputs)
    x = keras.layers.Dropout(0.5 if name == "dropout" else 0.0, seed=7)(x)
    model = keras.Model(inputs, keras.layers.Dense(3, name="logits")(x))
    return helpers.classify(model, training=True), model, helpers.dense_batches(SIZES)


def find_out(config, path, cases):
    """Joins the processes of a `TF_CONFIG` and writes what this one finds into a file."""
    os.environ["TF_CONFIG"] = config
    towers.select_devices(2)  # CPU 0 for the parameters, and two for towers.
    processes = join_processes()
    tests = (sums, shapes, broadcast, stopping, shards, evaluation, other_evaluations, trainers)
    found = {test.__name__: test(processes) for test in tests}
    found["training"] = training(processes, cases)
    processes.wait()
    path.write_text(json.dumps(found))


def join_and_wait(config, folder):
    """Joins the processes of a `TF_CONFIG`, says so, and ends once all were sent a signal."""
    os.environ["TF_CONFIG"] = config
    towers.select_devices(1)
    processes = join_processes()
    (folder / f"joined-{processes.index}").touch()
    wait_until((folder / "sent").exists, "the signal")
