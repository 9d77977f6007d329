"""The process that `towers launch` starts: a command that does not outlive its launcher."""

from __future__ import annotations

import os
import signal
import threading
import time

from towers.scripts.main import main

POLL_SECONDS = 1.0
SAVE_SECONDS = 60.0  # A worker that takes longer waits for a dead one, and is killed.


def run(launcher: int) -> int:
    """Runs the command line and returns its exit code.

    Args:
        launcher: the id of the process that started this one.
    """
    threading.Thread(target=end_with, args=[launcher], daemon=True).start()
    return main()


def end_with(launcher: int) -> None:
    """Waits for the end of the launcher, by whatever cause; then this process saves and ends."""
    while os.getppid() == launcher:
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SAVE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
