"""Counts how often an output projection on the CPU travels to a GPU in a loop over tokens."""

import json

import keras
import tensorflow as tf

from tests.pretended_gpu.pretended_gpu import record
from towers.models.decoding import read_once
from towers.models.text_layers import Projection

VOCABULARY, HIDDEN, TOKENS = 5000, 16, 8
PROJECTION_BYTES = 4 * VOCABULARY * HIDDEN


def main():
    with tf.device("/CPU:0"):
        inputs = keras.Input((HIDDEN,))
        projection = Projection(VOCABULARY, HIDDEN, None)
        model = keras.Model(inputs, projection(inputs))

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([3, HIDDEN])])
    def say(hidden):
        with read_once(model):
            return tf.while_loop(
                lambda index, _: index < TOKENS,
                lambda index, hidden: (index + 1, model(hidden)[:, :HIDDEN]),
                [tf.constant(0), hidden],
            )

    say(tf.ones([3, HIDDEN]))
    with record() as log:
        say(tf.ones([3, HIDDEN]))
    travelled = int((log.of("h2d")["bytes"] == PROJECTION_BYTES).sum())
    print(json.dumps({"products": len(log.of("gemm")), "travelled": travelled}), flush=True)


if __name__ == "__main__":
    main()
