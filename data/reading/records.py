"""Records with named fields, from JSON, CSV or Parquet, as the turns of a dialogue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# The last column is the answer; the ones before it are the question.
COLUMNS = (
    ("question", "answer"),
    ("instruction", "input", "output"),
    ("instruction", "output"),
    ("instruction", "response"),
    ("prompt", "response"),
    ("prompt", "completion"),
    ("context", "response"),
    ("input", "output"),
    ("query", "response"),
    ("问题", "答案"),
    ("问题", "回答"),
    ("问", "答"),
)
LIST_KEYS = ("turns", "dialogue", "messages", "conversations", "conversation")
ROLES = ("role", "from")
CONTENTS = ("content", "value", "text")
TEXT_PARTS = ("text", "input_text", "output_text")  # Types of the parts of a message.
UNSPOKEN = frozenset(("system", "developer", "tool", "function", "observation"))
ANSWERING = frozenset(("assistant", "gpt", "bot", "chatgpt", "model", "bing", "bard"))


def turns_of(record: Any, columns: Sequence[str] = ()) -> list[str] | None:
    """Returns the texts of the turns of a record, or None if it has none or they are not texts.

    A record is a list of turns, or an object with such a list under one of `LIST_KEYS` (what
    OpenAI calls `messages` and ShareGPT `conversations`) or with named columns. A turn is a text,
    or an object with its text under one of `CONTENTS`. Where turns have roles, those of a system
    or a tool and calls of tools are left out, turns in a row of one role are one turn, a message
    without a text, such as a picture, is an empty turn, and so is the question of an answer at the
    beginning, so that questions and answers keep their places.

    Args:
        record: a value as JSON has them.
        columns: names of the user's; the last one is the answer.
    """
    if isinstance(record, Mapping):
        names = find_columns(record, columns)
        lists = [] if columns else [record[key] for key in LIST_KEYS if _is_list(record.get(key))]
        if not lists:
            return None if names is None else columns_of(record, names)
        record = lists[0]
    if not _is_list(record):
        return None
    if any(isinstance(turn, Mapping) and _role(turn) is not None for turn in record):
        return _spoken(record)
    texts = [_text(turn) for turn in record]
    return [text for text in texts if text is not None] if None not in texts else None


def not_a_dialogue(columns: Sequence[str]) -> str:
    """Returns why `turns_of` returned None, as the report says it."""
    return f"has no texts in {','.join(columns)}" if columns else "is not a dialogue"


def find_columns(names: Iterable[str], columns: Sequence[str] = ()) -> tuple[str, ...] | None:
    """Returns the names of the columns that are question and answer, as the record spells them.

    Args:
        names: of all columns.
        columns: those of the user; by default the first of `COLUMNS` that are all there.
    """
    spelled = {str(name).strip().lower(): str(name) for name in names}
    for wanted in (tuple(columns),) if columns else COLUMNS:
        if all(name.strip().lower() in spelled for name in wanted):
            return tuple(spelled[name.strip().lower()] for name in wanted)
    return None


def columns_of(record: Mapping[str, Any], names: Sequence[str]) -> list[str] | None:
    """Returns question and answer of a record, or None if they are not texts."""
    texts = [record.get(name) for name in names]
    *question, answer = ["" if text is None and len(texts) > 2 else text for text in texts]
    if not isinstance(answer, str) or not all(isinstance(text, str) for text in question):
        return None
    return [" ".join(text for text in question if text), answer]


def _spoken(messages: Sequence[Any]) -> list[str] | None:
    """Returns the turns of messages with roles."""
    turns: list[str] = []
    has_text, last = False, None
    for message in messages:
        if not isinstance(message, Mapping):
            return None
        role = str(_role(message)).lower()
        text = _text(message)
        if role in UNSPOKEN or (text is None and _is_call(message)):
            continue
        has_text = has_text or text is not None
        text = text or ""
        if not turns and role in ANSWERING:
            turns.append("")
        if role == last:
            turns[-1] = f"{turns[-1]} {text}".strip()
        else:
            turns.append(text)
        last = role
    return turns if has_text else None


def _is_list(value: Any) -> bool:
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
    return next((message[name] for name in ROLES if message.get(name) is not None), None)


def _text(turn: Any) -> str | None:
    """Returns the text of a turn; of a message in parts, as APIs have them, that of its texts."""
    if isinstance(turn, Mapping):
        turn = next((turn[name] for name in CONTENTS if turn.get(name) is not None), None)
    if _is_list(turn):
        texts = [_text_of_part(part) for part in turn]
        return " ".join(text for text in texts if text) if any(texts) else None
    return turn if isinstance(turn, str) else None


def _text_of_part(part: Any) -> str | None:
    if isinstance(part, Mapping):
        part = part.get("text") if part.get("type") in TEXT_PARTS else None
    return part if isinstance(part, str) else None
