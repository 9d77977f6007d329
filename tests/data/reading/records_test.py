"""Chats as today's exports have them: messages with roles, named columns, arrays and Parquet."""

import csv
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.reading.helpers import TURNS, expected_turn, read_bytes
from towers.data.reading.layout import Layout
from towers.data.reading.records import turns_of


def spoken(*turns, role="role", content="content", names=("user", "assistant")):
    """Returns turns as messages of two roles by turns."""
    return [{role: names[place % 2], content: turn} for place, turn in enumerate(turns)]


@pytest.mark.parametrize(
    "record, expected",
    [
        ({"messages": spoken("q", "a", "q2", "a2")}, ["q", "a", "q2", "a2"]),
        (
            {
                "id": "1",
                "conversations": spoken(
                    "q", "a", role="from", content="value", names=("human", "gpt")
                ),
            },
            ["q", "a"],
        ),
        (spoken("q", "a"), ["q", "a"]),
        ({"messages": [{"role": "system", "content": "s"}, *spoken("q", "a")]}, ["q", "a"]),
        ({"messages": spoken("hello", names=("assistant", "user"))}, ["", "hello"]),
        ({"messages": spoken("q", "more", "a", names=("user", "user"))}, ["q more a"]),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}]},
            ["q"],
        ),
        (
            {
                "messages": [
                    *spoken("q"),
                    {"role": "assistant", "content": None, "tool_calls": [{}]},
                    {"role": "tool", "content": "7"},
                    {"role": "assistant", "content": "a"},
                ]
            },
            ["q", "a"],
        ),
        ({"prompt": "q", "completion": "a"}, ["q", "a"]),
        ({"instruction": "do", "input": "this", "output": "done"}, ["do this", "done"]),
        ({"instruction": "do", "input": None, "output": "done"}, ["do", "done"]),
        ({"问题": "你好", "答案": "你好啊"}, ["你好", "你好啊"]),
        ({"messages": spoken("q", 7)}, ["q", ""]),
        ({"messages": spoken("q", "a", [{"type": "image_url"}])}, ["q", "a", ""]),
        ({"messages": spoken([{"type": "input_text", "text": "q"}, "more"])}, ["q more"]),
        ({"messages": spoken("q", None, "q2", "a2")}, ["q", "", "q2", "a2"]),
        (
            {
                "messages": [
                    *spoken("q"),
                    {"role": "assistant", "content": None, "function_call": {"name": "f"}},
                    {"role": "user", "content": [{"type": "tool_result", "content": "7"}]},
                    {"role": "assistant", "content": "a"},
                ]
            },
            ["q", "a"],
        ),
        ({"turns": 2, "messages": spoken("q", "a")}, ["q", "a"]),
        ({"conversation": "id7", "question": "q", "answer": "a"}, ["q", "a"]),
        ({"question": "How many?", "answer": 3}, ["How many?", "3"]),
        ({"source": 3, "target": 4}, None),
        ({"question": "How many?", "answer": float("nan")}, None),
        ({"question": "Is it?", "answer": True}, None),
        ({"messages": [{"role": "user"}]}, None),
        ({"messages": "q"}, None),
        ({"question": "q"}, None),
        (7, None),
    ],
)
def test_each_shape_of_a_record_is_read(record, expected):
    assert turns_of(record) == expected


def test_columns_of_the_users_win():
    record = {"question": "q", "answer": "a", "Reply ": "r"}
    assert turns_of(record, Layout(columns=("question", "reply"))) == ["q", "r"]
    assert turns_of(record, Layout(columns=("question", "nothing"))) is None


DIALOGUES = st.lists(st.lists(TURNS, min_size=2, max_size=4), max_size=5)
PAIRS = st.lists(st.tuples(TURNS, TURNS), max_size=5)


@given(dialogues=DIALOGUES, indent=st.sampled_from([None, 1]), is_ascii=st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_written_array_is_read_back(tmp_path_factory, dialogues, indent, is_ascii):
    dialogues = [["first", "second"], *dialogues]
    records = [{"id": 1, "messages": spoken(*turns)} for turns in dialogues]
    content = json.dumps(records, ensure_ascii=is_ascii, indent=indent)
    found, report = read_bytes(tmp_path_factory.mktemp("array"), content.encode(), "talk.json")
    assert found == [[expected_turn(turn) for turn in turns] for turns in dialogues]
    assert report.num_dialogues == len(dialogues)


def test_an_array_is_read_across_the_pieces_of_a_file(tmp_path):
    dialogues = [[f"question {number} " * 50, 'answer {[\\"' * 9] for number in range(500)]
    content = json.dumps([{"turns": turns} for turns in dialogues]).encode()
    found, _ = read_bytes(tmp_path, content, "talk.json")
    assert found == [[turn.strip() for turn in turns] for turns in dialogues]


def test_an_array_may_begin_with_a_long_record(tmp_path):
    dialogues = [["long " * 100] * 400, ["q", "a"]]
    content = json.dumps([{"turns": turns} for turns in dialogues]).encode()
    found, _ = read_bytes(tmp_path, b"\xef\xbb\xbf\n" + content, "talk.json")
    assert found == [[turn.strip() for turn in turns] for turns in dialogues]


@pytest.mark.parametrize(
    "content, message",
    [
        (b'[{"turns": ["q", "a"]},\n{"turns": ["q"', r'talk.json:2: .*found \'{"turns"'),
        (b'[{"turns": ["q", "a"]}\n', r"talk.json:2: .*the end of the file"),
        (b'[{"turns": ["q", "a"]}, 7]', r"talk.json:1: expected a JSON array .*found '7"),
        (b'7 {"turns": ["q", "a"]}', r"talk.json:1: expected a JSON array"),
        (b'{\n"turns": ["q", "a"]}\n7\n{"turns": ["r", "b"]}', r"talk.json:3: .*found '7"),
    ],
)
def test_a_damaged_array_is_named_by_file_and_line(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_bytes(tmp_path, content, "talk.json", kind="json_array")


@given(
    pairs=PAIRS, delimiter=st.sampled_from(",;\t"), header=st.sampled_from(["question", "Prompt"])
)
@settings(max_examples=40, deadline=None)
def test_written_csv_is_read_back(tmp_path_factory, pairs, delimiter, header):
    """Quotes and delimiters in fields included; a row of two blank fields is no row."""
    pairs = [('q, "1"', "a; line\nbreak\tend"), *(pair for pair in pairs if "".join(pair).strip())]
    pairs = [tuple(text.replace("\ufeff", "").replace("\0", "") for text in pair) for pair in pairs]
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
    answer = "answer" if header == "question" else "response"
    writer.writerows([("id", header, answer), *((7, *pair) for pair in pairs)])
    found, _ = read_bytes(tmp_path_factory.mktemp("csv"), file.getvalue().encode(), "talk.csv")
    assert found == [[expected_turn(text) for text in pair] for pair in pairs]


def test_a_bad_record_does_not_refuse_an_array(tmp_path):
    content = b'[{"turns": ["q", "a"]}, {"question": "last", "answer": null}]'
    found, report = read_bytes(tmp_path, content, "talk.json")
    assert found == [["q", "a"]] and report.skipped == {"records whose JSON is not a dialogue": 1}


def test_a_quote_that_does_not_close_takes_no_other_row_along(tmp_path):
    lines = ["question\tanswer", *(f"q{number}\ta{number}" for number in range(6)), '"q6\ta6\n']
    lines[2] = '"he said\tyes'
    found, report = read_bytes(tmp_path, "\n".join(lines).encode(), "talk.tsv")
    expected = [[f"q{number}", f"a{number}"] for number in range(6)]
    assert found == [expected[0], ['"he said', "yes"], *expected[2:], ['"q6', "a6"]]
    assert not report.skipped
    content = b'question,answer\n"He said "hi"",yes\n"two\nlines",no\nq,a\n'
    found, _ = read_bytes(tmp_path, content, "talk.csv")
    assert found == [['He said hi""', "yes"], ["two\nlines", "no"], ["q", "a"]]
    with pytest.raises(ValueError, match=r"talk.csv:1: expected the names of columns"):
        read_bytes(tmp_path, b'question,"answer\nq,"a,b\n', "talk.csv", kind="csv")


def test_a_quote_behind_a_blank_opens_a_field_that_it_closes(tmp_path):
    content = 'question, answer\n"q", "a, b"\n"c", "d"\nsaid, "yes" she said\ne, f\n'
    found, report = read_bytes(tmp_path, content.encode(), "talk.csv")
    assert found == [["q", "a, b"], ["c", "d"], ["said", '"yes" she said'], ["e", "f"]]
    assert not report.skipped


def test_a_quote_behind_a_backslash_is_a_letter_where_a_row_closes_so_alone(tmp_path):
    rows = [
        (r'"a \"b\", c","d \"e\""', [r'a "b", c', 'd "e"']),
        ('"C:\\","two ""\nlines"', ["C:\\", 'two "\nlines']),
        (r'"C:\dir \"x","6 \""', [r'C:\dir "x', '6 "']),
        ('"g","h"', ["g", "h"]),
    ]
    content = "\n".join(["question,answer", *(written for written, _ in rows)])
    found, report = read_bytes(tmp_path, content.encode(), "talk.csv")
    assert found == [row for _, row in rows] and not report.skipped


@pytest.mark.parametrize(
    "name, content",
    [
        ("talk.tsv", b"Said\tReplied\nq\ta\n"),
        ("talk.csv", b"Said,Replied\nq,a\n"),
        ("talk.jsonl", b'{"Said": "q", "Replied": "a"}\n'),
    ],
)
def test_columns_that_are_not_there_are_told(tmp_path, name, content):
    with pytest.raises(ValueError, match=r"said,reply.*--set columns"):
        read_bytes(tmp_path, content, name, layout=Layout(columns=("said", "reply")))
    assert read_bytes(tmp_path, content, name, layout=Layout(columns=("said", "replied")))[0] == [
        ["q", "a"]
    ]


def test_a_long_record_is_read_and_its_long_turn_skipped(tmp_path):
    record = {"messages": spoken("q", "好" * 90_000, "q2", "a" * 200_000)}
    found, report = read_bytes(tmp_path, json.dumps(record).encode(), "talk.jsonl")
    assert found == [["q", "好" * 90_000, "q2", ""]]
    assert report.skipped == {"lines or turns that are too long": 1}


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_last_line_without_an_end_is_a_line(end, tmp_path):
    records = [{"messages": spoken("q", "a")}, {"messages": spoken("b", "c")}]
    for indent, count in ((None, 1), (1, 14)):
        text = json.dumps(records, indent=indent) + end
        found, report = read_bytes(tmp_path, text.encode(), "talk.json")
        assert len(found) == 2 and report.num_lines == text.rstrip().count("\n") + 1 >= count


def test_csv_rows_of_other_columns_are_skipped(tmp_path):
    content = b"question,answer\nq,a\nq,a,more\n\nonly\nq2,a2\n"
    found, report = read_bytes(tmp_path, content, "talk.csv")
    assert found == [["q", "a"], ["q2", "a2"]]
    assert report.skipped["rows of other than the columns of the first line"] == 2
    assert ":3" in str(report.places)


def test_of_columns_with_one_name_it_is_told_which_one_is_read(tmp_path):
    found, report = read_bytes(tmp_path, b"question,answer,answer,,\nq,a,b,,\n", "talk.csv")
    assert found == [["q", "b"]]
    assert "of several columns named 'answer' the last one is read" in " ".join(report.notes)


def test_the_columns_of_csv_may_be_named(tmp_path):
    content = b"Frage;Antwort;Jahr\nWer?;Ich.;1999\n"
    with pytest.raises(ValueError, match="lines of no known kind"):
        read_bytes(tmp_path, content, "talk.csv")
    with pytest.raises(ValueError, match=r"talk.csv:1: expected .*--set columns=NAME,NAME"):
        read_bytes(tmp_path, content, "talk.csv", kind="csv")
    found, _ = read_bytes(
        tmp_path, content, "talk.csv", layout=Layout(columns=("frage", "antwort"))
    )
    assert found == [["Wer?", "Ich."]]


@pytest.mark.parametrize(
    "column, values, expected",
    [
        ("messages", [spoken("q", "a")], [["q", "a"]]),
        ("messages", [json.dumps(spoken("q", "a"))], [["q", "a"]]),
        ("conversations", [spoken("q", "a", role="from", content="value")], [["q", "a"]]),
        ("question", ["q", None], [["q", "a"]]),
    ],
)
def test_parquet_is_read_in_each_shape(tmp_path, column, values, expected):
    arrow, parquet = (pytest.importorskip(f"pyarrow{name}") for name in ("", ".parquet"))
    columns = {"id": range(len(values)), column: values}
    if column == "question":
        columns["answer"] = ["a"] * len(values)
    parquet.write_table(arrow.table(columns), tmp_path / "talk")
    found, report = read_bytes(tmp_path, (tmp_path / "talk").read_bytes())
    assert found == expected
    assert report.num_lines == len(values)


def test_columns_of_parquet_that_only_share_a_name_with_lists_are_left_alone(tmp_path):
    arrow, parquet = (pytest.importorskip(f"pyarrow{name}") for name in ("", ".parquet"))
    columns = {"conversation": ["id7"], "question": ["q"], "answer": ["a"]}
    parquet.write_table(arrow.table(columns), tmp_path / "talk")
    assert read_bytes(tmp_path, (tmp_path / "talk").read_bytes())[0] == [["q", "a"]]


def test_parquet_without_the_columns_is_refused(tmp_path):
    arrow, parquet = (pytest.importorskip(f"pyarrow{name}") for name in ("", ".parquet"))
    parquet.write_table(arrow.table({"said": ["q"], "heard": ["a"]}), tmp_path / "talk")
    content = (tmp_path / "talk").read_bytes()
    with pytest.raises(ValueError, match=r"expected the columns .*found said, heard"):
        read_bytes(tmp_path, content)
    assert read_bytes(tmp_path, content, layout=Layout(columns=("said", "heard")))[0] == [
        ["q", "a"]
    ]
    with pytest.raises(ValueError, match="cannot be read to its end"):
        read_bytes(tmp_path, content[:-9])
