"""The addresses and the GPUs of the processes that `towers launch` starts."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from towers.scripts.launching.rendezvous import Node, meet, warn_of_loopback
from towers.scripts.launching.schedulers import Place, check_is_task, scheduled_place
from towers.scripts.options.setting import AT_LEAST_1, Flag, Folder, Numbers, Parts, at_most
from towers.scripts.shown import show

DEFAULT_PROCESSES = 2
DEVICES = Path("/dev")


@dataclasses.dataclass(frozen=True)
class LaunchOptions:
    """The processes to start.

    Attributes:
        command_line: `train` with its arguments, the same on every machine.
        processes: number of processes on this machine (default: one per GPU of --gpus, or 2).
        gpus: GPUs to deal to the processes, in order (default: all).
        log_dir: folder of worker.0.log, ...
        cluster: several machines, a process on each (default: this one).
        index: position of this machine's address in --cluster, from 0 (default: none).
        nnodes: number of machines that meet at --coordinator, each with its processes (default:
            this one).
        node_rank: number of this machine among them, from 0 (default: none).
        coordinator: an address of machine 0, the same on all (default: none).
        port: first port of a Slurm job's processes (default: by the job's number).
    """

    command_line: Annotated[
        tuple[str, ...], "-- train ...", Flag(is_argument=True, nargs="...")
    ] = ()
    processes: Parts | None = None
    gpus: Annotated[Numbers | None, "LIST"] = None
    log_dir: Folder = "logs"
    cluster: Annotated[tuple[str, ...] | None, "HOST:PORT,..."] = None
    index: Annotated[int | None, "I"] = None
    nnodes: Parts | None = None
    node_rank: Annotated[int | None, "I"] = None
    coordinator: Annotated[str | None, "HOST:PORT"] = None
    port: Annotated[int | None, AT_LEAST_1, at_most(2**16 - 1), "P"] = None


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The processes of one training.

    Attributes:
        addresses: host:port of each.
        here: the numbers of those to start here.
        are_all_here: whether no other command starts some.
    """

    addresses: list[str]
    here: list[int]
    are_all_here: bool = False


def choose_cluster(options: LaunchOptions, environment: Mapping[str, str] = os.environ) -> Cluster:
    """Returns the processes that the options ask for, or the place that a scheduler gave.

    Machines that meet at a coordinator are waited for.

    Args:
        options: of the command.
        environment: where schedulers tell a process its place.

    Raises:
        ValueError: the options do not say which processes, contradict each other or the
            environment, or a port cannot be used.
        TimeoutError: not all machines came to the coordinator.
    """
    check_sources(options)
    count = options.processes or len(options.gpus or ()) or DEFAULT_PROCESSES
    place = scheduled_place(environment, options.port)
    if place is not None:
        return scheduled_processes(options, place)
    if options.port is not None:
        raise ValueError(
            "--port is the first port of a Slurm job's processes, and no such job runs here. "
            f"Leave it out. Received {options.port}."
        )
    if options.cluster is not None:
        return listed_processes(options, options.cluster)
    gpu_shares(options.gpus, count)  # What is wrong with them no other machine waits for.
    if options.coordinator is not None:
        node = Node(options.coordinator, options.nnodes or 0, options.node_rank or 0)
        return Cluster(*meet(node, free_ports(count)))
    if options.processes is None:
        check_is_task(environment)
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    return Cluster(addresses, list(range(count)), are_all_here=True)


def check_sources(options: LaunchOptions) -> None:
    """Raises ValueError if options that belong together are not given together."""
    if options.cluster is None and options.index is not None:
        raise ValueError("--index says which process of --cluster this is; give both.")
    meeting = (options.nnodes, options.node_rank, options.coordinator)
    if meeting == (None, None, None):
        return
    if None in meeting:
        raise ValueError(
            "--nnodes, --node-rank and --coordinator belong together: give all three. Received "
            f"--nnodes {options.nnodes}, --node-rank {options.node_rank}, --coordinator "
            f"{options.coordinator}."
        )
    if options.cluster is not None:
        raise ValueError(
            "--cluster lists all addresses, which --coordinator would collect: give one of them."
        )
    nodes, rank = options.nnodes or 0, options.node_rank or 0
    if not 0 <= rank < nodes:
        raise ValueError(
            f"--node-rank must be from 0 to {nodes - 1}, as --nnodes says. Received {rank}."
        )
    port_of(options.coordinator or "", "--coordinator takes host:port")


def scheduled_processes(options: LaunchOptions, place: Place) -> Cluster:
    """Returns the place that a scheduler gave; raises ValueError if options give another."""
    given = {
        "--cluster": options.cluster,
        "--coordinator": options.coordinator,
        "--processes": options.processes,
    }
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise ValueError(
            f"{place.source} says which processes there are ({len(place.addresses)}, of which this "
            f"is {place.index}): leave out {', '.join(names)}, or remove {place.variables} from "
            "the environment."
        )
    for address in place.addresses:
        port_of(address, f"{place.source} must give host:port")
    check_free(place.addresses[place.index], place.source, place.remedy)
    return Cluster(list(place.addresses), [place.index])


def listed_processes(options: LaunchOptions, cluster: Sequence[str]) -> Cluster:
    """Returns the processes that --cluster lists."""
    addresses = list(cluster)
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
    return Cluster(addresses, [options.index])


def port_of(address: str, expected: str = "--cluster takes host:port,host:port") -> int:
    """Returns the port of host:port.

    Args:
        address: the text.
        expected: the beginning of the message, if it is something else.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port[:6]) < 2**16:
        raise ValueError(f"{expected} with ports from 1 to 65535. Received {address!r}.")
    return int(port)


def check_free(
    address: str,
    source: str = "--cluster",
    remedy: str = "choose another in --cluster, the same on every machine",
) -> None:
    """Raises ValueError if the port of an address is in use; two processes would share it.

    An address that is not one of this machine's own, as behind a translation of addresses, passes.

    Args:
        address: host:port.
        source: what gave the address.
        remedy: what to do about a port in use.
    """
    host, _, port = address.rpartition(":")
    try:
        family, kind, _, _, place = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        )[0]
        warn_of_loopback(host.strip("[]"), place[0])
        with socket.socket(family, kind) as one:
            # The port of an ended run may linger.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(place)
    except (socket.gaierror, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"{source} names {host}, which this machine cannot find ({reason}): write its "
            "address, or a name that every machine knows."
        ) from error
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return
        raise ValueError(
            f"Port {port} of this machine cannot be used ({error.strerror}): {remedy}."
        ) from error


def free_ports(count: int) -> list[int]:
    """Returns so many different ports of this machine that are not in use."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def warn_of_shared_gpus(
    options: LaunchOptions,
    num_processes: int,
    environment: Mapping[str, str] = os.environ,
    devices: Path = DEVICES,
) -> None:
    """Warns if each process would take all GPUs of this machine, since nobody dealt them.

    Args:
        options: of the command.
        num_processes: that start here.
        environment: where CUDA_VISIBLE_DEVICES may hide the GPUs.
        devices: the folder of the machine's devices.
    """
    hidden = environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    dealt = options.gpus or any(word.startswith("--gpus") for word in options.command_line)
    found = sorted(one.name[len("nvidia") :] for one in devices.glob("nvidia[0-9]*"))
    if found and num_processes > 1 and not hidden and not dealt:
        show(
            f"warning: each of the {num_processes} processes here takes all GPUs. Deal them with "
            f"--gpus {','.join(sorted(found, key=int))}",
            flush=True,
            colour="yellow",
        )


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
