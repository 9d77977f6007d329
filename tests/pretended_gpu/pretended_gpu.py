"""What a stretch of a program makes its pretended GPUs do.

with record() as log:
    step(shards, 1)
print(log.summary())

with timed(MACHINES["A100"]):  # Of machines.py: how long would it take there?
    begin = now()
    float(step(shards, 2).loss)
    print(now() - begin)
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

from tests.pretended_gpu.machines import Machine

# `enum Kind` and `Event` in src/common.h.
KINDS = (
    "launch", "gemm", "conv", "rnn", "dnn", "nccl", "h2d", "d2h", "d2d", "p2p", "memset",
    "stream_sync", "ctx_sync", "event_sync", "event_query", "event_record", "stream_wait",
    "host_func", "malloc", "host_malloc", "library",
)  # fmt: skip
DTYPE = np.dtype(
    [("kind", "i4"), ("device", "i4"), ("peer", "i4"), ("pinned", "i4"), ("bytes", "u8"),
     ("stream", "u8"), ("thread", "u8"), ("ident", "u8"), ("time", "f8"), ("issue", "f8"),
     ("begin", "f8"), ("end", "f8"), ("flops", "f8"), ("grid", "i4", 3), ("block", "i4", 3),
     ("dims", "i4", 8), ("name", "u8")]
)  # fmt: skip
KERNELS = ("launch", "gemm", "conv", "rnn", "dnn", "nccl")
WAITS = ("stream_sync", "ctx_sync", "event_sync")


class Log:
    """The commands that the host gave to its devices within a scope.

    Attributes:
        commands: structured array of `DTYPE`, in the order in which they were given. `time` is in
            seconds of the clock on the wall; `issue`, `begin` and `end` in virtual seconds, 0
            outside of `timed`.
        names: the names of kernels and calls, by the number in `commands`.
    """

    def __init__(self) -> None:
        self.commands = np.zeros(0, DTYPE)
        self.names: dict[int, str] = {}

    def of(self, *kinds: str, device: int | None = None) -> np.ndarray:
        """Returns the commands of these kinds, of one device or all."""
        numbers = [KINDS.index(kind) for kind in kinds]
        found = self.commands[np.isin(self.commands["kind"], numbers)]
        return found if device is None else found[found["device"] == device]

    def kernels(self, device: int | None = None) -> collections.Counter[str]:
        """Returns how often each kernel was launched."""
        return collections.Counter(
            self.names.get(int(name), "") for name in self.of(*KERNELS, device=device)["name"]
        )

    def peer_bytes(self, device: int | None = None) -> int:
        """Returns the bytes that a device (or all) sent to others, all-reduces included."""
        sent, reduced = self.of("p2p", device=device), self.of("nccl", device=device)
        ranks = np.maximum(reduced["dims"][:, 0], 1)
        return int(sent["bytes"].sum() + (2 * (ranks - 1) / ranks * reduced["bytes"]).sum())

    def copies_to_host(self, device: int | None = None) -> int:
        """Returns the number of copies to the host."""
        return len(self.of("d2h", device=device))

    def host_waits(self, device: int | None = None) -> int:
        """Returns how often a host thread waited for a device."""
        pageable = self.of("d2h", device=device)["pinned"] == 0
        return len(self.of(*WAITS, device=device)) + int(pageable.sum())

    def summary(self) -> str:
        """Returns a table: each kind of command, how often, its bytes, by device."""
        lines = []
        for kind in KINDS:
            found = self.of(kind)
            if len(found):
                devices = dict(sorted(collections.Counter(found["device"].tolist()).items()))
                lines.append(f"{kind:12}{len(found):7} {found['bytes'].sum():13,} bytes  {devices}")
        return "\n".join(lines)


@contextlib.contextmanager
def record() -> Iterator[Log]:
    """Records the commands within the scope; the log is filled at its end."""
    log = Log()
    library().pretended_record(1)
    try:
        yield log
    finally:
        library().pretended_record(0)
        size = library().pretended_num_events() * DTYPE.itemsize
        content = ctypes.string_at(library().pretended_events(), size)
        log.commands = np.frombuffer(content, DTYPE)
        names = {int(name) for name in np.unique(log.commands["name"]) if name}
        log.names = {name: ctypes.string_at(name).decode() for name in names}


@contextlib.contextmanager
def timed(machine: Machine) -> Iterator[None]:
    """Within the scope commands take virtual time, and the host waits for its devices."""
    numbers = dataclasses.astuple(machine)
    library().pretended_machine((ctypes.c_double * len(numbers))(*numbers), len(numbers))
    library().pretended_clock(1)
    try:
        yield
    finally:
        library().pretended_clock(0)


def now() -> float:
    """Returns the virtual time of this thread, in seconds."""
    return library().pretended_now()


@functools.cache
def library() -> ctypes.CDLL:
    """Returns the pretended CUDA of this process, which `run.sh` has brought."""
    found = ctypes.CDLL("libcuda.so.1")
    found.pretended_events.restype = ctypes.c_void_p
    found.pretended_num_events.restype = ctypes.c_long
    found.pretended_now.restype = ctypes.c_double
    return found
