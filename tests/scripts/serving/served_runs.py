"""Runs of chatbots that hardly learned anything, and processes that serve them."""

import contextlib
import os
import re
import signal
from typing import NamedTuple

import pytest

from tests.programs import PATIENCE, TOWERS, finish, started
from towers.scripts.main import main

ANSWERED = re.compile(r"served at (http://127\.0\.0\.1:\d+) ")


class Service(NamedTuple):
    """A process that serves a run.

    Attributes:
        address: as `http://127.0.0.1:PORT`.
        pid: of the process.
    """

    address: str
    pid: int


def train(run_dir, *fields, steps=2):
    """Returns the directory of a short run, with a small corpus and its cache beside it."""
    corpus = run_dir.parent / "corpus.conv"
    words = [f"w{a}{b}" for a in "abcdefgh" for b in "ijklmnop"]
    turns = "E\nM please say {0}\nM of course : {0} .\nM once more\nM {0} .\n"
    corpus.write_text("".join(turns.format(word) for word in words), encoding="utf-8")
    command = ["train", "chatbot", "--language", "en", "--data", str(corpus)]
    command += ["--run-dir", str(run_dir), "--steps", str(steps), "--batch-size", "32"]
    for field in ("held_out=0.1", *fields):
        command += ["--set", field]
    before = os.getcwd()
    os.chdir(run_dir.parent)  # Where the cache is made.
    try:
        assert main(command) == 0
    finally:
        os.chdir(before)
    return run_dir


@contextlib.contextmanager
def served(run_dir, *options):
    """Yields a process that serves a run; at the end SIGTERM stops it cleanly."""
    limit = ["--timeout", PATIENCE]  # A busy machine traces an answer for half a minute.
    with started([*TOWERS, "serve", run_dir, "--port", "0", *limit, *options]) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if found := ANSWERED.search(line):
                break
        else:
            pytest.fail(f"the service did not start: {''.join(lines)}")
        yield Service(found.group(1), process.pid)
        process.send_signal(signal.SIGTERM)
        assert finish(process) == "stopped\n"  # And nothing else: no message was printed.
