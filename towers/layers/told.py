"""The line that tells which layers run on the towers, which whole, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from towers.ground.private_apis import flatten_layers, stored_value
from towers.layers.asking import CUT, INSIDE, Answer
from towers.layers.known import Known
from towers.travel.packed_sums import send

NORMS = "BatchNormalization takes each tower's rows by themselves (synchronized=True: all)"
TABLES = "a table's repeated rows are summed (repeated_rows='keras': not)"
TOLD_BYTES = 2**20


class Asked(NamedTuple):
    """What is told of a layer that was asked.

    Attributes:
        answer: the last one.
        inner: the names of the layers in it that may be asked in its place.
        exceptions: what is otherwise than on one device.
    """

    answer: Answer
    inner: Sequence[str]
    exceptions: Sequence[str]


class Told:
    """What a scope's user is told; it keeps no layer and no variable alive.

    Attributes:
        quiet: whether nothing is printed.
        leaves_xla: whether a function was called that XLA would compile elsewhere.
        most_joined: the most bytes of outputs that a first call joined.
    """

    def __init__(self, devices: Sequence[str], repeated_rows: str):
        self.quiet = self.leaves_xla = False
        self.most_joined = 0
        self._devices, self._sums_rows = devices, repeated_rows == "sum"
        self._line, self._has_news = "", True
        self._asked: dict[str, Asked] = {}
        self._unasked: dict[str, str] = {}
        self._owned, self._used = Known(), Known()  # The sizes of variables on towers, and of all.

    def note(self, layer: Any, answer: Answer, *, trains: bool) -> None:
        """Notes how a layer is called that was asked, and what is otherwise in a training."""
        layers, exceptions = flatten_layers(layer), []
        if answer.way == CUT:
            has_table = any(isinstance(one, keras.layers.Embedding) for one in layers)
            sums_rows = self._sums_rows and (answer.looks_up or has_table)
            exceptions = list(exceptions_in(layers, sums_rows=sums_rows)) if trains else []
            note_sizes(self._owned, map(stored_value, layer.trainable_variables))
        inner = [one.name for one in layers[1:]] if answer.way == INSIDE else []
        asked = Asked(answer, inner, exceptions)
        if self._asked.get(layer.name) != asked:
            self._asked[layer.name], self._has_news = asked, True

    def note_unasked(self, layer: Any, reason: str) -> None:
        """Notes that a layer runs whole that could not be asked."""
        if layer.name not in self._unasked:
            self._unasked[layer.name], self._has_news = reason, True

    def note_used(self, variables: Iterable[tf.Variable]) -> None:
        """Notes the trainable variables that a first call read."""
        note_sizes(self._used, variables)

    def tell_why(self, name: str, reason: object) -> None:
        """Prints why only the layers of a model run on towers."""
        if not self.quiet:
            print(f"{name}: the towers run layers only, since {reason}.")

    def tell(self) -> None:
        """Prints the line, unless it is known."""
        if self._has_news:
            text, self._has_news = self.describe(), False
            if text != self._line and not self.quiet:
                print(text)
            self._line = text

    def describe(self) -> str:
        """Returns the line. A layer whose inner layers were asked is told by these."""
        ways = {
            name: "" if asked.answer.way == CUT else asked.answer.reason
            for name, asked in self._asked.items()
            if not any(inner in self._asked for inner in asked.inner)
        }
        cut = [name for name, reason in ways.items() if not reason]
        reasons = [(name, reason) for name, reason in ways.items() if reason]
        whole = [f"{name} ({reason})" for name, reason in (*reasons, *self._unasked.items())]
        parts = [f"{len(self._devices)} towers run {listed(cut) or 'no layer'}"]
        share = self._share()
        if share < 1:
            only = "only " if share < 0.5 else ""
            parts.append(f"{only}{share:.0%} of the weights that the step reads are theirs")
        if whole:
            parts.append(f"{self._devices[0]} alone runs {listed(whole)}")
        parts += dict.fromkeys(one for asked in self._asked.values() for one in asked.exceptions)
        if self.leaves_xla:
            parts.append("jit_compile is off")
        if self.most_joined >= TOLD_BYTES:
            parts.append(joined_on(self._devices[0], self.most_joined))
        return "; ".join(parts)

    def _share(self) -> float:
        """Returns how many of the numbers in trainable variables are in those on towers."""
        owned, used = self._owned.by_id(), self._used.by_id()
        return sum(owned.values()) / max(sum({**owned, **used}.values()), 1) if owned or used else 1


def exceptions_in(layers: Sequence[Any], *, sums_rows: bool) -> Iterator[str]:
    """Yields what is otherwise than on one device where such layers are cut.

    Args:
        layers: the layers.
        sums_rows: whether repeated rows of their tables are summed.
    """
    norms = [one for one in layers if isinstance(one, keras.layers.BatchNormalization)]
    if not all(one.synchronized for one in norms):
        yield NORMS
    if sums_rows:
        yield TABLES


def note_sizes(known: Known, variables: Iterable[tf.Variable]) -> None:
    """Notes how many numbers variables have."""
    for one in variables:
        known.of(one, one.shape.num_elements)


def joined_on(device: str, size: int) -> str:
    """Returns how many bytes a step joins on a device, beside the most that was in use there."""
    place = send(tf.zeros([]), device).device  # Another where there is none so named.
    peak = tf.config.experimental.get_memory_info(place)["peak"]  # 0 where it is not known.
    beside = f", where at most {peak / 1e6:,.0f} MB were in use" if peak else ""
    return f"{size / 1e6:,.0f} MB of outputs are joined on {device}{beside}"


def listed(names: Sequence[str]) -> str:
    """Returns names in a line, at most five of them."""
    shown = list(dict.fromkeys(names))
    return ", ".join([*shown[:5], *([f"{len(shown) - 5} more"] if len(shown) > 5 else [])])
