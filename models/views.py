"""A classifier that looks at several views of each image, for evaluations."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from towers.ground.arguments import check_choice
from towers.models.precision import at_least_float32

VIEWS = ("none", "flips", "shifts")
Network = Callable[..., tf.Tensor]


def over_views(network: Network, views: str) -> Network:
    """Returns `network(images, training=False)` whose logits are means over views of each image.

    Args:
        network: maps images [batch, height, width, channels] to logits [batch, num_classes].
        views: `flips`: the image and its mirror image; `shifts`: both also a pixel further down and
            right, and up and left, with half of the weight in all (arXiv:2404.00498, section 3.5:
            six views); none.
    """
    check_choice("test_views", views, VIEWS)
    if views == "none":
        return network

    def mirrored(images: tf.Tensor) -> tf.Tensor:
        both = (network(one, training=False) for one in (images, images[:, :, ::-1]))
        return sum(map(at_least_float32, both)) / 2

    def averaged(images: tf.Tensor, training: bool = False) -> tf.Tensor:
        logits = mirrored(images)
        if views == "shifts":
            # `tf.pad` reflects no batch without images, which an exported network may be given.
            padded = tf.concat([images[:, 1:2], images, images[:, -2:-1]], 1)
            padded = tf.concat([padded[:, :, 1:2], padded, padded[:, :, -2:-1]], 2)
            shifted = mirrored(padded[:, :-2, :-2]) + mirrored(padded[:, 2:, 2:])
            logits = logits / 2 + shifted / 4
        return logits

    return averaged
