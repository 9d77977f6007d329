"""Corpora with weights: how often each dialogue is read, and what is refused."""

from pathlib import Path

import pytest

from tests.data.reading.helpers import read
from towers.data.reading.messages import Turns
from towers.data.reading.weights import repeated, weighted_paths


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
    for path in (tmp_path / "c.tsv", deeper / "b.tsv", file):
        path.write_text(f"{path.stem}\tanswer\n")
    dialogues, _ = read([tmp_path, f"{file}:3", f"{deeper}:2", f"{file}:3"])
    weights = [(turns[0], getattr(turns, "weight", 1)) for turns in dialogues]
    assert sorted(weights) == [("a", 3), ("b", 2), ("c", 1)]
    with pytest.raises(ValueError, match=r"a.tsv: expected one weight, received 3 and 2"):
        read([f"{file}:3", f"{file}:2"])


def test_training_dialogues_come_as_often_as_they_weigh_and_held_out_ones_once():
    dialogues = [(number % 5 == 0, Turns([str(number)])) for number in range(1000)]
    for _, turns in dialogues:
        turns.weight = 2.5
    found = list(repeated(iter(dialogues)))
    held_out = [turns for is_held_out, turns in found if is_held_out]
    trained = [turns[0] for is_held_out, turns in found if not is_held_out]
    assert len(held_out) == 200 == len({turns[0] for turns in held_out})
    counts = {trained.count(one) for one in set(trained)}
    assert counts == {2, 3} and len(trained) == pytest.approx(2000, rel=0.05)
    assert list(repeated(iter(dialogues))) == found
