"""The place that a scheduler gives a process: TF_CONFIG, as in Kubernetes, or a Slurm task."""

from __future__ import annotations

import dataclasses
import itertools
import re
import warnings
from collections.abc import Mapping, Sequence

import towers

FIRST_PORT, NUM_PORTS, PORTS_OF_A_JOB = 15000, 16000, 16  # Below the ports of outgoing connections.
COMMA = re.compile(r",(?![^\[]*\])")  # Not one in brackets.
NODE = re.compile(r"(?:[\w.:-]+|\[[\d,-]+\])+", re.ASCII)
COUNT = re.compile(r"(\d{1,6})(?:\(x(\d{1,6})\))?")
RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
MOST_NODES = 100_000


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of this command's process among all.

    Attributes:
        addresses: host:port of each.
        index: the number of this one.
        source: who gave it.
        variables: the environment variables that say so.
        remedy: what to do about a port that is in use.
    """

    addresses: Sequence[str]
    index: int
    source: str
    variables: str
    remedy: str


def scheduled_place(environment: Mapping[str, str], port: int | None = None) -> Place | None:
    """Returns the place that the environment gives this process, None if it is not one of several.

    Args:
        environment: the variables.
        port: the first port of a Slurm job's processes, None for one by the job's number.

    Raises:
        ValueError: a variable is wrong, or two of them give different places.
    """
    config, slurm = config_place(environment), slurm_place(environment, port)
    if config is None or slurm is None:
        return config or slurm
    if (len(config.addresses), config.index) != (len(slurm.addresses), slurm.index):
        raise ValueError(
            f"TF_CONFIG makes this process {config.index} of {len(config.addresses)}, and Slurm "
            f"makes it {slurm.index} of {len(slurm.addresses)}: remove TF_CONFIG from the "
            "environment, or start without srun."
        )
    return config


def config_place(environment: Mapping[str, str]) -> Place | None:
    """Returns the place that TF_CONFIG gives."""
    text = environment.get("TF_CONFIG")
    if not text:
        return None
    addresses, index = towers.processes.read_cluster(text)
    if len(addresses) == 1:
        return None
    return Place(addresses, index, "TF_CONFIG", "it", "give the job another port")


def slurm_place(environment: Mapping[str, str], port: int | None) -> Place | None:
    """Returns the place of a task that `srun` started.

    The numbers of tasks go from node to node, as `--distribution=block` has it.
    """
    number = whole(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", default=1)
    if "SLURM_STEP_NODELIST" not in environment or number == 1:
        return None
    index, local = whole(environment, "SLURM_PROCID"), whole(environment, "SLURM_LOCALID")
    nodes = node_names(environment["SLURM_STEP_NODELIST"])
    tasks = [
        (node, place)
        for node, count in zip(nodes, task_counts(environment, len(nodes), number), strict=True)
        for place in range(count)
    ]
    if not index < number:
        raise ValueError(wrong("SLURM_PROCID", str(index), f"a number below {number}"))
    if tasks[index][1] != local:
        raise ValueError(
            f"Slurm's task {index} is number {local} on its node, where tasks in order would be "
            f"number {tasks[index][1]}: start them with srun --distribution=block."
        )
    ports = slurm_ports(environment, [place for _, place in tasks], port)
    addresses = [f"{node}:{one}" for (node, _), one in zip(tasks, ports, strict=True)]
    remedy = "choose another with --port, the same for all tasks"
    return Place(addresses, index, "Slurm", "the variables SLURM_*", remedy)


def check_is_task(environment: Mapping[str, str]) -> None:
    """Raises ValueError in the script of a Slurm job of several tasks, which is none of them."""
    number = whole(environment, "SLURM_NTASKS", default=1)
    if number > 1 and "SLURM_STEP_NODELIST" not in environment:
        raise ValueError(
            f"This is the script of a Slurm job of {number} tasks, and none of them: write srun "
            "towers launch ..., or give --processes N for processes on this machine alone."
        )


def warn_alone(environment: Mapping[str, str]) -> None:
    """Warns if this is a task of `srun` that is about to train without the others of its step."""
    number = environment.get("SLURM_STEP_NUM_TASKS", "")
    if not environment.get("TF_CONFIG") and number.isdecimal() and int(number) > 1:
        warnings.warn(
            f"srun started {number} tasks, and this one trains alone. To train together, write "
            "srun towers launch -- train ...",
            RuntimeWarning,
            stacklevel=2,
        )


def node_names(text: str) -> list[str]:
    """Returns the nodes of a list of Slurm's.

    >>> node_names("login,rack[1-2]n[08-10,12]")[:5]
    ['login', 'rack1n08', 'rack1n09', 'rack1n10', 'rack1n12']
    """
    nodes: list[str] = []
    for item in COMMA.split(text):
        if not NODE.fullmatch(item):
            raise ValueError(wrong("SLURM_STEP_NODELIST", text, "names such as gpu[01-03,07]"))
        parts = [
            numbers_in(part[1:-1], "SLURM_STEP_NODELIST", text) if part.startswith("[") else [part]
            for part in re.findall(r"\[[^\]]*\]|[^\[]+", item)
        ]
        nodes += ["".join(one) for one in itertools.islice(itertools.product(*parts), MOST_NODES)]
    return nodes


def numbers_in(ranges: str, name: str, text: str) -> list[str]:
    """Returns the numbers of ranges such as 01-03,07, with their zeros.

    Args:
        ranges: the ranges.
        name: of the variable that has them, for the message.
        text: its whole value, for the message.
    """
    numbers: list[str] = []
    for part in ranges.split(","):
        match = RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or not first <= last < first + MOST_NODES:
            raise ValueError(wrong(name, text, "ranges such as 01-03,07"))
        numbers += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
    return numbers


def task_counts(environment: Mapping[str, str], num_nodes: int, num_tasks: int) -> list[int]:
    """Returns the number of tasks on each node, from a text such as 2(x3),1."""
    names = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    name = next((name for name in names if name in environment), None)
    if name is None and num_tasks % num_nodes == 0:
        return [num_tasks // num_nodes] * num_nodes
    text = environment.get(name or "", "")
    matches = [COUNT.fullmatch(part) for part in text.split(",")]
    counts = [int(match[1]) for match in matches if match for _ in range(int(match[2] or 1))]
    if None in matches or len(counts) != num_nodes or sum(counts) != num_tasks:
        expected = f"{num_tasks} tasks on {num_nodes} nodes, such as 2(x3),1"
        raise ValueError(wrong(name or names[0], text, expected))
    return counts


def slurm_ports(
    environment: Mapping[str, str], local: Sequence[int], first: int | None
) -> list[int]:
    """Returns the port of each task.

    Args:
        environment: with the ports that `srun --resv-ports` reserved on every node, if any.
        local: the number of each task on its node.
        first: the port of task 0, followed by those of the others; None for Slurm's, or one by
            the job's number, so that jobs that share a node differ.
    """
    text = environment.get("SLURM_STEP_RESV_PORTS", "")
    if text and first is None:
        reserved = list(map(int, numbers_in(text, "SLURM_STEP_RESV_PORTS", text)))
        if max(local) < len(reserved):
            return [reserved[number] for number in local]
    if first is None:
        job = whole(environment, "SLURM_JOB_ID", "SLURM_JOBID", default=0)
        job += whole(environment, "SLURM_STEP_ID", "SLURM_STEPID", default=0)
        first = FIRST_PORT + job * PORTS_OF_A_JOB % NUM_PORTS
    return [first + task for task in range(len(local))]


def whole(environment: Mapping[str, str], *names: str, default: int | None = None) -> int:
    """Returns the number that the first of some variables holds."""
    for name in names:
        text = environment.get(name)
        if text is not None:
            if not (text.isascii() and text.isdigit() and len(text) < 12):
                raise ValueError(wrong(name, text, "a whole number"))
            return int(text)
    if default is None:
        raise ValueError(wrong(names[0], "nothing", "a whole number"))
    return default


def wrong(name: str, received: str, expected: str) -> str:
    """Returns the message about a variable of Slurm's."""
    return (
        f"Slurm's variable {name} must be {expected}. Received {received!r}: start the task with "
        "srun, and leave its variables as they are."
    )
