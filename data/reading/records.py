"""Records with named fields, from JSON, CSV, Parquet or YAML, as the turns of a dialogue."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from towers.data.reading.layout import Layout
from towers.data.reading.marks import is_marked, marked_messages
from towers.data.reading.messages import (
    ANSWERING,
    ASKING,
    UNSPOKEN,
    Message,
    Turns,
    turns_of_messages,
)
from towers.data.reading.report import ReadingReport

# The last column is the answer; the ones before it are the question.
COLUMNS: tuple[tuple[str, ...], ...] = (
    ("question", "answer"), ("instruction", "input", "output"),
    ("instruction", "context", "response"), ("instruction", "output"), ("instruction", "response"),
    ("prompt", "response"), ("prompt", "completion"), ("context", "response"), ("input", "output"),
    ("input", "target"), ("query", "response"), ("prompt", "chosen"), ("question", "chosen"),
    ("instruction", "chosen"), ("human", "assistant"), ("user", "assistant"), ("human", "bot"),
    ("user", "bot"), ("post", "response"), ("query", "answer"), ("prompt", "answer"),
    ("input", "response"), ("source", "target"), ("user utterance", "system response"),
    ("title", "desc", "answer"), ("question", "chatgpt_answers"), ("question", "response"),
    ("history", "response"), ("problem", "solution"), ("input text", "output text"),
    ("message 1", "message 2"), ("input", "preferred output"), ("src", "tgt"),
    ("问题", "答案"), ("问题", "回答"), ("提问", "回答"), ("问", "答"),
)  # fmt: skip
RECORD_COLUMNS = (*COLUMNS, ("q", "a"))  # In the first line of a table, these may be a pair.
_words = str.split
LIST_KEYS = _words(
    "turns dialogue messages conversations conversation contents dialog data utterances history "
    "chosen log chat"
)
SPEAKERS = ("speakers", "roles")  # A list of who says each of a list of texts.
ROLES = tuple(
    _words(
        "role from speaker sender_name author sender speaker_idx from_name user name speaker_id "
        "sender_id user_id participant agent creator username nickname from_id 发送人 发送者 昵称"
    )
)
CONTENTS = tuple(
    _words(
        "content value text utterance parts message msg body strcontent message_text mes 内容 消息 "
        "消息内容 聊天内容"
    )
)
# A first line with one of these names columns, and is no question and answer.
COLUMN_NAMES = frozenset(
    (*LIST_KEYS, *CONTENTS, *_words("id label labels question answer reply response sentence1"))
)
UNSAID = ("think", "reason", "tool", "call")  # In types of what is no text.
INNER = ("text", "body", "content")  # Where a content that is an object has its text.
TEXT_PARTS = (None, "text", "input_text", "output_text")  # Types of the parts of a message.


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
            if taken[1:] and not isinstance(turns, Turns):
                # The last one is the answer, however many turns are before it.
                turns = Turns([""] * (len(turns) % 2) + turns, has_roles=True)
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
            is_taken = _is_list(record.get(key)) and not (names and key in ("history", *names))
            if is_taken and not (key == "data" and _are_pairs(record[key])):
                chosen = record.get("chosen")
                more = [chosen] if isinstance(chosen, Mapping) else []
                said = _spoken(record, record[key])
                if said:
                    yield (key, said[0]), said[1]
                yield (key, "chosen") if more else (key,), _last_of(record[key]) + more
        if _is_list(record.get("content")) and _role(record) is None:
            yield ("content",), list(record["content"])
        if isinstance(record.get("mapping"), Mapping):
            yield ("mapping",), list(_branch(record["mapping"], record.get("current_node")))[::-1]
        if isinstance(record.get("prompt"), Mapping):
            yield ("prompt",), list(_best_branch(record["prompt"]))
    if names:
        yield from _of_columns(record, names)
    if not (names or layout.columns):
        for key in ("text", "chosen", "conversation", "dialogue", "chat"):
            yield (key,), marked_messages(record.get(key), prefaced=True)


def _of_columns(
    record: Mapping[str, Any], names: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], list[Any] | None]]:
    values = [record.get(name) for name in names]
    first = values[0]
    if len(values) == 2 and _is_list(first) and len(first) > 1 and all(map(_is_text, first)):
        yield names, [*first, values[1]]
        return
    if any(_is_list(value) and isinstance(next(iter(value), None), Mapping) for value in values):
        *before, last = values  # Messages, as files of preferences have them.
        asked = [part for value in before for part in _listed(value, "user")]
        answered = _listed(last, "assistant")
        is_whole = any(str(_role(one)).lower() in ASKING for one in answered)
        yield names, answered if is_whole else [*asked, *answered]
        return
    turns = columns_of(record, names)
    if turns is None:
        yield names, None
        return
    said = marked_messages(turns[0])
    if said:
        yield names, [*said, *_listed(turns[1], "assistant")]
    if earlier := _earlier(record.get("history")):
        if isinstance(earlier[0], Mapping):
            turns = [*_listed(turns[0], "user"), *_listed(turns[1], "assistant")]
        yield (*names, "history"), [*earlier, *turns]
    yield names, turns


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
    for wanted in choices:
        found = keys_of(names, wanted)
        if len(found) == len(wanted):
            return found
    return None


@functools.lru_cache(1024)  # Records of a file have the same keys.
def keys_of(names: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Returns those of some wanted names that a record has, as it spells them.

    >>> keys_of(("id", "senderName", "Text"), ("sender_name", "name", "text"))
    ('senderName', 'Text')
    """
    spelled = {_plain(name): name for name in reversed(names)} | {name: name for name in names}
    found = (spelled.get(name, spelled.get(_plain(name))) for name in wanted)
    return tuple(name for name in found if name is not None)


def _plain(name: Any) -> str:
    """Returns a name without what programs spell differently: capitals, blanks and signs."""
    return re.sub(r"[\s_-]+", "", str(name)).lower()


def is_number(value: Any) -> bool:
    """Returns whether a value is a number; in tables NaN stands where there is none."""
    return type(value) in (int, float) and math.isfinite(value)


def columns_of(record: Mapping[str, Any], names: Sequence[str]) -> list[str] | None:
    """Returns question and answer of a record, or None if they are not texts.

    Beside a text, a number is one too: `{"question": "How many?", "answer": 3}`.
    """
    values = (record.get(name) for name in names)
    texts = [text_of(value) if _is_list(value) else value for value in values]
    if any(isinstance(text, str) for text in texts):
        texts = [str(text) if is_number(text) else text for text in texts]
    *question, answer = ["" if text is None and len(texts) > 2 else text for text in texts]
    if not isinstance(answer, str) or not all(isinstance(text, str) for text in question):
        return None
    return [" ".join(text for text in question if text), answer]


def _of_list(items: Any, layout: Layout, report: ReadingReport) -> list[str] | None:
    """Returns the turns of a list of texts, of messages, or of pairs."""
    if any(isinstance(item, Mapping) or _is_spoken(item) for item in items):
        messages: list[Message] = []
        for item in items:
            found = [Message("", item)] if isinstance(item, str) else _messages_of(item)
            if found is None:
                return None
            messages += found
        if messages and any(message.sender for message in messages):
            return turns_of_messages(messages, report, layout.me)
        texts = [message.text for message in messages]
        if len(texts) > 1 and None not in texts:
            report.note("messages that name no sender are read as turns, one after the other")
    else:
        texts = [item if isinstance(item, str) else None for item in items]
        if texts and all(text and is_marked(text) for text in texts):
            said = marked_messages("\n".join(items)) or []
            messages = [Message(one["role"], one["content"]) for one in said]
            return turns_of_messages(messages, report, layout.me)
    return [text for text in texts if text is not None] if None not in texts else None


def _messages_of(item: Any) -> list[Message] | None:
    """Returns the message of an object, the two of a pair of columns, none of a call of a tool."""
    if not isinstance(item, Mapping):
        return [Message(str(item[0]), item[1])] if _is_spoken(item) else None
    nested = item.get("message")
    item = nested if isinstance(nested, Mapping) else item
    sender, text = _role(item), text_of(_first(item, CONTENTS))
    if item.get("weight") == 0 or item.get("loss") is False:
        text = None  # A model is not to learn it.
    if text is None and _is_call(item):
        return []
    names = find_columns(item, known=RECORD_COLUMNS) if None in (sender, text) else None
    turns = columns_of(item, names) if names else None
    if turns is not None:
        return [Message("user", turns[0]), Message("assistant", turns[1])]
    if sender is not None:
        return [Message(str(sender), text)]
    return None if text is None else [Message("", text)]


def _last_of(items: Sequence[Any]) -> list[Any]:
    """Returns the turns of a list; of growing histories with candidates the last and its answer."""
    last = items[-1] if items else None
    if isinstance(last, Mapping):
        history, candidates = last.get("history"), last.get("candidates")
        if _is_list(history) and _is_list(candidates) and candidates:
            return [*history, candidates[-1]]
    return list(items)


def _spoken(
    record: Mapping[str, Any], texts: Sequence[Any]
) -> tuple[str, list[dict[str, Any]]] | None:
    """Returns the key of a list that says who speaks each text, and the messages, or None."""
    for key in SPEAKERS:
        names = record.get(key)
        if _is_list(names) and len(names) == len(texts) and all(map(_is_text, [*names, *texts])):
            pairs = zip(names, texts, strict=True)
            return key, [{"role": name, "content": text} for name, text in pairs]
    return None


def _branch(nodes: Mapping[str, Any], name: Any) -> Iterator[dict[str, Any]]:
    """Yields the messages of a tree of ChatGPT's, from that of a node up to the first one."""
    for _ in nodes:  # There may be a circle.
        node = nodes.get(name) if isinstance(name, str) else None
        if not isinstance(node, Mapping):
            return
        message, name = node.get("message"), node.get("parent")
        content = message.get("content") if isinstance(message, Mapping) else None
        parts = content.get("parts") if isinstance(content, Mapping) else None
        is_said = isinstance(message, Mapping) and message.get("recipient") in (None, "all")
        if isinstance(message, Mapping) and is_said and _is_list(parts):
            yield {"role": _role(message), "content": "\n".join(filter(_is_text, parts))}


def _best_branch(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the messages of a tree, at each place the reply that is ranked best."""
    while True:
        yield message
        replies = message.get("replies")
        usable = [one for one in replies if isinstance(one, Mapping)] if _is_list(replies) else []
        if not usable:
            return
        message = best_of(usable, lambda reply: reply.get("rank"))


def best_of(replies: Sequence[Any], rank_of: Callable[[Any], Any]) -> Any:
    """Returns the reply of the lowest rank; one without a rank has the lowest."""

    def rank(reply: Any) -> float:
        try:
            found = float(rank_of(reply) or 0)
        except (TypeError, ValueError):
            return 0.0
        return found if found == found else 0.0  # Parquet has NaN for none.

    return min(replies, key=rank)


def _earlier(history: Any) -> list[Any]:
    """Returns the texts or messages before a question, from texts, messages or pairs."""
    if not _is_list(history) or not history:
        return []
    if all(isinstance(one, Mapping) for one in history):
        return list(history)
    texts = [text for pair in history for text in (pair if _is_list(pair) else [pair])]
    return texts if all(map(_is_text, texts)) and len(texts) % 2 == 0 else []


def _are_pairs(items: Sequence[Any]) -> bool:
    """Returns whether records follow each other, each a question and its answer."""
    return all(isinstance(one, Mapping) and find_columns(one) is not None for one in items)


def _is_spoken(item: Any) -> bool:
    """Returns whether an item is the number of a speaker with what he says."""
    return _is_list(item) and len(item) == 2 and type(item[0]) is int and _is_text(item[1])


def _listed(value: Any, role: str) -> list[Any]:
    if isinstance(value, Mapping) and _is_list(value.get("messages")):
        return list(value["messages"])
    return list(value) if _is_list(value) else [{"role": role, "content": value}]


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


def _is_call(message: Mapping[str, Any]) -> bool:
    """Returns whether a message is a thought or a call of a tool, or has the result of a call."""
    if any(word in str(message.get("type")) for word in UNSAID):
        return True
    if any(message.get(name) for name in ("tool_calls", "function_call")):
        return True
    parts: Sequence[Any] = next(
        (message[name] for name in CONTENTS if _is_list(message.get(name))), []
    )
    kinds = {part.get("type") for part in parts if isinstance(part, Mapping)}
    return not kinds.isdisjoint(("tool_use", "tool_result"))


def _role(message: Mapping[str, Any]) -> Any:
    role = name_of(_first(message, ROLES))
    kind = message.get("type")
    is_role = role is None and str(kind).lower() in ASKING | ANSWERING | UNSPOKEN
    return kind if is_role else role


def _first(message: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    found = next((message[name] for name in names if message.get(name) is not None), None)
    if found is not None:
        return found  # As most spell them.
    values = (message[key] for key in keys_of(tuple(message), names))
    return next((value for value in values if value is not None), None)


def name_of(sender: Any) -> Any:
    """Returns a sender's role or name, also of one that is an object, as ChatGPT's `author`."""
    return sender.get("role") or sender.get("name") if isinstance(sender, Mapping) else sender


def text_of(content: Any) -> str | None:
    """Returns the text of a message; of one in parts, as APIs have them, that of its texts."""
    if isinstance(content, Mapping):
        content = _first(content, INNER)
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
        is_thought = any(word in str(part.get("type")) for word in UNSAID)
        part = None if is_thought else part.get("text")
    return part if isinstance(part, str) else None
