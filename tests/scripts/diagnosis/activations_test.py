"""Activations are what the backward pass needs of the forward pass, at their largest moment."""

import json

import tensorflow as tf

from towers.scripts.diagnosis.activations import count
from towers.scripts.main import main


def test_what_is_kept_for_the_backward_pass_is_counted_once():
    """Two layers of 8: inputs are data, views take nothing, the weights' gradients are results."""
    kernels = [tf.Variable(tf.ones([8, 8])) for _ in range(2)]

    def loss_of(inputs):
        hidden = tf.reshape(tf.tanh(inputs @ kernels[0]), [-1, 8])
        return tf.reduce_sum(tf.tanh(hidden @ kernels[1]))

    found = count(loss_of, tf.TensorSpec([100, 8], tf.float32), kernels)
    layer = 100 * 8 * 4
    assert found["uncounted"] == 0
    assert 3 * layer <= found["peak"] <= 5 * layer
    twice = count(loss_of, tf.TensorSpec([200, 8], tf.float32), kernels)
    assert 1.9 < twice["peak"] / found["peak"] < 2.1


def test_activations_shrink_with_each_towers_share(capsys):
    peaks = {}
    for towers in ("1", "2"):
        small = ["--set", "filters=2,3", "--set", "hidden_size=4"]
        assert main(["estimate", "shapes", "--towers", towers, "--json", *small]) == 0
        peaks[towers] = json.loads(capsys.readouterr().out.splitlines()[-1])["activations"]
    assert (peaks["1"]["rows"], peaks["2"]["rows"]) == (50, 25)
    assert 1.8 < peaks["1"]["peak"] / peaks["2"]["peak"] < 2.2
