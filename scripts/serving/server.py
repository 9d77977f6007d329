"""The server's sockets, its start and its clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
SPARE_CONNECTIONS = 256  # Beside those of the requests that wait.
BACKLOG = 2048  # Connections that wait to be accepted.
IDLE = 3  # A connection ends without a request in so many times the time of a request.
SILENT = 1.0  # Seconds after which a silent connection makes room if there are too many.
GRACE = 5  # Seconds beyond the time of a request until a stopping server leaves its clients.
LAST = 0.5  # Seconds in which a stopping server still hears a connection that is open.
CLOSING = (b"connection", b"close")


@contextlib.contextmanager
def bind(host: str, port: int) -> Iterator[list[socket.socket]]:
    """The scope of sockets that are bound to every address of a name, and do not listen yet.

    An address that this machine lacks, as ::1 without IPv6, is left out if it has another one.

    Raises:
        OSError: an address is taken, none is this machine's or permitted; the message names it.
    """
    with contextlib.ExitStack() as scope:
        bound: list[socket.socket] = []
        with errors_that_name(host, port):
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            lacking = None
            for family, kind, protocol, _, address in dict.fromkeys(found):
                try:
                    one = scope.enter_context(socket.socket(family, kind, protocol))
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    if family == socket.AF_INET6:  # Else :: takes 0.0.0.0 too.
                        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    taken = bound[0].getsockname()[1] if bound else port  # 0 chooses once.
                    one.bind((address[0], taken, *address[2:]))
                    bound.append(one)
                except OSError as error:
                    if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        raise
                    lacking = error
            if lacking is not None and not bound:
                raise lacking
        yield bound


def listen(bound: Sequence[socket.socket]) -> None:
    """Begins to listen: from here on no client is turned away; OSError as in `bind`."""
    for one in bound:
        host, port = one.getsockname()[:2]
        with errors_that_name(host, port):  # Another socket may be bound to the address too.
            one.listen(BACKLOG)


@contextlib.contextmanager
def errors_that_name(host: str, port: int) -> Iterator[None]:
    """The scope whose errors say which address cannot be used."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"cannot listen at {host}, port {port}: {error.strerror or error}. Choose another "
            "with --host or --port."
        ) from error


def is_local(bound: Sequence[socket.socket]) -> bool:
    """Returns whether only this machine reaches the sockets."""
    addresses = (one.getsockname()[0].partition("%")[0] for one in bound)
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)


def local_names(
    host: str, bound: Sequence[socket.socket], others: Sequence[str]
) -> tuple[str, ...]:
    """Returns the names by which this machine calls local sockets, and others as they are."""
    names = (*LOCAL_NAMES, host.lower(), *(one.getsockname()[0] for one in bound))
    bracketed = (f"[{one}]" if ":" in one else one for one in names)
    return tuple(dict.fromkeys((*bracketed, *map(str.lower, others))))


def address_of(bound: Sequence[socket.socket]) -> str:
    """Returns the address of the first socket for a browser."""
    host, port = bound[0].getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def make_server(app: Any, timeout: float, max_waiting: int) -> uvicorn.Server:
    """Returns the server of an application.

    Args:
        max_waiting: requests that may wait; connections beyond them and some more are refused.
        timeout: seconds that a request may take; a stopping server waits a little longer.
    """
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=protocol_that_ends(IDLE * timeout, max_waiting + SPARE_CONNECTIONS),
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_level="warning",
            access_log=False,
            proxy_headers=True,  # Of a proxy on this machine: whether it was asked by https.
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=int(timeout) + GRACE,
        )
    )


def protocol_that_ends(seconds: float, most: int) -> type[asyncio.Protocol]:
    """Returns uvicorn's protocol, which ends connections that stand still for so long.

    They send nothing, or half of a request's head, or do not read their answer. If there are more
    than `most` connections, silent ones end at once, or else the newest is refused.
    """

    class EndingProtocol(H11Protocol):
        """A connection that is looked at now and then."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Begins to watch a connection."""
            super().connection_made(transport)
            self.silent_since = self.loop.time()
            if len(self.connections) > most:
                self.make_room()
            self.look_later()

        def make_room(self) -> None:
            """Ends the connections that are silent longest; if they are too few, refuses this."""
            there: list[Any] = [one for one in self.connections if not one.transport.is_closing()]
            since = self.loop.time() - SILENT
            silent = [one for one in there if not one.is_asking() and one.silent_since < since]
            silent.sort(key=lambda one: one.silent_since)
            surplus = len(there) - most
            for one in silent[: max(0, surplus)]:
                one.transport.abort()
            if len(silent) < surplus:
                self.limit_concurrency = 0  # Its request gets 503.

        def on_response_complete(self) -> None:
            """Notes when the connection's silence began."""
            self.silent_since = self.loop.time()
            super().on_response_complete()

        def is_asking(self) -> bool:
            """Returns whether a request waits for the end of its answer."""
            return self.cycle is not None and not self.cycle.response_complete

        def connection_lost(self, error: Exception | None) -> None:
            """Ends the watch, which would keep the connection's last request in memory."""
            self.next_look.cancel()
            super().connection_lost(error)

        def look_later(self) -> None:
            """Looks at the connection after a while."""
            self.next_look = self.loop.call_later(seconds, self.end_unless_changed, self.state())

        def state(self) -> tuple[Any, bool]:
            """Returns what changes with each request, and when it is answered."""
            return self.cycle, self.is_asking()

        def end_unless_changed(self, before: tuple[Any, bool]) -> None:
            """Ends the connection if it is as it was; else looks again later."""
            if self.state() == before:
                self.transport.abort()
            elif not self.transport.is_closing():
                self.look_later()

        def shutdown(self) -> None:
            """Says with each answer that it is the last; ends a silent connection a moment later.

            Its next request may be on its way, and would find no answer but a reset.
            """
            if CLOSING not in self.server_state.default_headers:
                self.server_state.default_headers.append(CLOSING)
            if self.is_asking():
                self.cycle.default_headers = self.server_state.default_headers
                super().shutdown()
            else:
                self.loop.call_later(LAST, self.end)

        def end(self) -> None:
            """Ends the connection after its answer, or at once if it waits for none."""
            if not self.transport.is_closing():
                super().shutdown()

    return EndingProtocol
