"""A process in which runs are built and timed, with settings of TensorFlow of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from towers.ground.child_process import ChildProcess
from towers.ground.quiet import import_tensorflow_quietly

# Runs a number of steps; returns the seconds of all but the first, which may wait for its input.
TimedRun = Callable[[int], float]


class Apart(ChildProcess):
    """A process that builds runs and makes the one that it is asked for.

    `build` is a function of a module, and returns runs by name.
    """

    def __init__(self, build: Callable[..., dict[str, TimedRun]], *arguments: Any):
        super().__init__(make_runs, "times steps")
        self.send((build, arguments))

    def runs(self) -> dict[str, TimedRun]:
        """Returns the runs, once they are built; errors are those of `build`."""
        return {name: functools.partial(self._run, name) for name in self.receive()}

    def _run(self, name: str, num_steps: int) -> float:
        seconds: float = self.ask((name, num_steps))
        return seconds


def make_runs() -> Callable[[Any], Any]:
    """Returns `answer(request)`: the first one builds the runs, each other makes one of them."""
    import_tensorflow_quietly()
    runs: dict[str, TimedRun] = {}

    def answer(request: Any) -> Any:
        what, arguments = request
        if runs:
            return runs[what](arguments)
        runs.update(what(*arguments))
        return list(runs)

    return answer
