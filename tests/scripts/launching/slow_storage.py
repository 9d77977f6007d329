"""A training on Ray whose storage takes half a second for each file."""

import os
import sys
import time

from fsspec.implementations.local import LocalFileSystem

EPOCHS = 30


class Slow(LocalFileSystem):
    """A folder that is slow to write."""

    protocol, cachable = "slow", False

    def open(self, path, mode="rb", **options):
        """Opens a file, after a while if it is to be written."""
        time.sleep(0.5 * ("w" in mode))
        return super().open(path, mode, **options)


def train_loop():
    """Trains short epochs, and prints how many copies wait as each begins."""
    import keras

    import towers.ray

    towers.processes.join_processes()
    run = towers.ray.Run()
    keras.utils.set_random_seed(3)
    waiting = []

    def note(epoch, logs):
        copies = run.folder / ".ray"
        waiting.append(len(os.listdir(copies)) if copies.exists() else 0)

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    x = keras.random.normal((8, 4))
    notes = keras.callbacks.LambdaCallback(on_epoch_begin=note)
    towers.fit(
        model, x, x[:, :2], batch_size=8, epochs=EPOCHS, run_dir=run.folder, callbacks=[run, notes]
    )
    print("waiting:", *waiting, ";")


def main():
    """Trains on two nodes; the argument is the folder of the storage."""
    import pyarrow.fs
    from ray.train import RunConfig, ScalingConfig
    from ray.train.tensorflow import TensorflowTrainer

    storage = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(Slow()))
    run_config = RunConfig(name="run", storage_path=sys.argv[1], storage_filesystem=storage)
    scaling = ScalingConfig(num_workers=2)
    TensorflowTrainer(train_loop, scaling_config=scaling, run_config=run_config).fit()
