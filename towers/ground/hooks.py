"""Hooks: a function of a library that passes through one of ours, in one thread and for a time.

Keras and TensorFlow have no public hook around the call of a layer, of a `tf.function` or of an op
that draws random numbers.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

Handler = Callable[..., Any]  # Takes the original function, by position, and its arguments.


class Hook:
    """A function of a library that passes through a handler where the current thread has one.

    Args:
        owner: the class or module.
        name: the function's name in it.

    Attributes:
        original: the function as the library has it.
    """

    def __init__(self, owner: Any, name: str):
        self._owner, self._name = owner, name
        self._look()
        self._handler: contextvars.ContextVar[Handler | None] = contextvars.ContextVar(
            name, default=None
        )
        self._lock, self._num_scopes = threading.Lock(), 0

    @contextlib.contextmanager
    def through(self, handler: Handler | None) -> Iterator[None]:
        """The scope in which calls of this thread pass through the handler; None: as ever."""
        token = self._handler.set(handler)
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)
            self._handler.reset(token)

    def _look(self) -> None:
        self.original = getattr(self._owner, self._name)
        self._stored = inspect.getattr_static(self._owner, self._name)  # Such as a static method.

    def _count(self, change: int) -> None:
        """Replaces the function while there is a scope in any thread."""
        with self._lock:
            before, self._num_scopes = self._num_scopes, self._num_scopes + change
            if before == 0:
                self._look()  # Others may have replaced it meanwhile.
                setattr(self._owner, self._name, self._passing())
            elif self._num_scopes == 0:
                setattr(self._owner, self._name, self._stored)

    def _passing(self) -> Callable[..., Any]:
        original, handler_of = self.original, self._handler.get

        @functools.wraps(original)
        def call(*args: Any, **options: Any) -> Any:
            handler = handler_of()
            if handler is None:
                return original(*args, **options)
            return handler(original, *args, **options)

        return call
