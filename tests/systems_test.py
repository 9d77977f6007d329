"""Well-known set-ups, a table of docs/comparison.md: each command trains, on small data."""

import math
import re
import shlex
import sys

import pytest

from tests.benchmarks.commands import write_output
from tests.curves import read_scalars
from tests.paths import ROOT
from tests.programs import exit_code
from tests.programs import run as program
from tests.small_data import write_data_sets
from towers.scripts.main import main
from towers.scripts.training.catalogue import find_recipe

PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\| .* \| `(?:towers |(?=python))([^`]*)` \|$", PAGE, re.MULTILINE)
NUM_STEPS = 3
SMALL = {
    "chatbot": ["--set", "hidden_size=8", "--set", "embedding_size=8"],
    "ptb_small": ["--set", "hidden_size=8"],
}


@pytest.fixture(scope="module")
def data_sets(tmp_path_factory):
    """A folder of small data sets in the formats of the published ones, by name."""
    folder = tmp_path_factory.mktemp("data")
    write_data_sets(folder)
    return folder


def small(arguments, data_sets, folder):
    """Returns the arguments for small data, a few steps and a folder of its own."""
    recipe = arguments[1 if arguments[0] == "fit" else arguments.index("train") + 1]
    arguments = list(arguments)
    if "--data" in arguments:
        place = arguments.index("--data") + 1
        arguments[place] = str(data_sets / arguments[place])
    else:
        arguments += ["--data", str(data_sets / find_recipe(recipe).data_set)]
    for option in ("--epochs", "--report-every"):
        if option in arguments:
            place = arguments.index(option)
            del arguments[place : place + 2]
    if "--batch-size" not in arguments:
        arguments += ["--batch-size", "12"]
    if arguments[0] == "fit":
        return [*arguments, "--epochs", "1"]
    arguments += ["--steps", str(NUM_STEPS), "--report-every", "1"]
    return [*arguments, *SMALL.get(recipe, []), "--run-dir", str(folder / "run")]


# Their recipes and asynchronous updates have tests of their own.
ELSEWHERE = ("async", "cifar10", "chatbot", "ptb")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[pytest.mark.slow] * any(word in command for word in ELSEWHERE))
        for command in COMMANDS
        if command.startswith("train")
    ],
)
def test_set_up_trains(command, data_sets, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = small(shlex.split(command), data_sets, tmp_path)
    assert main(arguments) == 0, capsys.readouterr().err
    output = capsys.readouterr().out
    num_towers = int(arguments[arguments.index("--towers") + 1])
    assert f"{num_towers} towers" in output
    assert f"step {NUM_STEPS} saved" in output
    names = [f"tower_{number}" for number in range(num_towers)]
    if "async" in arguments:  # A tower that came too late for all of the few steps has none.
        names = [name for name in names if (tmp_path / "run" / "summaries" / name).exists()]
        assert names
    check_curves(tmp_path / "run", names)


def check_curves(run_dir, towers):
    """The losses of the towers, of their average and of the test data are numbers."""
    for name in [*towers, "average", "evaluation"]:
        losses = read_scalars(run_dir / "summaries", name)["loss"]
        assert all(math.isfinite(loss) for _, loss in losses)


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("launch")])
def test_set_up_trains_in_processes(command, data_sets, tmp_path):
    arguments = small(shlex.split(command), data_sets, tmp_path)
    launch = [sys.executable, "-m", "towers.scripts.main", *arguments]
    launch[launch.index("--log-dir") + 1] = str(tmp_path / "logs")
    program(launch, cwd=ROOT)
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [
        "worker.0.log",
        "worker.1.log",
    ]
    check_curves(tmp_path / "run", ["tower_0", "tower_1"])


def test_set_up_of_a_rival_trains(data_sets, tmp_path):
    """In a process of its own: MirroredStrategy remembers the shapes of an earlier one."""
    (command,) = (shlex.split(c) for c in COMMANDS if c.startswith("python"))
    assert command[:3] == ["python", "-m", "benchmarks"]
    output = tmp_path / "output.txt"
    assert exit_code(write_output, output, small(command[3:], data_sets, None)) == 0
    assert "epoch 1 | train accuracy" in output.read_text(encoding="utf-8")


def test_table_has_every_set_up():
    assert len(COMMANDS) == 6
    assert sum(command.startswith("launch") for command in COMMANDS) == 1
