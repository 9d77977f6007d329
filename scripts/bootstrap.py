"""Sets everything up on a fresh machine: an environment of its own, then the job or the tests.

    python3 scripts/bootstrap.py train      installs, trains a chatbot on the embedded dialogues,
                                            and asks it a few questions
    python3 scripts/bootstrap.py test       installs, then runs the tests
    python3 scripts/bootstrap.py install    only installs, with what the tests need

It needs nothing but Python and works in the folder `.venv` beside the README.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
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
TOWERS = ["-m", "scripts.main"]
JOBS = {
    "train": [
        [*TOWERS, "train", "chatbot", "--language", "en", "--towers", "2", "--run-dir", RUN_DIR],
        [*TOWERS, "chat", RUN_DIR, "--ask", *QUESTIONS],
    ],
    "test": [["-m", "pytest", "-n", "2"]],
    "install": [],
}


def main(arguments: list[str]) -> int:
    """Installs and runs a job; returns its exit code, or 2 for wrong input."""
    if len(arguments) != 1 or arguments[0] not in JOBS:
        return refuse(f"say what to do: {', '.join(JOBS)}. Received {arguments}")
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        return refuse(
            f"TensorFlow needs Python 3.{OLDEST[1]} to 3.{NEWEST[1]}, this is "
            f"{sys.version.split()[0]}. Call this file with another, such as python3.12"
        )
    job = arguments[0]
    extras = ([] if job == "train" else ["test"]) + (["gpu"] if has_nvidia_gpu() else [])
    python = str(make_environment())
    install(python, extras)
    for command in JOBS[job]:
        code = subprocess.run([python, *command], cwd=ROOT, check=False).returncode
        if code:
            return code
    return 0


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
    """Returns the Python of the environment, which is made if it is not there."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        print(f"making the environment {ENVIRONMENT}", flush=True)
        try:
            venv.create(ENVIRONMENT, with_pip=True, clear=True)
        except subprocess.CalledProcessError:
            shutil.rmtree(ENVIRONMENT, ignore_errors=True)
            sys.exit(
                "bootstrap: this Python has no pip to put into an environment. On Debian and "
                "Ubuntu, `apt install python3-venv` brings it; then run the same command again."
            )
    return python


def install(python: str, extras: list[str]) -> None:
    """Installs the project and what it needs, unless that was done before."""
    wanted = hashlib.sha256((ROOT / "setup.cfg").read_bytes()).hexdigest()
    note = ENVIRONMENT / f"installed-{'-'.join(extras) or 'plain'}"
    if note.exists() and note.read_text() == wanted:
        return
    target = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    print(f"installing {target}: TensorFlow is large, this takes a minute or more", flush=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, "--editable", target], check=False).returncode != 0:
        sys.exit("bootstrap: the installation failed; what pip said stands above.")
    note.write_text(wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
