"""Answers in the shape of OpenAI's chat completions, whole or as a stream of events."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

from towers.scripts.serving.served_chatbot import Replies, Reply

DONE = "data: [DONE]\n\n"
# A piece of a stream: a word with the blanks before it, or a character of a script without blanks.
PIECE = re.compile(r"\s*(?:[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]|[^\s\u2e80-\uffff]+|\S)|\s+")


def completion(replies: Replies, model: str) -> dict[str, Any]:
    """Returns the body of a response that comes as a whole."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": reply.text, "refusal": None},
            "logprobs": None,
            "finish_reason": finish_reason(reply),
            "score": reply.score,
        }
        for index, reply in enumerate(replies.replies)
    ]
    return {**head("chat.completion", model), "choices": choices, "usage": usage(replies)}


def events(replies: Replies, model: str, *, with_usage: bool) -> Iterator[str]:
    """Yields the server-sent events of a response that comes in pieces."""
    common = head("chat.completion.chunk", model)
    for index, reply in enumerate(replies.replies):
        deltas = [{"role": "assistant", "content": ""}]
        deltas += [{"content": piece} for piece in PIECE.findall(reply.text)]
        for delta in deltas:
            yield event({**common, "choices": [chunk(index, delta)]})
        last = {**chunk(index, {}, finish_reason(reply)), "score": reply.score}
        yield event({**common, "choices": [last]})
    if with_usage:
        yield event({**common, "choices": [], "usage": usage(replies)})
    yield DONE


def head(kind: str, model: str) -> dict[str, Any]:
    """Returns what every part of a response says."""
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
    }


def chunk(index: int, delta: dict[str, str], reason: str | None = None) -> dict[str, Any]:
    """Returns a piece of one of the answers."""
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}


def finish_reason(reply: Reply) -> str:
    """Returns why an answer ends: by itself, or since it is as long as it may be."""
    return "length" if reply.is_cut else "stop"


def usage(replies: Replies) -> dict[str, int]:
    """Returns the numbers of tokens."""
    said = sum(reply.num_tokens for reply in replies.replies)
    asked = replies.num_question_tokens
    return {
        "prompt_tokens": asked,
        "completion_tokens": said,
        "total_tokens": asked + said,
        "unread_tokens": replies.num_unread_tokens,
    }


def event(content: dict[str, Any]) -> str:
    """Returns a server-sent event."""
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"
