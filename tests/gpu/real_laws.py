"""Laws 1 to 5 on the devices of this machine, where tests have virtual or pretended ones.

python -m tests.gpu.real_laws 2
"""

from __future__ import annotations

import re
import sys
from typing import Any, NamedTuple

import towers

import keras  # isort: skip
import numpy as np
import tensorflow as tf

from towers.devices.op_devices import record_placed_nodes, short_device
from towers.ground.random_numbers import generator

ROWS, WIDTH, CLASSES, STEPS, BATCH = 4001, 24, 5, 4, 37  # No number of towers divides the batch.
CLIP_NORM = 0.05  # Every step is clipped.
TRAVEL = ("_Send", "_Recv", "_HostSend", "_HostRecv")
BOUND = 1e-5  # Of the largest weight; on CPUs rounding stays below 1e-6.
LAYERS = re.compile(r"(^|/)tower_(\d+)/.*(MatMul|Tanh)")


class Law(NamedTuple):
    """What was found about a law: whether it holds, and in words."""

    name: str
    holds: bool
    found: str


def laws_on(number: int) -> list[Law]:
    """Returns what was found on so many towers."""
    devices = towers.select_devices(number, tf32=False).towers
    *batches, last = make_batches()
    one, _ = train(devices[:1], batches)
    with record_placed_nodes() as nodes:
        several, step = train(devices, batches)
    plain, change = plain_loop(batches), difference(one, several)
    clipped = difference(plain, several)
    tables = [
        op.name
        for op in step.graph.get_operations()
        if op.name.startswith("tower_")
        and any(tensor.shape == (ROWS, WIDTH) for tensor in op.outputs)
    ]
    found = [(LAYERS.search(node.name), device) for node, device in nodes if node.op not in TRAVEL]
    placed = [(short_device(devices[int(one[2])]), device) for one, device in found if one]
    strangers = [device for own, device in placed if device != own]
    before = [variable.numpy() for variable in step.groups()["variables"]]
    results = step(*shards(last, devices), STEPS + 1)
    after = [variable.numpy() for variable in step.groups()["variables"]]
    same = all(np.array_equal(*pair) for pair in zip(before, after, strict=True))
    return [
        Law(f"1: {number} towers and one end with the same weights", change < BOUND, f"{change:g}"),
        Law("2: as a plain loop that clips the average", clipped < BOUND, f"{clipped:g}"),
        Law("3: no tensor of a tower is as large as the table", not tables, f"{tables[:3]}"),
        Law(
            "4: each tower's layers ran on its device",
            len(placed) > number and not strangers,
            f"{len(placed)} ops, elsewhere: {sorted(set(strangers))}",
        ),
        Law("5: a NaN changes nothing", same and not bool(results.finite), f"same: {same}"),
    ]


def make_batches() -> list[tuple[np.ndarray, ...]]:
    """Returns batches of (words, labels, scale of the loss); that of the last one is NaN."""
    random = generator(seed=0)
    words = random.integers(0, ROWS, (STEPS + 1, BATCH, 7)).astype("int32")
    labels = random.integers(0, CLASSES, (STEPS + 1, BATCH)).astype("int32")
    scales = np.ones((STEPS + 1, BATCH), np.float32)
    scales[-1] = np.nan
    return list(zip(words, labels, scales, strict=True))


class Table(keras.layers.Layer):
    """A table of which rows are looked up, which stays where it is."""

    def build(self, input_shape: Any = None) -> None:
        """Makes the table."""
        self.table = self.add_weight(shape=(ROWS, WIDTH), initializer="uniform", name="table")

    def call(self, words: Any) -> Any:
        """Returns the rows."""
        return tf.gather(self.table.value, words)


def make_model() -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """Returns the model, with the same values each time, and its optimizer."""
    keras.utils.set_random_seed(3)
    layers = keras.layers
    dense = [layers.Dense(32, activation="tanh"), layers.Dense(CLASSES)]
    model = keras.Sequential(
        [keras.Input([7], dtype="int32"), Table(), layers.GlobalAveragePooling1D(), *dense]
    )
    return model, keras.optimizers.SGD(5.0)


def losses_of(model: keras.Model, batch: Any) -> tf.Tensor:
    """Returns the loss of each row."""
    words, labels, scales = batch
    logits = model(words, training=True)
    return scales * tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def train(devices: Any, batches: list[Any]) -> tuple[list[np.ndarray], towers.engine.TrainStep]:
    """Returns the weights after all batches, and the step."""
    placement = towers.Placement(devices)
    with placement.scope():
        model, optimizer = make_model()

    def tower_fn(batch: Any) -> tuple[Any, Any, dict[str, Any]]:
        losses = losses_of(model, batch)
        return tf.reduce_sum(losses), tf.cast(tf.size(losses), losses.dtype), {}

    dataset = tf.data.Dataset.from_tensors(batches[0])
    options = towers.StepOptions(clip_norm=CLIP_NORM, probe=False)
    step = towers.build_train_step(tower_fn, model, optimizer, placement, dataset, options)
    for number, batch in enumerate(batches, 1):
        step(*shards(batch, devices), number)
    return [weight.numpy() for weight in model.trainable_variables], step


def shards(batch: Any, devices: Any) -> tuple[Any]:
    """Returns the one argument that a step takes for a batch."""
    return (towers.engine.split_batch(tuple(map(tf.constant, batch)), len(devices)),)


def plain_loop(batches: list[Any]) -> list[np.ndarray]:
    """Returns the weights after all batches, by a loop as a user writes it."""
    model, optimizer = make_model()
    for batch in batches:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(losses_of(model, batch))
        found = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
        found = [tf.convert_to_tensor(one) for one in found]  # Repeated rows are summed.
        clipped, _ = tf.clip_by_global_norm(found, CLIP_NORM)
        optimizer.apply(clipped, model.trainable_variables)
    return [weight.numpy() for weight in model.trainable_variables]


def difference(first: list[np.ndarray], second: list[np.ndarray]) -> float:
    """Returns the largest difference, as a part of the largest weight."""
    largest = max(abs(one).max() for one in first)
    return float(max(abs(a - b).max() for a, b in zip(first, second, strict=True)) / largest)


def main() -> int:
    """Prints a line for each law; returns how many do not hold."""
    laws = laws_on(int(sys.argv[1]))
    for law in laws:
        print(f"{'ok' if law.holds else 'WRONG'} | {law.name} | {law.found}")
    return sum(not law.holds for law in laws)


if __name__ == "__main__":
    sys.exit(main())
