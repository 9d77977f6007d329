"""Processes that tokenise end with their program, and say what went wrong in them."""

import os
import signal
import subprocess
import sys
import threading
import traceback

import numpy as np
import pytest

from tests.data.prepared.helpers import SPACES
from tests.paths import ROOT
from towers.data.prepared.processes import make_tokeniser, tokenise
from towers.data.text import TextSettings
from towers.ground.child_process import ChildProcess

CHUNKS = [[f"a b{number}", "", "a a"] for number in range(40)]


def test_the_tokens_are_those_of_this_process_in_the_same_order():
    expected = list(tokenise(CHUNKS, SPACES, 1))
    found = list(tokenise(CHUNKS, SPACES, 3))
    assert len(found) == len(expected) == len(CHUNKS)
    for one, other in zip(found, expected, strict=True):
        assert one.table == other.table
        for name in ("indices", "lengths", "characters"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_a_killed_process_is_told_and_the_others_end():
    tokens = tokenise(CHUNKS, SPACES, 2)
    next(tokens)
    processes = children()
    os.kill(processes[-1], signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"ended early \(exit status -9\).* Try fewer processes"):
        list(tokens)
    assert not [one for one in processes[-2:] if os.path.exists(f"/proc/{one}")]


def test_an_error_holds_no_view_of_what_could_not_be_sent():
    """From Python 3.13 on, a `BytesIO` that is collected before its views is told as an error."""
    with ChildProcess(make_tokeniser, "tokenises") as process:
        os.kill(children()[-1], signal.SIGKILL)
        with pytest.raises(RuntimeError, match="ended early") as caught:
            while True:
                process.send((SPACES, ["a"]))
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__cause__.__traceback__)]
    held = [value for frame in frames for value in frame.f_locals.values()]
    views = [one.obj for one in held if isinstance(one, memoryview)]
    assert all(isinstance(one, bytes) for one in views), views


def children() -> list[int]:
    """Returns the ids of the processes that this thread started, in their order."""
    with open(f"/proc/self/task/{threading.get_native_id()}/children", encoding="utf-8") as file:
        return list(map(int, file.read().split()))


def test_an_error_in_a_process_is_that_of_its_tokenizer(tmp_path):
    settings = TextSettings("zh", user_dictionary=str(tmp_path / "none.txt"))
    with ChildProcess(make_tokeniser, "tokenises") as process:
        for _ in range(2):  # It goes on.
            with pytest.raises(ValueError, match=r"none\.txt"):
                process.ask((settings, ["a"]))


def test_the_main_program_is_not_imported(tmp_path):
    """It may have no guard, import TensorFlow, or print."""
    program = tmp_path / "main.py"
    program.write_text(
        "from tests.data.prepared.helpers import SPACES\n"
        "from towers.data.prepared.processes import tokenise\n"
        "print('started')\n"
        "print(len(list(tokenise([['a b'], ['b'], ['c']], SPACES, 2))))\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert done.stdout == b"started\n3\n"
