"""Programs that tests start: whatever comes, they and all that they started end with the test."""

import contextlib
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from towers.scripts.launching.cluster import free_ports

PATIENCE = 600  # Seconds: a guard against hanging alone, since a busy machine is slow.
# What children of the fork server have imported; it is one server for all tests of a process.
PRELOAD = [
    "tests.scripts.training.beginning",
    "tests.towers.saving.checkpoint_folder_test",
    "tests.towers.saving.checkpoint_files_test",
    "tests.towers.saving.summaries_test",
    "tests.towers.compiled.together_worker",
    "tests.towers.processes.processes_worker",
    "tests.towers.step.tracing_test",
]
TOWERS = [sys.executable, "-m", "towers.scripts.main"]
LOSING = """
import signal
import {module}
from towers.ground.interrupts import note_interrupts

class Losing:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)  # Python says that it ignores the exception.

signal.signal(signal.SIGINT, signal.default_int_handler)  # A job in the background ignores it.
note_interrupts()
if {made}:
    Losing()
with {scope}:
    print("not interrupted")
"""


@contextlib.contextmanager
def started(command: list[str], **options) -> Iterator[subprocess.Popen]:
    """Starts a program in a session of its own; yields its process, whose output is one pipe.

    At the end of the scope the program, its descendants and their groups are killed.
    """
    defaults = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(
        list(map(str, command)), start_new_session=True, **{**defaults, **options}
    ) as process:
        try:
            yield process
        finally:
            kill_all(process)


def kill_all(process: subprocess.Popen) -> None:
    """Kills what is left of a program's group, and its descendants in groups of their own."""
    descendants = descendants_of(process.pid) if process.poll() is None else []
    kills = [(os.killpg, process.pid), *((os.kill, pid) for pid in descendants)]
    for kill, number in kills:
        with contextlib.suppress(ProcessLookupError):
            kill(number, signal.SIGKILL)


def descendants_of(pid: int) -> list[int]:
    """Returns the process ids of the descendants, as far as there is a /proc."""
    found = []
    for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # A thread or a process that has ended meanwhile.
            for child in map(int, children.read_text().split()):
                found += [child, *descendants_of(child)]
    return found


def finish(process: subprocess.Popen, code: int = 0, patience: float = PATIENCE) -> str:
    """Waits for a program's end and returns what it printed; any other exit code is an error."""
    output = process.communicate(timeout=patience)[0]
    assert process.returncode == code, f"exit code {process.returncode}, not {code}:\n{output}"
    return output


def run(command: list[str], code: int = 0, patience: float = PATIENCE, **options) -> str:
    """Runs a program to its end and returns what it printed."""
    with started(command, **options) as process:
        return finish(process, code, patience)


@contextlib.contextmanager
def forked(function, *arguments) -> Iterator[multiprocessing.Process]:
    """Calls a function in a process that has imported TensorFlow; yields the process.

    At the end of the scope it is killed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    process = context.Process(target=function, args=arguments)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def exit_code(function, *arguments) -> int:
    """Calls a function to its end as `forked` does; minus a signal, if one killed its process."""
    with forked(function, *arguments) as process:
        process.join(PATIENCE)
        assert process.exitcode is not None
        return process.exitcode


def end_of_losing(scope: str, made: bool) -> tuple[str, str]:
    """Returns the output and the errors of a program that enters a scope after a lost Ctrl-C.

    Args:
        scope: the call that makes it, with its module.
        made: whether there was a Ctrl-C.
    """
    module = scope.partition("(")[0].rpartition(".")[0]
    program = LOSING.format(module=module, made=made, scope=scope)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE
    )
    return ended.stdout, ended.stderr


def free_addresses(count: int) -> list[str]:
    """Returns so many different addresses of this machine that are not in use."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def wait_until(holds, what: str) -> None:
    """Returns as soon as `holds()` is true."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.02)
