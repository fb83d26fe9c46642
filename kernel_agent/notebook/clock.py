"""Readings of the clock in two texts: the time of the run, not a result of it. Pure.

A summary that prints the date, a log line, ``datetime.now()``: the second run says another time
than the first. A time is taken for a reading of the clock only where the new text says one at which
its cell was running, at the same place and in the same form as the old text. Dates in the data are
compared as anything else: today's date does not stand among them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

SIGN = "<clock>"
SLACK_S = 2.0  # between what the host and what the kernel takes for the cell's time
QUARTER_S = 900  # offsets between time zones are multiples of it
FARTHEST_S = 14 * 3600  # no time zone is farther from UTC

_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_CLOCK = re.compile(
    rf"""(?<![\w.])(?:
      (?P<moment> \d{{4}}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{{1,9}})?)?(?:Z|[+-]\d\d:?\d\d)?
                | datetime\.datetime\(\d{{4}}(?:,\ \d{{1,6}}){{4,6}}
                | {_DAY}\ {_MONTH}\ {{1,2}}\d{{1,2}}\ \d\d:\d\d:\d\d\ (?:[A-Z]{{3,4}}\ )?\d{{4}})
    | (?P<day> \d{{4}}[-/.]\d\d[-/.]\d\d | \d{{1,2}}[/.]\d{{1,2}}[/.]\d{{4}}
             | datetime\.date\(\d{{4}}(?:,\ \d{{1,2}}){{2}}
             | (?:{_DAY},?\ )?\d{{1,2}}\ {_MONTH}\ \d{{4}}
             | (?:{_DAY},?\ )?{_MONTH}\ {{1,2}}\d{{1,2}},?\ \d{{4}})
    | (?P<time> \d{{1,2}}:\d\d(?::\d\d(?:\.\d{{1,9}})?)?)
    | (?P<epoch> \d{{19}} | \d{{16}} | \d{{13}} | \d{{10}}(?:\.\d{{1,9}})?)
    )(?![\w:])""",
    re.VERBOSE,
)
_ZONE = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")  # it is found, not believed
_SPACES = re.compile(r"[ \t]+")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Period:
    """When a cell ran, in seconds since the epoch."""

    began: float
    ended: float

    def has(self, moment: float) -> bool:
        """Whether a moment lies in it, but for some slack."""
        return self.began - SLACK_S <= moment <= self.ended + SLACK_S


def without_clock(old: str, new: str, period: Period) -> tuple[str, str]:
    """Return both texts with a sign for each reading of the clock, where there are any.

    Parameters
    ----------
    old, new
        What a cell printed before, and what it prints now.
    period
        When it ran now.

    Examples
    --------
    >>> period = Period(1795334832.0, 1795334833.0)  # 2026-11-22 08:07:12 UTC
    >>> without_clock("at 2026-10-01 10:00:00", "at 2026-11-22 08:07:12", period)
    ('at <clock>', 'at <clock>')
    >>> without_clock("to 2025-12-31", "to 2024-12-31", period)
    ('to 2025-12-31', 'to 2024-12-31')
    """
    before, now = list(_CLOCK.finditer(old)), list(_CLOCK.finditer(new))
    if [m.lastgroup for m in before] != [m.lastgroup for m in now]:
        return old, new
    readings = [
        (a, b) for a, b in zip(before, now, strict=True) if a[0] != b[0] and _is_reading(b, period)
    ]
    if not readings:
        return old, new
    return _replace(old, [a for a, _ in readings]), _replace(new, [b for _, b in readings])


def _replace(text: str, readings: list[re.Match[str]]) -> str:
    """Put the sign in place of the readings; their length also moves what stands beside them."""
    pieces, end = [], 0
    for reading in readings:
        pieces += [text[end : reading.start()], SIGN]
        end = reading.end()
    whole = "".join([*pieces, text[end:]])
    lines = (_SPACES.sub(" ", line) if SIGN in line else line for line in whole.split("\n"))
    return "\n".join(lines)


def _is_reading(found: re.Match[str], period: Period) -> bool:
    read = _READINGS[str(found.lastgroup)]
    try:
        return any(period.has(moment) for moment in read(found[0], period))
    except (ValueError, OverflowError, OSError):  # 31 February, a year that no clock shows
        return False


def _moments(text: str, period: Period) -> Iterator[float]:
    """Yield the moment in the time zone in which it is nearest to the run."""
    said = _moment(text).replace(tzinfo=UTC).timestamp()
    offset = round((said - period.began) / QUARTER_S) * QUARTER_S
    if abs(offset) <= FARTHEST_S:
        yield from _lasting(said - offset, text, period)


def _lasting(moment: float, text: str, period: Period) -> Iterator[float]:
    """Yield where the minute or second that a text says begins, and where it or the cell ends."""
    yield moment
    if moment < period.ended:
        yield min(moment + (60.0 if text.count(":") == 1 else 1.0), period.ended)


def _moment(text: str) -> datetime:
    if text[0].isdigit():
        return datetime.fromisoformat(_ZONE.sub("", text).replace(",", ".")[:26])
    numbers = [int(number) for number in _NUMBER.findall(text)]
    if text.startswith("datetime"):
        return datetime(*numbers)  # type: ignore[arg-type]
    day, *clock, year = numbers
    return datetime(year, _month(text), day, *clock)  # type: ignore[arg-type]


def _days(text: str, period: Period) -> Iterator[float]:
    """Yield a moment of the run when the day is one on which it ran, here or at UTC."""
    told = {_day(text)} if not _is_short(text) else set(_either_way(text))
    for moment in (period.began, period.ended):
        here = datetime.fromtimestamp(moment).astimezone()
        if told & {here.date(), here.astimezone(UTC).date()}:
            yield moment


def _is_short(text: str) -> bool:
    return re.match(r"\d{1,2}[/.]", text) is not None


def _either_way(text: str) -> Iterator[date]:
    """Yield the readings of a date such as 03/04/2026, with day and month in either order."""
    first, second, year = map(int, _NUMBER.findall(text))
    for month, day in ((first, second), (second, first)):
        if month <= 12:
            yield date(year, month, day)


def _day(text: str) -> date:
    numbers = [int(number) for number in _NUMBER.findall(text)]
    if len(numbers) == 3:
        return date(*numbers)
    day, year = numbers
    return date(year, _month(text), day)


def _month(text: str) -> int:
    names = re.findall(_MONTH, text)
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return months.index(names[-1][:3]) + 1


def _times(text: str, period: Period) -> Iterator[float]:
    """Yield when it was that time of the day last, here and at UTC."""
    hours, minutes, *seconds = map(float, text.split(":"))
    said = timedelta(hours=hours, minutes=minutes, seconds=sum(seconds))
    end = datetime.fromtimestamp(period.ended).astimezone()
    for now in (end, end.astimezone(UTC)):
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        for start in (midnight, midnight - timedelta(days=1)):
            yield from _lasting((start + said).timestamp(), text, period)


def _epochs(text: str, _period: Period) -> Iterator[float]:
    whole = text.partition(".")[0]
    yield float(text) / 10 ** (len(whole) - 10)


_READINGS: dict[str, Callable[[str, Period], Iterator[float]]] = {
    "moment": _moments, "day": _days, "time": _times, "epoch": _epochs,
}  # fmt: skip
