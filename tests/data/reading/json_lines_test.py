"""JSON Lines are read in each of the shapes that dialogues come in."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.reading.helpers import TURNS, expected_turn, read_bytes


@pytest.mark.parametrize(
    "value",
    [
        {"question": "q", "answer": "a", "id": 7},
        ["q", "a"],
        {"turns": ["q", {"text": "a"}]},
        {"dialogue": [{"text": "q", "speaker": "A"}, {"text": "a"}], "question": None},
    ],
)
def test_each_shape_is_read(tmp_path, value):
    assert read_bytes(tmp_path, json.dumps(value).encode())[0] == [["q", "a"]]


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[]",
        "[1]",
        "7",
        '"q"',
        '["q", null]',
        '["q", []]',
        '[{"words": "q"}]',
        '{"turns": "q"}',
    ],
)
def test_other_values_are_skipped(tmp_path, line):
    dialogues, report = read_bytes(tmp_path, f'["q", "a"]\n{line}\n'.encode(), kind="json_lines")
    assert dialogues == [["q", "a"]]
    assert report.skipped == {"lines whose JSON is not a dialogue": 1}


@pytest.mark.parametrize("line", ['["q", "a"', "q\ta", "[" * 90_000, "1" * 90_000, "\0"])
def test_other_text_is_skipped(tmp_path, line):
    dialogues, report = read_bytes(tmp_path, f'["q", "a"]\n{line}\n'.encode(), kind="json_lines")
    assert dialogues == [["q", "a"]]
    assert report.skipped == {"lines that are not JSON": 1}


def test_lone_surrogates_are_taken_out(tmp_path):
    dialogues, report = read_bytes(tmp_path, rb'["see \ud83d", "\ud83d\ude00 ok"]')
    assert dialogues == [["see", "😀 ok"]]
    assert sum(report.repaired.values()) == 1


@given(
    dialogues=st.lists(st.lists(TURNS, min_size=1, max_size=4), max_size=6),
    is_ascii=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_written_dialogues_are_read_back(tmp_path_factory, dialogues, is_ascii, end):
    dialogues = [["first"], *dialogues]
    written = "".join(json.dumps(turns, ensure_ascii=is_ascii) + end for turns in dialogues)
    found, _ = read_bytes(tmp_path_factory.mktemp("json"), written.encode())
    assert found == [[expected_turn(turn) for turn in turns] for turns in dialogues]
