"""CIFAR-10 with the network and the distortions of the TensorFlow tutorial.

Source:   the TensorFlow CIFAR-10 tutorial (cifar10.py), after Krizhevsky 2009
Data:     towers download cifar10
Command:  towers train cifar10_tutorial --towers 2
Expected: 66.2 % test accuracy (best of 20 tests) with 10,000 images, pixels after JPEG, in
          3 minutes on two CPU cores; the tutorial states about 86 % after 100,000 updates on all
          images
"""

from __future__ import annotations

import dataclasses

from towers.scripts.recipes import cifar10

RECIPE = dataclasses.replace(
    cifar10.RECIPE,
    name="cifar10_tutorial",
    fields=cifar10.Fields(
        network="tutorial",
        test_views="none",
        weight_decay=0.004,
        epochs=40,
        schedule="cosine",
        warmup_steps=100,
    ),
)
