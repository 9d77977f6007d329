"""Times of messages as exports write them, in seconds; only their differences count."""
# ruff: noqa: RUF001 - letters of other scripts look like Latin ones.

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

# What stands beside a time of twelve hours, by the hour at which its part of the day begins.
_PARTS = {
    0: r"(?i:a\.?\s?m\.?)|π\.?\s?μ\.?|上午|凌晨|清晨|早上|早晨|午夜|半夜|午前|오전|ÖÖ|ص|ق\.\s?ظ\.?"
    r"|SA|PG|PD|ap\.|fm|de\.|dop\.|дп|пр\.\s?об\.|לפנה[״\"]צ|पूर्वाह्न|முற்பகல்|ጥዋት|ก่อนเที่ยง",
    11: "中午",
    12: r"(?i:p\.?\s?m\.?)|μ\.?\s?μ\.?|下午|傍晚|晚上|午後|오후|ÖS|م|ب\.\s?ظ\.?"
    r"|CH|PTG|MD|ip\.|em|du\.|odp\.|пп|сл\.\s?об\.|אחה[״\"]צ|अपराह्न|பிற்பகல்|ከሰዓት|หลังเที่ยง",
}
# Between others letters are one word; Chinese, Japanese and Korean write none between.
PART = rf"(?:(?<![^\W\d_⺀-鿿가-힣])(?:{'|'.join(_PARTS.values())})(?![^\W\d_]))"
_AROUND = (
    rf"(?:(?P<before>{PART})\s?)?{{}}(?:\s?(?P<after>{PART}))?"
    r"(?:\s?(?:GMT|UTC)?[+-]\d\d:?\d\d(?!\d))?"  # From Greenwich's time.
)
_CLOCK = re.compile(
    _AROUND.replace(
        "{}",
        r"(?<![\d:])(?P<hour>\d{1,2})(?:[:：]|\s?[hH时時点點시]\s?)(?P<minute>\d{1,2})"
        r"(?:(?:[:：]|[分분]\s?)(?P<second>\d{1,2})(?:[.,]\d+)?)?",
    )
)
_DOTTED = re.compile(
    _AROUND.replace(
        "{}",
        r"(?<![\d.-])(?P<hour>\d{1,2})[.-](?P<minute>\d{2})(?:[.-](?P<second>\d{2}))?"
        r"(?![\d-]|\.\d)",
    )
)
_NUMBERS = re.compile(r"\d+")
_MONTH = re.compile(r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b", re.IGNORECASE)
_MONTHS = str.split("jan feb mar apr may jun jul aug sep oct nov dec")
_LARGEST_DAY = 31
_LARGEST = 1e15
_MILLISECONDS = 1e11  # A larger number of seconds would be in the year 5138.


class Time(NamedTuple):
    """A time in seconds: that if its date begins with the day, and that if with the month.

    One of them is None where its numbers are a date in the other order only.
    """

    day_first: float | None
    month_first: float | None

    def seconds(self, *, day_first: bool) -> float:
        """Returns the time in the order of the file, or in the only one in which it is a date."""
        wanted, other = self if day_first else reversed(self)
        return (wanted if wanted is not None else other) or 0.0


def time_of(value: Any) -> Time | None:
    """Returns a time, None for what is none.

    Args:
        value: a number of seconds or milliseconds, or a date with a time in any usual order.

    >>> time_of("1/2/21, 1:05 PM").day_first - time_of("2021-02-01 13:00:00").day_first
    300.0
    """
    if isinstance(value, int | float):
        is_finite = abs(value) < _LARGEST
        seconds = value / (1000 if value > _MILLISECONDS else 1) if is_finite else None
        return None if seconds is None else Time(seconds, seconds)
    if not isinstance(value, str):
        return None
    try:
        return time_of(float(value))
    except ValueError:
        pass
    clock = _CLOCK.search(value) or next(reversed([*_DOTTED.finditer(value)]), None)
    if clock is None:
        return None
    date = f"{value[: clock.start()]} {value[clock.end() :]}"
    numbers = list(map(int, _NUMBERS.findall(date)[:3]))
    named = _MONTH.search(date) if len(numbers) == 2 else None
    if named:
        numbers.insert(1, 1 + _MONTHS.index(named[1].lower()))
    if len(numbers) < 3:
        return None
    first, second, third = numbers
    if first > _LARGEST_DAY:
        orders = [(first, third, second) if second > 12 else (first, second, third)]
    else:
        orders = (
            [(third, second, first)] if named else [(third, second, first), (third, first, second)]
        )
    found = [_seconds(*order, clock) for order in orders]
    return None if not any(one is not None for one in found) else Time(found[0], found[-1])


def _seconds(year: int, month: int, day: int, clock: re.Match[str]) -> float | None:
    hour, minute, second = (int(clock[name] or 0) for name in ("hour", "minute", "second"))
    part = clock["before"] or clock["after"]
    if part and hour <= 12:
        begin = next(begin for begin, words in _PARTS.items() if re.fullmatch(words, part))
        hour = hour % 12 + 12 * (hour % 12 < begin)
    year += 2000 if year < 100 else 0
    try:
        date = datetime.datetime(year, month, day, hour, minute, tzinfo=datetime.timezone.utc)
    except ValueError:
        return None
    return date.timestamp() + second


def is_day_first(talks: Iterable[Sequence[Time | None]]) -> bool:
    """Returns whether the dates of a file begin with the day.

    If no number above 12 tells, the times of its conversations fall least often in the right order,
    or rise least often where the newest message is first; if that tells nothing, the day is first.
    """
    known = [[time for time in talk if time] for talk in talks]
    told = sum(
        (time.month_first is None) - (time.day_first is None) for one in known for time in one
    )
    if told:
        return told > 0
    by_day, by_month = (
        sum(_disorder([time.seconds(day_first=day_first) for time in one]) for one in known)
        for day_first in (True, False)
    )
    return by_day <= by_month


def _disorder(times: Sequence[float]) -> int:
    """Returns how often times change their direction, at least."""
    steps = [later - earlier for earlier, later in pairwise(times)]
    return min(sum(step < 0 for step in steps), sum(step > 0 for step in steps))
