"""Records that are one message each, as exports of chats and tables of messages have them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from towers.data.reading.layout import Layout
from towers.data.reading.messages import ME, OTHER, Message
from towers.data.reading.records import CONTENTS, ROLES, name_of, spelling_of, text_of
from towers.data.reading.times import seconds_of

TIMES = str.split(
    "timestamp_ms date_unixtime timestamp createtime create_time strtime time date ts created_at "
    "originalarrivaltime sent_at 时间 日期 发送时间"
)
DIRECTIONS = {"incoming": OTHER, "outgoing": ME}  # Signal's kinds of messages.
OWN = ("issender", "is_sender", "is_self", "issend")  # 1 is one's own message.
TALKS = str.split(
    "talkerid room_name talker conversation_id dialogue_id dialog_id chat_id session_id conv_id "
    "thread_id channel conversation dialogue session conversationid"
)
KINDS = ("type_name", "type", "类型", "消息类型")
TIMED = ("name", "user", "user_id", "participant", "agent")  # Senders of what has a time alone.
# What Instagram writes in place of a message.
NOTICE = re.compile(
    r"Reacted \S{1,9} to your message ?|Liked a message|.{1,60} sent an attachment\."
)
TEXT_KINDS = frozenset(
    ("1", "text", "message", "文本", "txt", "generic", "share", "default", "reply")
)


class Row(NamedTuple):
    """A record that is one message.

    Attributes:
        talk: its conversation, empty where the file has one.
        message: its text is None where it is of another kind, such as a picture.
        taken: the keys of all that was understood.
    """

    talk: str
    message: Message
    taken: tuple[str, ...]


def message_of(record: Any, layout: Layout) -> Row | None:
    """Returns the message of a record that is one, None for another."""
    if not isinstance(record, Mapping):
        return None
    spelled, taken = spelling_of(record), dict[str, None]()

    def value_of(names: Sequence[str]) -> Any:
        keys = (spelled.get(name.strip().lower()) for name in names)
        key = next((key for key in keys if key and record[key] not in (None, "")), None)
        return None if key is None else record[taken.setdefault(key) or key]

    when = seconds_of(value_of((layout.time,) if layout.time else TIMES))
    roles = [role for role in ROLES if when is not None or role not in TIMED]
    own = None if layout.sender else value_of(OWN)
    way = None if layout.sender else DIRECTIONS.get(str(record.get("type")))
    if way:
        sender = way
    elif own is not None:
        sender = ME if str(own).strip().lower() in ("1", "true", "yes", "是") else OTHER
    else:
        sender = name_of(value_of((layout.sender,) if layout.sender else roles))
    names = (layout.text,) if layout.text else CONTENTS
    if sender is None or not any(name.strip().lower() in spelled for name in names):
        return None
    text = text_of(value_of(names))
    kind, subtype = value_of(KINDS), value_of(("subtype",))  # Slack's; WeChat's is a number.
    is_text = kind is None or way or str(kind).lower() in TEXT_KINDS
    text = _unbroken(text) if text and is_text and str(subtype or 0).isdigit() else None
    text = None if text and NOTICE.fullmatch(text) else text
    message = Message(_unbroken(str(sender)), text, when)
    return Row(str(value_of(TALKS) or ""), message, tuple(taken))


def _unbroken(text: str) -> str:
    """Returns a text whose letters are bytes of UTF-8, as Instagram writes them, as its letters."""
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text
