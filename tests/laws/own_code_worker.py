"""Trains a model with a step of its own in a run directory; it may kill itself meanwhile.

python -m tests.laws.own_code_worker FOLDER EPOCHS [EPOCH BATCH]: prints its weights and History.
"""

import json
import os
import signal
import sys

import keras
import numpy as np
import tensorflow as tf

import towers

X = np.random.default_rng(8).normal(size=(22, 4)).astype("float32")


class Own(keras.Model):
    """Two optimizers, and noise from Keras's generator."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = keras.layers.Dense(3, "tanh"), keras.layers.Dense(4)
        self.dropout = keras.layers.Dropout(0.3)
        self.of_encoder = keras.optimizers.Adam(0.01)

    def call(self, inputs, training=False):
        return self.decoder(self.dropout(self.encoder(inputs), training=training))

    def train_step(self, x):
        noisy = x + 0.1 * keras.random.normal(tf.shape(x))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(noisy, training=True) - x) ** 2)
        weights = self.trainable_variables
        gradients = tape.gradient(loss, weights)
        self.of_encoder.apply(gradients[:2], weights[:2])
        self.optimizer.apply(gradients[2:], weights[2:])
        return {"loss": loss}


def main():
    folder, epochs, *when = sys.argv[1:]
    towers.select_devices(2)
    keras.utils.set_random_seed(1)
    model, epoch = Own(), [0]

    def begin(number, logs=None):
        epoch[0] = number

    def step(number, logs=None):
        if when == [str(epoch[0]), str(number)]:
            os.kill(os.getpid(), signal.SIGKILL)

    model.compile(keras.optimizers.RMSprop(0.01))
    killing = keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_train_batch_end=step)
    options = {"batch_size": 8, "verbose": 0, "seed": 3, "towers": 2, "callbacks": [killing]}
    history = towers.fit(model, X, epochs=int(epochs), run_dir=folder, **options)
    weights = [one.numpy().tobytes().hex() for one in model.variables]
    print(json.dumps([history.epoch, history.history, weights]), flush=True)


if __name__ == "__main__":
    main()
