"""One of several processes of `processes_test.py`: says what it found in a JSON file."""

import json
import pathlib
import sys

from scripts.quiet import import_tensorflow_quietly

import_tensorflow_quietly()

import tensorflow as tf  # noqa: E402

import towers  # noqa: E402
from towers.processes import join_processes  # noqa: E402
from towers.trainer import StepReport, StopTraining  # noqa: E402


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


def broadcast(processes):
    """Takes the chief's values of a float and of a whole number, where others have NaN."""
    one = tf.Variable([1.5, 2.5] if processes.is_chief else [float("nan")] * 2)
    two = tf.Variable(7 if processes.is_chief else -1, dtype=tf.int64)
    processes.broadcast([one, two])
    return [one.numpy().tolist(), int(two)]


def stopping(processes):
    """The last process wants to stop in step 3; all stop after the same step."""

    def ask(report):
        if report.step == 3 and processes.index == processes.count - 1:
            raise StopTraining("enough")

    actions = processes.together([ask])
    total = tf.function(processes.sum, autograph=False)
    for step in range(1, 20):
        total([tf.zeros([])])
        report = StepReport(step, 0, False, towers.Position(), None, 0.0, [0.0])
        try:
            for action in actions:
                action(report)
        except StopTraining as stop:
            return [step, str(stop)]
    return None


def shards(processes):
    """The rows of two global batches that reach this process's two towers."""
    dataset = tf.data.Dataset.range(9).batch(5)
    return [
        [shard.batch[: shard.size].numpy().tolist() for shard in every]
        for every in processes.split(dataset, 2)
    ]


def main(path):
    towers.select_devices(2)
    processes = join_processes()
    found = {test.__name__: test(processes) for test in (sums, broadcast, stopping, shards)}
    processes.wait()
    pathlib.Path(path).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
