"""Short messages as SMS Backup & Restore writes them: XML with an element on each line.

Its tags are read as they are written; nothing is declared, included or fetched.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from towers.data.reading.chats import NO_TEXT, Chats
from towers.data.reading.dialogue_file import Dialogue, DialogueFile, Line
from towers.data.reading.messages import ME, OTHER, Message
from towers.data.reading.times import time_of

_VALUE = re.compile(r"\s(\w+)=(?:\"([^\"]*)\"|'([^']*)')")
_TAG = re.compile(rf"<(smses|sms|mms|part)(?=\s)((?:{_VALUE.pattern})*)")
SENT = "2"  # Kinds of messages are 1, received, and 2, sent; also further ones, such as drafts.
RECEIVED = "1"


def fits(file: DialogueFile) -> bool:
    """Returns whether the file holds such messages."""
    return any("<smses" in line for line in file.sample[:20])


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields the dialogues with each number; pictures are left out."""
    chats, above = Chats(file), dict[str, str]()
    for line in file.usable_lines():
        for match in _TAG.finditer(line.text):
            found = _VALUE.findall(match[2])
            values = {name: html.unescape(one or other) for name, one, other in found}
            if match[1] == "mms":
                above = values
            elif match[1] == "sms":
                _add(chats, values, values.get("type"), values.get("body"), line)
            elif values.get("ct") == "text/plain":
                _add(chats, above, above.get("msg_box"), values.get("text"), line)
            elif values.get("ct", "application/smil") != "application/smil":
                file.skip(NO_TEXT, line)
    yield from chats.dialogues()


def _add(
    chats: Chats, values: dict[str, str], kind: str | None, text: str | None, line: Line
) -> None:
    text = text if kind in (RECEIVED, SENT) and text != "null" else None
    message = Message(ME if kind == SENT else OTHER, text, time_of(values.get("date")))
    chats.add(values.get("address", ""), message, line)
