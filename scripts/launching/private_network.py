"""A network of their own for the processes of a local launch, which nothing else can reach.

TensorFlow's server listens on all interfaces and authenticates nobody: whoever reaches it reads
and writes files as the user. A network namespace has only a loopback of its own
(`man 7 network_namespaces`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

CLONE_NEWNET = 0x40000000
CLONE_NEWUSER = 0x10000000
SIOCSIFFLAGS = 0x8914  # netdevice(7)
IFF_UP = 1
READY = "ready"
READY_SECONDS = 30.0
KEEPER = (
    "import sys; sys.path[:] = {!r}; "
    "from towers.scripts.launching.private_network import keep; keep()"
)


@contextlib.contextmanager
def private_network() -> Iterator[tuple[int, ...]]:
    """The scope of a new network; yields the open descriptors that `enter_network` takes.

    The network lives as long as a descriptor or a process in it.

    Raises:
        OSError: the system gives none; the message says why.
    """
    with contextlib.ExitStack() as stack:
        with keeper() as process_id:
            own, other = (f"/proc/{one}/ns/" for one in ("self", process_id))
            # The user namespace first: it permits to enter the other.
            names = [
                name for name in ("user", "net") if not os.path.samefile(own + name, other + name)
            ]
            descriptors = tuple(os.open(other + name, os.O_RDONLY) for name in names)
        for descriptor in descriptors:
            stack.callback(os.close, descriptor)
        yield descriptors


@contextlib.contextmanager
def keeper() -> Iterator[int]:
    """The scope of a process that is in a new network; yields its id."""
    paths = [os.path.abspath(entry) for entry in sys.path]
    command = [sys.executable, "-c", KEEPER.format(paths)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield started(process)
        finally:
            process.kill()


def started(process: subprocess.Popen[str]) -> int:
    """Returns the id of a keeper that is ready; raises OSError if it cannot be."""
    if process.stdout is None or not select.select([process.stdout], [], [], READY_SECONDS)[0]:
        raise OSError("no answer")
    answer = process.stdout.readline().strip()
    if answer != READY:
        raise OSError(answer or "it failed")
    return process.pid


def keep() -> NoReturn:
    """Goes into a new network, says so or why not, and stays until its end."""
    try:
        open_network()
        print(READY, flush=True)
    except OSError as error:
        print(error.strerror or error, flush=True)
        sys.exit(1)
    sys.stdin.read()
    sys.exit(0)


def open_network() -> None:
    """Moves this process, of one thread, into a new network whose loopback is up."""
    try:
        call("unshare", CLONE_NEWNET)  # For root: in a user namespace it would lose its rights.
    except PermissionError:
        user, group = os.getuid(), os.getgid()
        call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
        numbers = {
            "setgroups": "deny",
            "uid_map": f"{user} {user} 1",
            "gid_map": f"{group} {group} 1",
        }
        for name, text in numbers.items():
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    import fcntl  # Not on every system.

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def enter_network(descriptors: Sequence[int]) -> None:
    """Moves this process, of one thread, into the network of `private_network`."""
    for descriptor in descriptors:
        call("setns", descriptor, 0)
        os.close(descriptor)


def call(name: str, *arguments: int) -> None:
    """Calls a function of the C library; raises OSError as it fails, or if there is none."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        raise OSError(f"this system has no {name}()")
    if function(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
