"""Files of `speaker|text|act` are dialogues whose turns are joined by speaker."""

import pytest

from tests.data.reading.helpers import SHARED, read, read_bytes
from tests.paths import missing
from towers.data.reading.dialogue_file import MAX_LINE_CHARACTERS


def test_consecutive_lines_of_a_speaker_are_one_turn(tmp_path):
    content = b"A|Okay.|fo\nA|How do you feel?|qo\nB|Well,|%\nB|fine.|sd\r\nA|Yes.|aa\n"
    assert read_bytes(tmp_path, content)[0] == [["Okay. How do you feel?", "Well, fine.", "Yes."]]


def test_a_bar_in_the_text_belongs_to_it(tmp_path):
    assert read_bytes(tmp_path, b"A|this | that|sd\nB|ok|aa\n")[0] == [["this | that", "ok"]]


def test_a_turn_without_text_keeps_its_speakers_apart(tmp_path):
    dialogues, report = read_bytes(tmp_path, b"A|one|sd\nB|.|%\nB||%\nA|two|sd\n")
    assert dialogues == [["one", "", "two"]]
    assert report.places["skipped turns without a letter or digit"] == [f"{tmp_path}/talk.txt:2"]


def test_lines_of_another_form_are_skipped(tmp_path):
    dialogues, report = read_bytes(
        tmp_path, b"A|one|sd\nnothing\n|x|y\nB|two\n\nB|two|sd\nA|ok|aa\n", kind="speakers"
    )
    assert dialogues == [["one", "two", "ok"]]
    assert report.skipped == {"lines that are not `speaker|text|act`": 3, "blank lines": 1}


def test_a_speaker_without_end_is_skipped(tmp_path):
    line = b"A|" + b"talk " * 1000 + b"|sd\n"
    num_lines = 10 * MAX_LINE_CHARACTERS // len(line)
    dialogues, report = read_bytes(tmp_path, b"B|hi|fp\n" + line * num_lines + b"B|bye|fc\n")
    assert dialogues == [["hi", "", "bye"]]
    assert report.skipped == {"lines or turns that are too long": 1}


def test_a_folder_is_a_dialogue_for_each_file(tmp_path):
    (tmp_path / "2.txt").write_text("A|c|sd\nB|d|aa\n")
    (tmp_path / "1.txt").write_text("A|a|sd\nB|b|aa\n")
    assert read(tmp_path)[0] == [["a", "b"], ["c", "d"]]


@pytest.mark.skipif(not SHARED.is_dir(), reason=missing(""))
def test_switchboard_is_read_as_published():
    folder = SHARED / "en" / "swda_dialogues"
    dialogues, report = read(folder)
    assert (len(dialogues), report.num_files, report.num_lines) == (456, 456, 102_585)
    assert sum(report.skipped.values()) == 2
    assert read(folder / "2005.txt")[0] == dialogues[:1]
