"""Records with named fields, from JSON, CSV, Parquet or YAML, as the turns of a dialogue."""
# ruff: noqa: RUF001 - this module is about full-width punctuation too.

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from towers.data.reading.layout import Layout
from towers.data.reading.messages import ME, OTHER, Message, as_answers, turns_of_messages
from towers.data.reading.report import ReadingReport
from towers.data.reading.times import seconds_of

# The last column is the answer; the ones before it are the question.
COLUMNS = (
    ("question", "answer"),
    ("instruction", "input", "output"),
    ("instruction", "context", "response"),
    ("instruction", "output"),
    ("instruction", "response"),
    ("prompt", "response"),
    ("prompt", "completion"),
    ("context", "response"),
    ("input", "output"),
    ("input", "target"),
    ("query", "response"),
    ("prompt", "chosen"),
    ("question", "chosen"),
    ("instruction", "chosen"),
    ("human", "assistant"),
    ("user", "assistant"),
    ("human", "bot"),
    ("user", "bot"),
    ("post", "response"),
    ("query", "answer"),
    ("prompt", "answer"),
    ("input", "response"),
    ("source", "target"),
    ("问题", "答案"),
    ("问题", "回答"),
    ("提问", "回答"),
    ("问", "答"),
)
RECORD_COLUMNS = (*COLUMNS, ("q", "a"))  # In the first line of a table, these may be a pair.
LIST_KEYS = (
    *("turns", "dialogue", "messages", "conversations", "conversation", "contents", "dialog"),
    *("data", "utterances", "history", "chosen", "log", "chat"),
)
ROLES = (
    *(
        "role",
        "from",
        "speaker",
        "sender_name",
        "author",
        "sender",
        "speaker_idx",
        "from_name",
        "user",
        "name",
    ),
    *("nickname", "发送人", "发送者", "昵称"),
)
CONTENTS = (
    *("content", "value", "text", "utterance", "parts", "message", "msg", "body"),
    *("strcontent", "内容", "消息"),
)
TIMES = (
    *("timestamp_ms", "date_unixtime", "timestamp", "createtime", "create_time", "strtime", "time"),
    *("date", "ts", "created_at", "时间", "发送时间"),
)
OWN = ("issender", "is_sender", "is_self", "issend")  # 1 is one's own message.
TALKS = (
    *("talkerid", "room_name", "talker", "conversation_id", "dialogue_id", "dialog_id", "chat_id"),
    *("session_id", "conv_id", "thread_id", "channel", "conversation", "dialogue", "session"),
)
KINDS = ("type_name", "type")
TEXT_KINDS = frozenset(
    ("1", "text", "message", "文本", "txt", "generic", "share", "default", "reply")
)
TEXT_PARTS = (None, "text", "input_text", "output_text")  # Types of the parts of a message.
# Marks of who speaks in a text that holds a dialogue, each at the beginning of a line.
_NAMES = (
    "human|assistant|user|bot|chatbot|ai|gpt|system|instruction|response|prompter|用户|助手|问|答"
)
_MARK = re.compile(
    rf"(?:^|\n)[ \t]*(?:#+ *)?(?i:({_NAMES}|q|a)) *[:：]|(?<=[\s。！？.!?])(Human|Assistant):"
)
_TEMPLATE = re.compile(r"<\|im_start\|>\s*(\w+)\s*\n|<\|(user|assistant|system)\|>\s*")
_ENDS = re.compile(r"<\|im_end\|>|<\|end\|>|</s>|<s>|<\|endoftext\|>|#+\s*$")
_MARKED = {"q": "user", "问": "user", "a": "assistant", "答": "assistant"} | {
    "instruction": "user",
    "response": "assistant",
}


def turns_of(
    record: Any, layout: Layout | None = None, report: ReadingReport | None = None
) -> list[str] | None:
    """Returns the texts of the turns of a record, or None if it has none or they are not texts.

    A record is a list of turns, or an object with such a list under one of `LIST_KEYS` (what
    OpenAI calls `messages` and ShareGPT `conversations`), with named columns, or with a text that
    holds a dialogue. A turn is a text, a message with a role under one of `ROLES` and its text
    under one of `CONTENTS`, or an object with named columns. `turns_of_messages` says what becomes
    of messages.

    Args:
        record: a value as JSON has them.
        layout: the user's names of columns.
        report: counts the roles, and which keys were taken.
    """
    layout = layout or Layout()
    report = report or ReadingReport()
    if not isinstance(record, Mapping):
        return _of_list(record, layout, report) if _is_list(record) else None
    for taken, found in _readings(record, layout):
        turns = found if found is None else _of_list(found, layout, report)
        if turns:
            if taken[1:]:
                turns = as_answers(turns)
            report.take(taken, record)
            return turns
    return None


def _readings(
    record: Mapping[str, Any], layout: Layout
) -> Iterator[tuple[tuple[str, ...], list[Any] | None]]:
    """Yields (keys, the list of turns under them) for each way in which a record may be read."""
    names = find_columns(record, layout.columns, RECORD_COLUMNS)
    if not layout.columns:
        for key in LIST_KEYS:
            if _is_list(record.get(key)) and not (names and key in ("history", *names)):
                chosen = record.get("chosen")
                more = [chosen] if isinstance(chosen, Mapping) else []
                yield (key, "chosen") if more else (key,), _last_of(record[key]) + more
        if _is_list(record.get("content")) and _role(record) is None:
            yield ("content",), list(record["content"])
        if isinstance(record.get("prompt"), Mapping):
            yield ("prompt",), list(_best_branch(record["prompt"]))
    if names:
        yield from _of_columns(record, names)
    if not (names or layout.columns):
        for key in ("text", "chosen", "conversation", "dialogue"):
            yield (key,), marked_messages(record.get(key))


def _of_columns(
    record: Mapping[str, Any], names: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], list[Any] | None]]:
    values = [record.get(name) for name in names]
    if any(_is_list(value) and isinstance(next(iter(value), None), Mapping) for value in values):
        *before, last = values  # Messages, as files of preferences have them.
        asked = [part for value in before for part in _listed(value, "user")]
        answered = _listed(last, "assistant")
        yield names, answered if len(answered) > 1 else [*asked, *answered]
        return
    turns = columns_of(record, names)
    if turns is None:
        yield names, None
        return
    said = marked_messages(turns[0])
    history = record.get("history")
    earlier = [text for pair in history for text in pair] if _is_history(history) else []
    if said:
        answer = {"role": "assistant", "content": turns[1]}
        yield names, [*said, answer]
    yield (*names, "history") if earlier else names, [*earlier, *turns]


def not_a_dialogue(layout: Layout) -> str:
    """Returns why `turns_of` returned None, as the report says it."""
    columns = ",".join(layout.columns)
    return f"has no texts in {columns}" if columns else "is not a dialogue"


def find_columns(
    names: Iterable[str],
    columns: Sequence[str] = (),
    known: Sequence[tuple[str, ...]] = COLUMNS,
) -> tuple[str, ...] | None:
    """Returns the names of the columns that are question and answer, as the record spells them.

    Args:
        names: of all columns.
        columns: those of the user; by default the first known ones that are all there.
        known: usual names.
    """
    return _find_columns(tuple(names), (tuple(columns),) if columns else tuple(known))


@functools.lru_cache(1024)  # Records of a file have the same keys.
def _find_columns(
    names: tuple[str, ...], choices: tuple[tuple[str, ...], ...]
) -> tuple[str, ...] | None:
    spelled = spelling_of(names)
    for wanted in choices:
        if all(name.strip().lower() in spelled for name in wanted):
            return tuple(spelled[name.strip().lower()] for name in wanted)
    return None


def spelling_of(names: Iterable[Any]) -> dict[str, str]:
    """Returns {name in small letters: as it is spelled}."""
    return {str(name).strip().lower(): str(name) for name in names}


def columns_of(record: Mapping[str, Any], names: Sequence[str]) -> list[str] | None:
    """Returns question and answer of a record, or None if they are not texts."""
    texts = [record.get(name) for name in names]
    *question, answer = ["" if text is None and len(texts) > 2 else text for text in texts]
    if not isinstance(answer, str) or not all(isinstance(text, str) for text in question):
        return None
    return [" ".join(text for text in question if text), answer]


def marked_messages(text: Any) -> list[dict[str, str]] | None:
    """Returns the messages of a text whose marks say who speaks, None for another text.

    >>> marked_messages("### Human: Hi.### Assistant: Hello.")
    [{'role': 'human', 'content': 'Hi.'}, {'role': 'assistant', 'content': 'Hello.'}]
    >>> marked_messages("He said: no.")
    """
    if not isinstance(text, str) or not any(sign in text for sign in (":", "：", "<|")):
        return None
    text = _TEMPLATE.sub(r"\n\1\2:", text.replace("###", "\n###"))
    marks = list(_MARK.finditer(text))
    if len(marks) < 2 or _ENDS.sub("", text[: marks[0].start()]).strip():
        return None
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    messages = []
    for mark, end in zip(marks, ends, strict=True):
        role = (mark[1] or mark[2]).lower()
        content = _ENDS.sub("", text[mark.end() : end]).strip()
        messages.append({"role": _MARKED.get(role, role), "content": content})
    if not messages[-1]["content"]:  # `Assistant:` asks for the answer, which is elsewhere.
        messages.pop()
    return messages


def is_marked(line: str) -> bool:
    """Returns whether a line begins with who speaks."""
    return _MARK.match(line) is not None


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
    roles = [role for role in ROLES if when is not None or role not in ("name", "user")]
    own = None if layout.sender else value_of(OWN)
    if own is not None:
        sender = ME if str(own).strip().lower() in ("1", "true", "yes", "是") else OTHER
    else:
        sender = _name_of(value_of((layout.sender,) if layout.sender else roles))
    names = (layout.text,) if layout.text else CONTENTS
    if sender is None or not any(name.strip().lower() in spelled for name in names):
        return None
    text = text_of(value_of(names))
    kind, subtype = value_of(KINDS), value_of(("subtype",))  # Slack's; WeChat's is a number.
    is_text = kind is None or str(kind).lower() in TEXT_KINDS
    text = _unbroken(text) if text and is_text and str(subtype or 0).isdigit() else None
    message = Message(_unbroken(str(sender)), text, when)
    return Row(str(value_of(TALKS) or ""), message, tuple(taken))


def _of_list(items: Any, layout: Layout, report: ReadingReport) -> list[str] | None:
    """Returns the turns of a list of texts, of messages, or of pairs."""
    if any(isinstance(item, Mapping) for item in items):
        messages: list[Message] = []
        for item in items:
            found = [Message("", item)] if isinstance(item, str) else _messages_of(item)
            if found is None:
                return None
            messages += found
        if messages and any(message.sender for message in messages):
            return turns_of_messages(messages, report, layout.me)
        texts = [message.text for message in messages]
    else:
        texts = [item if isinstance(item, str) else None for item in items]
    return [text for text in texts if text is not None] if None not in texts else None


def _messages_of(item: Any) -> list[Message] | None:
    """Returns the message of an object, the two of a pair of columns, none of a call of a tool."""
    if not isinstance(item, Mapping):
        return None
    sender, text = _role(item), text_of(_content(item))
    if sender is not None:
        return [] if text is None and _is_call(item) else [Message(str(sender), text)]
    names = find_columns(item, known=RECORD_COLUMNS)
    turns = columns_of(item, names) if names else None
    if turns is not None:
        return [Message("user", turns[0]), Message("assistant", turns[1])]
    return None if text is None else [Message("", text)]


def _last_of(items: Sequence[Any]) -> list[Any]:
    """Returns the turns of a list; of growing histories with candidates the last and its answer."""
    last = items[-1] if items else None
    if isinstance(last, Mapping):
        history, candidates = last.get("history"), last.get("candidates")
        if _is_list(history) and _is_list(candidates) and candidates:
            return [*history, candidates[-1]]
    return list(items)


def _best_branch(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the messages of a tree, at each place the reply that is ranked best."""
    while True:
        yield message
        replies = message.get("replies")
        usable = [one for one in replies if isinstance(one, Mapping)] if _is_list(replies) else []
        if not usable:
            return
        message = min(usable, key=_rank)


def _rank(message: Mapping[str, Any]) -> float:
    rank = message.get("rank")
    return rank if isinstance(rank, int | float) else 0


def _is_history(value: Any) -> TypeGuard[Sequence[Sequence[str]]]:
    return _is_list(value) and all(
        _is_list(pair) and len(pair) == 2 and all(isinstance(text, str) for text in pair)
        for pair in value
    )


def _listed(value: Any, role: str) -> list[Any]:
    return list(value) if _is_list(value) else [{"role": role, "content": value}]


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


def _is_call(message: Mapping[str, Any]) -> bool:
    """Returns whether a message calls a tool, or has the result of a call, in place of a text."""
    if any(message.get(name) for name in ("tool_calls", "function_call")):
        return True
    parts: Sequence[Any] = next(
        (message[name] for name in CONTENTS if _is_list(message.get(name))), []
    )
    kinds = {part.get("type") for part in parts if isinstance(part, Mapping)}
    return not kinds.isdisjoint(("tool_use", "tool_result"))


def _role(message: Mapping[str, Any]) -> Any:
    role = next((message[name] for name in ROLES if message.get(name) is not None), None)
    return _name_of(role)


def _name_of(sender: Any) -> Any:
    """Returns a sender's role or name, also of one that is an object, as ChatGPT's `author`."""
    return sender.get("role") or sender.get("name") if isinstance(sender, Mapping) else sender


def _content(message: Mapping[str, Any]) -> Any:
    return next((message[name] for name in CONTENTS if message.get(name) is not None), None)


def text_of(content: Any) -> str | None:
    """Returns the text of a message; of one in parts, as APIs have them, that of its texts."""
    if not _is_list(content):
        return content if isinstance(content, str) else None
    if len(content) > 1 and all(map(_is_text, content)):
        return None  # These are texts of their own.
    texts = [_text_of_part(part) for part in content]
    kinds = {part.get("type") for part in content if isinstance(part, Mapping)}
    between = " " if kinds.issubset(TEXT_PARTS) or not any(map(_is_text, content)) else ""
    return between.join(text for text in texts if text) if any(texts) else None


def _is_text(part: Any) -> bool:
    return isinstance(part, str)


def _text_of_part(part: Any) -> str | None:
    if isinstance(part, Mapping):
        is_thought = any(word in str(part.get("type")) for word in ("think", "reason", "tool"))
        part = None if is_thought else part.get("text")
    return part if isinstance(part, str) else None


def _unbroken(text: str) -> str:
    """Returns a text whose letters are bytes of UTF-8, as Instagram writes them, as its letters."""
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text
