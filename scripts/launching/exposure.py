"""Who can reach the processes of a launch: the first line says it; nobody, if it can be helped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from towers.scripts.launching.addresses import port_of
from towers.scripts.launching.private_network import private_network
from towers.scripts.shown import show

PRIVATE = "the processes talk in a network of their own, which nothing outside reaches"
OPEN = (
    "warning: port {ports} will be open on every address of this machine{why}, and TensorFlow's "
    "server lets anyone who reaches it read and write files as you: {remedy}"
)
LOCAL_REMEDY = "close it by a firewall, or train in one process with --towers N"
CLUSTER_REMEDY = "let the machines alone reach it (a private network, a firewall, WireGuard)"


@contextlib.contextmanager
def closed_network(addresses: Sequence[str]) -> Iterator[Sequence[int]]:
    """The scope of the network of processes that are all here, as descriptors to enter it.

    Prints that it is theirs alone; where the system gives none, which ports will be open.

    Args:
        addresses: of the processes.
    """
    with contextlib.ExitStack() as stack:
        network: Sequence[int] = ()
        try:
            network = stack.enter_context(private_network())
            show(PRIVATE, flush=True)
        except OSError as error:
            why = f" (this system gives no network of its own: {error})"
            text = OPEN.format(ports=ports(addresses), why=why, remedy=LOCAL_REMEDY)
            show(text, flush=True, colour="yellow")
        yield network


def warn_of_open_ports(addresses: Sequence[str]) -> None:
    """Prints what others reach once the process of these addresses run here."""
    text = OPEN.format(ports=ports(addresses), why="", remedy=CLUSTER_REMEDY)
    show(text, flush=True, colour="yellow")


def ports(addresses: Sequence[str]) -> str:
    """Returns the ports of addresses, in words."""
    return ", ".join(str(port_of(address)) for address in addresses)
