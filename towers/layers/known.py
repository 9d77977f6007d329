"""What is known of objects: by identity, whatever they call equal, and for as long as they live."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

PLAIN = (bool, int, float, complex, str, bytes, slice, range, type(None))


class Known:
    """One value for each of some objects, which it does not keep alive."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Any, Any]] = {}

    def of(self, owner: Any, make: Callable[[], Any]) -> Any:
        """Returns the value of an object; makes it if there is none."""
        number, entries = id(owner), self._entries
        if number not in entries:
            gone = weakref.ref(owner, lambda _: entries.pop(number, None))
            entries[number] = (gone, make())
        return entries[number][1]

    def by_id(self) -> dict[int, Any]:
        """Returns the values by the ids of the objects, all of which live."""
        return {number: value for number, (_, value) in self._entries.items()}


class Same:
    """An object as a part of a key, equal to itself alone."""

    def __init__(self, value: Any):
        self._id = id(value)
        try:
            self._value: Callable[[], Any] = weakref.ref(value)
        except TypeError:  # It has none.
            self._value = lambda: value

    def __eq__(self, other: object) -> bool:
        value = self._value()
        return isinstance(other, Same) and value is not None and value is other._value()

    def __hash__(self) -> int:
        return self._id


def as_key(value: Any) -> Any:
    """Returns a value that is no tensor as a part of a key: 1, 1.0 and True are three."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, types.MethodType):  # Another object each time.
        return (Same(value.__func__), Same(value.__self__))
    return Same(value)
