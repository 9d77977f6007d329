"""Law 23 for a table of wrong inputs: each is refused in one short line, or works."""

import contextlib
import io
import os
import random
import shutil
import signal
import sys
import warnings

import pytest

from tests.scripts import wrong_inputs as inputs
from towers.scripts.main import main

LONGEST = 300  # Characters of a message.
SECONDS = 60


class Endless(BaseException):
    """A command has no end."""


def outcome(arguments, works=True):
    """Runs a command; returns what is wrong with how it ends, or an empty text.

    Args:
        arguments: of the command.
        works: whether it may work.
    """
    out, error = io.StringIO(), io.StringIO()

    def give_up(*_):
        raise Endless

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    try:
        with (
            contextlib.redirect_stdout(out), contextlib.redirect_stderr(error),
            warnings.catch_warnings(),
        ):  # fmt: skip
            warnings.simplefilter("ignore")
            try:
                code = main(arguments)
            except SystemExit as leaving:  # argparse.
                code = leaving.code
    except Endless:
        return f"no end within {SECONDS} s"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return "accepted" if code == 0 and not works else fault(code, error.getvalue())


def fault(code, text):
    if "Traceback" in text:
        return "traceback: " + " ".join(text.splitlines()[-4:])
    if code == 0:
        return ""
    if code != 2:
        return f"exit code {code}: {text[-200:]}"
    *_, message = text.splitlines() or [""]
    message = message.partition("error: ")[2]
    if not message:
        return f"no message: {text[-200:]}"
    if len(message) > LONGEST:
        return f"{len(message)} characters: {message}"
    if "[Errno" in message or "invalid positive_" in message:
        return f"raw: {message}"
    return ""


def report(found, capsys, what):
    with capsys.disabled():
        print(f"\n{what}: {found[0]} inputs, {len(found[1])} at fault", file=sys.stderr)
    assert not found[1], "\n".join(found[1])


def try_all(cases, works=True):
    faults, count = [], 0
    for name, arguments in cases:
        count += 1
        if wrong := outcome(arguments, works):
            faults.append(f"{name}: {wrong}")
    return count, faults


def try_files(cases):
    """Tries each case on a changed file, which is put back afterwards."""
    faults, count = [], 0
    for name, path, change, arguments in cases:
        content = path.read_bytes()
        try:
            if change not in inputs.DAMAGES:
                path.write_text(change)
            elif not inputs.spoil_text(path, change):
                continue
            count += 1
            if wrong := outcome(arguments):
                faults.append(f"{name}, {arguments[0]}: {wrong}")
        finally:
            if path.is_dir():
                path.rmdir()
            path.write_bytes(content)
            shutil.rmtree("new", ignore_errors=True)
    return count, faults


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("place")
    before = os.getcwd()
    os.chdir(folder)
    inputs.make_place(folder)
    yield folder
    os.chdir(before)


def test_a_sample_of_options_is_refused_in_one_short_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases = [*inputs.option_inputs(), *inputs.field_inputs()]
    assert len(cases) > 400
    _, faults = try_all(random.Random(0).sample(cases, 60))
    assert not faults, "\n".join(faults)


@pytest.mark.slow
def test_every_wrong_option_is_refused_in_one_short_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    report(try_all(inputs.option_inputs()), capsys, "options")


@pytest.mark.slow
def test_every_wrong_field_is_refused_in_one_short_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    report(try_all(inputs.field_inputs()), capsys, "fields")


@pytest.mark.slow
def test_every_contradiction_is_refused_in_one_short_line(place, capsys):
    report(try_all(inputs.CONTRADICTIONS.items(), works=False), capsys, "contradictions")


@pytest.mark.slow
def test_every_damaged_file_is_refused_in_one_short_line(place, capsys):
    report(try_files(inputs.file_inputs(place)), capsys, "files")


@pytest.mark.slow
def test_every_record_of_a_stranger_is_refused_in_one_short_line(place, capsys):
    report(try_files(inputs.record_inputs(place)), capsys, "records")
