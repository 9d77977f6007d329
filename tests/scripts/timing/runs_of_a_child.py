"""What a process of its own builds in `apart_test.py`."""

import os
import signal


def runs(factor):
    """Returns runs whose seconds tell the process, and one that kills it."""
    return {
        "pid": lambda num_steps: os.getpid(),
        "product": lambda num_steps: factor * num_steps,
        "kill": lambda num_steps: os.kill(os.getpid(), signal.SIGKILL),
    }


def wrong(message):
    """Fails as a recipe does that is given wrong data."""
    raise FileNotFoundError(message)
