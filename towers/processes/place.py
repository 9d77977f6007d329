"""The place of this process among those that train one model: TF_CONFIG's, or a Slurm task's.

TensorFlow's `SlurmClusterResolver` reads no list of nodes such as `rack[1-2]n[08-10]`, gives all
jobs of a node the same ports, and sets CUDA_VISIBLE_DEVICES, which is Slurm's.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import socket
import warnings
from collections.abc import Iterator, Mapping, Sequence

FIRST_PORT, NUM_PORTS, PORTS_OF_A_STEP = 15000, 16000, 16  # Below those of outgoing connections.
COMMA = re.compile(r",(?![^\[]*\])")  # Not one in brackets.
NODE = re.compile(r"(?:[\w.:-]+|\[[\d,-]+\])+", re.ASCII)
COUNT = re.compile(r"(\d{1,6})(?:\(x(\d{1,6})\))?")
RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
MOST_NODES = 100_000


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a process.

    Attributes:
        addresses: host:port of each process.
        index: the number of this one.
    """

    addresses: list[str]
    index: int


def find_place(environment: Mapping[str, str] | None = None) -> Place | None:
    """Returns the place that the environment gives this process; None if it is alone.

    TF_CONFIG wins over Slurm's variables.

    Args:
        environment: the variables; None: this process's.

    Raises:
        ValueError: a variable is wrong.
    """
    environment = os.environ if environment is None else environment
    text = environment.get("TF_CONFIG")
    place = Place(*read_cluster(text)) if text else slurm_place(environment)
    return place if place is not None and len(place.addresses) > 1 else None


def read_cluster(text: str) -> tuple[list[str], int]:
    """Returns the address of each worker, and the number of this one, out of TF_CONFIG's text.

    Raises:
        ValueError: it does not have the form that TensorFlow's guide describes.
    """
    try:
        config = json.loads(text)
        only = list(itertools.chain(*config["cluster"].values()))
        if len(only) == 1:  # Whatever it is called.
            return [str(only[0])], 0
        workers, task = config["cluster"]["worker"], config["task"]
        index = int(task["index"])
        if set(config["cluster"]) != {"worker"} or task["type"] != "worker":
            raise ValueError("there are other jobs than worker")
        if not 0 <= index < len(workers):
            raise ValueError(f"there is no worker {index} among {len(workers)}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            'TF_CONFIG must be {"cluster": {"worker": ["host:port", ...]}, "task": {"type": '
            f'"worker", "index": 0}}}}, with another index in each process. Received {text!r}: '
            f"{error!r}."
        ) from error
    return [str(worker) for worker in workers], index


def exposure(addresses: Sequence[str], why: str = "") -> str:
    """Returns the warning about the open ports of processes, empty in a network without others.

    Args:
        addresses: host:port of each process.
        why: it is not closed, if there is more to say.
    """
    if [name for _, name in socket.if_nameindex()] == ["lo"]:
        return ""
    ports = ", ".join(address.rpartition(":")[2] for address in addresses)
    return (
        f"warning: port {ports} will be open on every address of this machine{why}, and "
        "TensorFlow's server lets anyone who reaches it read and write files as you: let the "
        "machines of the training alone reach it (a private network, a firewall, WireGuard)"
    )


def slurm_place(environment: Mapping[str, str]) -> Place | None:
    """Returns the place of a task that `srun` started; None of any other process.

    Tasks are numbered from node to node, as `--distribution=block` has it. Their ports follow from
    the numbers of the job and the step, so that those that share a node differ.
    """
    number = whole(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", default=1)
    if number == 1:
        return None
    if "SLURM_STEP_NODELIST" not in environment:
        warnings.warn(
            f"This is the script of a Slurm job of {number} tasks, and trains alone. To train in "
            "all of them, write srun before the command.",
            RuntimeWarning,
            stacklevel=1,  # Once, whoever asks for the place again.
        )
        return None
    index, local = whole(environment, "SLURM_PROCID"), whole(environment, "SLURM_LOCALID")
    nodes = list(itertools.islice(node_names(environment["SLURM_STEP_NODELIST"]), MOST_NODES))
    counts = task_counts(environment, len(nodes), number)
    tasks = [(node, at) for node, count in zip(nodes, counts, strict=True) for at in range(count)]
    if index >= number or tasks[index][1] != local:
        raise ValueError(
            f"Slurm's task {index} of {number} is number {local} on its node, where tasks in order "
            "would be numbered from node to node: start them with srun --distribution=block."
        )
    step = whole(environment, "SLURM_JOB_ID", default=0)
    step += whole(environment, "SLURM_STEP_ID", default=0)
    first = FIRST_PORT + step * PORTS_OF_A_STEP % NUM_PORTS
    return Place([f"{node}:{first + task}" for task, (node, _) in enumerate(tasks)], index)


def node_names(text: str) -> Iterator[str]:
    """Yields the nodes of a list of Slurm's.

    >>> list(node_names("login,rack[1-2]n[08-10,12]"))[:5]
    ['login', 'rack1n08', 'rack1n09', 'rack1n10', 'rack1n12']
    """
    for item in COMMA.split(text):
        if not NODE.fullmatch(item):
            raise ValueError(wrong("SLURM_STEP_NODELIST", text, "names such as gpu[01-03,07]"))
        parts = re.findall(r"\[[^\]]*\]|[^\[]+", item)
        for one in itertools.product(*(names_of(part, text) for part in parts)):
            yield "".join(one)


def names_of(part: str, text: str) -> list[str]:
    """Returns the numbers of ranges such as [01-03,07], with their zeros, or a part without any.

    An error shows the whole text.
    """
    if not part.startswith("["):
        return [part]
    numbers: list[str] = []
    for one in part[1:-1].split(","):
        match = RANGE.fullmatch(one)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or not first <= last < first + MOST_NODES:
            raise ValueError(wrong("SLURM_STEP_NODELIST", text, "ranges such as 01-03,07"))
        numbers += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
    return numbers


def task_counts(environment: Mapping[str, str], num_nodes: int, num_tasks: int) -> list[int]:
    """Returns the number of tasks on each node, from a text such as 2(x3),1."""
    names = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    even = f"{num_tasks // num_nodes}(x{num_nodes})"
    text = next((environment[name] for name in names if name in environment), even)
    matches = [COUNT.fullmatch(part) for part in text.split(",")]
    counts = [int(match[1]) for match in matches if match for _ in range(int(match[2] or 1))]
    if None in matches or len(counts) != num_nodes or sum(counts) != num_tasks:
        expected = f"{num_tasks} tasks on {num_nodes} nodes, such as 2(x3),1"
        raise ValueError(wrong(names[0], text, expected))
    return counts


def whole(environment: Mapping[str, str], *names: str, default: int | None = None) -> int:
    """Returns the number that the first of some variables holds."""
    text = next((environment[name] for name in names if name in environment), None)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 12):
        raise ValueError(wrong(names[0], text or "nothing", "a whole number"))
    return int(text)


def wrong(name: str, received: str, expected: str) -> str:
    """Returns the message about a variable of Slurm's."""
    return (
        f"Slurm's variable {name} must be {expected}. Received {received!r}: start the task with "
        "srun, and leave its variables as they are."
    )
