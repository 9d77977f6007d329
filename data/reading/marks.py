"""Texts that hold a dialogue, whose marks say who speaks: `User: ...`, `### Human: ...`."""
# ruff: noqa: RUF001 - this module is about full-width punctuation too.

from __future__ import annotations

import re
from typing import Any

# Marks of who speaks in a text that holds a dialogue, each at the beginning of a line, whose end
# may be spelled as a backslash and an n.
_NAMES = (
    "human|assistant|user|bot|chatbot|ai|gpt|system|instruction|response|prompter|用户|助手|问|答|"
    "function response|tool"
)
_MARK = re.compile(
    rf"(?:^|\n|\\n)[ \t]*(?:#+ *)?(?i:({_NAMES}|q|a)) *[:：]|(?<=[\s。！？.!?])(Human|Assistant):"
)
_TEMPLATE = re.compile(r"<\|im_start\|>\s*(\w+)\s*\n|<\|(user|assistant|system)\|>\s*")
_ENDS = re.compile(r"<\|im_end\|>|<\|end\|>|</s>|<s>|<\|endoftext\|>|#+\s*$")
_MARKED = {"q": "user", "问": "user", "a": "assistant", "答": "assistant"} | {
    "instruction": "user",
    "response": "assistant",
}


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
