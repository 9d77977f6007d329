"""`towers serve`: a trained chatbot as a service with OpenAI's API, and as a page.

towers serve runs/chatbot
towers serve runs/chatbot --port 0 --beam 5
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from towers.ground.extras import import_extra
from towers.ground.progress import waiting
from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.options.setting import Bound, File, Names, Port, arguments_for
from towers.scripts.serving.limits import Limits
from towers.scripts.shown import show
from towers.scripts.training.options import (
    USUAL_DECODING,
    DecodingOptions,
    DeviceOptions,
    ModelOptions,
)
from towers.scripts.wrong_input import wrong_input

if TYPE_CHECKING:
    import socket

    from towers.scripts.serving.served_chatbot import ServedChatbot

ORIGIN = Bound(
    "* or origins such as https://example.org",
    lambda text: text == "*" or bool(re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#@\sA-Z]+", text)),
)
TOKEN = "TOWERS_TOKEN"  # The environment variable.
LIBRARIES = ("fastapi", "uvicorn")
USUAL = {
    *("run_dir", "checkpoint", "host", "port", "token_file", "ignore_system", "log_messages"),
    "title",
    *USUAL_DECODING,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeOptions(ModelOptions):
    """The model, and where and for whom the service listens.

    Attributes:
        limits: of the service.
        decoding: how answers are found.
        devices: the choice of the devices.
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


def run(options: ServeOptions) -> int:
    """Serves until it is interrupted."""
    with wrong_input():
        for name in LIBRARIES:
            import_extra(name, "serve", "`towers serve` answers over HTTP")
    from towers.scripts.serving import server

    with contextlib.ExitStack() as scope:
        with wrong_input():
            token = read_token(options.token_file)
            bound = scope.enter_context(server.bind(options.host, options.port))
        serve(options, bound, token)
    return 0


def read_token(path: str | None) -> str | None:
    """Returns the token of a file or of the environment, None if there is neither."""
    if path is None:
        token, source = os.environ.get(TOKEN), f"the environment variable {TOKEN}"
    else:
        try:
            token, source = Path(path).read_text(encoding="utf-8"), path
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"--token-file takes a file that holds a token. Received {path!r}, which cannot "
                f"be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}."
            ) from error
    if token is None:
        return None
    token = token.strip()
    if not (token and token.isascii() and token.isprintable()):
        raise ValueError(
            f"{source} must hold a token of ASCII characters. Received none; make one with: "
            "openssl rand -hex 32"
        )
    return token


def serve(options: ServeOptions, bound: Sequence[socket.socket], token: str | None) -> None:
    """Serves at sockets until it is interrupted."""
    import_tensorflow_quietly()
    from towers.scripts.serving import api, server
    from towers.scripts.serving.batching import Batcher
    from towers.scripts.serving.chat_request import RequestRules

    limits = options.limits
    chatbot, name = open_chatbot(options)
    nbest = options.decoding.nbest
    rules = RequestRules(name, limits, nbest, options.ignore_system, options.any_model)
    is_open = token is not None or not server.is_local(bound)
    hosts = None if is_open else server.local_names(options.host, bound, options.allow_host)
    with Batcher(
        chatbot.answer, max_batch=limits.max_batch, max_waiting=limits.max_waiting
    ) as batcher:
        service = api.Service(
            **arguments_for(api.Service, options, chatbot=chatbot, batcher=batcher, rules=rules),
            token=token,
            hosts=hosts,
            origins=options.allow_origin,
        )
        app = api.make_app(service)
        with wrong_input(OSError):
            server.listen(bound)
        print_start(name, bound, token, options.allow_origin)
        server.run_until_stopped(server.make_server(app, limits.timeout, limits.max_waiting), bound)
    show("stopped", flush=True)


def open_chatbot(options: ServeOptions) -> tuple[ServedChatbot, str]:
    """Returns the chatbot and its name."""
    from towers.scripts.serving.served_chatbot import ServedChatbot
    from towers.scripts.training.saved_run import open_model

    decoding, limits = options.decoding, options.limits
    with wrong_input():
        if decoding.nbest > limits.max_choices:
            raise ValueError(
                f"--nbest must be at most --max-choices, {limits.max_choices}. Received "
                f"{decoding.nbest}."
            )
        opened = open_model(options, options.devices)
        chatbot = ServedChatbot(opened, decoding, max_choices=limits.max_choices)
    with waiting("compiling the answers"):
        chatbot.compile()
    show(opened.description, flush=True)
    name = opened.directory.path.resolve().name.encode("utf-8", "replace").decode("utf-8")
    return chatbot, name


def print_start(
    name: str, bound: Sequence[socket.socket], token: str | None, origins: Sequence[str]
) -> None:
    """Prints where the service is, and a warning if everyone may use it."""
    from towers.scripts.serving import server

    address = server.address_of(bound)
    if not server.is_local(bound) and token is None:
        show(
            "warning: anyone who can reach this machine can use the service; set a token with "
            f"--token-file or {TOKEN}."
        )
    elif origins and token is None:
        sites = "any site" if "*" in origins else ", ".join(origins)
        show(
            f"warning: in a browser on this machine, pages of {sites} can use the service; set a "
            f"token with --token-file or {TOKEN}."
        )
    show(f"{name} is served at {address} (API: {address}/v1); Ctrl-C stops it", flush=True)
