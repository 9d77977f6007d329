"""`towers prepare` shows what was understood, and the first examples as a model sees them."""

import json

import pytest

from tests.data.image_files.pictures import write_pictures
from towers.scripts.main import main


def test_pictures_are_shown_with_their_labels_and_parts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path / "pictures", 2, broken=False)
    assert main(["prepare", "images", "--data", "pictures", "--show", "2", "--json"]) == 0
    *_, one, other, last = map(json.loads, capsys.readouterr().out.splitlines()[-3:])
    assert [one["part"], other["part"]] == ["train", "validation"]
    assert all(shown["file"].startswith(f"{shown['label']}/") for shown in (one, other))
    assert last["pictures"] == {"train": 3, "validation": 3} and last["summary"]


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
