"""The HTTP API: chat completions, models, health, and the page."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import hmac
import json
import logging
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from towers.scripts.serving.batching import Batcher, FullError
from towers.scripts.serving.chat_request import (
    LONGEST_SHOWN,
    ChatRequest,
    RefusedError,
    check_model,
    error_body,
    read_chat_request,
)
from towers.scripts.serving.chat_response import completion, events
from towers.scripts.serving.options import ServeOptions
from towers.scripts.serving.served_chatbot import Replies, ServedChatbot
from towers.scripts.shown import show

DRAINED = 32_000_000  # Bytes of a body that is too large are read, so that its client hears why.
CLOSE = {"Connection": "close"}
LONGEST_PATH = 200  # Characters in a line of the log.
BUG = "This is a bug in the server; its log says more."
LOGGER = logging.getLogger("uvicorn.error")  # Uvicorn prints its errors.
PAGE = Path(__file__).parent / "page"
# The address of each file of the page, its name and its type.
FILES = {
    "/": ("index.html", "text/html"),
    "/chat.css": ("chat.css", "text/css"),
    "/chat.js": ("chat.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
# For the page nothing from elsewhere, nothing inline, no frame around it.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",
}


def make_app(service: Service) -> ASGIApp:
    """Returns the application."""
    checked = [Depends(service.check_host)]
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    api = APIRouter(dependencies=[*checked, Depends(service.check_token)])
    api.add_api_route("/v1/chat/completions", service.complete, methods=["POST"])
    api.add_api_route("/v1/models", service.list_models)
    api.add_api_route("/v1/models/{name}", service.show_model)
    app.include_router(api)
    app.add_api_route("/healthz", service.health, methods=["GET", "HEAD"], dependencies=checked)
    for address, (name, media_type) in FILES.items():
        send = sender((PAGE / name).read_bytes(), media_type)
        app.add_api_route(address, send, methods=["GET", "HEAD"], dependencies=checked)
    app.add_exception_handler(RefusedError, send_refusal)
    app.add_exception_handler(HTTPException, send_http_error)
    app.add_exception_handler(Exception, send_bug)
    options = service.options
    opened: ASGIApp = app
    if options.allow_origin:  # Their pages may read errors, too, and send a token, no cookies.
        opened = CORSMiddleware(
            app,
            allow_origins=options.allow_origin,
            allow_methods=("GET", "HEAD", "POST"),
            allow_headers=("*",),
            expose_headers=("Retry-After",),
        )
    return with_log(opened) if options.access_log else opened


def with_log(app: ASGIApp) -> ASGIApp:
    """Returns an application that prints a line for each request when its response has ended.

    It has the time, the method, the path as it was sent without its query, the status and the
    milliseconds.
    """

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        status = "-"  # No response was begun.

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await app(scope, receive, watch)
        finally:
            now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
            path = scope["raw_path"].decode("ascii", "replace")[:LONGEST_PATH]
            took = 1000 * (time.perf_counter() - began)
            show(f"{now} {scope['method']} {path} {status} {took:.0f} ms", flush=True)

    return run


@dataclasses.dataclass(frozen=True, eq=False)
class Service:
    """What happens at the addresses of the API.

    Attributes:
        options: of the command.
        name: of the only model.
        chatbot: what answers.
        batcher: collects the questions that it answers together.
        token: that clients must give, or None.
        hosts: the names to which requests are answered; None for any. This keeps away pages of
            other sites whose own name leads to this machine (DNS rebinding).
        created: the time of the start, in seconds.
    """

    options: ServeOptions
    name: str
    chatbot: ServedChatbot
    batcher: Batcher
    token: str | None = None
    hosts: tuple[str, ...] | None = None
    created: int = dataclasses.field(default_factory=lambda: int(time.time()))

    async def check_host(self, request: Request) -> None:
        """Refuses a request that was made to another name than this machine's."""
        host = request.headers.get("host", "").lower()
        if self.hosts is not None and not {host, host.rpartition(":")[0]} & set(self.hosts):
            raise RefusedError(
                f"The host must be one of {', '.join(self.hosts)}. Received {host[:60]!r}; to "
                "serve another name, start the server with --allow-host, a token or --host.",
                status=421,
                code="wrong_host",
            )

    async def check_token(self, request: Request) -> None:
        """Refuses a request without the token."""
        if self.token is None:
            return
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(given.strip().encode(), self.token.encode())
        if kind.lower() != "bearer" or not is_right:
            raise RefusedError(
                "Send a token in the header `Authorization: Bearer TOKEN`. Received "
                f"{'another one' if given else 'none'}.",
                status=401,
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    async def complete(self, request: Request) -> Response:
        """Answers a question."""
        limits = self.options.limits
        body = await read_body(request, limits.max_body, limits.timeout)
        asked = read_chat_request(body, self.name, self.options)
        replies = await wait_for_replies(request, self._submit(asked), limits.timeout)
        if self.options.log_messages:
            said = {"turns": asked.turns, "answers": [reply.text for reply in replies.replies]}
            show(json.dumps(said, ensure_ascii=False), flush=True)
        if not asked.stream:
            return JSONResponse(completion(replies, self.name))
        return StreamingResponse(
            events(replies, self.name, with_usage=asked.with_usage),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def list_models(self) -> dict[str, Any]:
        """Returns the one model."""
        return {"object": "list", "data": [self._model()]}

    async def show_model(self, name: str) -> dict[str, Any]:
        """Returns the model of this name."""
        check_model(name, self.name, self.options)
        return self._model()

    async def health(self) -> dict[str, Any]:
        """Returns that the service runs, and how many questions wait."""
        return {"status": "ok", "waiting": self.batcher.num_waiting()}

    def _model(self) -> dict[str, Any]:
        limits = self.options.limits
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "towers",
            "context": self.chatbot.context,
            "max_messages": limits.max_messages,
            "max_message_length": limits.max_message_length,
            "max_choices": limits.max_choices,
            "title": self.options.title or self.name,
            "greeting": self.options.greeting,
            "examples": self.chatbot.examples,
        }

    def _submit(self, asked: ChatRequest) -> Future[Replies]:
        group, rows = self.chatbot.group(asked), self.chatbot.rows(asked)
        try:
            return self.batcher.submit(asked, group, rows)
        except FullError as error:
            raise RefusedError(
                f"{self.options.limits.max_waiting} requests are waiting already. Try again later.",
                status=429,
                code="too_many_requests",
                headers={"Retry-After": "1"},
            ) from error


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """Returns the body of a request; refuses one that is too large or too slow."""
    try:
        content, size = await asyncio.wait_for(collect(request, limit), seconds)
    except asyncio.TimeoutError as error:
        message = f"The body did not arrive within {seconds:g} seconds. Send it faster."
        raise RefusedError(message, status=408, code="body_timeout", headers=CLOSE) from error
    except ClientDisconnect as error:
        raise client_left("its body had arrived") from error
    if size > limit:
        message = f"The body must have at most {limit} bytes. Received more; send a shorter one."
        raise RefusedError(message, status=413, code="body_too_large", headers=CLOSE)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # Which no page of another site can send unasked.
        message = f"The content type must be application/json. Received {kind[:60]!r}."
        raise RefusedError(message, status=415, code="wrong_content_type")
    return content


async def collect(request: Request, limit: int) -> tuple[bytes, int]:
    """Returns the first bytes of a body, as many as allowed, and how many have come."""
    content, size = bytearray(), 0
    async for part in request.stream():
        size += len(part)
        if size <= limit:
            content += part
        elif size > DRAINED:
            break
    return bytes(content), size


async def wait_for_replies(request: Request, future: Future[Replies], seconds: float) -> Replies:
    """Returns the answers; ends their decoding if it takes too long or the client leaves."""
    answered = asyncio.wrap_future(future)
    left = asyncio.ensure_future(until_left(request))
    either: set[asyncio.Future[Any]] = {answered, left}
    try:
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if answered.done():
            return answered.result()
        has_left = left.done()
    except Exception as error:
        LOGGER.error("A batch was not answered.", exc_info=error)
        raise RefusedError(BUG, status=500, code="bug") from error
    finally:
        left.cancel()
        answered.cancel()
    if has_left:
        raise client_left("it was answered")
    message = f"There was no answer within {seconds:g} seconds. Try again later."
    raise RefusedError(message, status=504, code="timeout", headers={"Retry-After": "5"})


def client_left(before: str) -> RefusedError:
    """Returns what is only logged, with nginx's status for it: nobody reads it."""
    message = f"The client left before {before}."
    return RefusedError(message, status=499, code="client_left", headers=CLOSE)


async def until_left(request: Request) -> None:
    """Returns when the client of a request, whose body was read, has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def sender(content: bytes, media_type: str) -> Any:
    """Returns the function that sends a file of the page."""

    async def send() -> Response:
        return Response(content, media_type=media_type, headers=PAGE_HEADERS)

    return send


async def send_refusal(request: Request, error: Exception) -> Response:
    """Returns the response to a request that is refused."""
    known = error if isinstance(error, RefusedError) else RefusedError(str(error))
    return AsciiResponse(known.body, known.status, known.headers)


async def send_http_error(request: Request, error: Exception) -> Response:
    """Returns the response for an address or a method that is not there."""
    status, headers = getattr(error, "status_code", 400), getattr(error, "headers", None)
    message = (
        f"{request.method} {request.url.path[:60]} is not served. Use POST /v1/chat/completions, "
        "GET /v1/models, GET /healthz or the page at /. Clients need the base URL "
        f"{str(request.base_url)[:LONGEST_SHOWN]}v1."
    )
    return AsciiResponse(error_body(message, status, code="not_served"), status, headers)


async def send_bug(request: Request, error: Exception) -> Response:
    """Returns the response for a bug, whose traceback the server prints."""
    return AsciiResponse(error_body(BUG, 500, code="bug"), 500, CLOSE)


class AsciiResponse(JSONResponse):
    """JSON that may quote what no UTF-8 can hold, such as half of a surrogate pair."""

    def render(self, content: Any) -> bytes:
        """Returns the bytes of the body."""
        return json.dumps(content).encode("ascii")
