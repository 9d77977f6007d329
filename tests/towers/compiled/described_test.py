"""Models in words, by which processes and runs are compared."""

import keras
import pytest

from towers.compiled.described import plain
from towers.compiled.together import join


class Odd(keras.losses.Loss):
    def get_config(self):
        raise KeyError("missing")


def test_what_does_not_describe_itself_is_its_class_alone():
    assert plain([Odd(), keras.losses.BinaryCrossentropy(from_logits=True)]) == [
        "Odd()",
        "BinaryCrossentropy(from_logits=True)",
    ]


def test_a_process_that_is_alone_describes_nothing():
    join("same", alone=True).check(lambda: pytest.fail("It has nobody to compare with."))
