"""JSON, which has no infinity and nothing that is not a number (RFC 8259)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def json_text(value: Any) -> str:
    """Returns a value in one line of ASCII, with null for each float that is not finite.

    >>> json_text({"loss": float("nan"), "step": 3, "shares": [0.5, float("inf")]})
    '{"loss": null, "step": 3, "shares": [0.5, null]}'
    """
    return json.dumps(finite(value), allow_nan=False)


def finite(value: Any) -> Any:
    """Returns a value of JSON types with None for each float that is not finite."""
    if isinstance(value, Mapping):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(finite, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value
