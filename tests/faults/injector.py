"""Ends a command before and within every operation on files, and starts it again."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.paths import ROOT
from tests.programs import started

SOURCE = pathlib.Path(__file__).with_name("shim.c")


class Injector:
    """A server of commands that die.

    Args:
        folder: for the shim, the logs and the trials.
    """

    def __init__(self, folder, process):
        self.folder = folder
        self._process = process

    def run(self, arguments, folder, *, at=0, within=False, watched=True, setup="", seconds=None):
        """Runs a command; returns its exit code, its operations and its output.

        Args:
            arguments: of `towers`.
            folder: where it runs, and where operations count.
            at: the number of the operation at which it is killed, 0 for none.
            within: whether half of that operation is done.
            watched: whether to hear of its operations.
            setup: Python that the process runs before.
            seconds: after which it is killed, None for never.
        """
        log, output = self.folder / "operations", self.folder / "output"
        log.unlink(missing_ok=True)
        job = {
            "arguments": [str(one) for one in arguments], "folder": str(folder), "at": at,
            "within": within, "log": str(log) if watched else "", "output": str(output),
            "setup": setup, "seconds": seconds,
        }  # fmt: skip
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the server has ended"
        lines = log.read_text().splitlines() if log.exists() else []
        operations = [tuple(filter(None, line.split("\t"))) for line in lines]
        return int(answer), operations, output.read_text(errors="replace")


@contextlib.contextmanager
def injector(folder):
    """The scope of an `Injector`; skips without a C compiler, or where nothing can be preloaded."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("operations on files are heard of with LD_PRELOAD, which needs Linux and cc")
    shim = folder / "shim.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", shim, SOURCE, "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    environment = {**os.environ, "LD_PRELOAD": str(shim), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with started(
        [sys.executable, "-m", "tests.faults.server"],
        cwd=ROOT, env=environment, stdin=subprocess.PIPE, stderr=None,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        yield Injector(folder, process)


def cut_power(operations, existing):
    """Takes away what was not on the disk: content without fsync, names whose folder had none.

    A name that a folder got after its last fsync goes; a file that was written after its last
    fsync has the size of then, and is empty without one, as on ext4.

    Args:
        operations: what was done, in order.
        existing: the sizes of the files before, which are on the disk.
    """
    named, written, sizes = {}, set(), dict(existing)
    for kind, path, *others in operations:
        if kind in ("create", "mkdir"):
            named[path] = os.path.dirname(path)
            sizes.pop(path, None)
        if kind in ("create", "write", "empty", "resize"):
            written.add(path)
        elif kind == "rename":
            move(path, others[0], named, written, sizes)
        elif kind == "fsync":
            written.discard(path)
            sizes[path] = int(others[0])
            named = {name: parent for name, parent in named.items() if parent != path}
        elif kind == "remove":
            named.pop(path, None)
            written.discard(path)
    for path in written:
        if os.path.isfile(path):
            os.truncate(path, min(sizes.get(path, 0), os.path.getsize(path)))
    for path in named:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)


def move(source, target, named, written, sizes):
    """Notes that a file or a folder has another name, which is not on the disk yet."""
    named.pop(source, None)
    if os.path.lexists(target):
        named[target] = os.path.dirname(target)
    moved = {
        path: target + path[len(source) :]
        for path in {*written, *sizes, *named}
        if f"{path}/".startswith(f"{source}/")
    }
    for path, new in moved.items():
        if path in written:
            written.discard(path)
            written.add(new)
        if path in sizes:
            sizes[new] = sizes.pop(path)
        if path in named:
            named.pop(path)
            named[new] = os.path.dirname(new)


def sizes_in(folder):
    """Returns the size of every file below a folder."""
    return {str(path): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


WAYS = ("killed", "killed within", "power cut")


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A command, what is there before it, and what must be there in the end.

    Attributes:
        command: `command(folder)` returns the arguments.
        check: `check(folder, output)` raises AssertionError if something is wrong at the end.
        make: `make(folder)` makes the folder as it is before the command.
        setup: Python that the process runs before.
        finish: the exit codes of the second start.
    """

    command: Callable[[pathlib.Path], list[str]]
    check: Callable[[pathlib.Path, str], None]
    make: Callable[[pathlib.Path], object] = lambda folder: None
    setup: str = ""
    finish: tuple[int, ...] = (0,)


def try_all(server, scenario, *, points=None, ways=WAYS):
    """Ends a command at its operations, starts it again, and checks what is there then.

    Args:
        server: an `Injector`.
        scenario: what to try.
        points: a function that chooses some of the numbers of so many operations, None for all.
        ways: of `WAYS`.

    Returns:
        The number of operations, and how often each way was tried.
    """
    operations = operations_of(server, scenario)
    numbers = range(1, len(operations) + 1) if points is None else points(len(operations))
    counts = dict.fromkeys(ways, 0)
    for number, way in ends_of(operations, numbers, ways):
        counts[way] += try_end(server, scenario, operations, number, way)
    return len(operations), counts


def operations_of(server, scenario):
    """Runs the command undisturbed, checks what is there, and returns its operations."""
    folder, _, operations, _ = fresh(server, scenario, at=0, within=False)
    scenario.check(folder, "")
    return operations


def ends_of(operations, numbers, ways=WAYS):
    """Returns the pairs (number, way) that can be tried; a write alone can be half done."""
    return [
        (number, way)
        for number in numbers
        for way in ways
        if way != "killed within" or operations[number - 1][0] == "write"
    ]


def try_end(server, scenario, operations, number, way):
    """Ends the command once, starts it again, and checks what is there then.

    Returns whether it was ended: this time there may have been fewer operations, such as flushes
    by a clock.
    """
    within = way == "killed within"
    folder, code, done, existing = fresh(server, scenario, at=number, within=within)
    if code == 0:
        return False
    place = f"{way} at operation {number}: {operations[number - 1]}"
    assert code == -signal.SIGKILL, f"{place}: {code}"
    if way == "power cut":
        cut_power(done, existing)
    again, _, output = server.run(
        scenario.command(folder), folder.parent, watched=False, setup=scenario.setup
    )
    assert again in scenario.finish, f"{place}: then {again}: {output}"
    assert "Traceback" not in output, f"{place}: {output}"
    try:
        scenario.check(folder, output)
    except AssertionError as error:
        raise AssertionError(f"{place}: {error}") from error
    return True


def fresh(server, scenario, *, at, within):
    """Runs the command once in a new folder.

    Returns the folder, the exit code, the operations, and the sizes of the files before.
    """
    base = server.folder / "trials"
    shutil.rmtree(base, ignore_errors=True)
    (base / "watched").mkdir(parents=True)
    folder = base / "watched" / "it"
    scenario.make(folder)
    existing = sizes_in(base)
    code, operations, output = server.run(
        scenario.command(folder), base / "watched", at=at, within=within, setup=scenario.setup
    )
    assert at or code == 0, output
    return folder, code, operations, existing
