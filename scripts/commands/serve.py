"""`towers serve`: a trained chatbot as a service with OpenAI's API, and as a page.

towers serve runs/chatbot
towers serve runs/chatbot --port 0 --beam 5
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from towers.ground.extras import import_extra
from towers.ground.interrupts import handling
from towers.ground.progress import waiting
from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.serving.options import ServeOptions
from towers.scripts.shown import show
from towers.scripts.training.options import USUAL_DECODING
from towers.scripts.wrong_input import wrong_input

if TYPE_CHECKING:
    import socket

    from towers.scripts.serving.served_chatbot import ServedChatbot

TOKEN = "TOWERS_TOKEN"  # The environment variable.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
LIBRARIES = ("fastapi", "uvicorn")
USUAL = {
    *("run_dir", "checkpoint", "host", "port", "token_file", "ignore_system", "log_messages"),
    "title",
    *USUAL_DECODING,
}


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

    limits = options.limits
    chatbot, name = open_chatbot(options)
    is_open = token is not None or not server.is_local(bound)
    hosts = None if is_open else server.local_names(options.host, bound, options.allow_host)
    with Batcher(
        chatbot.answer, max_batch=limits.max_batch, max_waiting=limits.max_waiting
    ) as batcher:
        app = api.make_app(api.Service(options, name, chatbot, batcher, token, hosts))
        with wrong_input(OSError):
            server.listen(bound)
        print_start(name, bound, token, options.allow_origin)
        running = server.make_server(app, limits.timeout, limits.max_waiting)
        with handling(STOP_SIGNALS, lambda number, frame: None):  # uvicorn raises them again.
            running.run(sockets=list(bound))  # Until the requests that wait then are answered.
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
