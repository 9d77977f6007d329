"""What every model of answers is asked, and how its steps answer."""

import numpy as np
import tensorflow as tf

VOCABULARY, START, END, FORBIDDEN = 30, 1, 2, (0, 1, 3)
QUESTION = np.array([[4, 9, 17, 5, 8], [6, 29, 0, 0, 0], [7, 0, 0, 0, 0]], np.int32)
ANSWER = np.array([[1, 12, 13, 4], [1, 5, 0, 0], [1, 21, 22, 0]], np.int32)


def step_by_step(model, question, answer_inputs):
    """Returns the logits of `step`, token after token, [batch, length, vocabulary]."""
    state, logits = model.start(tf.constant(question)), []
    for tokens in answer_inputs.T:
        one, state = model.step(tf.constant(tokens), state)
        logits.append(one.numpy())
    return np.stack(logits, 1)
