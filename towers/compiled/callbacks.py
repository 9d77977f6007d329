"""The callbacks of a training, an evaluation or a prediction, as Keras makes them."""

from __future__ import annotations

from typing import Any

import keras


def callback_list(
    model: keras.Model,
    callbacks: Any,
    verbose: Any,
    steps: int | None,
    epochs: int = 1,
    *,
    history: bool = False,
) -> keras.callbacks.CallbackList:
    """Returns the callbacks with a progress bar; a list that is one already as it is.

    Args:
        model: the model that they may change.
        callbacks, verbose: as in `keras.Model.fit`.
        steps: the number of batches in an epoch; None if it is unknown.
        epochs: the number of epochs.
        history: whether a `keras.callbacks.History` is among them.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    return keras.callbacks.CallbackList(
        callbacks,
        add_history=history,
        add_progbar=verbose != 0,
        verbose=verbose,
        epochs=epochs,
        steps=steps,
        model=model,
    )
