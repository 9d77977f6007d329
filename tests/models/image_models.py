"""What every image model has to do."""

import numpy as np
import tensorflow as tf

from towers.models.losses import classification


def count(variables):
    """Returns the number of parameters in all variables."""
    return sum(int(np.prod(variable.shape)) for variable in variables)


def check_one_step_lowers_the_loss(make_model, input_shape, *, learning_rate=0.05):
    """One step of gradient descent on six images lowers their mean loss."""
    model = make_model(input_shape, 3)
    random = np.random.default_rng(0)
    images = random.normal(size=(6, *input_shape)).astype("float32")
    shard = (tf.constant(images), tf.constant([0, 1, 2, 0, 1, 2]))
    tower_fn = classification(model, training=True)
    with tf.GradientTape() as tape:
        loss, weight, _ = tower_fn(shard)
    gradients = tape.gradient(loss, model.trainable_variables)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        variable.assign_sub(learning_rate * gradient / weight)
    assert tower_fn(shard)[0] < loss


def check_logits(model, num_classes, *, dtype="float32"):
    """The model maps two images to two rows of logits."""
    logits = model(tf.zeros([2, *model.input_shape[1:]]))
    assert logits.shape == (2, num_classes) and logits.dtype == dtype
