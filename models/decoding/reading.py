"""Reading a model's variables once, before a loop that uses them for every token."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import keras
import tensorflow as tf

from towers.models.hoisted_products import without_gradients


@contextlib.contextmanager
def read_once(model: keras.Model) -> Iterator[None]:
    """The scope of decoding, in which each variable of a model has the value that it has now.

    A loop reads a variable anew in each of its iterations: where the variable is on another device,
    the whole output projection would travel for every token. Reads in front of a loop travel once.

    Args:
        model: the model; nothing in the scope may assign its variables, or be differentiated.
    """
    values = [(variable, tf.identity(variable.value)) for variable in model.weights]
    with without_gradients(), keras.StatelessScope(state_mapping=values):
        yield
