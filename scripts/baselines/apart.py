"""Ways to train that are timed in a process of their own, with the settings that it would have.

TensorFlow is told once how many devices there are and on how many threads an operation runs, and
towers on the CPU choose that by their number. So each number of towers has a process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

from towers.scripts.baselines.options import BenchmarkOptions
from towers.scripts.training.recipe import Recipe

# The paths of this program, since `-m` would look for it in the working folder first.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from towers.scripts.baselines.apart_process import serve; serve()"
)


class TimedApart:
    """A process that builds some ways to train and times them when asked; ends with the context.

    Args:
        recipe: the recipe.
        options: the ways, checked.
    """

    def __init__(self, recipe: Recipe, options: BenchmarkOptions):
        path = [os.path.abspath(entry) for entry in sys.path]
        # In a session of its own, so that an interrupt from the keyboard reaches this program only.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM, json.dumps(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._requests: Any = self._process.stdin
        self._answers: Any = self._process.stdout
        self._task: dict[str, Any] = {
            "recipe": recipe.name,
            "fields": dataclasses.asdict(recipe.fields),
            "options": dataclasses.asdict(options),
        }

    def __enter__(self) -> TimedApart:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._process.wait()

    def names(self) -> list[str]:
        """Builds the ways and returns their names; ValueError if one cannot be built."""
        names: list[str] = self._ask(self._task)["names"]
        return names

    def run(self, name: str, num_steps: int) -> float:
        """Returns the seconds of all steps of a way but the first."""
        seconds: float = self._ask({"name": name, "steps": num_steps})["seconds"]
        return seconds

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        answer = self._answers.readline()
        if not answer:
            raise RuntimeError(
                "A process that times a part of the ways ended, with exit code "
                f"{self._process.wait()}. What it wrote last says why."
            )
        told: dict[str, Any] = json.loads(answer)
        if "error" in told:
            raise ValueError(told["error"])
        return told
