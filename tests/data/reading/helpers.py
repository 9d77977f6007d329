"""Files of dialogues for tests, and what a reading makes of them."""

from hypothesis import strategies as st

from tests.paths import CORPORA
from towers.data.reading.dialogues import read_dialogues
from towers.data.reading.report import ReadingReport

SHARED = CORPORA
# Characters that readers are apt to trip over, among ordinary ones.
TURNS = st.text(
    st.sampled_from("你好吗aZé9 ,.|/+'\"\\[]{}\x00\x0b\x1c\x7f\x85\u2028\ufeff\ufffd😀EM"),
    max_size=9,
)
DIRT = st.binary(max_size=200) | st.lists(
    st.sampled_from(
        b"E;M ;M \xe4\xbd\xa0;\xe4\xbd;\n;\r\n;\t;|;hi;\0;\xef\xbb\xbf;\xc2\x85;+++$+++;['L1'];L1;"
        b'{"turns": [";"]};[['.split(b";")
    ),
    max_size=60,
).map(b"".join)


def read(path, **options):
    """Returns the dialogues of a path, and the report on them."""
    report = ReadingReport()
    return list(read_dialogues(path, report=report, **options)), report


def read_bytes(folder, content, name="talk.txt", **options):
    """Returns what `read` does, of a file with this content."""
    path = folder / name
    path.write_bytes(content)
    return read(path, **options)


def expected_turn(text):
    """Returns what a turn should be read as; written without the reader's own means."""
    is_damaged = text.count("\ufffd") > max(1, len(text) // 10)
    if "\0" in text or is_damaged or not any(character.isalnum() for character in text):
        return ""
    return text.replace("\ufffd", "").strip()
