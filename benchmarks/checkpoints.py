"""Saving and restoring a model with Adam: towers beside `tf.train.Checkpoint`, which syncs nothing.

    python -m benchmarks.checkpoints --millions 51

Prints how long a training is blocked by a save, how long the file takes, and what memory it takes.
"""

from __future__ import annotations

import functools
import tempfile
import threading
import time
from collections.abc import Callable, Sequence

import towers

import keras  # isort: skip
import numpy as np
import tensorflow as tf

from towers.ground.random_numbers import generator
from towers.scripts.options.flags import Parser, reader
from towers.scripts.options.setting import Amount, Count, setting_of
from towers.scripts.timing.input_report import resident_bytes

ROWS, COLUMNS = 1000, 1700


class Memory:
    """The most memory of this process within a scope, beyond what it had, in MB."""

    def __enter__(self) -> Memory:
        self._before = self._most = resident_bytes()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.002):
            self._most = max(self._most, resident_bytes())

    @property
    def most(self) -> float:
        """As of the class."""
        return (self._most - self._before) / 1e6


def seconds(act: Callable[[], object]) -> float:
    """Returns how long a call takes."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints a line each, and returns 0."""
    parser = Parser(prog="python -m benchmarks.checkpoints", description=__doc__)
    parser.add_argument(
        "--millions", type=reader(setting_of(Amount)), default=51.0, help="parameters of the model"
    )
    parser.add_argument(
        "--repeat", type=reader(setting_of(Count)), default=3, help="the best of so many is printed"
    )
    options = parser.parse_args(arguments)
    number = max(1, round(options.millions * 1e6 / ROWS / COLUMNS))
    random = generator(seed=0)
    weights = [
        keras.Variable(random.random((ROWS, COLUMNS), np.float32), name=f"weight_{index}")
        for index in range(number)
    ]
    optimizer = keras.optimizers.Adam()
    optimizer.build(weights)
    groups = {"variables": weights, "optimizer": optimizer.variables}
    gradients = [tf.ones([ROWS, COLUMNS])] * number
    update = tf.function(lambda: optimizer.apply(gradients, weights))
    for _ in range(2):
        update()
    megabytes = 3 * number * ROWS * COLUMNS * 4 / 1e6
    print(f"{number * ROWS * COLUMNS / 1e6:.1f} million parameters with Adam, {megabytes:.0f} MB")

    with tempfile.TemporaryDirectory() as name:
        folder = towers.checkpoints.CheckpointFolder(name, keep=1)
        rounds = []
        for step in range(1, options.repeat + 1):
            alone = seconds(update)
            with Memory() as memory:
                blocked = seconds(functools.partial(folder.save, step, groups, {}, wait=False))
                slower = seconds(update) - alone
                written = seconds(folder.wait)
            rounds.append((blocked + max(0.0, slower), blocked + written, memory.most))
        blocked = min(one[0] for one in rounds)
        written = min(one[1] for one in rounds)
        most = max(one[2] for one in rounds)
        times = f"blocked {blocked:.2f} s, on the disk after {written:.2f} s"
        print(f"towers save: {times}, +{most:.0f} MB")

        def restore() -> None:
            newest = folder.latest()
            if newest is not None:
                towers.checkpoints.restore(newest, groups)

        with Memory() as memory:
            took = min(seconds(restore) for _ in range(options.repeat))
        print(f"towers restore: {took:.2f} s, +{memory.most:.0f} MB")

        keras_values = [one.value for group in groups.values() for one in group]
        checkpoint, path = tf.train.Checkpoint(values=keras_values), f"{name}/tensorflow"
        saves = [seconds(lambda: checkpoint.write(path)) for _ in range(options.repeat)]
        reads = [seconds(lambda: checkpoint.read(path)) for _ in range(options.repeat)]
        print(f"tf.train.Checkpoint: save {min(saves):.2f} s, restore {min(reads):.2f} s")
    return 0


if __name__ == "__main__":
    main()
