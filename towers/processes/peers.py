"""The peers of a process, and the wait until all of them are there.

TensorFlow waits for them too, but in C++: without a word, deaf to signals and without an end. Here
the wait speaks, ends and can be interrupted: every process listens at its own address first, and
answers there whether it has seen all others. TensorFlow begins once all have.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

WAIT_SECONDS = 600.0
QUIET_SECONDS = 2.0  # Before the first line about those that are missing.
POLL_SECONDS = 0.2
ANSWER_SECONDS = 1.0
IN_USE_SECONDS = 5.0  # Before a port that another program holds is given up.
# What a look at a process finds: nobody who listens, nobody who answers, one that waits, one that
# has seen all others, or TensorFlow's server, to which it then goes on.
ABSENT, SILENT, WAITING, READY, SERVING = b"", b"silent", b"waiting", b"ready", b"serving"
AT_ONCE = struct.pack("ii", 1, 0)  # Closes without waiting for what is on its way.
GONE_ON = (READY, SERVING)
Peer: TypeAlias = tuple[str, int]  # Host and port.


def wait_for_peers(
    addresses: Sequence[str],
    index: int,
    *,
    seconds: float = WAIT_SECONDS,
    write: Callable[[str], None] = print,
) -> None:
    """Returns once the processes at all addresses are there and have seen each other.

    Args:
        addresses: host:port of each process, the same in all of them.
        index: the number of this process.
        seconds: the limit.
        write: called with a line about those that are missing.

    Raises:
        TimeoutError: the limit is over; it names the processes that did not come, or that did not
            reach this one.
        RuntimeError: the others began without this process, which came back.
        ValueError: an address is not host:port or is there twice, or the port of this process is in
            use.
    """
    peers = [host_and_port(address) for address in addresses]
    if len(set(peers)) < len(peers):
        raise ValueError(
            f"Each process needs an address of its own. Received {', '.join(addresses)}."
        )
    states = {peer: ABSENT for peer in peers if peer != peers[index]}
    began, said = time.monotonic(), ""
    with announced(peers[index]) as presence:
        while any(state not in GONE_ON for state in states.values()):
            look_at(states)
            check_is_expected(states, presence, addresses[index])
            presence.state = READY if all(states.values()) else WAITING
            passed = time.monotonic() - began
            missing = names([peer for peer, state in states.items() if not state])
            late = names([peer for peer, state in states.items() if state not in GONE_ON])
            if passed > seconds and (missing or presence.was_asked):
                raise TimeoutError(failure(missing or late, addresses[index], seconds))
            if passed > seconds:
                raise TimeoutError(not_reached(late, addresses[index], seconds))
            if missing and missing != said and passed > QUIET_SECONDS:
                write(f"waiting for {missing}, for at most {seconds / 60:g} minutes ...")
                said = missing
            time.sleep(POLL_SECONDS)


class Presence:
    """What a process answers at its address.

    Attributes:
        state: `WAITING`, or `READY` once it has seen all others.
        was_asked: whether another process has seen this one.
    """

    def __init__(self) -> None:
        self.state = WAITING
        self.was_asked = False

    def answer(self, listener: socket.socket) -> None:
        """Answers every connection until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self.was_asked = True
                with contextlib.suppress(OSError), connection:
                    connection.sendall(self.state)


@contextlib.contextmanager
def announced(peer: Peer) -> Iterator[Presence]:
    """The scope in which this process answers at its own address; ValueError if that is in use."""
    presence = Presence()
    try:
        listener = listen(peer)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise ValueError(
            f"Port {peer[1]} of this machine is in use by another program: end that, or give "
            "all processes other addresses (a job of Slurm's gets others with its number)."
        ) from error
    thread = threading.Thread(target=presence.answer, args=[listener], daemon=True)
    thread.start()
    try:
        yield presence
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # Ends `accept`, which closing does not.
        listener.close()
        thread.join()


def listen(peer: Peer) -> socket.socket:
    """Returns a listener at an address; raises OSError if it cannot be had.

    A port that a passing connection of this machine holds is free again soon.
    """
    limit = time.monotonic() + IN_USE_SECONDS
    while True:
        try:
            return listen_now(peer)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > limit:
                raise
            time.sleep(POLL_SECONDS)


def listen_now(peer: Peer) -> socket.socket:
    """Returns a listener at an address, or at every one of this machine if it is none of these.

    So it is behind a translation of addresses, and while a new name is not known to all yet.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(*peer, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family)
    except OSError as error:
        if not isinstance(error, socket.gaierror) and error.errno != errno.EADDRNOTAVAIL:
            raise
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", peer[1]), family=family, dualstack_ipv6=both)


def look_at(states: dict[Peer, bytes]) -> None:
    """Asks every process that has not gone on; one that is gone keeps the state that it had."""
    for peer, state in states.items():
        if state not in GONE_ON:
            seen = state_of(peer)
            states[peer] = state if seen in (ABSENT, SILENT) else seen


def check_is_expected(states: dict[Peer, bytes], presence: Presence, own: str) -> None:
    """Raises RuntimeError if the others went on and have never seen this process."""
    serving = [peer for peer, state in states.items() if state == SERVING]
    if serving and not presence.was_asked:
        raise RuntimeError(
            f"{names(serving)} began with an earlier process in the place of this one, {own}. That "
            "run ends by itself, or is over: start the same command again in all processes."
        )


def state_of(peer: Peer) -> bytes:
    """Returns what a look at a process finds."""
    try:
        with socket.create_connection(peer, timeout=ANSWER_SECONDS) as connection:
            if connection.getsockname() == connection.getpeername():
                # On one machine a connection may meet itself. The port must be free at once.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                return ABSENT
            answer = connection.recv(len(WAITING))
    except ConnectionRefusedError:
        return ABSENT
    except OSError:
        return SILENT
    return answer if answer in (WAITING, READY) else SERVING if answer else SILENT


def failure(missing: str, own: str, seconds: float) -> str:
    """Returns the message about processes that did not come in time."""
    return (
        f"{missing} did not come within {seconds / 60:g} minutes. Start the same command on every "
        f"machine, and let their firewalls pass these ports; this process is {own}."
    )


def not_reached(late: str, own: str, seconds: float) -> str:
    """Returns the message of a process that sees all others, and that none of them has reached."""
    return (
        f"{late} did not reach this process at {own} within {seconds / 60:g} minutes. Give all "
        "processes an address of this machine that they reach, and let its firewall pass the port."
    )


def host_and_port(address: str) -> Peer:
    """Returns the two parts of host:port; raises ValueError if it is none."""
    host, _, port = address.rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) < 6
    if not host or not is_number or not 0 < int(port) < 2**16:
        raise ValueError(
            "The address of a process must be host:port, with a port from 1 to 65535. Received "
            f"{address!r}."
        )
    return host.strip("[]"), int(port)


def names(peers: Sequence[Peer]) -> str:
    """Returns the addresses in one text."""
    return ", ".join(f"{host}:{port}" for host, port in peers)
