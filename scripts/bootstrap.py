"""Sets everything up on a fresh machine: an environment of its own, then the job or the tests.

    python3 scripts/bootstrap.py train      installs, trains a chatbot on the embedded dialogues,
                                            and asks it a few questions
    python3 scripts/bootstrap.py test       installs, then runs the tests
    python3 scripts/bootstrap.py install    only installs, with what the tests need

It needs nothing but Python and works in the folder `.venv` beside the README. Ctrl-C stops it; the
same command continues.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
INTERRUPTED = 128 + signal.SIGINT
OLDEST, NEWEST = (3, 10), (3, 13)
RUN_DIR = "runs/chatbot"
QUESTIONS = [
    "Hello, my name is Iris.",
    "What is two plus three?",
    "First take four and add five.",
    "Now add two.",
    "What is the capital of China?",
    "I have a cat called Daisy.",
    "What does it say?",
]
TOWERS = ["-m", "towers.scripts.main"]
# A tower for each GPU; where there is none two, so that there is something to see.
TRAIN = ["train", "chatbot", "--language", "en", "--cpu-towers", "2", "--run-dir", RUN_DIR]
JOBS = {
    "train": [
        [*TOWERS, *TRAIN],
        [*TOWERS, "chat", RUN_DIR, "--ask", *QUESTIONS],
    ],
    # For two cores, since some tests wait; by files and in the order of conftest.py.
    "test": [["-m", "pytest", "-n", "3", "--no-loadscope-reorder"]],
    "install": [],
}


def main(arguments: list[str]) -> int:
    """Installs and runs a job; returns its exit code, or 2 for wrong input."""
    if arguments in (["-h"], ["--help"], ["help"]):
        print(__doc__)
        return 0
    if len(arguments) != 1 or arguments[0] not in JOBS:
        return refuse(f"say what to do: {', '.join(JOBS)}. Received {arguments}")
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        return refuse(
            f"TensorFlow needs Python 3.{OLDEST[1]} to 3.{NEWEST[1]}, but this is "
            f"{sys.version.split()[0]}. Run this file with another Python, such as python3.12"
        )
    job = arguments[0]
    extras = ([] if job == "train" else ["test"]) + (["gpu"] if has_nvidia_gpu() else [])
    python = str(make_environment())
    install(python, extras)
    code = 0
    for command in JOBS[job]:
        code = code or call([python, *command])
    print(f"ready: source {os.path.relpath(ENVIRONMENT)}/bin/activate")
    return code


def call(command: Sequence[str]) -> int:
    """Runs a command in the project's folder and returns its exit code; 128 + its signal if one.

    Ctrl-C is left to the command, which may need a while to save what it has done.
    """
    interrupted = []
    # With this one each process of the tests would compile all test modules, for five seconds.
    names = os.environ.keys() - {"PYTHONDONTWRITEBYTECODE"}
    environment = {name: os.environ[name] for name in names}
    # A function, unlike SIG_IGN, is not handed on to the command.
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupted.append(number))
    try:
        code = subprocess.Popen(command, cwd=ROOT, env=environment).wait()
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupted and code:  # Whatever the command makes of it, as pip does.
        return INTERRUPTED
    return code if code >= 0 else 128 - code


def refuse(message: str) -> int:
    """Prints why nothing is done."""
    print(f"bootstrap: {message}.", file=sys.stderr)
    return 2


def has_nvidia_gpu() -> bool:
    """Returns whether the driver lists a GPU."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return False
    listed = subprocess.run([command, "-L"], capture_output=True, text=True, check=False)
    return listed.returncode == 0 and "GPU" in listed.stdout


def make_environment() -> Path:
    """Returns the Python of the environment, which is made if it is not there or not whole."""
    python = ENVIRONMENT / "bin" / "python"
    command = [str(python), "-m", "pip", "--version"]  # After an interruption it may lack pip.
    if python.exists() and not subprocess.run(command, capture_output=True).returncode:
        return python
    note = ENVIRONMENT / "made-by-bootstrap"
    if ENVIRONMENT.exists() and not note.exists():
        sys.exit(
            f"bootstrap: {ENVIRONMENT} is an environment without pip that this script did not "
            f"make. Add pip (`{python} -m ensurepip`) or move it away; then run the same command "
            "again."
        )
    print(f"making the environment {ENVIRONMENT}", flush=True)
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    ENVIRONMENT.mkdir()
    note.touch()
    try:
        venv.create(ENVIRONMENT, with_pip=True)
    except subprocess.CalledProcessError:
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        sys.exit(
            "bootstrap: this Python cannot put pip into an environment. On Debian and Ubuntu, run "
            "`apt install python3-venv`; then run the same command again."
        )
    return python


def install(python: str, extras: list[str]) -> None:
    """Installs the project and what it needs, unless that was done before."""
    wanted = hashlib.sha256((ROOT / "setup.cfg").read_bytes() + constraints()).hexdigest()
    note = ENVIRONMENT / f"installed-{'-'.join(extras) or 'plain'}"
    if note.exists() and note.read_text() == wanted:
        return
    target = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    print(f"installing {target}: TensorFlow is large, so this takes a minute or more", flush=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # That of a Python of 2023 searches for hours: TensorFlow holds h5py to an older release.
    code = call([*pip, "--upgrade", "pip"]) or call([*pip, "--editable", target])
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        sys.exit("bootstrap: the installation failed; see pip's message above.")
    note.write_text(wanted)


def constraints() -> bytes:
    """Returns the releases to which pip is held by its own variable, if it is."""
    path = os.environ.get("PIP_CONSTRAINT", "")
    return Path(path).read_bytes() if path and Path(path).is_file() else b""


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("bootstrap: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
