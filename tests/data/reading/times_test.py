"""Times of messages: their marks, and the order of the numbers of a date, told by all of a file."""
# ruff: noqa: RUF001 - full-width brackets.

import datetime
import json

import pytest

from tests.data.reading.helpers import read_bytes
from towers.data.reading.times import time_of

NOON, EVENING = 1704542400 + 600, 1704574800 + 300  # 12:10 and 21:05 of January 6, 2024.


@pytest.mark.parametrize(
    "text",
    ["Jan 15, 2024  3:04:00 PM", "15:04, 15/01/2024", "15/1/24, 3:04 μ.μ.",
     "15 January 2024 at 15:04", "Monday, January 15, 2024 at 3:04:00 PM UTC", "1705331040",
     "Mon Jan 15 15:04:00 +0000 2024", "15:04, 15/1/24", "2024年1月15日 15时04分",
     "martes, 15/01/2024 15:04", 1705331040e6, "1705331040000000000", "2024-01-15T16:04:00+01:00",
     "20240115 15:04", "20240115T150400Z", 20240115150400, datetime.datetime(2024, 1, 15, 15, 4),
     "2024-01-15 00:00:00 15:04", "Mon Jan 15 2024 10:04:00 GMT-0500 (EST)",
     "15.1.2024 klo 15.04", "2024-01-15 15-04-00"],
)  # fmt: skip
def test_times_in_words_and_with_the_hour_first(text):
    assert time_of(text).seconds(day_first=True) == 1705331040


@pytest.mark.parametrize(
    "text",
    ["06.01.2024 ÖS 9:05", "6/1/24, 9:05 CH", "2024/1/6 晚上9:05", "2024年1月6日星期六下午9:05",
     "6.1.2024 klo 9.05 ip.", "6/1/24, 9:05 م", "6/1/24, 9:05 p. m.", "9:05 ب.ظ., 6/1/2024"],
)  # fmt: skip
def test_a_mark_beside_the_time_tells_the_half_of_the_day(text):
    assert time_of(text).seconds(day_first=True) == EVENING


@pytest.mark.parametrize(
    "text",
    ["Samstag, 06.01.2024 12:10", "sam. 06/01/2024 12:10", "2024-01-06 12:10:00 America/New_York",
     "2024-01-06 12:10 مساء", "2024/1/6 中午12:10", "2024-01-06 12:10 Pamela"],
)  # fmt: skip
def test_letters_within_a_word_are_no_mark(text):
    assert time_of(text).seconds(day_first=True) == NOON


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-06",
        "9:05",
        "6/1 9:05",
        "30/2/2024 9:05",
        "9 o'clock",
        "mardi 9 juillet 2024 9:05",
        float("nan"),
        1e300,
    ],
)
def test_what_has_no_date_or_no_time_is_none(text):
    assert time_of(text) is None


START = datetime.datetime(2024, 1, 1, 22)
FORMS = {
    "the hour first": ("{:%H:%M, %d/%m/%Y}", "{} - {}: {}\n"),
    "the hour first, then the month": ("{:%H:%M, %m/%d/%Y}", "{} - {}: {}\n"),
    "12 hours": ("{:%m/%d/%y, %I:%M %p}", "{} - {}: {}\n"),
    "below": ("{:%m/%d/%Y %I:%M:%S %p}", "{} {}\n{}\n\n"),
    "csv": ("{:%m/%d/%Y %H:%M}", "{},{},{}\n"),
    "csv of 12 hours": ("{:%m/%d/%Y %I:%M %p}", "{},{},{}\n"),
    "csv of a zone": ("{:%Y-%m-%d %H:%M:%S} UTC", "{},{},{}\n"),
    "csv with quotes": ('"{:%m/%d/%Y, %I:%M:%S %p}"', '{},{},"{}"\n'),
}


def days(name, numbers):
    """Returns the text of a file with a talk of four hours around each midnight, and its talks."""
    time, form = FORMS[name]
    text, talks = "time,sender,text\n" if "csv" in name else "", []
    for day in numbers:
        talks.append([f"d{day} m{hour}" for hour in range(4)])
        for hour, said in enumerate(talks[-1]):
            when = time.format(START + datetime.timedelta(day, 3600 * hour))
            text += form.format(when, ("Ann", "Bob")[hour % 2], said)
    return text, talks


@pytest.mark.parametrize("name", FORMS)
def test_any_date_of_a_file_tells_whether_the_day_is_first(tmp_path, name):
    text, talks = days(name, range(60))
    assert read_bytes(tmp_path, text.encode(), f"a.{'csv' if 'csv' in name else 'txt'}")[0] == talks


@pytest.mark.parametrize("name", FORMS)
def test_without_a_number_above_12_the_order_of_the_times_tells(tmp_path, name):
    for numbers in ([*range(9), *range(31, 40)], range(9)):  # Of January and February.
        text, talks = days(name, numbers)
        assert read_bytes(tmp_path, text.encode())[0] == talks


@pytest.mark.parametrize(
    "form",
    [
        "{:%a, %d/%m/%Y}",
        "{:%a, %m/%d/%Y}",
        "{:%Y/%m/%d(%a)}",
        "{:%Y.%m.%d} 星期五",
        "{:%d/%m/%Y}（週五）",
        "Sa., {:%d.%m.%Y}",
    ],
)
def test_the_heading_above_times_alone_has_their_date(tmp_path, form):
    text = ""
    for hour in range(24 * 20):
        when = START + datetime.timedelta(hours=hour)
        text += f"\n{form.format(when)}\n" if when.hour == 0 or not text else ""
        said = f"{when:%H:%M}\t{('Ann', 'Bob')[hour % 2]}\td{(hour // 24)} m{hour % 24}\n"
        text += said if hour % 24 < 4 else ""
    expected = [[f"d{day} m{hour}" for hour in range(4)] for day in range(20)]
    assert read_bytes(tmp_path, text.encode())[0] == expected


def test_records_of_json_have_the_order_of_their_dates(tmp_path):
    texts = [("Fri Jan {:02} 09:00:00 +0000 2024", 9), ("Fri Jan {:02} 21:00:00 +0000 2024", 21)]
    records = [
        {"created_at": when.format(day), "sender": name, "text": f"d{day} h{hour}"}
        for day in range(1, 9) for name in ("Ann", "Bob") for when, hour in texts
    ]  # fmt: skip
    content = "".join(json.dumps(record) + "\n" for record in records)
    found, _ = read_bytes(tmp_path, content.encode(), "a.jsonl")
    assert found == [[f"d{day} h{hour}"] * 2 for day in range(1, 9) for hour in (9, 21)]


def test_each_part_of_a_chinese_day_begins_a_message(tmp_path):
    parts = ("半夜1", "凌晨3", "清晨6", "早上8", "上午9", "中午12", "下午3", "傍晚6", "晚上8")
    text = "".join(
        f"2024/1/1 {part}:0{n} - {name}: {part} {n}\n" for part in parts
        for n, name in enumerate(("Ann", "Bob"))
    )  # fmt: skip
    assert read_bytes(tmp_path, text.encode())[0] == [[f"{p} {n}" for p in parts for n in range(2)]]


def test_a_line_that_begins_with_a_date_as_messages_do_is_told(tmp_path):
    text = "[1/5/24, 9:00 PM] Ann: q\n[1/5/24, 9:01 XY] Bob: a\n1/6/24 is my day\n" * 2
    found, report = read_bytes(tmp_path, text.encode())
    assert "[1/5/24, 9:01 XY] Bob: a" in found[0][0]
    assert report.notes == [
        f"{tmp_path / 'talk.txt'}:2: of the lines that begin with a date as messages do, 2 begin "
        "none and are text of the message before"
    ]


def test_a_date_within_a_text_is_no_heading_where_messages_have_their_own(tmp_path):
    text = "".join(
        f"1/{day}/24, 21:0{n} - {name}: d{day}\nMon, 1/1/2024\nmore\n"
        for day in (13, 14) for n, name in enumerate(("Ann", "Bob"))
    )  # fmt: skip
    said = "{}\nMon, 1/1/2024\nmore"
    expected = [[said.format(day)] * 2 for day in ("d13", "d14")]
    assert read_bytes(tmp_path, text.encode())[0] == expected


def test_times_of_several_zones_are_those_of_one(tmp_path):
    rows = (("21:00:00+01:00", "Ann", "q"), ("15:05:00-05:00", "Bob", "a"),
            ("21:10:00+01:00", "Ann", "q2"))  # fmt: skip
    text = "time,sender,text\n" + "".join(f"2024-01-05T{','.join(row)}\n" for row in rows)
    assert read_bytes(tmp_path, text.encode(), "a.csv")[0] == [["q", "a", "q2"]]


def test_times_that_cannot_be_read_are_told_and_the_newest_may_still_be_first(tmp_path):
    times = ("2024-01-05 10:04", "2024-01-05 10:03", "soon", "2024-01-05 10:01")
    rows = zip(times, ("Bob", "Ann", "Bob", "Ann"), ("a2", "q2", "a", "q"), strict=True)
    text = "time,sender,text\n" + "".join(f"{','.join(row)}\n" for row in rows)
    found, report = read_bytes(tmp_path, text.encode(), "a.csv")
    assert found == [["q", "a", "q2", "a2"]]
    assert report.skipped == {"times that cannot be read": 1}


def test_whose_a_message_is_may_be_a_column(tmp_path):
    text = "date,is_from_me,text\n2024-01-05 10:01,0,q\n2024-01-05 10:02,1,a\n"
    (turns,), _ = read_bytes(tmp_path, text.encode(), "a.csv")
    assert turns == ["q", "a"] and turns.has_roles
