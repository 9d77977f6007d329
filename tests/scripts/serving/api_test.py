"""The API over real connections to a real server, with a chatbot that says what it was told."""

import concurrent.futures
import contextlib
import json
import random
import re
import socket

import pytest

from tests.programs import wait_until
from tests.scripts.serving.random_requests import random_body
from tests.scripts.serving.servers import LOCAL, MODEL, PATH, Echo, asking, error_of, serving

SITE = "https://site.example"


@pytest.fixture(scope="module")
def client():
    """A client of a server that all tests share which need no limits of their own."""
    access = {"hosts": LOCAL, "allow_origin": (SITE,), "access_log": True}
    with serving(Echo(), access=access, max_body=50_000) as client:
        yield client


@pytest.fixture
def blocked():
    """A chatbot that answers nothing until it may."""
    chatbot = Echo()
    chatbot.may_answer.clear()
    return chatbot


def start(client, pool, chatbot, *questions):
    """Asks questions at once; returns their futures when the first of them is being answered."""
    before = len(chatbot.batches)
    futures = [pool.submit(client.post, PATH, json=asking(questions[0]))]
    wait_until(lambda: len(chatbot.batches) > before, "a batch begins")
    futures += [pool.submit(client.post, PATH, json=asking(question)) for question in questions[1:]]
    waiting = len(questions) - 1
    wait_until(lambda: client.get("/healthz").json()["waiting"] == waiting, "questions wait")
    return futures


def content_of(response):
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


def events_of(response):
    """Returns the objects of a stream, which ends as OpenAI's do."""
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, last, rest = response.text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def test_an_answer_has_the_shape_of_openai(client):
    response = client.post(PATH, json=asking("你好 <b>", n=2))
    assert content_of(response) == "你好 <b>"
    found = response.json()
    assert (found["object"], found["model"]) == ("chat.completion", MODEL)
    assert [choice["index"] for choice in found["choices"]] == [0, 1]
    assert {choice["finish_reason"] for choice in found["choices"]} == {"stop"}
    counts = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "unread_tokens": 0}
    assert found["usage"] == counts


@pytest.mark.parametrize("text", ["今天天气很好。 Hi there,  friend! \n 😀", "", " a "])
def test_the_pieces_of_a_stream_are_the_answer(client, text):
    body = asking(text + "x", n=2, stream=True, stream_options={"include_usage": True})
    *pieces, usage = events_of(client.post(PATH, json=body))
    said = ["", ""]
    for piece in pieces:
        (choice,) = piece["choices"]
        said[choice["index"]] += choice["delta"].get("content", "")
    assert said == [text + "x", text + "x!"]
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 3)
    assert len({piece["id"] for piece in pieces}) == 1


def test_models_and_health_are_shown(client):
    (model,) = client.get("/v1/models").json()["data"]
    assert model == client.get(f"/v1/models/{MODEL}").json()
    assert (model["id"], model["object"], model["context"]) == (MODEL, "model", 2)
    assert (model["title"], model["greeting"], model["examples"]) == (MODEL, None, ["an example"])
    assert client.get("/healthz").json() == {"status": "ok", "waiting": 0}
    assert client.head("/healthz").status_code == 200
    assert error_of(client.get("/v1/models/other"))["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", PATH, 405), ("GET", "/v1", 404), ("GET", "/../setup.cfg", 404),
     ("GET", "/%2e%2e/api.py", 404), ("PUT", "/", 405), ("GET", "/docs", 404)],
)  # fmt: skip
def test_what_is_not_served_is_refused_in_the_same_shape(client, method, path, status):
    response = client.request(method, path)
    assert response.status_code == status
    assert error_of(response)["code"] == "not_served"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_address_that_is_not_there_is_answered_with_the_base_url(client, scheme):
    headers = {"Host": "localhost:80", "X-Forwarded-Proto": scheme}
    message = error_of(client.post("/chat/completions", headers=headers))["message"]
    assert f" {scheme}://localhost:80/v1." in message


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [("GET", "/v1/models", None, 200), ("POST", PATH, asking("hi", stream=True), 200),
     ("POST", PATH, {}, 400), ("GET", "/v1", None, 404), ("PATCH", PATH, None, 405),
     ("POST", PATH, asking("bug"), 500)],
)  # fmt: skip
def test_pages_of_a_permitted_site_read_every_response(
    client, monkeypatch, method, path, body, status
):
    if status == 500:
        monkeypatch.setattr(Echo, "group", lambda *_: 1 / 0)
    for origin, permitted in ((SITE, SITE), ("https://evil.example", None)):
        response = client.request(method, path, json=body, headers={"Origin": origin})
        assert response.status_code == status
        assert response.headers.get("access-control-allow-origin") == permitted
        assert "Origin" in response.headers["vary"]


def test_a_browser_is_told_before_whether_a_page_may_ask(client):
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
    }
    response = client.options(PATH, headers={"Origin": SITE, **asked})
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, SITE)
    assert "authorization" in response.headers["access-control-allow-headers"]
    response = client.options(PATH, headers={"Origin": "https://evil.example", **asked})
    assert response.status_code == 400
    assert "access-control-allow-origin" not in response.headers


def test_each_request_is_a_line_of_the_log(client, capsys):
    client.get("/v1/mod%0Ael?key=secret")
    client.post(PATH, json=asking("secret"))
    client.get("/healthz")  # On the same connection, so that the lines before are printed.
    printed = capsys.readouterr().out
    date = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d"
    for words in ("GET /v1/mod%0Ael 404", f"POST {PATH} 200"):
        assert re.search(rf"^{date} {words} \d+ ms$", printed, re.MULTILINE), printed
    assert "secret" not in printed


def test_a_body_of_10_megabytes_is_refused(client):
    for body in ({"content": b" " * 10_000_000}, {"content": iter([b" " * 100_000] * 100)}):
        response = client.post(PATH, **body, headers={"Content-Type": "application/json"})
        assert response.status_code == 413
        assert "50000 bytes" in error_of(response)["message"]
    response = client.post(PATH, content=b" " * 60_000)
    assert response.status_code == 413


def test_a_form_of_another_site_is_refused(client):
    """A page may send text/plain to any site without asking; JSON it may not."""
    response = client.post(PATH, content=json.dumps(asking("hi")))
    assert (response.status_code, error_of(response)["code"]) == (415, "wrong_content_type")
    response = client.options(PATH, headers={"Origin": "http://evil.example"})
    assert "access-control-allow-origin" not in response.headers


def test_only_names_of_this_machine_are_answered(client):
    for host in ("evil.example", "localhost.evil.example:80", "", "127.0.0.1.evil.example"):
        response = client.get("/v1/models", headers={"Host": host})
        assert (response.status_code, error_of(response)["code"]) == (421, "wrong_host")
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST"):
        assert client.get("/v1/models", headers={"Host": host}).status_code == 200


def test_500_random_requests_are_answered_or_refused_with_a_reason(client):
    chance = random.Random(0)
    statuses = []
    for _ in range(500):
        body = random_body(chance)
        response = client.post(PATH, content=body, headers={"Content-Type": "application/json"})
        statuses.append(response.status_code)
        if response.status_code == 200:
            assert "chat.completion" in response.text
        else:
            assert response.status_code in (400, 404), (body, response.text)
            assert error_of(response)["type"] == "invalid_request_error"
    assert statuses.count(200) > 50 and statuses.count(400) > 50


@pytest.mark.parametrize(
    "sent",
    [b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
     b"GET / HTTP/1.1\r\n" + b"a" * 20_000],
    ids=lambda sent: repr(sent[:20]),
)  # fmt: skip
def test_what_is_no_http_does_not_stop_the_server(client, sent):
    with connect(client) as connection:
        connection.sendall(sent)
        assert b" 400 " in connection.recv(1000)
    assert client.get("/healthz").status_code == 200


def connect(client):
    return socket.create_connection((client.base_url.host, client.base_url.port))


def test_waiting_requests_are_decoded_together(blocked):
    with serving(blocked) as client, concurrent.futures.ThreadPoolExecutor(9) as pool:
        futures = start(client, pool, blocked, *map(str, range(9)))
        blocked.may_answer.set()
        assert [content_of(future.result()) for future in futures] == list(map(str, range(9)))
    assert [len(batch) for batch in blocked.batches] == [1, 8]


def test_more_requests_than_may_wait_get_429_and_when_to_come_again(blocked):
    with (
        serving(blocked, max_waiting=2) as client,
        concurrent.futures.ThreadPoolExecutor(3) as pool,
    ):
        futures = start(client, pool, blocked, "a", "b", "c")
        refused = client.post(PATH, json=asking("d"))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert error_of(refused)["type"] == "rate_limit_error"
        blocked.may_answer.set()
        assert [content_of(future.result()) for future in futures] == ["a", "b", "c"]
        assert content_of(client.post(PATH, json=asking("d"))) == "d"


def test_a_request_that_takes_too_long_gets_504_and_is_forgotten(blocked):
    with serving(blocked, timeout=1.0) as client:  # The body has to come within it, too.
        for _ in range(2):
            response = client.post(PATH, json=asking("hi"))
            assert (response.status_code, error_of(response)["code"]) == (504, "timeout")
        assert client.get("/healthz").json()["waiting"] == 0
        blocked.may_answer.set()
    assert len(blocked.batches) == 1


def test_a_client_that_leaves_is_forgotten_and_logged_as_that(blocked, capsys):
    body = json.dumps(asking("hi")).encode()
    with (
        serving(blocked, access={"access_log": True}) as client,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        start(client, pool, blocked, "first")
        with connect(client) as connection:
            connection.sendall(head_of(len(body)) + body)
            wait_until(lambda: client.get("/healthz").json()["waiting"] == 1, "it waits")
        with connect(client) as connection:
            connection.sendall(head_of(len(body)) + b"{")
        wait_until(lambda: client.get("/healthz").json()["waiting"] == 0, "it is forgotten")
        blocked.may_answer.set()
    assert capsys.readouterr().out.count(f"POST {PATH} 499 ") == 2


def head_of(length):
    lines = [f"POST {PATH} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def test_slow_clients_hold_up_nobody(client):
    with contextlib.ExitStack() as slow:
        for _ in range(50):
            slow.enter_context(connect(client)).sendall(head_of(100) + b'{"model')
        assert content_of(client.post(PATH, json=asking("hi"))) == "hi"


def test_a_body_that_does_not_come_gets_408():
    with serving(Echo(), timeout=1.0) as client, connect(client) as connection:
        connection.sendall(head_of(100) + b'{"model')
        assert connection.recv(12) == b"HTTP/1.1 408"


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nHost: ::1\r\n\r\nGE"]
)
def test_a_connection_that_stands_still_is_ended(sent):
    with serving(Echo(), timeout=0.1) as client, connect(client) as connection:
        connection.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(1000):
                pass


def test_a_client_that_does_not_read_holds_up_nobody(client):
    body = json.dumps(asking("hi " * 600, n=5, stream=True)).encode()
    with connect(client) as connection:
        connection.sendall((head_of(len(body)) + body) * 20)
        assert content_of(client.post(PATH, json=asking("hi"))) == "hi"


def test_without_the_token_nothing_is_told():
    with serving(Echo(), access={"token": "secret"}) as client:
        for header in ("", "Bearer", "Bearer wrong", "Basic secret", "secret", "Bearer s\xe9cret"):
            headers = [(b"Authorization", header.encode("latin-1"))]
            for response in (
                client.post(PATH, content=b"{", headers=headers),
                client.get("/v1/models", headers=headers),
            ):
                assert (response.status_code, response.headers["www-authenticate"]) == (
                    401,
                    "Bearer",
                )
                assert error_of(response)["code"] == "invalid_api_key"
        right = {"Authorization": "Bearer secret", "Host": "any.example"}
        assert content_of(client.post(PATH, json=asking("hi"), headers=right)) == "hi"
        assert client.get("/").status_code == client.get("/healthz").status_code == 200
        assert client.get("/v1/models").status_code == 401


def test_messages_are_printed_only_on_request(capsys):
    for log_messages in (False, True):
        with serving(Echo(), access={"log_messages": log_messages}) as client:
            client.post(PATH, json=asking("a\nsecret"))
    assert capsys.readouterr().out == '{"turns": ["a\\nsecret"], "answers": ["a\\nsecret"]}\n'


def test_a_bug_of_the_model_is_one_request_s(capsys):
    chatbot = Echo()
    with serving(chatbot) as client:
        chatbot.error = ZeroDivisionError("a bug")
        response = client.post(PATH, json=asking("hi"))
        assert (response.status_code, error_of(response)["type"]) == (500, "server_error")
        chatbot.error = None
        assert content_of(client.post(PATH, json=asking("hi"))) == "hi"


def test_a_server_that_stops_answers_what_waits(blocked):
    with serving(blocked) as client, concurrent.futures.ThreadPoolExecutor(3) as pool:
        futures = start(client, pool, blocked, "a", "b", "c")
        client.stop()
        wait_until(lambda: not is_served(client), "it listens no more")
        blocked.may_answer.set()
        assert [content_of(future.result()) for future in futures] == ["a", "b", "c"]


def is_served(client):
    try:
        connect(client).close()
    except OSError:
        return False
    return True


def test_the_page_is_sent_with_a_strict_policy(client):
    response = client.get("/")
    assert response.headers["content-type"].startswith("text/html")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    for name in ("chat.js", "chat.css", "icon.svg"):
        assert name in response.text
        assert client.get(f"/{name}").headers["x-content-type-options"] == "nosniff"
    assert "<script>" not in response.text and "style=" not in response.text
    assert "innerHTML" not in client.get("/chat.js").text
