"""Times of messages as exports write them, in seconds; only their differences count."""

from __future__ import annotations

import datetime
import re
from typing import Any

_NUMBERS = re.compile(r"\d+")
_MONTH = re.compile(r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b", re.IGNORECASE)
_MONTHS = str.split("jan feb mar apr may jun jul aug sep oct nov dec")
_AFTERNOON = re.compile(r"p\.?\s?m|μ\.\s?μ|下午|晚上|午後|오후|م", re.IGNORECASE)
_MORNING = re.compile(r"a\.?\s?m|上午|凌晨|午前|오전|ص", re.IGNORECASE)
_LARGEST = 1e15
_MILLISECONDS = 1e11  # A larger number of seconds would be in the year 5138.


def seconds_of(value: Any, *, day_first: bool = True) -> float | None:
    """Returns a time in seconds, None for what is none.

    Args:
        value: a number of seconds or milliseconds, or a date with a time in any usual order.
        day_first: whether 3/4/2021 is in April.

    >>> seconds_of("1/2/21, 1:05 PM") - seconds_of("2021-02-01 13:00:00")
    300.0
    """
    if isinstance(value, int | float):
        is_finite = abs(value) < _LARGEST
        return value / (1000 if value > _MILLISECONDS else 1) if is_finite else None
    if not isinstance(value, str):
        return None
    try:
        return seconds_of(float(value))
    except ValueError:
        pass
    if named := _MONTH.search(value):
        value = _MONTH.sub(str(1 + _MONTHS.index(named[1].lower())), value)
        day_first = value[: named.start()].strip()[-1:].isdigit()
    numbers = list(map(int, _NUMBERS.findall(value)[:6]))
    if len(numbers) < 5:
        return None
    if len(numbers) == 5 and numbers[4] > 99:  # The time is first.
        numbers = [*numbers[2:], *numbers[:2]]
    first, second, third, hour, minute, *rest = numbers
    if first > 31:
        year, month, day = first, second, third
    else:
        year, month, day = (third, second, first) if day_first else (third, first, second)
        if month > 12:
            month, day = day, month
    if _AFTERNOON.search(value) and hour < 12:
        hour += 12
    elif _MORNING.search(value) and hour == 12:
        hour = 0
    year += 2000 if year < 100 else 0
    try:
        date = datetime.datetime(year, month, day, hour, minute, tzinfo=datetime.timezone.utc)
    except ValueError:
        return None
    return date.timestamp() + (rest[0] if rest else 0)
