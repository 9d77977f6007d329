"""`towers serve`: a trained chatbot as a service with OpenAI's API, and as a page."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from towers.scripts.commands.option_types import (
    path_name,
    port_number,
    positive_float,
    positive_int,
)
from towers.scripts.commands.options import (
    add_decoding_options,
    add_device_options,
    add_model_options,
    add_reranking_options,
    read_options,
)
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.serving.limits import Limits
from towers.scripts.shown import show
from towers.scripts.training.options import DeviceOptions, ModelOptions
from towers.scripts.wrong_input import WrongInputError, wrong_input

if TYPE_CHECKING:
    import socket

    from towers.scripts.serving.served_chatbot import ServedChatbot

TOKEN = "TOWERS_TOKEN"  # The environment variable.
LIBRARIES = ("fastapi", "uvicorn")


@dataclasses.dataclass(frozen=True)
class ServeOptions:
    """Where the service listens, and to whom.

    Attributes:
        host: the name or the address.
        port: 0 for any that is free.
        token_file: holds the token that clients must give; None for that of the environment.
        ignore_system: whether system messages are left out instead of refused.
        log_messages: whether questions and answers are printed.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token_file: str | None = None
    ignore_system: bool = False
    log_messages: bool = False


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_model_options(parser)
    parser.add_argument("--host", help="where to listen (default: 127.0.0.1, this machine only)")
    parser.add_argument("--port", type=port_number, metavar="P",
                        help="0 for any that is free (default: 8000)")  # fmt: skip
    parser.add_argument("--token-file", type=path_name, metavar="FILE",
                        help="clients must give the token that this file holds (default: that in "
                             "the environment variable TOWERS_TOKEN, if there is one)")  # fmt: skip
    parser.add_argument("--ignore-system", action="store_true",
                        help="leave out system messages instead of refusing them")  # fmt: skip
    parser.add_argument("--log-messages", action="store_true",
                        help="print questions and answers")  # fmt: skip
    add_limit_options(parser)
    add_decoding_options(parser)
    add_reranking_options(parser)
    add_device_options(parser)


def add_limit_options(parser: argparse.ArgumentParser) -> None:
    """Adds the limits."""
    group = parser.add_argument_group("limits")
    group.add_argument("--max-batch", type=positive_int, metavar="N",
                       help="answers that are decoded together (default: 64)")  # fmt: skip
    group.add_argument("--max-waiting", type=positive_int, metavar="N",
                       help="requests that wait; further ones get 429 (default: 256)")  # fmt: skip
    group.add_argument("--timeout", type=positive_float, metavar="SECONDS",
                       help="of a request, which then gets 504 (default: 30)")  # fmt: skip
    group.add_argument("--max-messages", type=positive_int, metavar="N",
                       help="of one request (default: 100)")  # fmt: skip
    group.add_argument("--max-message-length", type=positive_int, metavar="N",
                       help="characters of one message (default: 2000)")  # fmt: skip
    group.add_argument("--max-body", type=positive_int, metavar="BYTES",
                       help="of one request; larger ones get 413 (default: 1000000)")  # fmt: skip
    group.add_argument("--max-choices", type=positive_int, metavar="N",
                       help="answers to one question (default: 5)")  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Serves until it is interrupted."""
    check_libraries()
    from towers.scripts.serving import server

    options, limits = read_options(ServeOptions, given), read_options(Limits, given)
    with wrong_input():
        token = read_token(options.token_file)
        bound = server.bind(options.host, options.port)
    with bound:
        serve(given, bound, limits, token)
    return 0


def check_libraries() -> None:
    """Raises WrongInputError if the libraries of the service are not installed."""
    for name in LIBRARIES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise WrongInputError(
                f"`towers serve` needs {' and '.join(LIBRARIES)}, and {name} is not installed. "
                "Install them with: pip install 'towers[serve]'"
            ) from error


def read_token(path: str | None) -> str | None:
    """Returns the token of a file or of the environment, None if there is neither."""
    if path is None:
        token, place = os.environ.get(TOKEN), f"the environment variable {TOKEN}"
    else:
        try:
            token, place = Path(path).read_text(encoding="utf-8"), path
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"--token-file takes a file with a token. Received {path!r}, which cannot be read: "
                f"{getattr(error, 'strerror', None) or 'it is not UTF-8'}."
            ) from error
    if token is not None and not (token.strip().isascii() and token.strip().isprintable()):
        token = ""
    if token is not None and not token.strip():
        raise ValueError(
            f"{place} must hold a token of ASCII characters. Received none; write one with: "
            "openssl rand -hex 32"
        )
    return None if token is None else token.strip()


def serve(
    given: argparse.Namespace, bound: socket.socket, limits: Limits, token: str | None
) -> None:
    """Serves at a socket until it is interrupted."""
    import_tensorflow_quietly()
    from towers.scripts.serving import api, server
    from towers.scripts.serving.batching import Batcher
    from towers.scripts.serving.chat_request import RequestRules

    options = read_options(ServeOptions, given)
    chatbot, name, default_choices = open_chatbot(given, limits)
    rules = RequestRules(name, limits, default_choices, options.ignore_system)
    is_open = token is not None or not server.is_local(bound)
    hosts = None if is_open else server.local_names(options.host, bound)
    access = api.Access(token, hosts, options.log_messages)
    with Batcher(
        chatbot.answer, max_batch=limits.max_batch, max_waiting=limits.max_waiting
    ) as batcher:
        app = api.make_app(chatbot, batcher, rules, access)
        with wrong_input(OSError):
            server.listen(bound)
        print_start(name, bound, token)
        server.run_until_stopped(server.make_server(app, limits.timeout, limits.max_waiting), bound)
    show("stopped", flush=True)


def open_chatbot(given: argparse.Namespace, limits: Limits) -> tuple[ServedChatbot, str, int]:
    """Returns the chatbot, its name, and how many answers a request gets that does not say."""
    from towers.scripts.serving.served_chatbot import ServedChatbot
    from towers.scripts.training.options import DecodingOptions
    from towers.scripts.training.saved_run import open_model

    decoding = read_options(DecodingOptions, given)
    with wrong_input():
        if decoding.nbest > limits.max_choices:
            raise ValueError(
                f"--nbest must be at most --max-choices, {limits.max_choices}. Received "
                f"{decoding.nbest}."
            )
        opened = open_model(read_options(ModelOptions, given), read_options(DeviceOptions, given))
        chatbot = ServedChatbot(opened, decoding, max_choices=limits.max_choices)
    chatbot.compile()
    show(opened.description, flush=True)
    name = opened.directory.path.resolve().name.encode("utf-8", "replace").decode("utf-8")
    return chatbot, name, decoding.nbest


def print_start(name: str, bound: socket.socket, token: str | None) -> None:
    """Prints where the service is, and a warning if everybody may use it."""
    from towers.scripts.serving import server

    address = server.address_of(bound)
    if not server.is_local(bound) and token is None:
        show(
            "warning: whoever reaches this machine can use the service; give a token with "
            f"--token-file or {TOKEN}."
        )
    show(f"{name} is served at {address} (API: {address}/v1); Ctrl-C stops it", flush=True)
