"""The process of a `TimedApart`: it builds ways to train, and times the one it is asked for."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import IO, Any

from towers.scripts.baselines.options import BenchmarkOptions
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.training.catalogue import restore_recipe


def serve() -> None:
    """Answers the requests of a `TimedApart` until its pipe is closed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What anything else prints is no answer.
    import_tensorflow_quietly()
    with contextlib.suppress(BrokenPipeError):  # The benchmark was ended.
        for answer in answers_to(sys.stdin):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def answers_to(requests: IO[str]) -> Iterator[dict[str, Any]]:
    """Yields what is answered to each request; the first one says what is timed."""
    from towers.scripts.baselines import benchmark

    task = json.loads(requests.readline() or "null")
    if task is None:
        return
    options = BenchmarkOptions(**{key: listed(value) for key, value in task["options"].items()})
    try:
        recipe = restore_recipe(task["recipe"], task["fields"])
        opened = benchmark.open_task(recipe, options)
        ways = {way.name: way for way in benchmark.make_contenders(opened, options)}
    except ValueError as error:
        yield {"error": str(error)}
        return
    yield {"names": list(ways)}
    for request in map(json.loads, requests):
        yield {"seconds": ways[request["name"]].run(request["steps"])}


def listed(value: Any) -> Any:
    """Returns a value that was JSON, in which tuples are lists."""
    return tuple(value) if isinstance(value, list) else value
