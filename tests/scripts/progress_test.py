"""What takes long shows how much is left, on a terminal alone."""

import fcntl
import os
import struct
import subprocess
import sys
import termios

import pytest

from tests.programs import TOWERS

COUNT = """
from towers.ground import progress
progress.DELAY_SECONDS = 0
for one in progress.counted(range(50), "evaluating"):
    pass
"""


def on_terminal(command, **environment):
    """Runs a command whose outputs are one terminal; returns its exit code and what it shows."""
    terminal, end = os.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    try:
        process = subprocess.Popen(
            command, stdin=end, stdout=end, stderr=end,
            env={**os.environ, "TERM": "xterm", **environment},
        )  # fmt: skip
        os.close(end)
        shown = b""
        while part := read(terminal):
            shown += part
        return process.wait(), shown.decode()
    finally:
        os.close(terminal)


def read(terminal):
    """Returns what comes next, nothing at the end."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # As Linux tells the end.
        return b""


def test_a_bar_shows_the_time_left_and_goes():
    code, shown = on_terminal([sys.executable, "-c", COUNT])
    states = [state for state in shown.split("\r") if state.strip()]
    assert code == 0 and states[0].startswith("evaluating:   0%")
    assert "/50 [" in states[0] and all(len(state) <= 80 for state in states[:1])
    assert not shown.split("\r")[-1].strip(" \n\x1b[A"), "its line is empty in the end"


def test_what_is_read_by_a_program_has_no_bar():
    done = subprocess.run([sys.executable, "-c", COUNT], check=True, capture_output=True)
    assert done.stdout == done.stderr == b""


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_errors_are_coloured_on_a_terminal_that_shows_colours(environment, coloured):
    environment = {"NO_COLOR": "", **environment}
    code, shown = on_terminal([*TOWERS, "recipes", "shape"], **environment)
    assert code == 2 and "towers: error: There is no recipe 'shape'" in shown
    assert shown.startswith("\x1b[31m") == ("\x1b" in shown) == coloured


def test_errors_that_a_program_reads_have_no_colour():
    done = subprocess.run([*TOWERS, "recipes", "shape"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("towers: error: There is no recipe")
