"""With determinism, what TensorFlow itself adds in an order of chance has the same bits."""

import subprocess
import sys

from tests.paths import ROOT

# The gradients of both sums are also read by a large product, which ends sooner or later than
# the third gradient is there.
PROGRAM = """
import numpy as np
import tensorflow as tf

import towers

towers.enable_determinism()
random = np.random.default_rng(0)


def normal(*shape):
    return tf.constant(random.normal(size=shape) / 10, tf.float32)


inputs = normal(32, 128)
matrices = [normal(32, 512), normal(32, 512)]
variables = [tf.Variable(normal(512, 128)), tf.Variable(normal(512, 128))]


@tf.function
def gradients(inputs):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        products = [matrix @ variable for matrix, variable in zip(matrices, variables)]
        parts = [tf.tanh(inputs + one) for one in products] + [tf.tanh(2 * tf.tanh(inputs))]
        loss = tf.add_n([tf.reduce_sum(part) for part in parts])
    return tape.gradient(loss, [inputs, *variables])


print(len({gradients(inputs)[0].numpy().tobytes() for _ in range(400)}))
"""


def test_a_tensor_that_is_used_three_times_has_the_same_gradient_in_every_run():
    command = [sys.executable, "-c", PROGRAM]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert result.returncode == 0, result.stderr[-2000:]
    assert int(result.stdout) == 1
