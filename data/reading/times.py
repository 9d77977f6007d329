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
    r"(?:\s?(?:GMT|UTC)?(?P<east>[+-]\d\d:?\d\d)(?!\d))?"  # Hours and minutes.
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
# A date in digits alone, before a clock or with one: 20240115 15:04, 20240115T150400.
_COMPACT = re.compile(
    r"(?<!\d)((?:19|20)\d\d)(0[1-9]|1[0-2])([0-3]\d)"
    r"(?:[T ]?([0-2]\d)([0-5]\d)([0-5]\d)|(?=[T ]))(?!\d)"
)
_NUMBERS = re.compile(r"\d+")
# In English, and what begins so; but `mardi` and `martes` are days.
_MONTH = re.compile(
    r"\b(jan|feb|mar(?!di|te)|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b", re.IGNORECASE
)
_MONTHS = str.split("jan feb mar apr may jun jul aug sep oct nov dec")
_LARGEST_DAY = 31
_LEAP = 15 * 24 * 3600.0  # Seconds: from day to day, a date that is misread leaps by a month.
_LARGEST = 1e20
_THOUSANDTHS = 1e11  # A larger number of seconds would be in the year 5138.


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
        value: a number of seconds or of thousandths of them, such as microseconds, or a date with
            a time in any usual order.

    >>> time_of("1/2/21, 1:05 PM").day_first - time_of("2021-02-01 13:00:00").day_first
    300.0
    """
    if not isinstance(value, int | float | str | datetime.datetime):
        return None
    text = _COMPACT.sub(_spread, str(value))
    try:
        seconds = float(text)
    except ValueError:
        return _time_of_date(text)
    if not abs(seconds) < _LARGEST:
        return None
    while seconds > _THOUSANDTHS:
        seconds /= 1000
    return Time(seconds, seconds)


def _spread(digits: re.Match[str]) -> str:
    """Returns a date and its clock with signs between their numbers."""
    return f"{'-'.join(digits.groups()[:3])} {':'.join(filter(None, digits.groups()[3:]))}"


def _time_of_date(value: str) -> Time | None:
    clocks = [*_CLOCK.finditer(value)] or [*_DOTTED.finditer(value)]
    if not clocks:
        return None
    clock = clocks[-1]  # A day of a table may be written with a midnight before it.
    date = f"{value[: clock.start()]} {value[clock.end() :]}"
    numbers = list(map(int, _NUMBERS.findall(date)[:3]))
    named = _MONTH.findall(date) if len(numbers) == 2 else []
    if named:
        numbers.insert(1, 1 + _MONTHS.index(named[-1].lower()))
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
    east = clock["east"] or "+00:00"
    ahead = 3600 * int(east[:3]) + 60 * int(east[0] + east[-2:])
    return date.timestamp() + second - ahead


def is_day_first(talks: Iterable[Sequence[Time | None]]) -> bool:
    """Returns whether the dates of a file begin with the day.

    If no number above 12 tells, the times of its conversations fall least often in the right order
    (or rise, where the newest message is first), and leap least often by weeks; if that tells
    nothing either, the day is first.
    """
    known = [[time for time in talk if time] for talk in talks]
    told = sum(
        (time.month_first is None) - (time.day_first is None) for one in known for time in one
    )
    if told:
        return told > 0
    return _breaks(known, day_first=True) <= _breaks(known, day_first=False)


def _breaks(talks: Iterable[Sequence[Time]], *, day_first: bool) -> tuple[int, int]:
    """Returns how often times change their direction, at least, and how often they leap."""
    turns = leaps = 0
    for talk in talks:
        times = [time.seconds(day_first=day_first) for time in talk]
        steps = [later - earlier for earlier, later in pairwise(times)]
        turns += min(sum(step < 0 for step in steps), sum(step > 0 for step in steps))
        leaps += sum(abs(step) > _LEAP for step in steps)
    return turns, leaps
