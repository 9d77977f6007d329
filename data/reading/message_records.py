"""Records that are one message each, as exports of chats and tables of messages have them."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from towers.data.reading.layout import Layout
from towers.data.reading.messages import ME, OTHER, Message
from towers.data.reading.notices import is_notice
from towers.data.reading.records import CONTENTS, ROLES, keys_of, name_of, text_of
from towers.data.reading.times import time_of

TIMES = tuple(
    str.split(
        "timestamp_ms date_unixtime timestamp createtime strtime time date ts created_at "
        "originalarrivaltime sent_at created created_date createddatetime message_date "
        "origin_server_ts send_date 时间 日期 发送时间 消息时间"
    )
)
# Kinds of messages that say whose they are, as Signal's.
DIRECTIONS = {"incoming": OTHER, "outgoing": ME, "received": OTHER, "sent": ME}
OWN = ("is_sender", "is_self", "issend", "is_from_me", "from_me")  # 1 is one's own message.
TALKS = tuple(
    str.split(
        "talkerid room_name talker conversation_id dialogue_id dialog_id chat_id session_id "
        "conv_id thread_id channel conversation dialogue session chat_session"
    )
)
ORDER = ("turn", "turn_id", "turn_idx", "turn_number", "utterance_idx")  # In a conversation.
DAYS, HOURS = ("date", "日期"), ("time", "时间")
KINDS = ("type_name", "messagetype", "type", "media_type", "类型", "消息类型")
GONE = ("deleted", "is_deleted", "is_unsent", "is_erased", "recalled")
TIMED = ("name", "user", "user_id", "participant", "agent")  # Senders of what has a time alone.
TEXT_KINDS = frozenset(
    str.split(
        "1 text message 文本 文本消息 txt generic share default reply richtext richtext/html "
        "type_1 m.room.message"
    )
)
_LINK = re.compile(r"<(?:[^<>|]*\||(?=https?:))([^<>]*)>")  # As Slack writes it.
_ANSWERED = re.compile(r"\A(?:> .*\n)+\n")  # Above an answer in Matrix.
_QUOTE = re.compile(r"<quote\b.*?</quote>", re.DOTALL)  # What a message of Skype answers.
_BREAK = re.compile(r"<br ?/?>|</(?:p|div|li)>")
_TAG = re.compile(r"</?[^<>\s][^<>]*>")


class Row(NamedTuple):
    """A record that is one message.

    Attributes:
        talk: its conversation, empty where the file has one.
        message: its text is None where it is of another kind, such as a picture.
        taken: the keys of all that was understood.
        is_untimed: whether it has a time that cannot be read.
    """

    talk: str
    message: Message
    taken: tuple[str, ...]
    is_untimed: bool = False


def message_of(record: Any, layout: Layout) -> Row | None:
    """Returns the message of a record that is one, None for another."""
    if not isinstance(record, Mapping):
        return None
    names, taken = tuple(record), dict[str, None]()

    def value_of(wanted: tuple[str, ...]) -> Any:
        keys = (key for key in keys_of(names, wanted) if record[key] not in (None, ""))
        key = next(keys, None)
        return None if key is None else record[taken.setdefault(key) or key]

    times = (layout.time,) if layout.time else TIMES
    when = time_of(value_of(times))
    if when is None:  # The day may be in a column of its own.
        when = time_of(f"{value_of(DAYS)} {value_of(HOURS)}")
    is_untimed = when is None and value_of(times) is not None
    talk = value_of(TALKS)
    when = time_of(value_of(ORDER)) if when is None and talk else when
    roles = tuple(role for role in ROLES if when is not None or role not in TIMED)
    own = None if layout.sender else value_of(OWN)
    kind, subtype = value_of(KINDS), value_of(("subtype",))  # Slack's; WeChat's is a number.
    way = None if layout.sender else DIRECTIONS.get(str(kind).lower())
    if way:
        sender = way
    elif own is not None:
        sender = ME if str(own).strip().lower() in ("1", "true", "yes", "是") else OTHER
    else:
        sender = name_of(value_of((layout.sender,) if layout.sender else roles))
    contents = (layout.text,) if layout.text else CONTENTS
    if sender is None or not keys_of(names, contents):
        return None
    content = value_of(contents)
    text = text_of(content)
    is_text = kind is None or way or str(kind).lower() in TEXT_KINDS
    is_text = is_text and str(subtype or 0).isdigit() and "call_duration" not in record
    is_text = is_text and str(value_of(GONE)).lower() not in ("true", "1")
    if isinstance(content, Mapping) and "msgtype" in content:  # Matrix; an edit repeats a text.
        is_text = is_text and content["msgtype"] == "m.text" and "m.new_content" not in content
        text = text and _ANSWERED.sub("", text)
    text = _unbroken(text) if text and is_text else None
    if text and ("ts" in taken or str(kind).lower().startswith("richtext")):
        text = _BREAK.sub("\n", _LINK.sub(r"\1", _QUOTE.sub("", text)))
        text = html.unescape(_TAG.sub("", text)).strip()
    text = None if text and when is not None and is_notice(text) else text
    message = Message(_unbroken(str(sender)), text, when)
    return Row(str(talk or ""), message, tuple(taken), is_untimed)


def _unbroken(text: str) -> str:
    """Returns a text whose letters are bytes of UTF-8, as Instagram writes them, as its letters."""
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text
