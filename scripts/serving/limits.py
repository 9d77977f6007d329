"""The limits of the service, and the error of a request that is refused."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from towers.scripts.options.setting import Amount, Count

ERROR_TYPES = {
    0: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
}  # Each from this status on.


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of one request, and of all of them together.

    Attributes:
        max_batch: answers decoded together.
        max_waiting: requests that may wait; further ones get 429.
        timeout: seconds for a request's body to arrive, and again for its answer, before it gets
            504.
        max_messages: messages in one request.
        max_message_length: characters in one message.
        max_body: bytes in one request's body; larger ones get 413.
        max_choices: answers to one question.
    """

    max_batch: Count = 64
    max_waiting: Count = 256
    timeout: Annotated[Amount, "SECONDS"] = 30.0
    max_messages: Count = 100
    max_message_length: Count = 2000
    max_body: Annotated[Count, "BYTES"] = 1_000_000
    max_choices: Count = 5


class RefusedError(Exception):
    """A request that gets no answer; the message says what was received, expected, and the remedy.

    `code` is a name for programs, and `param` the parameter that is wrong, if it is one.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(message)
        self.status = status
        self.headers = headers
        self.body = error_body(message, status, param, code=code)


def error_body(
    message: str, status: int, param: str | None = None, *, code: str | None
) -> dict[str, Any]:
    """Returns an error in the shape of OpenAI's API."""
    kinds = [kind for first, kind in ERROR_TYPES.items() if status >= first]
    return {"error": {"message": message, "type": kinds[-1], "param": param, "code": code}}
