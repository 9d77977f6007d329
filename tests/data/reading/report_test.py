"""A report counts by reason, remembers the first places and reads like sentences."""

import copy

from towers.data.reading.report import BLANK_TURN, UNDECODED, ReadingReport


def test_the_summary_says_what_and_where():
    report = ReadingReport(num_files=1, num_lines=1200)
    report.keep(["a", "", "b"])
    for number in range(5):
        report.skip(BLANK_TURN, f"talk.conv:{number}")
    report.repair(UNDECODED, "talk.conv:9")
    report.note("a note")
    assert report.lines() == [
        "read 1 dialogue of 2 turns from 1 file of 1,200 lines",
        "skipped blank turns: 5 (first: talk.conv:0, talk.conv:1, talk.conv:2)"
        "; repaired turns with bytes that do not decode: 1 (first: talk.conv:9)",
        "a note",
    ]


def test_whole_files_that_are_left_out_are_told_first():
    report = ReadingReport()
    for reason in ("blank lines", BLANK_TURN, "lines of another form", "files of no known kind"):
        for number in range(1 if reason.startswith("files") else 9):
            report.skip(reason, f"talk:{number}")
    (line,) = [line for line in report.lines() if line.startswith("skipped")]
    assert line.startswith("skipped files of no known kind: 1 (first: talk:0); skipped blank lines")
    assert line.endswith("and 1 further reason")


def test_many_undecoded_lines_suggest_another_encoding():
    report = ReadingReport(num_lines=20)
    for number in range(2):
        report.repair(UNDECODED, f"talk.conv:{number}")
    assert not report.suggests_other_encoding
    report.skip(UNDECODED, "talk.conv:2")
    assert report.suggests_other_encoding
    assert "such as gb18030" in report.lines()[-1]
    report.num_turns = 40  # Of a JSON array, which may be one line.
    assert not report.suggests_other_encoding


def test_a_report_can_be_told_from_an_earlier_one():
    report = ReadingReport(num_lines=3)
    report.skip(BLANK_TURN, "talk.conv:1")
    report.note("before")
    earlier = copy.deepcopy(report)
    report.num_lines += 4
    report.keep(["a"])
    report.skip(UNDECODED, "talk.conv:2")
    report.note("after")
    found = report.since(earlier)
    assert (found.num_lines, found.num_dialogues, found.num_turns) == (4, 1, 1)
    assert (found.skipped, found.notes) == ({UNDECODED: 1}, ["after"])
