"""Copies are compared bit by bit, whatever their type."""

import keras
import numpy as np
import pytest

from towers.variables.comparison import same_bits

VALUES = {
    "float32": ([1.0, np.nan], [1.0, -np.nan]),
    "float16": ([0.0, 1.0], [-0.0, 1.0]),
    "bfloat16": ([1.0, 2.0], [1.0, 2.5]),
    "float64": ([0.0, 1.0], [0.0, np.nextafter(1.0, 2.0)]),
    "int32": ([1, 2], [1, 3]),
    "int64": ([1, 2**40], [1, 2**40 + 1]),
    "uint8": ([1, 2], [1, 3]),
    "bool": ([True, False], [True, True]),
}


@pytest.mark.parametrize("dtype", VALUES)
def test_copies_are_the_same_only_if_all_their_bits_are(dtype):
    value, other = VALUES[dtype]

    def make(content):
        return keras.Variable(np.asarray(content), dtype=dtype, trainable=False)

    assert same_bits([make(value), make(other)], [[make(value), make(other)]] * 2, "/CPU:1")
    assert not same_bits([make(value)], [[make(value)], [make(other)]], "/CPU:1")


def test_nothing_is_the_same_as_nothing():
    assert same_bits([], [[], []], "/CPU:0")
