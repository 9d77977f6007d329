"""The environment variable TF_CONFIG: the addresses of all processes, and which is this one."""

from __future__ import annotations

import json


def read_cluster(text: str) -> tuple[list[str], int]:
    """Returns the address of each worker, and the number of this one.

    Args:
        text: the value of TF_CONFIG.

    Raises:
        ValueError: it does not have the form that TensorFlow's guide describes.
    """
    try:
        config = json.loads(text)
        workers, task = config["cluster"]["worker"], config["task"]
        index = int(task["index"])
        if set(config["cluster"]) != {"worker"} or task["type"] != "worker":
            raise ValueError("there are other jobs than worker")
        if not 0 <= index < len(workers):
            raise ValueError(f"there is no worker {index} among {len(workers)}")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            'TF_CONFIG must be {"cluster": {"worker": ["host:port", ...]}, "task": {"type": '
            f'"worker", "index": 0}}}}, with another index in each process. Received {text!r}: '
            f"{error!r}."
        ) from error
    return [str(worker) for worker in workers], index
