"""How a command ends: wrong input in one line, a failure in one line, a bug with its traceback."""

import os
import re
import signal
import subprocess
import sys

import pytest

from tests.paths import ROOT
from tests.programs import PATIENCE
from towers.scripts.main import main
from towers.scripts.wrong_input import WrongInputError, nearest, wrong_input

TRAIN = ["train", "shapes", "--steps", "3", "--batch-size", "100", "--set", "filters=2,3"]


def train(run_dir, *arguments):
    return main([*TRAIN, "--run-dir", str(run_dir), *arguments])


@pytest.mark.parametrize(
    "error",
    [ValueError, *(pytest.param(error, marks=pytest.mark.slow) for error in (TypeError, KeyError))],
)
def test_a_bug_shows_a_traceback_and_where_to_report_it(error, tmp_path, capsys, monkeypatch):
    """Also a ValueError, if it comes from the middle of the training."""

    def fail(*arguments, **options):
        raise error("inside the training")

    monkeypatch.setattr("towers.actions.print_report", fail)
    assert train(tmp_path / "run", "--report-every", "1") == 1
    output = capsys.readouterr().err
    assert output.startswith("Traceback") and "inside the training" in output
    assert re.search(r"^towers: this is a bug.* report it .*CONTRIBUTING.md$", output, re.MULTILINE)


def test_wrong_input_shows_its_traceback_only_on_request(tmp_path, capsys, monkeypatch):
    wrong = ["--set", "optimizer=nothing"]
    assert train(tmp_path / "run", *wrong) == 2
    error = capsys.readouterr().err
    assert error.startswith("towers: error: ") and error.count("\n") == 1
    monkeypatch.setenv("TOWERS_TRACEBACK", "1")
    assert train(tmp_path / "run", *wrong) == 2
    assert capsys.readouterr().err.startswith("Traceback")


def test_a_runtime_error_of_another_package_is_a_bug(tmp_path, capsys, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("inside Keras")

    monkeypatch.setattr("towers.actions.print_report", fail)
    assert train(tmp_path / "run", "--report-every", "1") == 1
    assert "this is a bug" in capsys.readouterr().err


def test_errors_about_what_the_user_gave_are_converted():
    for error in (ValueError("bad"), FileNotFoundError("bad"), ImportError("bad")):
        with pytest.raises(WrongInputError, match="bad"), wrong_input():
            raise error


def test_other_errors_are_not_converted():
    for error, kinds in [(KeyError(), ()), (BrokenPipeError(), ()), (ValueError(), (OSError,))]:
        with pytest.raises(type(error)), wrong_input(*kinds):
            raise error


def test_the_nearest_name_is_suggested_or_all_are_listed():
    assert nearest("shape", ["shapes", "mnist"]) == " Did you mean 'shapes'?"
    assert nearest("xyz", ["shapes", "mnist"]) == " There are: mnist, shapes."
    many = nearest("xyz", [f"network{number}" for number in range(100, 200)])
    assert many.startswith(" There are: network100, network101, ")
    assert many.endswith(" more.") and len(many) < 250


def test_the_version_is_printed_without_tensorflow(capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["--version"])
    assert leaving.value.code == 0
    line = capsys.readouterr().out
    assert re.fullmatch(r"towers [\d.]+, tensorflow 2\S+, keras 3\S+, Python 3\S+\n", line)


def test_the_version_is_a_name_of_the_package_and_the_package_a_program():
    program = (
        "import sys, towers; print(towers.__version__, {'tensorflow', 'keras'} & {*sys.modules})"
    )
    told = run_python("-c", program)
    printed = run_python("-m", "towers", "--version")
    assert told == f"{printed.split(',')[0].removeprefix('towers ')} set()\n"
    assert run_python("-m", "towers", "shapes", code=2).startswith("towers: ")


@pytest.mark.parametrize(
    ("line", "usage"), [([], "[-h]"), (["train"], "train"), (["compare"], "runs")]
)
def test_help_is_a_command_too(line, usage, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["help", *line])
    assert leaving.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: towers {usage} ")


def test_keras_takes_tensorflow_whatever_the_environment_says():
    program = "import towers, os; print(os.environ['KERAS_BACKEND'])"
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert result.stdout == "tensorflow\n"
    assert "KERAS_BACKEND=torch is not used: towers works with TensorFlow alone" in result.stderr


def test_a_config_file_is_dumped_without_tensorflow():
    program = (
        "import sys; from towers.scripts.main import main; "
        "main(['train', 'shapes', '--dump-config']); "
        "print({'tensorflow', 'keras'} & {*sys.modules})"
    )
    printed = run_python("-c", program)
    assert 'recipe = "shapes"' in printed and printed.endswith("\nset()\n")


def test_a_help_needs_no_docstrings():
    printed = run_python("-OO", "-m", "towers", "generate", "--help")
    assert "--prompt TEXT" in printed and "examples" not in printed


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_help_whose_reader_has_left_ends_quietly(unbuffered):
    """Unbuffered output fails while it is printed, buffered output when it is flushed."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "towers", "generate", "--help-all"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with os.fdopen(writer) as output:
        result = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.PIPE
        )
    assert (result.returncode, result.stderr) == (128 + signal.SIGPIPE, b"")


def run_python(*arguments, code=0):
    """Returns what a new process of Python prints."""
    result = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    )
    assert result.returncode == code, result.stderr
    return result.stdout or result.stderr
