"""Texts that hold a dialogue, whose marks say who speaks: `User: ...`, `### Human: ...`."""
# ruff: noqa: RUF001 - this module is about full-width punctuation too.

from __future__ import annotations

import functools
import re
from typing import Any

# Marks of who speaks in a text that holds a dialogue, each at the beginning of a line, whose end
# may be spelled as a backslash and an n.
_NAMES = (
    "human|assistant|user|bot|chatbot|ai|gpt|system|instruction|response|prompter|用户|助手|问|答|"
    "function response|tool"
)
_MARK = re.compile(
    rf"(?:^|\n|\\n)[ \t]*(?:#+ *|\*\*)?(?i:({_NAMES}|q|a)) *[:：](?:\*\*)?|\n### (Input):"
    r"|(?<=[\s。！？.!?>])(Human|Assistant|USER|ASSISTANT):"
)
_PREFACED = re.compile(r"\s*#|USER")  # Marks of templates that may have a task above them.
# How templates write `user:`, each with its role; Llama 2 has brackets instead.
_TEMPLATE = re.compile(
    r"<\|im_start\|>\s*(\w+)\s*\n|<\|start_header_id\|>(\w+)<\|end_header_id\|>\s*"
    r"|<start_of_turn>(\w+)\s*\n|<\|(user|assistant|system)\|>\s*|\[\|(Human|AI)\|\]"
)
_BRACKETS = (
    (re.compile(r"<<SYS>>(.*?)<</SYS>>", re.DOTALL), r"\nsystem:\1\nuser:"),
    (re.compile(r"\[INST\]"), "\nuser:"),
    (re.compile(r"\[/INST\]"), "\nassistant:"),
)
_ENDS = re.compile(
    r"<\|(?:im_end|end|endoftext|eot_id|begin_of_text)\|>|</?s>|<end_of_turn>|<[be]os>|#+\s*$"
)
_SIGNS = (":", "：", "<|", "[/INST]", "<start_of_turn>", "[|AI|]")
_MARKED = dict.fromkeys(str.split("q 问 instruction input"), "user")
_MARKED |= dict.fromkeys(str.split("a 答 response"), "assistant")


def marked_messages(
    text: Any, names: tuple[str, ...] = (), *, prefaced: bool = False
) -> list[dict[str, str]] | None:
    """Returns the messages of a text whose marks say who speaks, None for another text.

    Args:
        text: with a mark at the beginning of each message.
        names: of the speakers, in place of roles that are known.
        prefaced: whether a task may be above the marks of a template.

    >>> marked_messages("### Human: Hi.### Assistant: Hello.")
    [{'role': 'human', 'content': 'Hi.'}, {'role': 'assistant', 'content': 'Hello.'}]
    >>> marked_messages("He said: no.")
    """
    if not isinstance(text, str) or not any(sign in text for sign in _SIGNS):
        return None
    if not names:
        text = _TEMPLATE.sub(_as_mark, text.replace("###", "\n###"))
        for pattern, written in _BRACKETS if "[/INST]" in text else ():
            text = pattern.sub(written, text)
    marks = list(_mark_of(names).finditer(text))
    if len(marks) < 2:
        return None
    preface = _ENDS.sub("", text[: marks[0].start()]).strip()
    if preface and not (prefaced and _PREFACED.match(marks[0][0])):
        return None
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    messages = [{"role": "system", "content": preface}] if preface else []
    for mark, end in zip(marks, ends, strict=True):
        role = mark[mark.lastindex or 0]
        role = role if names else role.lower()
        content = _ENDS.sub("", text[mark.end() : end]).strip()
        messages.append({"role": _MARKED.get(role, role), "content": content})
    if not messages[-1]["content"]:  # `Assistant:` asks for the answer, which is elsewhere.
        messages.pop()
    return messages


def is_marked(line: str, names: tuple[str, ...] = ()) -> bool:
    """Returns whether a line begins with who speaks."""
    return _mark_of(names).match(line) is not None


@functools.lru_cache(8)
def _mark_of(names: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(map(re.escape, names), key=len, reverse=True)
    return re.compile(rf"(?:^|\n)[ \t]*({'|'.join(longest_first)}) ?[:：]") if names else _MARK


def _as_mark(match: re.Match[str]) -> str:
    role = match[match.lastindex or 0]
    return f"\n{'assistant' if role == 'model' else role}:"
