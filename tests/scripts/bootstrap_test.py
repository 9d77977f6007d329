"""Set-up on a fresh machine: Ctrl-C is the job's own affair, half an environment is mended."""

import os
import signal
import sys

import pytest

from tests.paths import ROOT
from tests.programs import finish, started
from towers.scripts import bootstrap

SAVES_FOR_A_SECOND = """
import sys, time
try:
    print("at work", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    time.sleep(1)
    print("saved", flush=True)
    sys.exit(130)
"""


@pytest.mark.parametrize(
    ("code", "expected"), [("exit(3)", 3), ("import os; os.kill(os.getpid(), 15)", 143)]
)
def test_the_exit_code_is_the_jobs(code, expected):
    assert bootstrap.call([sys.executable, "-c", code]) == expected


def test_a_job_keeps_what_python_compiles(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = "import sys; sys.exit(3 if sys.dont_write_bytecode else 0)"
    assert bootstrap.call([sys.executable, "-c", code]) == 0


def test_ctrl_c_leaves_the_job_its_time_to_save():
    call = f"sys.exit(bootstrap.call([sys.executable, '-c', {SAVES_FOR_A_SECOND!r}]))"
    program = [sys.executable, "-c", f"import sys; from scripts import bootstrap; {call}"]
    with started(program, cwd=ROOT) as process:
        assert process.stdout.readline() == "at work\n"
        os.killpg(process.pid, signal.SIGINT)  # As a terminal does.
        assert finish(process, code=130) == "saved\n"


@pytest.mark.parametrize("arguments", [["-h"], ["--help"]])
def test_it_explains_itself(arguments, capsys):
    assert bootstrap.main(arguments) == 0
    assert "bootstrap.py train" in capsys.readouterr().out


ENDS_LIKE_PIP = "import os, signal; signal.signal(2, lambda *_: exit(1)); os.killpg(0, 2)"


def test_ctrl_c_is_no_failed_installation():
    call = f"sys.exit(bootstrap.call([sys.executable, '-c', {ENDS_LIKE_PIP!r}]))"
    program = [sys.executable, "-c", f"import sys; from scripts import bootstrap; {call}"]
    with started(program, cwd=ROOT) as process:
        finish(process, code=bootstrap.INTERRUPTED)


def test_it_ends_with_how_to_enter_the_environment(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(bootstrap, "make_environment", lambda: tmp_path)
    monkeypatch.setattr(bootstrap, "install", lambda python, extras: None)
    monkeypatch.chdir(ROOT)
    assert bootstrap.main(["install"]) == 0
    assert capsys.readouterr().out.endswith("ready: source .venv/bin/activate\n")


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A folder in place of the environment, which is made without pip, to be quick."""
    create = bootstrap.venv.create
    monkeypatch.setattr(bootstrap, "ENVIRONMENT", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap.venv, "create", lambda folder, with_pip: create(folder))
    return tmp_path / ".venv"


@pytest.mark.parametrize("is_whole", [False, True])
def test_an_environment_is_made_anew_only_if_it_has_no_pip(is_whole, environment):
    bootstrap.make_environment()
    (packages,) = environment.glob("lib/python*/site-packages")
    if is_whole:
        (packages / "pip.py").touch()
    (environment / "old").touch()
    assert bootstrap.make_environment().exists()
    assert (environment / "old").exists() == is_whole


def test_an_environment_of_somebody_else_is_left_alone(environment):
    environment.mkdir()
    (environment / "theirs").touch()
    with pytest.raises(SystemExit, match="this script did not make"):
        bootstrap.make_environment()
    assert [path.name for path in environment.iterdir()] == ["theirs"]
