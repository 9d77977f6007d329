"""Kills a training at random moments, again and again until it has ended, and starts the next."""

import dataclasses
import random
import shutil
import signal
import time


@dataclasses.dataclass
class Kills:
    """What was done.

    Attributes:
        kills: how often a start was killed.
        with_checkpoint: how many of these had left a checkpoint to continue from.
        runs: how many runs came to their end, each compared with the undisturbed one.
    """

    kills: int = 0
    with_checkpoint: int = 0
    runs: int = 0


def kill_often(
    server, command, check, count, *, duration, seed=0, tell=lambda done: None, until=None
):
    """Kills starts of a training until so many were killed and the last run has ended.

    Args:
        server: an `Injector`.
        command: `command(folder)` returns the arguments.
        check: `check(folder, output)` raises AssertionError unless a run is the undisturbed one.
        count: how many kills.
        duration: the seconds of a run that nobody kills.
        seed: of the moments.
        tell: is called with the `Kills` so far at the end of each run.
        until: the `time.monotonic()` after which no other run begins, or None.
    """
    moments = random.Random(seed)
    folder = server.folder / "killed" / "run"
    done = Kills()
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.parent.mkdir()
    while done.kills < count and (until is None or time.monotonic() < until):
        if folder.exists():
            shutil.rmtree(folder)
        starts = 0
        while True:
            starts += 1
            # A machine that got slower since must not keep a run from its end.
            longest = duration * (0.8 + starts / 20)
            seconds = moments.uniform(0, longest) if done.kills < count else None
            code, _, output = server.run(
                command(folder), folder.parent, watched=False, seconds=seconds
            )
            if code != -signal.SIGKILL:
                break
            done.kills += 1
            done.with_checkpoint += any(folder.glob("checkpoints/*.npz"))
        assert code == 0 and "Traceback" not in output, f"start {starts}: {code}: {output}"
        check(folder, output)
        done.runs += 1
        tell(done)
    return done
