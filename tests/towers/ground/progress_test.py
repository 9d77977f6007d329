"""A long piece of work does not begin after a Ctrl-C."""

import subprocess
import sys

from tests.programs import PATIENCE

LOSING = """
import signal
from towers.ground.interrupts import note_interrupts
from towers.ground.progress import progress

class Losing:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)  # Python says that it ignores the exception.

signal.signal(signal.SIGINT, signal.default_int_handler)  # A job in the background ignores it.
note_interrupts()
Losing()
with progress(3, "evaluating", "batch"):
    print("not interrupted")
"""


def test_an_interrupt_that_python_dropped_ends_the_program_before_its_next_long_work():
    ended = subprocess.run(
        [sys.executable, "-c", LOSING], capture_output=True, text=True, timeout=PATIENCE
    )
    assert ended.stderr.splitlines()[-1:] == ["KeyboardInterrupt"] and not ended.stdout
