"""An output that begins as a unigram model."""

from __future__ import annotations

import keras
import numpy as np
from numpy.typing import ArrayLike


def predict_unigrams(bias: keras.Variable, counts: ArrayLike) -> None:
    """Sets the bias of an output projection to the logarithm of each token's share.

    A network of small weights then predicts the shares, whatever it reads (for two classes: Lin et
    al. 2017, "Focal Loss for Dense Object Detection", section 3.3). From another bias an optimizer
    with a rate for each weight, such as Adam, first makes the hidden vectors large and all alike,
    to serve as that bias, and then stacked LSTM layers learn nothing else for hundreds of updates.

    Args:
        bias: [vocabulary].
        counts: [vocabulary], how often each token is a target; one is added to each.

    Raises:
        ValueError: there are not as many counts as tokens, or one is negative or not finite.

    >>> bias = keras.Variable(np.zeros(2, "float32"))
    >>> predict_unigrams(bias, [2, 0])
    >>> np.exp(bias.numpy()).round(2).tolist()
    [0.75, 0.25]
    """
    found = np.asarray(counts, np.float64)
    if found.shape != tuple(bias.shape) or not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError(
            f"counts must be {bias.shape[0]} finite numbers of at least 0, one for each token. "
            f"Received shape {found.shape}, least {found.min(initial=0):g}."
        )
    smoothed = found + 1
    bias.assign(np.log(smoothed / smoothed.sum()))
