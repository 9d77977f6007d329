"""The watch over the peers of a training: names the one that has ended, or that answers no more.

TensorFlow's server answers every connection at once, in threads of its own, however busy Python is.
So a look at a peer needs no port and no protocol besides: its process has ended where nobody
listens, and is silent where nobody answers.
"""

from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from towers.processes.peers import ABSENT, READY, SERVING, WAITING, Peer, host_and_port, state_of

SILENT_SECONDS = 100.0
LOOK_SECONDS = 1.0  # Between two looks at a peer, if there are not too many for it.
SHORTEST_PAUSE = 0.02  # Seconds between two looks, whoever is looked at.
AGAIN_SECONDS = 0.2  # Before the second look at a port where nobody listens.
NAMING_SECONDS = 8.0  # For which an error waits for the name of the peer that caused it.
STAYING_SECONDS = 3.0  # So that the others see who was lost first before they lose this one.
SAME_COMMAND = "start the same command again"
NCCL_FAILED = re.compile(r"NCCL: [^.\n]+")
NCCL_REMEDY = (
    "Set NCCL_SOCKET_IFNAME to the interface that connects the machines (NCCL_DEBUG=WARN shows "
    "which one NCCL takes), or sum without NCCL by --exchange packs (exchange='packs')"
)
# One process adds something else than another. TensorFlow notices it by the type of the numbers.
MIXED = re.compile(r"Collective instance \d+ expected")
APART = (
    "The processes are at different places: some train, evaluate or predict where others do not, "
    "or have fewer batches. Call towers.fit, evaluate and predict in all of them, in the same "
    "order and with as many batches; with alone=True one works without the others."
)
# What TensorFlow's collectives raise where a peer is lost.
LOSSES = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)


class LostPeerError(RuntimeError):
    """Another process of this training has ended, or answers no more."""


class Watch:
    """Looks at all peers from a thread of its own.

    Args:
        addresses: host:port of each process.
        index: the number of this process.
        silent_seconds: how long a peer may give no answer.
        abort: called with the line about the first peer that is lost.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        index: int,
        silent_seconds: float,
        abort: Callable[[str], None],
    ):
        self._peers = {
            f"worker {number} at {address}": host_and_port(address)
            for number, address in enumerate(addresses)
            if number != index
        }
        self._heard = dict.fromkeys(self._peers, time.monotonic())
        self._silent_seconds, self._abort = silent_seconds, abort
        self._line, self._lost_at, self._is_lost = "", 0.0, threading.Event()
        threading.Thread(target=self._look, daemon=True, name="watch").start()

    def naming(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function of collectives that raises `LostPeerError` where a loss ends it.

        A RuntimeError says what NCCL needs where it fails, and where processes are apart.
        """

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except LOSSES as error:
                if MIXED.search(error.message):
                    raise RuntimeError(APART) from None
                line, of_nccl = self.find_lost(), NCCL_FAILED.search(error.message)
                if not line and not of_nccl:
                    raise
                nccl = of_nccl[0] if of_nccl else ""
            raise LostPeerError(line) if line else RuntimeError(f"{nccl}. {NCCL_REMEDY}")

        return call

    def find_lost(self) -> str:
        """Returns the line about a lost peer as soon as there is one, or an empty string."""
        if not self._is_lost.wait(NAMING_SECONDS):
            who, heard = min(self._heard.items(), key=lambda item: item[1])
            is_silent = time.monotonic() - heard > NAMING_SECONDS / 2
            return f"{who} does not answer; {SAME_COMMAND}" if is_silent else ""
        time.sleep(max(0.0, self._lost_at + STAYING_SECONDS - time.monotonic()))
        return self._line

    def _look(self) -> None:
        pause = max(LOOK_SECONDS / len(self._peers), SHORTEST_PAUSE)
        while not self._is_lost.is_set():
            for who, peer in self._peers.items():
                time.sleep(pause)
                self._look_at(who, peer)

    def _look_at(self, who: str, peer: Peer) -> None:
        state = state_of(peer)
        if state == ABSENT:
            time.sleep(AGAIN_SECONDS)
            state = state_of(peer)
        if state in (ABSENT, WAITING, READY):  # The last two are another process in its place.
            self._lose(f"{who} has ended")
        elif state == SERVING:
            self._heard[who] = time.monotonic()
        elif time.monotonic() - self._heard[who] > self._silent_seconds:
            self._lose(f"{who} has not answered for {self._silent_seconds:g} seconds")

    def _lose(self, what: str) -> None:
        if not self._is_lost.is_set():
            self._line, self._lost_at = f"{what}; {SAME_COMMAND}", time.monotonic()
            self._is_lost.set()
            self._abort(self._line)
