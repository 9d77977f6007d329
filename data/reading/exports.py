"""Chats as programs write them: a line or a head for each message, or texts that say who speaks."""
# ruff: noqa: RUF001 - full-width punctuation divides names from texts, too.

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from towers.data.reading.chats import Chats
from towers.data.reading.dialogue_file import Dialogue, DialogueFile, Line
from towers.data.reading.marks import is_marked, marked_messages
from towers.data.reading.messages import Message, turns_of_messages
from towers.data.reading.notices import is_notice
from towers.data.reading.times import PART, time_of

_TIME = r"\d{1,2}(?:[:.]| h )\d{2}(?:[:.]\d{2})?"
_DATE = (
    r"(?:\d{1,4}[./\-年년]\s?\d{1,2}[./\-月월]\s?\d{1,4}[日일]?\.?(?:\sг\.)?"
    r"|[^\W\d]{3,9}\.? \d{1,2}, \d{4})"
)
_WHEN = rf"(?:{PART}\s?)?{_TIME}(?:\s?(?:{PART}|ч\.|Uhr\b))?"
# Between a date and a time: a word for `at`, or the day of the week.
_AT = (
    r"(?:at|à|ás|às|a las|a les|la|alle|um|om|ob|në|kl\.?|klo|plkst\.|в|о|об|у|u|v|o|lúc|pukul"
    r"|Mon|Tue|Wed|Thu|Fri|Sat|Sun|(?:周|週|星期)[一二三四五六日天])"
)
_DAY_TIME = rf"(?P<time>{_DATE}[,،]?[\sT]+(?:{_AT}\s)?{_WHEN})"
# What people write in a name; a quote that is not closed there belongs to a notice.
_NAME = r"(?P<sender>(?:[^:\"“”„«]|\"[^:\"]*\"|“[^:”]*”){1,100})"
_WHATSAPP = re.compile(  # In Korean a comma is behind the time, and a blank before the colon.
    rf"\[?{_DAY_TIME}(?:\]|\s-|,(?=\s[^:]+\s:\s))\s(?:{_NAME}: ?)?(?P<text>.*)"
)
_TIME_FIRST = re.compile(rf"(?P<time>{_WHEN}, {_DATE}) - (?:{_NAME}: ?)?(?P<text>.*)")
_TIME_BEHIND = re.compile(rf"{_NAME} \({_DAY_TIME}\): ?(?P<text>.*)")
_TIMED = re.compile(rf"\[(?P<time>{_WHEN})\] {_NAME}: ?(?P<text>.*)")
_BELOW = r"(?P<text>)"  # The text is in the lines below.
_ALONE = r"(?P<sender>[^\s\[][^\t]{0,80}?(?<![:：,]))(?:\(\d+\)|<[^<>]+@[^<>]+>)?"
_QQ = re.compile(rf"{_DAY_TIME}(?!.* - [^:]+: )\s+{_ALONE}{_BELOW}")  # A colon tells WhatsApp.
_QQ_COPIED = re.compile(rf"{_ALONE}(?:,|\s—)?\s+\[?{_DAY_TIME}\]?:?{_BELOW}")
_DISCORD = re.compile(rf"\[{_DAY_TIME}\] {_ALONE}{_BELOW}")
_IMESSAGE = re.compile(rf"{_DAY_TIME}(?: \(.*\))?{_BELOW}")  # The sender is on the next line.
_LINE = re.compile(
    rf"(?P<time>(?:{_DATE}[\sT]+)?{_WHEN})\t(?:(?P<sender>[^\t]+)\t|\t?)(?P<text>[^\t]*)"
)
_KAKAO = re.compile(rf"\[(?P<sender>[^\[\]]{{1,100}})\] \[(?P<time>{_WHEN})\] (?P<text>.*)")
# What begins a message, for each program in all its forms.
Heads = Sequence[re.Pattern[str]]
WHATSAPP, LINE = (_WHATSAPP, _TIME_FIRST, _TIME_BEHIND, _TIMED), (_LINE, _KAKAO)
QQ = (_DISCORD, _IMESSAGE, _QQ, _QQ_COPIED)
# Of who came and went, in KakaoTalk, which has no head, or that of another form.
_CAME = re.compile(
    r".{1,80}님(?:이 (?:나갔|들어왔)습니다|을 .{0,60}(?:초대|내보냈)(?:했|하였)?습니다)\.?"
)
_BELOW_DAYS = (*LINE, _TIMED)  # Whose messages have a time alone.
# Above the messages of a day, in LINE and KakaoTalk.
_DAY = re.compile(
    rf"(?:-+ )?{_DATE}\s?(?:[(（].{{1,5}}[)）]|.요일|.曜日|(?:星期|[週周]).)(?: -+)?"
    rf"|(?:-+ )?[^\W\d]{{2,12}}\.?, {_DATE}(?: -+)?"
)
# With what a line begins that says when, also if the hour is first.
_DATED = re.compile(rf"\[?(?:{_TIME}.{{0,9}}?, )?{_DATE}")
_SIGNS = re.compile(r"\d+|[^\W\d]+")
_DIVISION = re.compile(r"=+|消息(?:记录|分组|对象)[:：].*|-{5,} .+ -{5,}")
_LEFT_TO_RIGHT = "\u200e"  # WhatsApp writes it before what is no text of a user.
_MARKS = "\u200f\u202a\u202b\u202c\ufeff"  # Of direction, which it writes before names.
_BLANKS = str.maketrans("\u202f\u00a0\u2009", "   ", _MARKS)
_EDITED = re.compile(r"\s*<[^<>]{2,60}>$")  # `<This message was edited>` behind its text.
# What Discord's and Apple's exports have below a text.
_AFTER = re.compile(
    r"(?:^|\n)(?:\{(?:Attachments|Reactions|Embed|Stickers)\}|Tapbacks:"
    r"|This message responded to an earlier message).*",
    re.DOTALL,
)
SAMPLED = 20
_SPEAKER = re.compile(r"([\w#][\w .'’()#&-]{0,29}?) ?(?:：|:(?=\s|[^\x00-\x7f]))(.*)")
_NO_TALK = re.compile(r"[\d\s:./-]*")
_TOLD = 0.6  # Of the lines; others are further lines of a text.


def fits(file: DialogueFile, heads: Heads) -> bool:
    """Returns whether messages begin so in at least two of the first lines."""
    return max(_num_heads(file, head) for head in heads) > 1


def _num_heads(file: DialogueFile, head: re.Pattern[str]) -> int:
    first = next(iter(file.sample), "")  # Of an export many notices or lines of one text may come.
    lines = file.sample[: None if head.fullmatch(_plain(first)) else SAMPLED]
    matches = filter(None, (head.fullmatch(_plain(line)) for line in lines))
    number = sum(match.groupdict().get("sender", "") is not None for match in matches)
    return 0 if head.pattern.endswith(_BELOW) and number == len(lines) else number


def fits_marked(file: DialogueFile) -> bool:
    """Returns whether the first lines say who speaks, and two do."""
    return _is_whole(file.sample[:SAMPLED]) or len(names_in(file)) > 1


def names_in(file: DialogueFile) -> tuple[str, ...]:
    """Returns who speaks if most lines begin with a name and a colon, and each name recurs."""
    lines = [line for line in map(str.strip, file.sample) if "\t" not in line]
    said: dict[str, list[str]] = {}
    for match in filter(None, map(_SPEAKER.match, lines)):
        said.setdefault(match[1], []).append(match[2])
    names = tuple(name for name, texts in said.items() if len(texts) > 1)
    told = sum(len(said[name]) for name in names)
    is_table = any(all(map(_NO_TALK.fullmatch, said[name])) for name in names)
    is_script = told >= _TOLD * len(file.sample) and not is_table
    return names if is_script else ()


def read(file: DialogueFile, heads: Heads) -> Iterator[Dialogue]:
    """Yields the dialogues of an export, by the head that begins most messages."""
    head = max(heads, key=lambda head: _num_heads(file, head))
    chats = Chats(file)
    conversation = day = ""
    for match, texts, line in _messages(file, head):
        if match is None:
            text = texts[0].strip()
            is_day = _DAY.fullmatch(text) is not None
            day, conversation = (text, conversation) if is_day else (day, text)
            continue
        sender = match["sender"] if head.groups > 2 else "".join(texts[1:2])
        if not sender:
            file.skip("lines without a sender", line)
            continue
        when = time_of(match["time"]) or time_of(f"{day} {match['time']}")
        sender = sender.strip().removeprefix("~").strip()
        texts = texts[2 * (head.groups == 2) :]
        while len(texts) > 1 and (not texts[0] or is_notice(texts[0])):
            texts = texts[1:]  # The name of a file, above what was written with it.
        text = _AFTER.sub("", "\n".join(texts).strip()).strip()
        text = text if is_notice(text) else _EDITED.sub("", text)
        if "\n" in text and text[0] == text[-1] == '"':
            text = text[1:-1]  # LINE quotes a text of several lines.
        content = None if not text or is_notice(text) else text
        chats.add(conversation, Message(sender, content, when), line)
    yield from chats.dialogues()


def _messages(
    file: DialogueFile, head: re.Pattern[str]
) -> Iterator[tuple[re.Match[str] | None, list[str], Line]]:
    """Yields (what begins a message, its lines, the first one); None begins a conversation."""
    begun: tuple[re.Match[str] | None, list[str], Line] | None = None
    dates, unlike = set[str](), list[Line]()
    for line in file.usable_lines(counts_blank=False):
        text = _plain(line.text)
        match = head.fullmatch(text)
        if match:
            if begun:
                yield begun
            begun = match, ["" if _is_of_program(line.text) else match["text"]], line
            dates.update(_form_of_date(text))
        elif _DIVISION.fullmatch(text) or (head in _BELOW_DAYS and _DAY.fullmatch(text)):
            if begun:
                yield begun
            begun = None
            if text.strip("="):
                yield None, [text], line
        elif begun and _CAME.fullmatch(text):
            file.skip("lines without a sender", line)
        elif begun:
            begun[1].append(text)
            if not dates.isdisjoint(_form_of_date(text)):
                unlike.append(line)
        else:
            file.skip("lines before the first message", line)
    if begun:
        yield begun
    if unlike:
        file.report.note(
            f"{file.path}:{unlike[0].number}: of the lines that begin with a date as messages do, "
            f"{len(unlike):,} begin none and are text of the message before"
        )


def _form_of_date(line: str) -> list[str]:
    """Returns the form of the date with which a line begins, with 0 for each number and name."""
    return [_SIGNS.sub("0", match[0]) for match in [_DATED.match(line)] if match]


def _plain(line: str) -> str:
    caption, _, sign = line.rpartition(f" {_LEFT_TO_RIGHT}")
    if caption and caption[-1] != ":" and is_notice(sign):
        line = caption  # Without the picture behind it.
    return line.translate(_BLANKS).replace(_LEFT_TO_RIGHT, "").strip()


def _is_of_program(line: str) -> bool:
    """Returns whether the first line of a message stands for a file, a call and so on."""
    place = line.find(": ") + 2
    return line.startswith(_LEFT_TO_RIGHT, place) or f" • {_LEFT_TO_RIGHT}" in line


def read_marked(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields the dialogues of `User: ...` and `Bot: ...`, divided by blank lines, or of
    `### Human: ... ### Assistant: ...`.
    """
    names = () if _is_whole(file.sample[:SAMPLED]) else names_in(file)
    block: list[str] = []
    first, was_blank = Line(1, "", False), False
    for line in file.lines():
        is_said = is_marked(line.text, names)
        if was_blank and is_said and _is_whole(block, names):
            yield from _dialogue(file, block, first, names)
            block = []
        was_blank = not line.text.strip()
        if not block:
            first = line
        if block or is_said:
            block.append(line.text)
        elif not was_blank:
            file.skip("lines that do not say who speaks", line)
    yield from _dialogue(file, block, first, names)


def _is_whole(block: Sequence[str], names: tuple[str, ...] = ()) -> bool:
    said = marked_messages("\n".join(block), names)
    return said is not None and len({message["role"] for message in said}) > 1


def _dialogue(
    file: DialogueFile, block: Sequence[str], line: Line, names: tuple[str, ...]
) -> Iterator[Dialogue]:
    said = marked_messages("\n".join(block), names) or []
    messages = [Message(message["role"], message["content"]) for message in said]
    turns = turns_of_messages(messages, file.report, file.layout.me)
    yield from file.dialogue(turns, line, "dialogues without a text")
