"""The server's sockets: errors that name their address, and the names that they have."""

import asyncio
import contextlib
import gc
import http.client
import socket
import threading
import time
import weakref

import pytest

from tests.programs import wait_until
from towers.scripts.serving import server


def test_of_two_servers_that_start_at_once_one_is_told_that_the_port_is_taken():
    with server.bind("127.0.0.1", 0) as first:
        port = first[0].getsockname()[1]
        with server.bind("127.0.0.1", port) as second:
            server.listen(first)
            with pytest.raises(OSError, match=f"cannot listen at 127.0.0.1, port {port}: .*in use"):
                server.listen(second)


async def hello(scope, receive, send):
    await asyncio.sleep(float(scope["path"][1:]))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@pytest.mark.parametrize("seconds", [0, 0.5])  # Sent after the stop, or answered after it.
def test_a_request_on_an_open_connection_is_answered_while_the_server_stops(seconds):
    with server.bind("127.0.0.1", 0) as bound:
        stopping = server.make_server(hello, 5, 9)
        server.listen(bound)
        thread = threading.Thread(target=stopping.run, kwargs={"sockets": bound})
        thread.start()
        client = http.client.HTTPConnection(*bound[0].getsockname(), timeout=20)
        for header in (None, "close"):
            if seconds:
                client.request("GET", f"/{seconds if header else 0}")
            if header:
                stopping.should_exit = True
                while stopping.servers[0].is_serving():
                    time.sleep(0.01)
            if not seconds:
                client.request("GET", "/0")
            answer = client.getresponse()
            assert (answer.read(), answer.getheader("connection")) == (b"hello", header)
        thread.join(20)
        assert not thread.is_alive()


def test_of_too_many_connections_the_surplus_is_refused_and_silent_ones_make_room(monkeypatch):
    monkeypatch.setattr(server, "SPARE_CONNECTIONS", 0)
    monkeypatch.setattr(server, "SILENT", 0.3)
    with server.bind("127.0.0.1", 0) as bound, contextlib.ExitStack() as scope:
        running = server.make_server(hello, 3600, 3)
        server.listen(bound)
        thread = threading.Thread(target=running.run, kwargs={"sockets": bound})
        thread.start()

        def connect(how_many):
            for _ in range(how_many):
                client = http.client.HTTPConnection(*bound[0].getsockname(), timeout=20)
                client.connect()
                yield scope.enter_context(contextlib.closing(client))

        def status(client):
            client.request("GET", "/0")
            answer = client.getresponse()
            answer.read()
            return answer.status

        try:
            at_once = list(connect(5))
            assert [status(one) for one in at_once] == [200, 200, 200, 503, 503]
            wait_until(lambda: len(running.server_state.connections) == 3, "the refused are gone")
            at_once[0].request("GET", "/2")  # No silent one while it waits.
            time.sleep(0.5)
            assert [status(one) for one in connect(2)] == [200, 200]
            assert at_once[0].getresponse().status == 200
            for silent in at_once[1:3]:
                with pytest.raises(ConnectionError):
                    status(silent)
        finally:
            running.should_exit = True
            thread.join(20)


def test_what_a_closed_connection_asked_is_not_kept():
    asked = []

    async def remember(scope, receive, send):
        asked.append(weakref.ref(send.__self__))
        await hello(scope, receive, send)

    with server.bind("127.0.0.1", 0) as bound:
        running = server.make_server(remember, 3600, 9)
        server.listen(bound)
        thread = threading.Thread(target=running.run, kwargs={"sockets": bound})
        thread.start()
        client = http.client.HTTPConnection(*bound[0].getsockname(), timeout=20)
        try:
            client.request("GET", "/0")
            assert client.getresponse().read() == b"hello"
            client.close()
            wait_until(lambda: gc.collect() >= 0 and asked[0]() is None, "the request is forgotten")
        finally:
            client.close()
            running.should_exit = True
            thread.join(20)


def test_a_local_server_has_the_names_that_it_was_started_with():
    with server.bind("127.0.0.2", 0) as bound:
        names = server.local_names("My-Machine", bound, ["Bots.example:8443"])
    here = ("localhost", "127.0.0.1", "[::1]", "my-machine", "127.0.0.2")
    assert names == (*here, "bots.example:8443")


def test_every_address_of_a_name_is_bound_at_one_port(monkeypatch):
    here = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", 0)) for last in (2, 3)]
    away = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [away, *here, here[0]])
    with server.bind("name", 0) as bound:
        server.listen(bound)
        places = [one.getsockname() for one in bound]
        assert [host for host, _ in places] == ["127.0.0.2", "127.0.0.3"]
        assert len({port for _, port in places}) == 1
        for place in places:
            with socket.socket() as client:
                client.connect(place)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [away])
    with pytest.raises(OSError, match="cannot listen at name, port 0"), server.bind("name", 0):
        pass
