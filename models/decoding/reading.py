"""Reading a model's variables once, before a loop that uses them for every token."""

from __future__ import annotations

import keras
import tensorflow as tf


def read_once(model: keras.Model) -> keras.StatelessScope:
    """Returns the scope in which each variable of a model has the value that it has now.

    A loop reads a variable anew in each of its iterations: where the variable is on another device,
    the whole output projection would travel for every token. Reads in front of a loop travel once.

    Args:
        model: the model; nothing in the scope may assign its variables.
    """
    values = [(variable, tf.identity(variable.value)) for variable in model.weights]
    return keras.StatelessScope(state_mapping=values)
