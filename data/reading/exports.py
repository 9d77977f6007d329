"""Chats as programs write them: WhatsApp, QQ, LINE, KakaoTalk, and texts that say who speaks."""
# ruff: noqa: RUF001 - full-width punctuation divides names from texts, too.

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from towers.data.reading.chats import Chats
from towers.data.reading.dialogue_file import Dialogue, DialogueFile, Line
from towers.data.reading.marks import is_marked, marked_messages
from towers.data.reading.messages import Message, turns_of_messages
from towers.data.reading.times import seconds_of

_TIME = r"\d{1,2}(?:[:.]| h )\d{2}(?:[:.]\d{2})?"
_DATE = r"\d{1,4}[./\-年년]\s?\d{1,2}[./\-月월]\s?\d{1,4}[日일]?\.?"
_NOON = r"(?:[AaPp]\.?\s?[Mm]\.?|上午|下午|凌晨|早上|中午|晚上|午前|午後|오전|오후|[صم])"
_WHEN = rf"(?:{_NOON}\s?)?{_TIME}(?:\s?{_NOON})?"
_WHATSAPP = re.compile(  # In Korean a comma is behind the time, and a blank before the colon.
    rf"\[?(?P<time>{_DATE}[,،]?\s+(?:[^\W\d]{{1,3}}\s)?{_WHEN})(?:\]|\s-|,(?=\s[^:]+\s:\s))\s"
    r"(?:(?P<sender>[^:]{1,100}): ?)?(?P<text>.*)",
)
_QQ_TIME = rf"(?P<time>\d{{4}}[-/]\d{{1,2}}[-/]\d{{1,2}} (?:{_NOON}\s?)?\d{{1,2}}:\d{{2}}:\d{{2}})"
_QQ_NAME = r"(?P<sender>\S.{0,80}?)(?:\(\d+\)|<[^<>]+@[^<>]+>)?"
_QQ = re.compile(rf"{_QQ_TIME}\s+{_QQ_NAME}(?P<text>)")
_QQ_COPIED = re.compile(rf"{_QQ_NAME}\s+{_QQ_TIME}(?P<text>)")
_LINE = re.compile(rf"(?P<time>{_WHEN})\t(?P<sender>[^\t]+)\t(?P<text>.*)")
_KAKAO = re.compile(rf"\[(?P<sender>[^\[\]]{{1,100}})\] \[(?P<time>{_WHEN})\] (?P<text>.*)")
# What begins a message, for each program in all its forms; QQ has a text in lines of its own.
Heads = Sequence[re.Pattern[str]]
WHATSAPP, QQ, LINE = (_WHATSAPP,), (_QQ, _QQ_COPIED), (_LINE, _KAKAO)
# Above the messages of a day, in LINE and KakaoTalk.
_DAY = re.compile(
    r"(?:-+ )?\d{4}[./년]\s?\d{1,2}[./월]\s?\d{1,2}일?\s?(?:\(.{1,3}\)|.요일)(?: -+)?"
)
_DIVISION = re.compile(rf"=+|消息(?:记录|分组|对象)[:：].*|-{{5,}} .+ -{{5,}}|{_DAY.pattern}")
_MARKS = "\u200e\u200f\u202a\u202b\u202c\ufeff"  # Of direction, which WhatsApp writes before names.
_BLANKS = str.maketrans("\u202f\u00a0\u2009", "   ", _MARKS)
_NO_TEXT = re.compile(
    r"<[^<>]*(?:omitted|attached|omis|ausgeschlossen|weggelassen|omesso|omitido|oculto|省略|略过|已略)"
    r"[^<>]*>|<[^<>]{2,40}>|[^.!?]{1,20} (?:omitted|weggelassen|omitido|omessa?|omise?)"
    r"|(?:\[[^\[\]]{1,8}\])+|.{1,99} \((?:file attached|Datei angehängt|archivo adjunto|"
    r"fichier "
    r"joint|file allegato|arquivo anexado|файл добавлен|文件附件)\)|null|missed (?:voice"
    r"|video) call"
    # What stands for a message that was deleted.
    r"|(?:you deleted )?this message(?: was deleted)?|se eliminó este mensaje"
    r"|eliminaste este mensaje"
    r"|(?:esta )?mensagem (?:foi )?apagada|você apagou esta mensagem|diese nachricht wurde gelöscht"
    r"|du hast diese nachricht gelöscht|ce message a été supprimé|vous avez supprimé ce message"
    r"|questo messaggio è stato eliminato|hai eliminato questo messaggio|dit bericht is verwijderd"
    r"|사진(?: \d+장)?|동영상|이모티콘|삭제된 메시지입니다"
    r"|данное сообщение удалено|вы удалили данное сообщение|此消息已删除|你删除了这条消息",
    re.IGNORECASE,
)
_EDITED = re.compile(r"\s*<[^<>]{2,40}>$")  # `<This message was edited>` behind its text.
SAMPLED = 20


def fits(file: DialogueFile, heads: Heads) -> bool:
    """Returns whether messages begin so in at least two of the first lines."""
    return max(_num_heads(file, head) for head in heads) > 1


def _num_heads(file: DialogueFile, head: re.Pattern[str]) -> int:
    return sum(head.fullmatch(_plain(line)) is not None for line in _first(file))


def fits_marked(file: DialogueFile) -> bool:
    """Returns whether the first lines say who speaks, and two do."""
    return _is_whole(_first(file))


def _first(file: DialogueFile) -> list[str]:
    return file.sample()[:SAMPLED]


def read(file: DialogueFile, heads: Heads) -> Iterator[Dialogue]:
    """Yields the dialogues of an export, by the head that begins most messages."""
    head = max(heads, key=lambda head: _num_heads(file, head))
    chats, day_first = Chats(file), _is_day_first(file, head)
    conversation = day = ""
    for match, texts, line in _messages(file, head):
        text = "\n".join(texts).strip()
        if match is None:
            is_day = _DAY.fullmatch(text) is not None
            day, conversation = (text, conversation) if is_day else (day, text)
        elif match["sender"] is None:
            file.skip("lines without a sender", line)
        else:
            when = seconds_of(f"{day} {match['time']}", day_first=day_first)
            sender = match["sender"].strip().removeprefix("~").strip()
            content = (
                None if _NO_TEXT.fullmatch(text.rstrip(".")) else _EDITED.sub("", text) or None
            )
            chats.add(conversation, Message(sender, content, when), line)
    yield from chats.dialogues()


def _messages(
    file: DialogueFile, head: re.Pattern[str]
) -> Iterator[tuple[re.Match[str] | None, list[str], Line]]:
    """Yields (what begins a message, its lines, the first one); None begins a conversation."""
    begun: tuple[re.Match[str] | None, list[str], Line] | None = None
    for line in file.usable_lines(counts_blank=False):
        text = _plain(line.text)
        match = head.fullmatch(text)
        if match:
            if begun:
                yield begun
            begun = match, [match["text"]], line
        elif _DIVISION.fullmatch(text):
            if begun:
                yield begun
            begun = None
            if text.strip("="):
                yield None, [text], line
        elif begun:
            begun[1].append(text)
        else:
            file.skip("lines before the first message", line)
    if begun:
        yield begun


def _plain(line: str) -> str:
    return line.translate(_BLANKS).strip()


def _is_day_first(file: DialogueFile, head: re.Pattern[str]) -> bool:
    """Returns whether dates begin with the day, as far as the first messages tell."""
    matches = filter(None, (head.fullmatch(_plain(line)) for line in file.sample()))
    numbers = [tuple(map(int, re.findall(r"\d+", match["time"])[:2])) for match in matches]
    return not any(second > 12 >= first for first, second in numbers)


def read_marked(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields the dialogues of `User: ...` and `Bot: ...`, divided by blank lines, or of
    `### Human: ... ### Assistant: ...`.
    """
    block: list[str] = []
    first, was_blank = Line(1, "", False), False
    for line in file.lines():
        if was_blank and is_marked(line.text) and _is_whole(block):
            yield from _dialogue(file, block, first)
            block = []
        was_blank = not line.text.strip()
        if not block:
            first = line
        if block or is_marked(line.text):
            block.append(line.text)
        elif not was_blank:
            file.skip("lines that do not say who speaks", line)
    yield from _dialogue(file, block, first)


def _is_whole(block: Sequence[str]) -> bool:
    said = marked_messages("\n".join(block))
    return said is not None and len({message["role"] for message in said}) > 1


def _dialogue(file: DialogueFile, block: Sequence[str], line: Line) -> Iterator[Dialogue]:
    said = marked_messages("\n".join(block)) or []
    messages = [Message(message["role"], message["content"]) for message in said]
    turns = turns_of_messages(messages, file.report, file.layout.me)
    yield from file.dialogue(turns, line, "dialogues without a text")
