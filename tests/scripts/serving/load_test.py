"""What `towers serve` holds: 100 clients for a minute, and 10,000 random requests.

The model has the default size and has learned to answer a few words.

    pytest -m slow -s tests/scripts/serving/load_test.py
"""

import collections
import concurrent.futures
import contextlib
import http.client
import json
import random
import statistics
import sys
import time
from typing import NamedTuple

import pytest

from tests.programs import PATIENCE
from tests.scripts.serving.random_requests import random_body
from tests.scripts.serving.served_runs import served, train
from tests.scripts.serving.servers import PATH, asking
from towers.scripts.timing.input_report import resident_bytes

CLIENTS = 100
SECONDS = 60
WARM = 5  # Seconds of load before anything is measured: threads and allocators grow at first.
REQUESTS = 10_000
FLAT = 1.1  # The memory after the load is at most so many times that before.
HEADERS = {"Content-Type": "application/json"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the memory is read from /proc"),
]


class Answered(NamedTuple):
    """A request that got a response.

    Attributes:
        status: of HTTP.
        seconds: from the request to the end of the response.
        body: of the response.
    """

    status: int
    seconds: float
    body: bytes


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    quick = ("learning_rate=0.01", "warmup_steps=1")
    return train(tmp_path_factory.mktemp("load") / "load", *quick, steps=100)


@pytest.mark.parametrize(
    ("clients", "options"),
    [(1, []), (CLIENTS, ["--max-batch", "1"]), (CLIENTS, []), (CLIENTS, ["--max-waiting", "16"])],
    ids=["one", "one by one", "in batches", "more than may wait"],
)
def test_100_clients_get_answers_or_429_for_a_minute_in_the_same_memory(run_dir, clients, options):
    body = json.dumps(asking("please say wai", model=run_dir.name))
    with served(run_dir, *options) as service:
        load(service.address, clients, WARM, body)
        before = resident(service.pid)
        began = time.perf_counter()
        found = load(service.address, clients, SECONDS, body)
        seconds, after = time.perf_counter() - began, resident(service.pid)
    statuses = collections.Counter(one.status for one in found)
    times = [one.seconds for one in found if one.status == 200]
    print(
        f"{clients} clients {' '.join(options)} | median {1000 * statistics.median(times):.0f} ms"
        f" | p99 {1000 * statistics.quantiles(times, n=100)[-1]:.0f} ms"
        f" | {len(times) / seconds:.0f} answers/s | {dict(statuses)}"
        f" | {before} MiB before, {after} after"
    )
    assert set(statuses) <= ({200, 429} if "--max-waiting" in options else {200})
    assert all(len(text_of(one).split()) > 1 for one in found if one.status == 200)
    assert after <= FLAT * before


def test_10000_random_requests_are_answered_or_refused_with_a_reason_in_the_same_memory(run_dir):
    workers = 8
    with served(run_dir) as service:

        def ask(worker):
            chance = random.Random(worker)
            bodies = (random_body(chance, run_dir.name) for _ in range(REQUESTS // workers))
            return list(answers(service.address, bodies))

        measured = []
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for first in range(0, 2 * workers, workers):
                found = [one for own in pool.map(ask, range(first, first + workers)) for one in own]
                measured.append((resident(service.pid), found))
        (before, warm), (after, found) = measured
    statuses = collections.Counter(one.status for one in (*warm, *found))
    print(f"{REQUESTS} twice | {dict(statuses)} | {before} MiB after the first, {after} at the end")
    assert all(status == 200 or 400 <= status < 500 for status in statuses)
    for one in (*warm, *found):
        if one.status != 200:
            error = json.loads(one.body)["error"]
            assert error["message"] and error["type"] == "invalid_request_error"
    assert min(statuses[200], statuses[400]) > REQUESTS / 10
    assert after <= FLAT * before


def load(address, clients, seconds, body):
    """Returns what so many clients get that ask the same again and again for so long."""
    end = time.perf_counter() + seconds

    def bodies():
        while time.perf_counter() < end:
            yield body

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        futures = [pool.submit(lambda: list(answers(address, bodies()))) for _ in range(clients)]
        return [one for future in futures for one in future.result()]


def answers(address, bodies):
    """Yields the responses to requests on one connection, which is made again if it was ended."""
    place = address.removeprefix("http://")
    with contextlib.closing(http.client.HTTPConnection(place, timeout=PATIENCE)) as connection:
        for body in bodies:
            before = time.perf_counter()
            connection.request("POST", PATH, body, HEADERS)
            response = connection.getresponse()
            yield Answered(response.status, time.perf_counter() - before, response.read())


def text_of(answered):
    """Returns what the chatbot said."""
    return json.loads(answered.body)["choices"][0]["message"]["content"]


def resident(pid):
    """Returns the memory of a process in MiB."""
    return resident_bytes(pid) // 2**20
