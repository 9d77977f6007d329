"""The addresses and the GPUs of the processes that `towers launch` starts."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import socket
from collections.abc import Sequence

DEFAULT_PROCESSES = 2


@dataclasses.dataclass(frozen=True)
class LaunchOptions:
    """The processes to start.

    Attributes:
        command_line: `train` with its arguments, behind `--` or not.
        processes: how many here, None for one per GPU of `gpus`, or 2.
        gpus: numbers of the GPUs, which are dealt to the processes in order.
        log_dir: the folder of the logs.
        cluster: host:port of each process, of several machines.
        index: the number of this machine's address in the cluster.
    """

    command_line: tuple[str, ...] = ()
    processes: int | None = None
    gpus: tuple[int, ...] | None = None
    log_dir: str = "logs"
    cluster: tuple[str, ...] | None = None
    index: int | None = None


def choose_addresses(options: LaunchOptions) -> tuple[list[str], list[int]]:
    """Returns the addresses of all processes, and the numbers of those to start here.

    Raises:
        ValueError: the options do not say which processes, or a port cannot be used.
    """
    if options.cluster is None:
        if options.index is not None:
            raise ValueError("--index says which process of --cluster this is; give both.")
        count = options.processes or len(options.gpus or ()) or DEFAULT_PROCESSES
        return [f"127.0.0.1:{port}" for port in free_ports(count)], list(range(count))
    addresses = list(options.cluster)
    if options.processes is not None:
        raise ValueError(
            "--cluster has one process for each address, and this command starts the one of "
            f"--index: leave out --processes. Received {options.processes}."
        )
    if not addresses:
        raise ValueError("--cluster takes host:port,host:port. Received no address.")
    if options.index is None or not 0 <= options.index < len(addresses):
        raise ValueError(
            f"--index must say which of the {len(addresses)} addresses of --cluster this machine "
            f"is, from 0 to {len(addresses) - 1}. Received {options.index}."
        )
    if len(set(addresses)) < len(addresses):
        raise ValueError(
            "--cluster takes one address for each process, all different. "
            f"Received {','.join(addresses)}."
        )
    for address in addresses:
        port_of(address)
    check_free(addresses[options.index])
    return addresses, [options.index]


def port_of(address: str) -> int:
    """Returns the port of host:port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ValueError(
            f"--cluster takes host:port,host:port with ports from 1 to 65535. Received {address!r}."
        )
    return int(port)


def check_free(address: str) -> None:
    """Raises ValueError if the port of an address is in use; two processes would share it.

    An address that is not one of this machine's own, as behind a translation of addresses, passes.
    """
    host, _, port = address.rpartition(":")
    try:
        family, kind, _, _, place = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind) as one:
            # The port of an ended run may linger.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(place)
    except socket.gaierror as error:
        raise ValueError(
            f"--cluster names {host}, which this machine cannot find ({error.strerror}): write its "
            "address, or a name that every machine knows."
        ) from error
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return
        raise ValueError(
            f"Port {port} of this machine cannot be used ({error.strerror}): choose another "
            "in --cluster, the same on every machine."
        ) from error


def free_ports(count: int) -> list[int]:
    """Returns so many different ports of this machine that are not in use."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def gpu_shares(gpus: Sequence[int] | None, num_processes: int) -> list[list[str]]:
    """Returns the arguments that give each process its GPUs, in order, the same number to each."""
    if gpus is None:
        return [[] for _ in range(num_processes)]
    if min(gpus) < 0 or len(set(gpus)) != len(gpus):
        raise ValueError(
            f"--gpus takes different numbers from 0 on. Received {','.join(map(str, gpus))}."
        )
    if len(gpus) % num_processes:
        raise ValueError(
            f"--gpus must name as many GPUs for every process. Received {len(gpus)} GPUs for "
            f"{num_processes} processes."
        )
    size = len(gpus) // num_processes
    shares = [gpus[start : start + size] for start in range(0, len(gpus), size)]
    return [["--gpus", ",".join(map(str, share))] for share in shares]
