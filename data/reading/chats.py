"""The dialogues of a file's records; messages of people are gathered by conversation."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from towers.data.reading.dialogue_file import Dialogue, DialogueFile, Line
from towers.data.reading.message_records import TIMES, message_of
from towers.data.reading.messages import (
    ANSWERING,
    ASKING,
    ME,
    OTHER,
    Message,
    talks,
    turns_of_messages,
)
from towers.data.reading.records import LIST_KEYS, best_of, keys_of, turns_of
from towers.data.reading.times import is_day_first
from towers.data.reading.tsv import WRONG_ANSWER, judges

TREE = ("parent_id", "message_id")
_DEPTH = 4  # Of objects that hold chats.
SHOWN_KEYS = 8  # Of a record that is no dialogue.
_LOOKED_AT = 200  # Records by which it is told what their labels mean.
NO_TEXT = "messages that are no text"


class Chats:
    """The messages of a file of people, in memory, by conversation.

    Args:
        file: that has them.

    Attributes:
        judged: whether labels of 0 and 1 judge answers.
        numbers: of records that hold messages.
    """

    judged = False

    def __init__(self, file: DialogueFile):
        self._file = file
        self._messages: dict[str, list[Message]] = {}
        self._replies: dict[str, list[tuple[str, Any, Message]]] = {}
        self._line = Line(1, "", False)
        self.numbers = itertools.count()

    def add(self, conversation: str, message: Message, line: Line) -> None:
        """Takes the next message; one without a text is left out, and counted."""
        if message.text is None:
            self._file.skip(NO_TEXT, line)
        else:
            self._messages.setdefault(conversation, []).append(message)
            self._line = line

    def add_reply(self, record: Mapping[str, Any], message: Message, line: Line) -> None:
        """Takes a message of a tree, as OpenAssistant's: it names the one that it answers."""
        if message.text is None:
            self._file.skip(NO_TEXT, line)
            return
        parent, own = (str(record[key] or "") for key in TREE)
        self._replies.setdefault(parent, []).append((own, record.get("rank"), message))
        self._line = line

    def _branches(self) -> Iterator[list[Message]]:
        """Yields the messages of each tree, at each place the reply that is ranked best."""
        num_left = sum(map(len, self._replies.values()))
        for name, _, message in self._replies.pop("", []):
            branch = [message]
            while replies := self._replies.pop(name, None):
                name, _, message = best_of(replies, lambda reply: reply[1])
                branch.append(message)
            num_left -= len(branch)
            yield branch
        for _ in range(num_left):
            self._file.skip("replies that are not the best ones of their place", self._line)

    def dialogues(self) -> Iterator[Dialogue]:
        """Yields the dialogues of what was taken, one conversation after the other."""
        report, me = self._file.report, self._file.layout.me
        people = self._messages.values()
        day_first = is_day_first([message.time for message in one] for one in people)
        of_people = (talk for one in people for talk in talks(one, day_first=day_first))
        for talk in itertools.chain(of_people, self._branches()):
            turns = turns_of_messages(talk, report, me)
            yield from self._file.dialogue(turns, self._line, "conversations without a text")


def dialogues_of(
    records: Iterable[tuple[Line, Any]], file: DialogueFile, flaw: str
) -> Iterator[Dialogue]:
    """Yields the dialogues of records, each of which is one, has several, or is one message.

    Args:
        records: each with its line.
        file: that has them.
        flaw: what to call a record that is none of these.
    """
    chats, records = Chats(file), iter(records)
    first = list(itertools.islice(records, 1))
    if any(_label_of(record) is not None for _, record in first):
        first += itertools.islice(records, _LOOKED_AT)
        labelled = (one for _, one in first if str(_label_of(one)) in ("0", "1"))
        answered = ((turns_of(one, file.layout) or [], str(_label_of(one))) for one in labelled)
        chats.judged = judges((tuple(turns[:-1]), label) for turns, label in answered if turns)
    for line, record in itertools.chain(first, records):
        yield from _dialogues_of(record, line, file, flaw, chats)
    yield from chats.dialogues()


def _dialogues_of(
    record: Any, line: Line, file: DialogueFile, flaw: str, chats: Chats, talk: str = ""
) -> Iterator[Dialogue]:
    layout = file.layout
    row = message_of(record, layout) if layout.sender else None
    if row is None and _add_people(record, line, file, chats):
        return
    turns = turns_of(record, layout, file.report) if row is None else None
    if turns is None:
        row = row or message_of(record, layout)
        groups = [] if row or layout.columns or talk.count("/") == _DEPTH else parts_of(record)
        if row:
            file.report.take(row.taken, record)
            if row.is_untimed:
                file.skip("times that cannot be read", line)
            if all(key in record for key in TREE):
                chats.add_reply(record, row.message, line)
            else:
                chats.add(row.talk or talk, row.message, line)
            return
        for group in groups:
            one = f"{talk}/{next(chats.numbers)}"  # The messages of a list are one conversation.
            for part in group:
                yield from _dialogues_of(part, line, file, flaw, chats, one)
        if groups:
            return
        if isinstance(record, Mapping) and not file.report.skipped[flaw]:
            keys = ", ".join(map(repr, list(record)[:SHOWN_KEYS]))
            file.report.note(f"{file.path}:{line.number} has the keys {keys}")
    if turns and not layout.columns and is_wrong(record, turns, judged=chats.judged):
        file.skip(WRONG_ANSWER, line)
        return
    yield from file.dialogue(turns, line, flaw)


def is_wrong(record: Any, turns: Sequence[str], *, judged: bool) -> bool:
    """Returns whether the label of a record says that its answer is wrong: false, or a 0 where
    labels judge answers.
    """
    label = _label_of(record)
    is_0 = judged and str(label) == "0" and getattr(turns, "has_roles", False)
    return label is False or is_0


def _label_of(record: Any) -> Any:
    return record.get("label") if isinstance(record, Mapping) else None


def parts_of(record: Any) -> list[list[Any]]:
    """Returns the lists of records that an object holds, such as all chats of an export."""
    values: list[Any] = list(record.values()) if isinstance(record, Mapping) else [record]
    groups: list[list[Any]] = [
        [one for one in value if isinstance(one, Mapping | list)]
        for value in values
        if isinstance(value, list | tuple) and not any(map(_is_plain, value))
    ]
    groups.append(
        [
            value
            for value in values
            if isinstance(value, Mapping) and not all(map(_is_plain, value.values()))
        ]
    )
    return [group for group in groups if group]


def _is_plain(value: Any) -> bool:
    return not isinstance(value, Mapping | list)


def _add_people(record: Any, line: Line, file: DialogueFile, chats: Chats) -> bool:
    """Takes the messages of an object with a list of people's messages that have times."""
    if not isinstance(record, Mapping):
        return False
    lists = (record[key] for key in LIST_KEYS if isinstance(record.get(key), list))
    items: list[Any] = next(lists, [])
    if not any(isinstance(item, Mapping) and keys_of(tuple(item), TIMES) for item in items[:2]):
        return False
    rows = [message_of(item, file.layout) for item in items]
    heard = [row.message for row in rows if row]
    if not heard or any(message.time is None for message in heard):
        return False
    roles = {message.sender.strip().lower() for message in heard}
    if roles & (ASKING | ANSWERING) - {ME, OTHER}:
        return False
    conversation = f"/{next(chats.numbers)}"  # Two chats of an export may have one name.
    for row in rows:
        if row:
            chats.add(conversation, row.message, line)
        else:
            file.skip(NO_TEXT, line)
    return True
