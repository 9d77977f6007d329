"""Requests for an answer in the shape of OpenAI's chat completions, read and checked."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

from towers.scripts.options.setting import is_blank, is_of, is_utf_8
from towers.scripts.serving.options import Limits, ServeOptions
from towers.scripts.wrong_input import nearest

SYSTEM_ROLES = ("system", "developer")
ROLES = ("user", "assistant")
SUPPORTED = (
    "max_completion_tokens", "max_tokens", "messages", "model", "n", "seed", "stream",
    "stream_options", "temperature", "top_p",
)  # fmt: skip
# Notes of the client's to OpenAI, which change no answer.
NOTES = ("metadata", "prompt_cache_key", "safety_identifier", "service_tier", "store", "user")
# What this chatbot cannot do, each with the values that ask for nothing.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "function_call": ("auto", "none"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "parallel_tool_calls": (False, True),
    "presence_penalty": (0,),
    "response_format": ({"type": "text"},),
    "stop": ([],),
    "tool_choice": ("auto", "none"),
    "tools": ([],),
    "top_logprobs": (0,),
}
LONGEST_SHOWN = 60  # Characters of a received value in a message.
ERROR_TYPES = {
    0: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
}  # Each from this status on.


class RefusedError(Exception):
    """A request that gets no answer; the message says what was received, expected, and the remedy.

    `code` is a name for programs, and `param` the parameter that is wrong, if it is one.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(message)
        self.status = status
        self.headers = headers
        self.body = error_body(message, status, param, code=code)


def error_body(
    message: str, status: int, param: str | None = None, *, code: str | None
) -> dict[str, Any]:
    """Returns an error in the shape of OpenAI's API."""
    kinds = [kind for first, kind in ERROR_TYPES.items() if status >= first]
    return {"error": {"message": message, "type": kinds[-1], "param": param, "code": code}}


@dataclasses.dataclass(frozen=True)
class ChatRequest:
    """A request for answers to one question.

    Attributes:
        turns: the texts of the conversation; the last one is the question.
        choices: how many answers.
        temperature, top_p: of sampling, None if the request does not say; 0 for the likeliest.
        max_tokens: of an answer, or None.
        seed: of samples, or None.
        stream: whether the answer comes in pieces.
        with_usage: whether the last piece of a stream counts the tokens.
    """

    turns: tuple[str, ...]
    choices: int = 1
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stream: bool = False
    with_usage: bool = False


def read_chat_request(body: bytes, model: str, options: ServeOptions) -> ChatRequest:
    """Returns the request that a body holds; raises RefusedError for one that cannot be met."""
    fields = read_object(body)
    check_names(fields)
    check_model(fields.get("model"), model, options, param="model")
    stream = read_flag(fields, "stream")
    names = ("max_completion_tokens", "max_tokens")  # The second is OpenAI's older one.
    most, older = (read_whole(fields, name, 1, 2**31 - 1) for name in names)
    return ChatRequest(
        turns=read_turns(fields.get("messages"), options),
        choices=read_whole(fields, "n", 1, options.limits.max_choices) or options.decoding.nbest,
        temperature=read_number(fields, "temperature", 2),
        top_p=read_number(fields, "top_p", 1),
        max_tokens=most or older,
        seed=read_whole(fields, "seed", 1 - 2**63, 2**63 - 1),
        stream=stream,
        with_usage=read_with_usage(fields, stream),
    )


def read_object(body: bytes) -> dict[str, Any]:
    """Returns the JSON object of a body, without members that are null."""
    try:
        found = json.loads(body.decode("utf-8-sig"), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            f"The body must be JSON in UTF-8. Received {len(body)} bytes that are not: "
            f"{type(error).__name__}: {str(error)[:LONGEST_SHOWN]}",
            code="invalid_json",
        ) from error
    if not isinstance(found, dict):
        raise RefusedError(
            f"The body must be a JSON object with `model` and `messages`. Received {shown(found)}.",
            code="invalid_json",
        )
    return {name: value for name, value in found.items() if value is not None}


def refuse_constant(text: str) -> None:
    """Raises an error for NaN and Infinity, which Python reads though JSON has none."""
    raise ValueError(f"{text} is not JSON")


def check_names(fields: dict[str, Any]) -> None:
    """Refuses parameters that the chatbot does not have, unless they ask for nothing."""
    for name, value in fields.items():
        if name in SUPPORTED or name in NOTES or value in NEUTRAL.get(name, ()):
            continue
        if name in NEUTRAL:
            message = (
                f"This chatbot does not support {name}. Received {shown(value)}; leave it out."
            )
        else:
            message = f"There is no parameter {shown(name)}.{nearest(name, SUPPORTED)}"
        raise RefusedError(message, param=name, code="unsupported_parameter")


def check_model(name: Any, model: str, options: ServeOptions, param: str | None = None) -> None:
    """Refuses a request for a model that is not the only one."""
    if options.any_model or name == model:
        return
    if name is None:
        message = f"`model` must name the model. Received none; give {model!r}."
        raise RefusedError(message, param=param, code="missing_parameter")
    message = (
        f"The only model here is {model!r}. Received {shown(name)}; a server started with "
        "--any-model accepts any name."
    )
    raise RefusedError(message, status=404, param=param, code="model_not_found")


def read_turns(messages: Any, options: ServeOptions) -> tuple[str, ...]:
    """Returns the turns of the messages, the last the user's; those in a row of a role are one."""
    limit = options.limits.max_messages
    if not isinstance(messages, list) or not 1 <= len(messages) <= limit:
        received = f"{len(messages)} messages" if isinstance(messages, list) else shown(messages)
        raise wrong("messages", f"a list of 1 to {limit} messages", received)
    turns = []
    for at, message in enumerate(messages):
        param = f"messages[{at}]"
        role = read_role(message, param)
        if role not in SYSTEM_ROLES:
            turns.append((role, read_content(message, param, options.limits)))
        elif not options.ignore_system:
            raise RefusedError(
                f"This chatbot follows no instructions: {param} must be of role 'user' or "
                f"'assistant'. Received role {role!r}; leave the message out, or start the server "
                "with --ignore-system.",
                param=f"{param}.role",
                code="unsupported_value",
            )
    if not turns or turns[-1][0] != "user":
        raise wrong(
            "messages", "a question as the last message, of role 'user'", "another last one"
        )
    if is_blank(turns[-1][1]):
        raise wrong("messages", "a question of at least one character", "a blank one")
    rows = itertools.groupby(turns, lambda turn: turn[0])
    return tuple(" ".join(text for _, text in row) for _, row in rows)


def read_role(message: Any, param: str) -> str:
    """Returns the role of a message."""
    if not isinstance(message, dict):
        raise wrong(param, "an object with `role` and `content`", shown(message))
    role = message.get("role")
    if not isinstance(role, str) or role not in (*ROLES, *SYSTEM_ROLES):
        raise wrong(f"{param}.role", "'user' or 'assistant'", shown(role))
    return role


def read_content(message: dict[str, Any], param: str, limits: Limits) -> str:
    """Returns the text of a message, whose content is a text or a list of parts of text."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    if message.get("tool_calls") or message.get("function_call"):
        raise wrong(param, "a text message", "tool calls, which this chatbot does not support")
    texts = [
        part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        for part in parts
    ]
    if not all(isinstance(text, str) for text in texts):
        raise wrong(f"{param}.content", "a text, or a list of parts of type 'text'", shown(content))
    text = " ".join(map(str, texts))  # As in the files of a training.
    if len(text) > limits.max_message_length:
        received = f"{len(text)} characters"
        raise wrong(f"{param}.content", f"at most {limits.max_message_length} characters", received)
    if not is_utf_8(text):
        raise wrong(f"{param}.content", "Unicode text", "half of a surrogate pair")
    return text


def read_flag(fields: dict[str, Any], name: str) -> bool:
    """Returns a flag, False if it is not given."""
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise wrong(name, "true or false", shown(value))
    return value


def read_whole(fields: dict[str, Any], name: str, least: int, most: int) -> int | None:
    """Returns a whole number, None if it is not given."""
    value = fields.get(name)
    if value is None or (is_of(int, value) and least <= value <= most):
        return value
    raise wrong(name, f"a whole number from {least} to {most}", shown(value))


def read_number(fields: dict[str, Any], name: str, most: int) -> float | None:
    """Returns a number from 0 on with two decimals, None if it is not given."""
    value = fields.get(name)
    if value is None:
        return None
    if not is_of(float, value) or not 0 <= value <= most:
        raise wrong(name, f"a number from 0 to {most}", shown(value))
    return round(float(value), 2)


def read_with_usage(fields: dict[str, Any], stream: bool) -> bool:
    """Returns whether the last piece of a stream shall count the tokens."""
    options = fields.get("stream_options")
    if options is None:
        return False
    known = {"include_usage", "include_obfuscation"}
    if not isinstance(options, dict) or not set(options) <= known:
        raise wrong("stream_options", "an object with `include_usage`", shown(options))
    if not stream:
        raise wrong("stream_options", "`stream` to be true as well", "no stream")
    return read_flag({k: v for k, v in options.items() if v is not None}, "include_usage")


def wrong(param: str, expected: str, received: str) -> RefusedError:
    """Returns the error of a parameter with a value that cannot be used."""
    return RefusedError(
        f"{param}: expected {expected}. Received {received}.", param=param, code="invalid_value"
    )


def shown(value: Any) -> str:
    """Returns a received value in a few characters."""
    if isinstance(value, bool):
        return str(value).lower()
    names = {dict: "an object", list: "a list", type(None): "nothing"}
    if type(value) in names:  # Their own words may be as long as a request.
        return names[type(value)]
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
