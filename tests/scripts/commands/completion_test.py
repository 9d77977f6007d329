"""The completion scripts are what the shells take, and bash completes with them."""

import shutil
import subprocess
import sys

import pytest

from towers.scripts.main import main

pytest.importorskip("shtab")
COMPLETE = """
. {script}
COMP_WORDS=({words} "")
COMP_CWORD={count}
COMP_WORDS[$COMP_CWORD]="{begun}"
_shtab_towers
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """Returns a function that writes a shell's script and returns its path."""

    def write(shell):
        path = tmp_path_factory.mktemp("completion") / shell
        command = [sys.executable, "-m", "towers.scripts.main", "completion", shell]
        path.write_text(subprocess.check_output(command, text=True))
        return path

    return write


@pytest.mark.parametrize(
    "words, begun, expected",
    [
        ("towers", "tra", ["train"]),
        ("towers train", "sha", ["shapes"]),
        ("towers train shapes", "--max", ["--max-minutes"]),
        ("towers train shapes --parameters", "", ["auto", "cpu", "tower0", "replicated"]),
    ],
)
def test_bash_completes(words, begun, expected, script):
    count = len(words.split())
    program = COMPLETE.format(script=script("bash"), words=words, begun=begun, count=count)
    output = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert output.stdout.split() == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_programs_of_their_shell(shell, script, capsys):
    assert main(["completion", shell]) == 0
    assert "towers" in capsys.readouterr().out
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert subprocess.run([shell, "-n", str(script(shell))]).returncode == 0


def test_another_shell_is_refused(capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["completion", "tcsh"])
    assert leaving.value.code == 2 and "tcsh" in capsys.readouterr().err
