"""What a training prints: lines above its progress bar, as long as somebody can read them."""

from __future__ import annotations

import errno
import sys

import towers
from towers.scripts.shown import printable, show


class RunOutput:
    """Prints the lines of a training.

    Args:
        quiet: whether it prints nothing.

    Attributes:
        bar: the progress bar above which lines are printed, or None.
    """

    def __init__(self, *, quiet: bool):
        self.bar: towers.actions.ProgressBar | None = None
        self._quiet = quiet
        self._reader_left = False

    def write(self, line: str) -> None:
        """Prints a line; if nobody can read it any more, the training saves and ends."""
        if self._reader_left or self._quiet:
            return
        try:
            if self.bar is None:
                show(line, flush=True)
            else:
                self.bar.write(printable(line))
        except OSError as error:
            self._reader_left = True
            if error.errno not in (errno.EPIPE, errno.EIO):  # `| head`, or a closed terminal.
                text = f"towers: warning: cannot print ({error.strerror}): the training ends"
                show(text, file=sys.stderr, colour="yellow")

    def check_reader(self, report: towers.StepReport) -> None:
        """Raises StopTraining if nobody can read what is printed; an action."""
        if self._reader_left:
            raise towers.StopTraining("SIGPIPE")

    def close(self) -> None:
        """Closes the progress bar."""
        if self.bar is not None:
            self.bar.close()
