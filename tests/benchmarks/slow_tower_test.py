"""What a slow tower costs the others is measured of every tower, and needs several."""

import json

import pytest

from tests.benchmarks.commands import TINY, main, refuse


def rows_of(options, tmp_path):
    """Returns what a benchmark of a slow tower measured."""
    file = tmp_path / "results.jsonl"
    assert main(["slow", "shapes", *options, *TINY, "--results", str(file)]) == 0
    return json.loads(file.read_text())["results"]


@pytest.mark.slow
def test_synchronous_towers_all_fall_to_its_pace(tmp_path):
    options = ["--towers", "2", "--factor", "5", "--repetitions", "1", "--steps", "12"]
    rows = rows_of(options, tmp_path)
    assert [(row["mode"], row["slow"]) for row in rows] == [
        ("sync", 1.0), ("sync", 5.0), ("async", 1.0), ("async", 5.0),
    ]  # fmt: skip
    for row in rows[:2]:
        assert row["updates_per_second"][0] == row["updates_per_second"][1]
        assert row["staleness"] == 0
    assert all(rate > 0 for row in rows[2:] for rate in row["updates_per_second"])


def test_it_goes_on_until_every_tower_is_measured(tmp_path):
    options = ["--towers", "3", "--factor", "9", "--repetitions", "1", "--steps", "2"]
    for row in rows_of(options, tmp_path):
        assert min(row["updates_per_second"]) > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shapes", "--towers", "1"], "a number of at least 2"),
        (["shapes", "--factor", "0.5"], "a factor above 1"),
        (["stories", "--towers", "2"], "stories could"),
        (["shapes", "--gpus-per-tower", "2"], "leave it out"),
        (["shapes", "--exchange", "nccl"], "there is no option --exchange"),
    ],
)
def test_what_has_no_slow_tower_is_refused(arguments, message, capsys):
    assert message in refuse(["slow", *arguments], capsys)
