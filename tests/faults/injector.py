"""Ends a command before and within every operation on files, and starts it again."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from tests.paths import ROOT
from tests.programs import started

SOURCE = pathlib.Path(__file__).with_name("shim.c")


class Injector:
    """A server of commands that die.

    Args:
        folder: for the shim and the logs.
    """

    def __init__(self, folder, process):
        self._folder = folder
        self._process = process

    def run(self, arguments, folder, *, at=0, within=False, watched=True, setup="", cwd=None):
        """Runs a command; returns its exit code, its operations and its output."""
        log, output = self._folder / "operations", self._folder / "output"
        log.unlink(missing_ok=True)
        job = {
            "arguments": [str(one) for one in arguments], "folder": str(folder), "at": at,
            "within": within, "log": str(log) if watched else "", "output": str(output),
            "setup": setup, "cwd": str(cwd or folder),
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


def try_all(server, command, make, check, *, points=None, setup="", ways=WAYS, finish=None):
    """Ends a command at its operations, starts it again, and checks what is there then.

    Args:
        server: an `Injector`.
        command: `command(folder)` returns the arguments.
        make: `make(folder)` makes the folder as it is before the command.
        check: `check(folder, output)` raises AssertionError if something is wrong at the end.
        points: the numbers of the operations, None for all, or a function of their number.
        setup: Python that the process runs before.
        ways: of `WAYS`.
        finish: the exit codes of the second start; 0 alone by default.

    Returns:
        The number of operations, and how often each way was tried.
    """
    base = server._folder / "trials"
    _, operations, _ = fresh(server, base, command, make, setup, at=0, within=False)
    check(base / "watched" / "it", "")
    numbers = range(1, len(operations) + 1) if points is None else points(len(operations))
    counts = dict.fromkeys(ways, 0)
    for number in numbers:
        for way in ways:
            if way == "killed within" and operations[number - 1][0] != "write":
                continue
            within = way == "killed within"
            code, done, existing = fresh(
                server, base, command, make, setup, at=number, within=within
            )
            if code == 0:  # This time there were fewer operations, such as flushes by a clock.
                continue
            place = f"{way} at operation {number}: {operations[number - 1]}"
            assert code == -signal.SIGKILL, f"{place}: {code}"
            if way == "power cut":
                cut_power(done, existing)
            folder = base / "watched" / "it"
            again, _, output = server.run(
                command(folder), base / "watched", watched=False, setup=setup
            )
            assert again in (finish or (0,)), f"{place}: then {again}: {output}"
            assert "Traceback" not in output, f"{place}: {output}"
            try:
                check(folder, output)
            except AssertionError as error:
                raise AssertionError(f"{place}: {error}") from error
            counts[way] += 1
    return len(operations), counts


def fresh(server, base, command, make, setup, *, at, within):
    """Runs the command once in a new folder.

    Returns its exit code, its operations, and the sizes of the files before.
    """
    shutil.rmtree(base, ignore_errors=True)
    (base / "watched").mkdir(parents=True)
    folder = base / "watched" / "it"
    make(folder)
    existing = sizes_in(base)
    code, operations, output = server.run(
        command(folder), base / "watched", at=at, within=within, setup=setup
    )
    assert at or code == 0, output
    return code, operations, existing
