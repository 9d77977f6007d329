"""The options of `towers serve`, with their defaults; importing them is cheap."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated

from towers.scripts.options.setting import Amount, Bound, Count, File, Names, Port
from towers.scripts.training.options import DecodingOptions, DeviceOptions, ModelOptions

ORIGIN = Bound(
    "* or origins such as https://example.org",
    lambda text: text == "*" or bool(re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#@\sA-Z]+", text)),
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of one request, and of all of them together.

    Attributes:
        max_batch: answers decoded together.
        max_waiting: requests that may wait; further ones get 429.
        timeout: seconds for a request's body to arrive, and again for its answer, before it gets
            504.
        max_messages: messages in one request.
        max_message_length: characters in one message.
        max_body: bytes in one request's body; larger ones get 413.
        max_choices: answers to one question.
    """

    max_batch: Count = 64
    max_waiting: Count = 256
    timeout: Annotated[Amount, "SECONDS"] = 30.0
    max_messages: Count = 100
    max_message_length: Count = 2000
    max_body: Annotated[Count, "BYTES"] = 1_000_000
    max_choices: Count = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeOptions(ModelOptions):
    """The model, and where and for whom the service listens.

    Attributes:
        host: where to listen (default: 127.0.0.1, this machine only).
        port: port; 0 takes any free one.
        token_file: clients must send the token in this file (default: the one in the environment
            variable TOWERS_TOKEN, if it is set).
        allow_origin: web pages of these origins may use the service; * for all (default: only its
            own page).
        allow_host: other host names that a local server without a token accepts, such as a proxy's
            (default: none).
        ignore_system: ignore system messages instead of refusing them.
        any_model: accept requests that name any model, or none.
        log_messages: print questions and answers.
        access_log: print a line for each request: time, method, path, status, milliseconds.
        title: of the page (default: the run's name).
        greeting: a sentence at the top of the page.
    """

    limits: Limits
    decoding: DecodingOptions
    devices: DeviceOptions
    host: Annotated[str, "HOST"] = "127.0.0.1"
    port: Port = 8000
    token_file: File | None = None
    allow_origin: Annotated[tuple[str, ...], ORIGIN, "ORIGIN,ORIGIN"] = ()
    allow_host: Names = ()
    ignore_system: bool = False
    any_model: bool = False
    log_messages: bool = False
    access_log: bool = False
    title: str | None = None
    greeting: str | None = None
