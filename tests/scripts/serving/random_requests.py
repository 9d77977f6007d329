"""Requests that are right but for a few members, or for a few bytes."""

import json
import string

from tests.scripts.serving.servers import MODEL, asking


def random_body(chance, model=MODEL):
    """Returns the body of a request.

    Args:
        chance: of `random.Random`.
        model: the name of the model that most requests ask for.
    """
    body = asking("hi", "ho", "hey", model=model)
    names = [*body, "n", "temperature", "top_p", "max_tokens", "seed", "stream", "stream_options"]
    for _ in range(chance.randrange(3)):
        body[chance.choice([*names, "tools", "user", "\ud800"])] = random_value(chance)
    if chance.random() < 0.5:
        message = chance.choice(["role", "content", "name", "tool_calls"])
        body["messages"] = [*asking("a", "b")["messages"], {**asking("c")["messages"][0]}]
        body["messages"][chance.randrange(3)][message] = random_value(chance)
    encoded = bytearray(json.dumps(body).encode())
    for _ in range(chance.choice([0, 0, 0, 1, 3])):
        encoded[chance.randrange(len(encoded))] = chance.randrange(256)
    return bytes(encoded)


def random_value(chance, depth=0):
    """Returns any value that JSON can hold, and a few that it cannot."""
    kinds = 10 if depth < 3 else 7
    return [
        lambda: None,
        lambda: chance.choice([True, False]),
        lambda: chance.choice([0, 1, 2, -1, 10**30, 2**63]),
        lambda: chance.choice([0.5, -1e300, 1e-300, float("nan"), float("inf")]),
        lambda: "".join(chance.choices(string.printable + "你😀\ud800\x00", k=chance.randrange(9))),
        lambda: chance.choice(["user", "assistant", "system", MODEL, "text"]),
        lambda: "a" * chance.choice([10, 3000]),
        lambda: [random_value(chance, depth + 1) for _ in range(chance.randrange(4))],
        lambda: {
            chance.choice(["role", "content", "type", "text", "x"]): random_value(chance, depth + 1)
            for _ in range(chance.randrange(4))
        },
        lambda: asking("hi")["messages"],
    ][chance.randrange(kinds)]()
