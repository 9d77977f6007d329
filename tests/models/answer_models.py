"""How the steps of every model of answers answer."""

import numpy as np
import tensorflow as tf


def step_by_step(model, question, answer_inputs):
    """Returns the logits of `step`, token after token, [batch, length, vocabulary]."""
    state, logits = model.start(tf.constant(question)), []
    for tokens in answer_inputs.T:
        one, state = model.step(tf.constant(tokens), state)
        logits.append(one.numpy())
    return np.stack(logits, 1)
