"""Fashion-MNIST with a LeNet-style CNN.

Paper:    Xiao et al. 2017, "Fashion-MNIST: a Novel Image Dataset for Benchmarking
          Machine Learning Algorithms"
Data:     towers download fashion_mnist
Command:  towers train fashion_mnist --towers 2
Expected: 92.5 % test accuracy (14 epochs) in 3 minutes on two CPU cores
"""

from __future__ import annotations

import dataclasses
import functools

from towers.scripts.recipes import mnist

RECIPE = dataclasses.replace(
    mnist.RECIPE,
    name="fashion_mnist",
    fields=mnist.Fields(
        epochs=14, learning_rate=2e-3, schedule="cosine", warmup_steps=100, dropout_rate=0.3
    ),
    data_set="fashion_mnist",
    make_data=functools.partial(mnist.make_data, name="fashion_mnist"),
)
