"""What clients of a service waited, measured against one that answers at once."""

import json

import pytest

from benchmarks import serving
from tests.scripts.serving.servers import Echo, asking
from tests.scripts.serving.servers import serving as served


def test_every_client_asks_until_the_end_and_no_answer_at_all_is_an_error():
    chatbot = Echo()
    with served(chatbot) as client:
        port, body = client.base_url.port, json.dumps(asking("hi"))
        found = serving.measure(port, body, clients=3, seconds=0.2)
        answered = sum(map(len, chatbot.batches))
        assert answered >= 3 and found["failed"] == 0
        assert 0 < found["p50_ms"] <= found["p99_ms"]
        with pytest.raises(RuntimeError, match=r"none of [1-9]"):
            serving.measure(port, json.dumps(asking("hi", model="another")), 1, 0.1)
