"""Around the application: one line for each request."""

from __future__ import annotations

import datetime
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from towers.scripts.shown import show

LONGEST_PATH = 200  # Characters in a line.


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
