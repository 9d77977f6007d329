"""Requests in the shape of OpenAI's API: what is read, and what is refused with which reason."""

import json

import pytest

from tests.scripts.serving.servers import options_of
from towers.scripts.serving.chat_request import ChatRequest, RefusedError, read_chat_request
from towers.scripts.serving.options import Limits

LIMITS = Limits(max_messages=4, max_message_length=10)
OPTIONS = options_of(LIMITS)
HELLO = {"role": "user", "content": "hello"}


def read(options=OPTIONS, **fields):
    body = {"model": "bot", "messages": [HELLO], **fields}
    return read_chat_request(json.dumps(body).encode(), "bot", options)


def refusal(options=OPTIONS, **fields):
    with pytest.raises(RefusedError) as caught:
        read(options, **fields)
    return caught.value


def said(role, content):
    return {"role": role, "content": content}


def test_a_question_alone_is_a_request_with_defaults():
    assert read() == ChatRequest(("hello",))
    assert read(options_of(LIMITS, nbest=3)).choices == 3


def test_other_models_are_refused_unless_the_server_answers_to_every_name():
    options = options_of(LIMITS, any_model=True)
    for name, status in (("gpt-4o", 404), (None, 400), (7, 404)):
        assert refusal(model=name).status == status
        assert read(options, model=name) == read()
    assert "--any-model" in str(refusal(model="gpt-4o"))


def test_every_option_is_read():
    given = {"n": 2, "temperature": 0.725, "top_p": 1, "max_tokens": 5, "seed": -3}
    found = read(**given, stream=True, stream_options={"include_usage": True})
    assert found == ChatRequest(("hello",), 2, 0.72, 1.0, 5, -3, True, True)
    assert read(max_completion_tokens=6).max_tokens == 6


def test_the_turns_are_the_texts_of_the_messages():
    messages = [said("user", "a"), said("assistant", ""), said("user", "你好 😀\n")]
    assert read(messages=messages).turns == ("a", "", "你好 😀\n")
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read(messages=[said("user", parts)]).turns == ("a b",)


def test_messages_of_one_role_in_a_row_are_one_turn_as_in_the_files_of_a_training():
    messages = [said("user", "a"), said("user", "b"), said("assistant", "c"), said("user", "d")]
    assert read(messages=messages).turns == ("a b", "c", "d")


def test_what_is_null_is_not_given_and_what_asks_for_nothing_is_permitted():
    nothing = {"tools": [], "stop": None, "frequency_penalty": 0, "logprobs": False}
    assert read(**nothing, temperature=None, user="me") == ChatRequest(("hello",))


def test_system_messages_are_refused_unless_the_server_may_leave_them_out():
    messages = [said("system", "be brief"), HELLO]
    error = refusal(messages=messages)
    assert error.status == 400 and "--ignore-system" in str(error)
    options = options_of(LIMITS, ignore_system=True)
    assert read(options, messages=messages).turns == ("hello",)
    assert "last message" in str(refusal(options, messages=[HELLO, said("system", "x")][1:]))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [HELLO] * 5}, "messages"),
        ({"messages": [said("assistant", "a")]}, "messages"),
        ({"messages": [said("user", " \n")]}, "messages"),
        ({"messages": [said("user", "\u200b")]}, "messages"),
        ({"messages": ["hello"]}, "messages[0]"),
        ({"messages": [HELLO, {"role": "tool", "content": "a"}]}, "messages[1].role"),
        ({"messages": [{"role": ["user"], "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [said("user", 3)]}, "messages[0].content"),
        ({"messages": [said("user", [{"type": "image_url"}])]}, "messages[0].content"),
        ({"messages": [said("user", "a" * 11)]}, "messages[0].content"),
        ({"messages": [said("user", "\ud800")]}, "messages[0].content"),
        ({"messages": [{**HELLO, "tool_calls": [1]}, HELLO]}, "messages[0]"),
        ({"n": 0}, "n"),
        ({"n": 6}, "n"),
        ({"n": True}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": 10**50}, "n"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_p": False}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 0, "max_completion_tokens": 3}, "max_tokens"),
        ({"seed": 2**63}, "seed"),
        ({"stream": 1}, "stream"),
        ({"stream": True, "stream_options": 1}, "stream_options"),
        ({"stream": True, "stream_options": {"other": 1}}, "stream_options"),
        ({"stream_options": {}}, "stream_options"),
        ({"model": None}, "model"),
        ({"model": "gpt"}, "model"),
        ({"model": ["bot"]}, "model"),
        ({"tools": [{}]}, "tools"),
        ({"stop": "x"}, "stop"),
        ({"temprature": 1}, "temprature"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_what_cannot_be_met_is_refused_with_its_name(fields, param):
    error = refusal(**fields)
    assert error.status in (400, 404)
    assert error.body["error"]["param"] == param
    assert len(str(error)) < 400


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"n": NaN}', b'{"n": ' + b"9" * 5000 + b"}",
     b"[" * 100_000, b'{"a":' * 100_000],
    ids=lambda body: repr(body[:12]),
)  # fmt: skip
def test_what_is_no_json_object_is_refused(body):
    with pytest.raises(RefusedError) as caught:
        read_chat_request(body, "bot", OPTIONS)
    assert caught.value.body["error"]["code"] == "invalid_json"


def test_a_byte_order_mark_may_come_first():
    body = json.dumps({"model": "bot", "messages": [{"role": "user", "content": "hi"}]})
    for start in ("", "\ufeff"):
        assert read_chat_request((start + body).encode(), "bot", OPTIONS).turns == ("hi",)


def test_an_unknown_parameter_brings_the_nearest():
    assert "'temperature'" in str(refusal(temprature=1))
