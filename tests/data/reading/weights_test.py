"""Corpora with weights: how often each dialogue is read, and what is refused."""

from pathlib import Path

import pytest

from towers.data.reading import files_once, repeated, weighted_paths


def test_a_weight_stands_behind_a_colon(tmp_path):
    (tmp_path / "b:3").write_text("")
    given = ["a.conv:2", "b.jsonl", "c:0.5", tmp_path / "b:3", "C:/d.conv"]
    assert weighted_paths(given) == [
        (Path("a.conv"), 2.0),
        (Path("b.jsonl"), 1.0),
        (Path("c"), 0.5),
        (tmp_path / "b:3", 1.0),
        (Path("C:/d.conv"), 1.0),
    ]


@pytest.mark.parametrize("weight", ["0", "-1", "1e9", "1.2.3"])
def test_a_wrong_weight_is_refused(weight):
    with pytest.raises(ValueError, match=r"expected a weight above 0.*such as a.conv:2"):
        weighted_paths([f"a.conv:{weight}"])


def test_a_file_has_the_weight_of_what_names_it_most_closely(tmp_path):
    deeper, file = tmp_path / "deeper", tmp_path / "deeper" / "a.tsv"
    deeper.mkdir()
    file.write_text("q\ta\n")
    weighted = weighted_paths([tmp_path, f"{file}:3", f"{deeper}:2", f"{file}:3"])
    without = {one.path: paths for one, paths in files_once(weighted)}
    assert without == {tmp_path: [file, deeper], file: [], deeper: [file]}
    with pytest.raises(ValueError, match=r"a.tsv: expected one weight, received 3 and 2"):
        files_once(weighted_paths([f"{file}:3", f"{file}:2"]))


def test_training_dialogues_come_as_often_as_they_weigh_and_held_out_ones_once():
    dialogues = [(number % 5 == 0, [str(number)], 2.5) for number in range(1000)]
    found = list(repeated(iter(dialogues)))
    held_out = [turns for is_held_out, turns in found if is_held_out]
    trained = [turns[0] for is_held_out, turns in found if not is_held_out]
    assert len(held_out) == 200 == len({turns[0] for turns in held_out})
    counts = {trained.count(one) for one in set(trained)}
    assert counts == {2, 3} and len(trained) == pytest.approx(2000, rel=0.05)
    assert list(repeated(iter(dialogues))) == found
