"""What a compiled model keeps between calls: its traces, until it is compiled again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import keras

from towers.ground.private_apis import loss_tracker

Value = TypeVar("Value")
NAME = "_towers_kept"
MOST = 8  # A model that meets ever other data does not grow for ever.


def kept(model: keras.Model, key: tuple[Any, ...], make: Callable[[], Value]) -> Value:
    """Returns what `make` returned for this key the first time.

    It lives as long as a train function of Keras's: until the model is compiled again. Like one, it
    is as the model was when it was made.

    The key says what it is, and all that it depends on but the model.
    """
    tracker = loss_tracker(model)  # `compile` makes another one.
    store = vars(model).get(NAME)
    values = {} if store is None or store.tracker is not tracker else store.values
    if key not in values:
        values[key] = make()
        while len(values) > MOST:
            del values[next(iter(values))]
        vars(model)[NAME] = Store(tracker, values)  # Past Keras, which would track it.
    return values[key]


class Store:
    """What a model keeps; no container, in which Keras would look for something to save."""

    def __init__(self, tracker: Any, values: dict[tuple[Any, ...], Any]):
        self.tracker, self.values = tracker, values
