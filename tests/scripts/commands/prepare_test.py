"""`towers prepare` shows what was understood, and the first examples as a model sees them."""

import json

import pytest

from towers.scripts.main import main


@pytest.mark.parametrize("recipe", ["chatbot", "language_model"])
def test_examples_stand_before_the_one_object_of_the_last_line(
    tmp_path, monkeypatch, capsys, recipe
):
    monkeypatch.chdir(tmp_path)
    if recipe == "chatbot":
        rows = "".join(f"question {n}\tanswer {n}\tignored\n" for n in range(60))
        expected = {"question": ["question 1"], "answer": "answer 1"}
    else:
        rows = "".join(f"some words {n} in a line\n" for n in range(2000))
        expected = {"text": "some words 0 in a line"}
    (tmp_path / "data.txt").write_text(rows)
    command = ["prepare", recipe, "--language", "en", "--data", "data.txt", "--show", "2", "--json"]
    assert main([*command, "--processes", "1", "--set", "held_out=0.2"]) == 0
    *_, first, _, last = map(str, capsys.readouterr().out.splitlines())
    assert json.loads(first) == expected
    assert json.loads(last)["recipe"] == recipe and json.loads(last)["summary"]
