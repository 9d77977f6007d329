"""Messages to turns: who asks, who answers, and which messages are one turn."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from towers.data.reading.report import ReadingReport
from towers.data.reading.times import Time

_words = str.split
ASKING = frozenset(
    _words(
        "user human customer client prompter question questioner asker usr patient player student "
        "seeker caller visitor interviewer other 用户 问 问题 客户 顾客 "
        "患者 病人 提问 买家 学生 访客"
    )
)
ANSWERING = frozenset(
    _words(
        "assistant gpt bot chatgpt model bing bard ai agent chatbot answer answerer npc doctor "
        "teacher operator wizard support staff clerk robot claude gemini llm machine me sys "
        "助手 答 答案 回答 客服 医生 机器人 卖家 老师 店员"
    )
)
UNSPOKEN = frozenset(
    _words(
        "system developer tool function observation environment ipython context knowledge 系统 "
        "系统消息 系统提示"
    )
)
ASKS, ANSWERS = "asks", "answers"
ME, OTHER = "me", "other"  # The senders of an export that tells only which messages are one's own.
# Of a tool, in place of a text or behind it.
CALL = re.compile(
    r"\A\s*<\|?(?:tool_?call|function_?call).*|<\|?(?:tool_?call|function_?call)s?\|?>\s*[\[{<].*"
    r"|\[TOOL_CALLS\].*",
    re.DOTALL,
)
PAUSE = 6 * 3600.0  # Seconds of silence after which people talk about something else.


class Message(NamedTuple):
    """A message.

    Attributes:
        sender: the name or role of who sent it.
        text: of it, None for one without a text, such as a picture.
        time: None where it is not known.
    """

    sender: str
    text: str | None
    time: Time | None = None


class Turns(list[str]):
    """The turns of a dialogue of which more is known.

    Attributes:
        has_roles: whether the odd turns alone are answers.
        is_held_out: whether it is for the evaluation, None where nothing tells.
        weight: how often it is read in an epoch.
    """

    def __init__(
        self,
        texts: Iterable[str] = (),
        *,
        has_roles: bool = False,
        is_held_out: bool | None = None,
        weight: float = 1.0,
    ):
        super().__init__(texts)
        self.has_roles, self.is_held_out, self.weight = has_roles, is_held_out, weight

    def with_texts(self, texts: Iterable[str]) -> Turns:
        """Returns other turns of which the same is known."""
        return Turns(texts, **vars(self))


def turns_of_messages(
    messages: Sequence[Message], report: ReadingReport, me: str
) -> list[str] | None:
    """Returns the turns of a dialogue, or None if no message has a text.

    Messages in a row of one side are one turn, and calls of tools are none. A message without a
    text is an empty turn, and so is the question of an answer at the beginning, so that questions
    and answers keep their places. Between people of whom none is known to answer, everyone may.
    """
    sides = _sides_of(tuple(message.sender for message in messages), me)
    knows = ANSWERS in sides.values() or ASKS in sides.values()
    turns = Turns(has_roles=knows)
    last = None
    heard = list(filter(None, map(_without_call, messages)))
    if not any(one.text is not None and sides[one.sender] for one in heard):
        return None
    for message in heard:
        side = sides[message.sender]
        report.hear(
            message.sender,
            side if knows or side is None else "answer each other (--set me=NAME lets one answer)",
        )
        if side is None:
            continue
        text = message.text or ""
        if not turns and side == ANSWERS:
            turns.append("")
        if side == last:
            turns[-1] = f"{turns[-1]} {text}".strip()
            report.num_merged += 1
        else:
            turns.append(text)
        last = side
    return turns


def _without_call(message: Message) -> Message | None:
    """Returns a message without the call of a tool in its text, None where nothing is left."""
    if not message.text or ("<" not in message.text and "[" not in message.text):
        return message
    text = CALL.sub("", message.text)
    if text == message.text:
        return message
    return message._replace(text=text.strip()) if text.strip() else None


def sides_of(senders: Iterable[str], me: str = "") -> dict[str, str | None]:
    """Returns what each sender of a dialogue does: asks, answers, or None, whose messages are left
    out. Where nobody is known to do either, the side of a sender is his own name.

    >>> sides_of(["system", "user", "assistant"])
    {'system': None, 'user': 'asks', 'assistant': 'answers'}
    >>> sides_of(["npc 7", "user"]), sides_of(["USER", "SYSTEM"])
    ({'npc 7': 'answers', 'user': 'asks'}, {'USER': 'asks', 'SYSTEM': 'answers'})
    >>> sides_of(["Ann", "Bob"]), sides_of(["Ann", "Bob"], me="bob")
    ({'Ann': 'Ann', 'Bob': 'Bob'}, {'Ann': 'asks', 'Bob': 'answers'})
    """
    order = list(senders)
    sides = {sender: _known_side(sender.strip().lower(), me.strip().lower()) for sender in order}
    unknown = [sender for sender, side in sides.items() if side == ""]
    known = set(sides.values())
    if ANSWERS not in known:
        asked = next((place for place, one in enumerate(order) if sides[one] in (ASKS, "")), None)
        after = [] if asked is None else order[asked:]
        systems = {one for one in after if one.strip().lower() == "system"}
        if systems:
            sides.update(dict.fromkeys(systems, ANSWERS))
        elif ASKS in known and len(unknown) == 1:
            sides[unknown.pop()] = ANSWERS
    known = set(sides.values())
    for sender in unknown:
        if ANSWERS in known and ASKS not in known:
            sides[sender] = ASKS
        else:
            sides[sender] = None if known & {ASKS, ANSWERS} else sender
    return sides


_sides_of = functools.lru_cache(1024)(sides_of)  # The roles of dialogues are mostly the same.


def _known_side(role: str, me: str) -> str | None:
    """Returns what a role does, empty if that is not known."""
    if me:
        return ANSWERS if role == me else None if _is_unspoken(role) else ASKS
    if role in ASKING:
        return ASKS
    return ANSWERS if role in ANSWERING else None if _is_unspoken(role) else ""


def _is_unspoken(role: str) -> bool:
    return role in UNSPOKEN or "tool" in role or "function" in role


def talks(messages: Sequence[Message], *, day_first: bool) -> Iterator[Sequence[Message]]:
    """Yields the messages of people in the order of their times, cut where they were silent."""
    times = [one.time and one.time.seconds(day_first=day_first) for one in messages]
    known = [time for time in times if time is not None]
    timed = list(zip(times, messages, strict=True))
    falls = sum(later < earlier for earlier, later in pairwise(known))
    if falls > len(known) // 2:
        timed.reverse()  # Newest first: so are those of the same second.
    if len(known) == len(messages):
        timed.sort(key=lambda one: one[0] or 0.0)
    talk: list[Message] = []
    last: float | None = None
    for time, message in timed:
        if last is not None and time is not None and time - last > PAUSE:
            yield talk
            talk = []
        talk.append(message)
        last = time
    yield talk
