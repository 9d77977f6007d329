"""Which rivals are timed, in which order, and in which process; and that they are timed."""

import json
import subprocess
import sys

import pytest

from benchmarks import foreign
from benchmarks.rivals import rivals_of
from tests.benchmarks.commands import TINY, main, refuse
from tests.paths import ROOT
from tests.programs import run
from towers.scripts.timing.options import StepTimingOptions
from towers.scripts.timing.steps import in_processes, most_towers, towers_of


@pytest.mark.parametrize(
    "towers, rivals, processes",
    [
        ((2,), ["plain"], [["towers 2"], ["plain"]]),
        ((1,), ["mirrored", "fit"], [["towers 1"], ["mirrored 2"], ["fit"]]),
        (
            (4, 1),
            ["mirrored", "plain", "towers_fit"],
            [
                *(["towers 4"], ["towers 1"], ["mirrored 4"], ["plain"]),
                *(["towers_fit 1"], ["towers_fit 4"]),
            ],
        ),
    ],
    ids=str,
)
def test_each_rival_has_a_process(towers, rivals, processes):
    contenders = towers_of(StepTimingOptions("shapes", towers=towers)) + rivals_of(
        rivals, max(2, *towers)
    )
    found = in_processes(contenders)
    assert [[contender.name for contender in group] for group in found] == processes


def test_the_rivals_come_as_they_were_given():
    found = rivals_of(["mirrored", "fit", "plain"], 2)
    assert [one.name for one in found] == ["mirrored 2", "fit", "plain"]
    assert [one.number for one in found] == [2, 1, 1]
    assert most_towers(found) == 2


@pytest.mark.parametrize(
    ("towers", "others", "names"),
    [
        ("1", "plain", ["towers 1", "plain"]),
        pytest.param(
            *("1,2", "plain,fit,mirrored", ["towers 1", "towers 2", "plain", "fit", "mirrored 2"]),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_every_way_is_measured_and_its_line_appended(towers, others, names, tmp_path):
    file = tmp_path / "results.jsonl"
    command = ["compare", "shapes", "--towers", towers, "--against", others, *TINY]
    command += ["--repetitions", "2", "--steps", "3", "--results", str(file)]
    file.write_text("an earlier line\n")
    run([sys.executable, "-m", "benchmarks", *command], cwd=ROOT)
    earlier, text = file.read_text().splitlines()
    assert earlier == "an earlier line"
    line = json.loads(text)
    assert line["arguments"] == [*command, "shapes"] and line["processor"] and line["cores"] >= 1
    rows = line["results"]
    assert [row["name"] for row in rows] == names
    assert rows[0]["time_ratio"] == 1
    for row in rows:
        assert row["milliseconds"] > 0
        assert row["examples_per_second"] == pytest.approx(100_000 / row["milliseconds"])


@pytest.mark.parametrize(
    ("others", "names"),
    [
        ("torch", ["towers 1"]),
        pytest.param(
            "towers_fit,fit,torch",
            ["towers 1", "towers_fit 1", "towers_fit 2", "fit"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_made_up_tasks_are_measured_and_a_missing_library_is_said(
    others, names, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(foreign, "is_installed", lambda library: False)
    file = tmp_path / "results.jsonl"
    command = ["compare", "made_mlp", "--towers", "1", "--against", others, "--batch-size", "8"]
    command += ["--set", "longer=1", "--set", "steps_per_call=2", "--results", str(file)]
    assert main([*command, "--repetitions", "1", "--steps", "5"]) == 0
    rows = json.loads(file.read_text())["results"]
    assert [row["name"] for row in rows] == names
    assert all(row["milliseconds"] > 0 for row in rows)
    assert "| torch | missing: not installed |" in capsys.readouterr().out


def test_other_libraries_take_made_up_tasks_alone():
    with pytest.raises(ValueError, match="Received shapes"):
        foreign.make_jax()(("shapes", 1, 1))


def test_a_line_names_the_commit(tmp_path):
    from benchmarks.results import append_line

    known = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    append_line(tmp_path / "results.jsonl", ["compare"], [{"milliseconds": 1.0}])
    line = json.loads((tmp_path / "results.jsonl").read_text())
    assert line["commit"] == (known.stdout.strip() if known.returncode == 0 else None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "shapes", "--against", "mirored"], "Did you mean 'mirrored'?"),
        (["compare", "shapez"], "Did you mean 'shapes'?"),
        (["compare", "shapes", "--towers", "0"], "at least 1"),
        (
            ["compare", "shapes", "more"],
            "the usage is `python -m benchmarks compare [options] RECIPE`",
        ),
        (["compare", "shapes", "--results", "no/folder.jsonl"], "no/folder.jsonl: No such file"),
    ],
)
def test_wrong_input_is_one_message(arguments, message, capsys):
    assert message in refuse(arguments, capsys)


def test_help_needs_no_tensorflow():
    program = "import sys; from benchmarks.commands import main\n"
    program += "try: main(['compare', '--help'])\nexcept SystemExit: pass\n"
    program += "sys.exit(bool({'tensorflow', 'keras', 'numpy'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True)
