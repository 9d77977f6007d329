"""What a run prints: lines above its progress bar, as long as somebody can read them."""

from __future__ import annotations

import errno
import math
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

import towers
from towers.scripts.shown import decimals, printable, show
from towers.scripts.training.session import Session


class RunOutput:
    """Prints the lines of a run; of a quiet one, warnings alone.

    Attributes:
        bar: the progress bar above which lines are printed, or None.
    """

    def __init__(self, *, quiet: bool):
        self.bar: towers.actions.ProgressBar | None = None
        self._quiet = quiet
        self._reader_left = False

    def write(self, line: str) -> None:
        """Prints a line; when it can no longer be read, the training saves and ends."""
        if self._reader_left or (self._quiet and not line.startswith("warning: ")):
            return
        try:
            if self.bar is None:
                show(line, flush=True)
            else:
                self.bar.write(printable(line))
        except OSError as error:
            self._reader_left = True
            if error.errno not in (errno.EPIPE, errno.EIO):  # `| head`, or a closed terminal.
                text = f"towers: warning: cannot print ({error.strerror}); the training ends"
                show(text, file=sys.stderr, colour="yellow")

    def write_dated(self, line: str) -> None:
        """Prints a line about a step; where nobody looks on, with the time behind it."""
        at = "" if sys.stdout.isatty() else time.strftime(" | %Y-%m-%d %H:%M:%S")
        self.write(line + at)

    @property
    def columns(self) -> int | None:
        """The width of the terminal; None where the output is none."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def check_reader(self, report: towers.StepReport) -> None:
        """Raises StopTraining when the output can no longer be read; an action."""
        if self._reader_left:
            raise towers.StopTraining("SIGPIPE")

    def close(self) -> None:
        """Closes the progress bar; lines stand below it from then on."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def describe_model(model: keras.Model) -> str:
    """Returns the size of a model, and the versions of what it runs on, in one line."""
    count = sum(math.prod(variable.shape) for variable in model.variables)
    size = total_bytes(model.variables) / 1e6
    return (
        f"model | {len(model.variables)} variables | {count:,} numbers | {size:.1f} MB | "
        f"tensorflow {tf.__version__} | keras {keras.__version__}"
    )


def total_bytes(variables: Iterable[Any]) -> int:
    """Returns the bytes of the values of some variables."""
    return sum(math.prod(one.shape) * tf.as_dtype(one.dtype).size for one in variables)


def describe_evaluation(session: Session, step: int, metrics: Mapping[str, float]) -> str:
    """Returns the metrics of the test data in one line; `examples` are what they are means over."""
    means = [f"{name} {decimals(value)}" for name, value in metrics.items() if name != "examples"]
    count = f"{metrics['examples']:.0f} {session.recipe.unit}"
    return " | ".join([f"{session.data.evaluated:<5} | step {step}", *means, count])
