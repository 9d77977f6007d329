"""`.conv` files are read turn for turn, however dirty they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.pairing import pair_turns
from tests.data.reading.helpers import SHARED, TURNS, expected_turn, read, read_bytes
from tests.paths import missing


def test_dialogues_keep_their_turns(tmp_path):
    content = "E\nM 你好\nM 你也好\nE\nE\nM one turn\nE \nM a\nM b\nM c".encode()
    dialogues, report = read_bytes(tmp_path, content)
    assert dialogues == [["你好", "你也好"], ["one turn"], ["a", "b", "c"]]
    assert (report.num_dialogues, report.num_turns, report.num_lines) == (3, 6, 10)
    assert not report.skipped


def test_turns_before_the_first_opening_are_a_dialogue(tmp_path):
    assert read_bytes(tmp_path, b"M a\nM b\nE\nM c\nM d\n")[0] == [["a", "b"], ["c", "d"]]


@given(
    dialogues=st.lists(st.lists(TURNS, min_size=1, max_size=5), min_size=1, max_size=5),
    ends=st.lists(st.sampled_from(["\n", "\r\n"]), min_size=40, max_size=40),
    bom=st.sampled_from(["", "\ufeff"]),
)
def test_written_dialogues_are_read_back(tmp_path_factory, dialogues, ends, bom):
    lines = [line for turns in dialogues for line in ["E", *(f"M {turn}" for turn in turns)]]
    written = "".join(f"{line}{end}" for line, end in zip(lines, ends, strict=False))
    expected = [[expected_turn(turn) for turn in turns] for turns in dialogues]
    content = f"{bom}E\nM first\n{written}".encode()
    found, report = read_bytes(tmp_path_factory.mktemp("conv"), content, kind="conv")
    assert found == [["first"], *expected]
    assert report.num_turns == 1 + sum(bool(turn) for turns in expected for turn in turns)
    assert sum(report.skipped.values()) == sum(turns.count("") for turns in expected)


def test_an_unusable_turn_holds_its_place(tmp_path):
    content = b"E\nM q\nM \nM ...\nM a\nM\nM \x00x\nM \xff\xfe\xff\xfe\xff\nM z\n"
    dialogues, report = read_bytes(tmp_path, content)
    assert dialogues == [["q", "", "", "a", "", "", "", "z"]]
    assert dict(report.skipped) == {
        "blank turns": 2,
        "turns without a letter or digit": 1,
        "turns with NUL characters": 1,
        "turns with bytes that do not decode": 1,
    }
    assert report.places["skipped blank turns"] == [
        f"{tmp_path}/talk.txt:3",
        f"{tmp_path}/talk.txt:6",
    ]


def test_half_a_character_is_taken_out(tmp_path):
    content = b"E\nM \xe4\xbd\xa0\xe5\xa5\nM ok\nE\n"
    dialogues, report = read_bytes(tmp_path, content)
    assert dialogues == [["你", "ok"]]
    assert report.repaired == {"turns with bytes that do not decode": 1}


def test_lines_of_another_form_are_skipped(tmp_path):
    dialogues, report = read_bytes(tmp_path, b"E\nM a\nMore\nX y\n\nM b\nEnd\nE\nM c\n")
    assert dialogues == [["a", "b"], ["c"]]
    assert report.skipped == {"lines that are neither `E` nor `M text`": 4}


def test_lines_end_at_line_feeds_only(tmp_path):
    turn = "a\x85b\u2028c\x0bd\x1ce\rf"
    assert read_bytes(tmp_path, f"E\nM {turn}\nM g\n".encode())[0] == [[turn, "g"]]


def test_a_dialogue_without_end_is_cut_between_pairs(tmp_path):
    content = b"E\n" + b"".join(b"M %d\n" % number for number in range(25_001))
    dialogues, report = read_bytes(tmp_path, content)
    assert [len(dialogue) for dialogue in dialogues] == [10_000, 10_000, 5_001]
    assert [turn for dialogue in dialogues for turn in dialogue] == [*map(str, range(25_001))]
    assert report.repaired == {"dialogues cut because of their length": 2}


PARTED = "E\nM 我们/去/吃饭/好不好\nM 不是\nE\nM 你/是/一个/很/好/的/人\nM 我/不/知道/你/说/什么\n"


def test_slashes_between_tokens_are_read_as_spaces(tmp_path):
    dialogues, report = read_bytes(tmp_path, (PARTED * 3).encode())
    assert dialogues[0] == ["我们 去 吃饭 好不好", "不是"]
    assert "slashes separate the tokens" in report.lines()[-1]


def test_slashes_in_ordinary_text_stay(tmp_path):
    content = PARTED.replace("我/不/知道/你/说/什么", "我不知道你说什么") * 9
    dialogues, report = read_bytes(tmp_path, content.encode())
    assert dialogues[0][0] == "我们/去/吃饭/好不好"
    assert not report.notes


@pytest.mark.skipif(not SHARED.is_dir(), reason=missing(""))
def test_dgk_corpus_is_read_as_published():
    dialogues, report = read(SHARED / "zh" / "dgk_100k.conv")
    pairs = [turns[answer - 1 : answer + 1] for turns in dialogues for _, answer in pairs_of(turns)]
    assert len(pairs) == 100_001
    assert sum(all(pair) for pair in pairs) == 99_910
    assert (report.num_turns, sum(report.skipped.values())) == (219_617, 147)
    assert not report.suggests_other_encoding


@pytest.mark.skipif(not SHARED.is_dir(), reason=missing(""))
@pytest.mark.parametrize(
    ("name", "num_pairs"),
    [("zh/xiaohuangji50w_nofenci.conv", 9), ("en/swda_50k_derived.conv", 50_000)],
)
def test_other_corpora_are_read_as_published(name, num_pairs):
    dialogues, _ = read(SHARED / name)
    assert sum(len(pairs_of(turns)) for turns in dialogues) == num_pairs


def pairs_of(turns):
    return pair_turns(len(turns))
