"""Machines meet at a coordinator, which collects their addresses and tells them to all.

Each machine sends one line of JSON, `{"node": 1, "nodes": 2, "ports": [7000]}`, and gets one back:
`{"addresses": ["10.0.0.1:7000", ...]}` once all are there, or `{"error": "..."}`. Its host is the
address from which it comes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import ipaddress
import json
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

from towers.scripts.shown import show

WAIT_SECONDS = 600.0
QUIET_SECONDS = 2.0  # Before a line about a coordinator that is missing.
POLL_SECONDS = 0.2
LINE_SECONDS = 5.0
SHORTEST_SECONDS = 0.001  # 0 would be no waiting at all.
LONGEST_LINE = 2**20
# What a connection raises that is not of one of these machines, or that has ended.
NO_LINE_OF_OURS = (OSError, ValueError, KeyError, TypeError, RecursionError)


@dataclasses.dataclass(frozen=True)
class Node:
    """A machine among those that meet.

    Attributes:
        coordinator: host:port of the machine of number 0.
        nodes: how many meet.
        number: of this one.
    """

    coordinator: str
    nodes: int
    number: int

    @property
    def place(self) -> tuple[str, int]:
        """The two parts of the coordinator's address."""
        host, _, port = self.coordinator.rpartition(":")
        return host.strip("[]"), int(port)


@dataclasses.dataclass
class Guest:
    """Another machine that has come to the coordinator.

    Attributes:
        connection: to it.
        addresses: of its processes.
    """

    connection: socket.socket
    addresses: list[str]

    @property
    def has_left(self) -> bool:
        """Whether it closed the connection."""
        try:
            ready, _, _ = select.select([self.connection], [], [], 0)
            return bool(ready) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True


def meet(
    node: Node, ports: Sequence[int], seconds: float = WAIT_SECONDS
) -> tuple[list[str], list[int]]:
    """Returns the addresses of all processes, node by node, and the numbers of those of this node.

    Args:
        node: this one.
        ports: of its processes.
        seconds: the limit.

    Raises:
        ValueError: the coordinator is not this machine, or refused it.
        TimeoutError: not all machines came.
    """
    deadline = time.monotonic() + seconds
    if node.nodes == 1:
        addresses = [f"{node.coordinator.rpartition(':')[0]}:{port}" for port in ports]
        return addresses, list(range(len(ports)))
    if node.number == 0:
        return host(node, ports, deadline), list(range(len(ports)))
    addresses, first = visit(node, ports, deadline)
    return addresses, list(range(first, first + len(ports)))


def host(node: Node, ports: Sequence[int], deadline: float) -> list[str]:
    """Waits at the coordinator's address for all other machines, tells them, and returns the same.

    Nobody is asked who they are: whoever reaches the port can take a machine's place.
    """
    own = [f"{node.coordinator.rpartition(':')[0]}:{port}" for port in ports]
    guests: dict[int, Guest] = {}
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listening(node))
        said: list[int] = []
        while len(guests) < node.nodes - 1:
            missing = [number for number in range(1, node.nodes) if number not in guests]
            if missing != said:
                names = ", ".join(map(str, missing))
                where = f"{node.coordinator}, which others reach until then"
                show(f"waiting for node {names} at {where}", flush=True)
                said = missing
            if time.monotonic() > deadline:
                raise TimeoutError(failure(f"Node {', '.join(map(str, missing))}", node))
            with contextlib.suppress(TimeoutError):
                connection, (address, *_) = listener.accept()
                welcome(node, connection, address, guests, stack)
            guests = {number: guest for number, guest in guests.items() if not guest.has_left}
        addresses = own + [one for number in sorted(guests) for one in guests[number].addresses]
        for guest in guests.values():
            first = addresses.index(guest.addresses[0])
            send(guest.connection, {"addresses": addresses, "first": first})
    return addresses


def listening(node: Node) -> socket.socket:
    """Returns a socket at the coordinator's address, and at no other."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(*node.place, type=socket.SOCK_STREAM)[0]
        warn_of_loopback(node.place[0], place[0])
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.socket(family, kind))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            listener.listen()
            listener.settimeout(POLL_SECONDS)
            stack.pop_all()
            return listener
    except (OSError, UnicodeError) as error:
        remedy = "choose another port in --coordinator, the same on every machine"
        if getattr(error, "errno", None) in (errno.EADDRNOTAVAIL, socket.EAI_NONAME):
            remedy = "give --node-rank 0 to the machine whose address it is"
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"--coordinator {node.coordinator} cannot be used on this machine ({reason}): {remedy}."
        ) from error


def warn_of_loopback(host: str, address: str | int) -> None:
    """Warns of a name that means this machine's own network alone, as Debian writes it."""
    try:
        is_loopback = ipaddress.ip_address(str(address).partition("%")[0]).is_loopback
    except ValueError:
        return
    if is_loopback and host != "localhost" and host != address:
        show(
            f"warning: {host} is {address} on this machine (/etc/hosts), where no other machine "
            "reaches it: give its address in the network",
            flush=True,
        )


def welcome(
    node: Node,
    connection: socket.socket,
    address: str,
    guests: dict[int, Guest],
    stack: contextlib.ExitStack,
) -> None:
    """Notes a machine that has come, or tells it why it cannot take part.

    Args:
        node: the coordinator.
        connection: to the machine, which `stack` closes.
        address: of the machine.
        guests: those who are there, by their number.
        stack: of what is to be closed.
    """
    stack.enter_context(connection)
    connection.settimeout(LINE_SECONDS)
    try:
        line = receive(connection)
        number, nodes, ports = line["node"], line["nodes"], line["ports"]
        if not (type(number) is int and ports and all(type(port) is int for port in ports)):
            raise TypeError("not numbers")
    except NO_LINE_OF_OURS:
        return connection.close()
    problem = ""
    if nodes != node.nodes:
        problem = f"node {number} has --nnodes {nodes}, node 0 has {node.nodes}: give all the same"
    elif not 0 < number < node.nodes:
        problem = f"--node-rank must be from 1 to {node.nodes - 1} there. Received {number}"
    elif number in guests and not guests[number].has_left:
        problem = f"another machine is node {number}: give each its own --node-rank"
    name = f"[{address}]" if ":" in address else address
    addresses = [f"{name}:{port}" for port in ports]
    for other, guest in guests.items():
        if other != number and set(guest.addresses) & set(addresses):
            problem = f"nodes {other} and {number} have the same address: start it again"
    if problem:
        return send(connection, {"error": problem})
    guests[number] = Guest(connection, addresses)
    return None


def visit(node: Node, ports: Sequence[int], deadline: float) -> tuple[list[str], int]:
    """Returns all addresses and the number of the first of this node's, from the coordinator."""
    began, said = time.monotonic(), ""
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(node.place, timeout=LINE_SECONDS) as connection:
                send(connection, {"node": node.number, "nodes": node.nodes, "ports": list(ports)})
                connection.settimeout(max(POLL_SECONDS, deadline - time.monotonic()))
                answer = receive(connection)
            if "error" not in answer:
                return list(map(str, answer["addresses"])), int(answer["first"])
        except NO_LINE_OF_OURS as error:
            reason = getattr(error, "strerror", None) or "no answer"
            if reason != said and time.monotonic() - began > QUIET_SECONDS:
                show(f"waiting for the coordinator {node.coordinator} ({reason}) ...", flush=True)
                said = reason
            time.sleep(POLL_SECONDS)
            continue
        raise ValueError(f"The coordinator {node.coordinator} refused: {answer['error']}.")
    raise TimeoutError(failure(f"The coordinator {node.coordinator}", node))


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Sends a line; a machine that has left meanwhile is missed later, by its name."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def receive(connection: socket.socket) -> dict[str, Any]:
    """Returns a line.

    Raises:
        ValueError: it is none, or too long.
        TimeoutError: it is not whole within the connection's timeout.
    """
    limit = time.monotonic() + (connection.gettimeout() or WAIT_SECONDS)
    line = b""
    while not line.endswith(b"\n") and len(line) < LONGEST_LINE:
        connection.settimeout(max(limit - time.monotonic(), SHORTEST_SECONDS))
        part = connection.recv(LONGEST_LINE - len(line))
        if not part:
            break
        line += part
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"expected an object, not {message!r}")
    return message


def failure(who: str, node: Node) -> str:
    """Returns the message about machines that did not come in time."""
    return (
        f"{who} did not come within {WAIT_SECONDS / 60:g} minutes. Start the same command with "
        f"--node-rank 0 to {node.nodes - 1} on the {node.nodes} machines, and let their firewalls "
        "pass the port of --coordinator."
    )
