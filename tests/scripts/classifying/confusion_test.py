"""Recall, precision and F1 are those of NumPy, and every test example counts once."""

import json

import numpy as np
import pytest

from towers.scripts.classifying.confusion import Confusion, describe
from towers.scripts.main import main

COUNTS = np.array([[3, 1, 0], [0, 0, 0], [2, 0, 4]])


def test_shares_of_each_class():
    confusion = Confusion(("cat", "dog", "fish"), COUNTS)
    np.testing.assert_allclose(confusion.rates[0], [3 / 4, np.nan, 4 / 6])
    np.testing.assert_allclose(confusion.rates[1], [3 / 5, 0, 1])
    precision, recall = 3 / 5, 3 / 4
    f1 = 2 * precision * recall / (precision + recall)
    np.testing.assert_allclose(confusion.rates[2], [f1, 0, 8 / 10])


def test_the_classes_are_shown():
    assert list(describe(Confusion(("cat", "下雨", "a_very_long_name"), COUNTS))) == [
        "class             examples  recall  precision  f1",
        "cat               4         0.750   0.600      0.667",
        "下雨              0         -       0.000      0.000",
        "a_very_long_name  6         0.667   1.000      0.800",
        "",
        "rows: true classes; columns: predicted classes, in the same order",
        "cat           3  1  .",
        "下雨          .  .  .",
        "a_very_long…  2  .  4",
    ]


def test_of_many_classes_the_largest_confusions_are_shown():
    counts = np.eye(30, dtype=np.int64)
    counts[3, 7], counts[9, 2] = 5, 8
    lines = list(describe(Confusion(tuple(f"c{number}" for number in range(30)), counts)))
    assert [line.split() for line in lines[-2:]] == [["c9", "c2", "8"], ["c3", "c7", "5"]]


@pytest.mark.slow
def test_every_test_example_counts_once(tmp_path, capsys, monkeypatch):
    run = str(tmp_path / "run")
    assert main(["train", "shapes", "--steps", "20", "--run-dir", run, "--quiet"]) == 0
    assert main(["evaluate", run, "--classes", "--json", "--batch-size", "7"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    counts = np.array(report["confusion"])
    assert counts.sum() == 500 and counts.sum(1).tolist() == [50] * 10
    assert counts.trace() / 500 == pytest.approx(report["accuracy"], abs=1e-6)
    stories = str(tmp_path / "stories")
    small = ["--set", "hidden_size=4", "--quiet", "--run-dir", stories]
    assert main(["train", "stories", "--steps", "1", *small]) == 0
    read = "towers.scripts.training.saved_run.open_session"
    monkeypatch.setattr(read, lambda *_, **__: pytest.fail("the data was read"))
    for command in (["evaluate", stories, "--classes"], ["predict", stories, __file__]):
        assert main(command) == 2
        assert "image" in capsys.readouterr().err
