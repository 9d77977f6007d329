"""Tab-separated text is read line for line, a dialogue on each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.reading.helpers import SHARED, TURNS, expected_turn, read, read_bytes
from tests.paths import missing

# A byte order mark that begins a line would be taken off.
COLUMNS = TURNS.map(lambda text: text.replace("\ufeff", ""))


def test_columns_are_the_turns(tmp_path):
    content = "How are you ?\tI am fine .\r\n你好\t你 也好\nq\ta\tq2\ta2\n".encode()
    dialogues, report = read_bytes(tmp_path, content)
    assert dialogues == [
        ["How are you ?", "I am fine ."],
        ["你好", "你 也好"],
        ["q", "a", "q2", "a2"],
    ]
    assert (report.num_dialogues, report.num_turns) == (3, 8)


def test_an_empty_column_holds_its_place_unless_it_is_the_last(tmp_path):
    dialogues, report = read_bytes(tmp_path, b"\ta\nq\t\nq\t\tq2\ta2\nq\ta\t\t \n")
    assert dialogues == [["", "a"], ["q", ""], ["q", "", "q2", "a2"], ["q", "a"]]
    assert report.skipped == {"blank turns": 3}


def test_lines_without_an_answer_are_skipped(tmp_path):
    dialogues, report = read_bytes(tmp_path, b"q\ta\nalone\n\n \t \nq\tb\n")
    assert dialogues == [["q", "a"], ["q", "b"]]
    assert report.skipped == {"lines without a tab": 1, "blank lines": 2}


@given(
    rows=st.lists(st.tuples(COLUMNS, COLUMNS), max_size=8),
    ends=st.lists(st.sampled_from(["\n", "\r\n"]), min_size=8, max_size=8),
)
def test_written_rows_are_read_back(tmp_path_factory, rows, ends):
    rows = [("first", "row"), *rows]
    written = "".join(
        f"{row[0]}\t{row[1]}{end}" for row, end in zip(rows, ["\n", *ends], strict=False)
    )
    found, _ = read_bytes(tmp_path_factory.mktemp("tsv"), written.encode(), kind="tsv")
    assert found == [[expected_turn(turn) for turn in row] for row in rows if "".join(row).strip()]


@pytest.mark.skipif(not SHARED.is_dir(), reason=missing(""))
def test_xiaohuangji_rows_are_read_as_published():
    dialogues, report = read(SHARED / "zh" / "seq.data")
    assert len(dialogues) == report.num_lines
    assert dialogues[0] == ["你好", "你 也好"]
    assert not report.skipped
