"""Times: as files write them, in seconds since 1970 UTC, and of steps, in the zone of the data.

A missing time zone is named.  The node ``ann/0/13`` is *ann, Tue 2024-05-07 08:05*: a model keeps where its
stretches begin in its provenance (``clock``), so that a chain that went through a file still knows.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np

from quiltdp.errors import FileFormatError, InvalidArgument, option

if TYPE_CHECKING:
    from quiltdp.domains.trace.points import Floats, Ints
    from quiltdp.domains.trace.steps import Steps

CLOCK = "clock"
"""The provenance under which a model keeps when its stretches begin."""

_QUARTER = 900  # time zones differ by multiples of a quarter of an hour

_ZULU = re.compile(r"(?: UTC| GMT|[Zz])$")
_SPACED_OFFSET = re.compile(r"\s+([+-][0-9]{2}(?::?[0-9]{2})?)$")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_CLOCK = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?")
_DAY_FIRST = re.compile(r"([0-9]{1,2})[./-]([0-9]{1,2})[./-]([0-9]{4})")


def find_zone(name: str | None) -> tzinfo | None:
    """Return the named time zone (``UTC``, ``Europe/Rome``, ``+02:00``), or None for None."""
    if name is None:
        return None
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    try:
        if re.fullmatch(r"[+-][0-9]{2}:?[0-9]{2}", name):
            return datetime.fromisoformat(f"2000-01-01T00:00:00{name[:3]}:{name[-2:]}").tzinfo
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidArgument(
            f"{option('time_zone')} {name!r} is not known: use a name such as Europe/Rome, or UTC"
        ) from None


def parse_times(
    texts: Sequence[str],
    lines: Sequence[int],
    source: object,
    *,
    time_zone: str | None = None,
    time_format: str | None = None,
) -> tuple[Floats, tuple[str, ...]]:
    """Return the times in seconds since 1970 UTC, and what a reader should know about them.

    ISO 8601, or seconds or milliseconds since 1970, or ``time_format`` (as in ``strptime``).
    Times without a zone are in ``time_zone``; without that they are read as UTC and a note says so.

    Raises
    ------
    FileFormatError
        Naming the line: not a time, some with and some without a zone, or day and month ambiguous.
    """
    zone = find_zone(time_zone)
    if time_format is None and texts and all(_NUMBER.fullmatch(t) for t in texts):
        return _parse_epoch_numbers(texts, lines, source)
    stamps = [_parse_stamp(t, n, source, time_format) for t, n in zip(texts, lines, strict=True)]
    naive = [s.tzinfo is None for s in stamps]
    if any(naive) and not all(naive):
        k = naive.index(True)
        raise FileFormatError(
            source, lines[k], f"the time {texts[k]!r} has no time zone but others have: make them all alike"
        )
    notes: tuple[str, ...] = ()
    if any(naive):
        notes = _zone_notes(stamps, zone, time_zone)
        stamps = [s.replace(tzinfo=zone or UTC) for s in stamps]
    return np.array([_stamp_to_seconds(s, n, source) for s, n in zip(stamps, lines, strict=True)]), notes


def _stamp_to_seconds(stamp: datetime, line: int, source: object) -> float:
    try:
        return stamp.timestamp()
    except (OverflowError, ValueError, OSError):
        raise FileFormatError(source, line, f"the time {stamp} is beyond the calendar") from None


def _zone_notes(stamps: list[datetime], zone: tzinfo | None, name: str | None) -> tuple[str, ...]:
    """Say that a zone is missing, or which local hours the change of clocks makes doubtful."""
    if zone is None:
        return ("times carry no time zone: read as UTC (--timezone, in Python time_zone, says otherwise)",)
    doubtful = sum(
        s.replace(tzinfo=zone).utcoffset() != s.replace(tzinfo=zone, fold=1).utcoffset() for s in stamps
    )
    notes: tuple[str, ...] = (f"times without a zone read as {name}",)
    if doubtful:
        notes += (
            f"{doubtful} times fall in an hour that a change of clocks repeats or skips: first one taken",
        )
    return notes


def _parse_stamp(text: str, line: int, source: object, time_format: str | None) -> datetime:
    """Parse one time or refuse it by line."""
    try:
        if time_format is not None:
            return datetime.strptime(text, time_format)
        return datetime.fromisoformat(_normalise_iso(text))
    except (ValueError, OverflowError):
        pass
    hint = f"expected ISO 8601 such as 2008-10-23T05:53:05Z, or give {option('time_format')}"
    if _DAY_FIRST.match(text):
        hint = (
            "day and month could be swapped: give the format,"
            f" for example {option('time_format', '%d.%m.%Y %H:%M:%S')}"
        )
    if _CLOCK.fullmatch(text):
        hint = f"it has no date; if that is another column, name both: {option('time', 'date+time')}"
    if time_format is not None:
        hint = f"it does not match {option('time_format')} {time_format!r}"
    raise FileFormatError(source, line, f"{text!r:.60} is not a time: {hint}")


def _normalise_iso(text: str) -> str:
    """Spell an ISO time as Python reads it: dashes in the date, the offset right after the clock."""
    text = _ZULU.sub("+00:00", text.strip()).replace("/", "-")
    return _SPACED_OFFSET.sub(r"\1", text)


def _parse_epoch_numbers(
    texts: Sequence[str], lines: Sequence[int], source: object
) -> tuple[Floats, tuple[str, ...]]:
    """Read numbers as seconds or milliseconds since 1970, or refuse what can be neither."""
    values = np.array([float(t) for t in texts])
    for scale, unit in ((1.0, "seconds"), (1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds")):
        years = values / scale
        if years.min() >= 3.0e8 and years.max() <= 4.2e9:  # 1979 to 2103
            return years, (f"times read as {unit} since 1970 UTC",)
    k = int(np.argmin(values))
    raise FileFormatError(
        source, lines[k], f"the time {texts[k]!r:.60} is a number but not seconds or milliseconds since 1970"
    )


def time_zone_of(provenance: Mapping[str, str]) -> str:
    """Return the time zone in which the times of a trace are told."""
    return provenance.get("time_zone", "UTC")


def clock_provenance(steps: Steps) -> str:
    """Return the beginning of every stretch, the length of a step and the zone, as one line of JSON."""
    starts = {s.prefix: s.start for s in steps.stretches}
    clock = {"interval": steps.interval, "zone": time_zone_of(steps.provenance), "starts": starts}
    return json.dumps(clock, ensure_ascii=True)


def when(provenance: Mapping[str, str], unit: str) -> str | None:
    """Return when a step, or a run of steps, of a model was; ``None`` where nothing is known of it.

    Examples
    --------
    >>> clock = '{"interval": 300, "zone": "Europe/Rome", "starts": {"ann/0/": 1715061600}}'
    >>> when({"clock": clock}, "ann/0/1"), when({}, "ann/0/1")
    ('ann, Tue 2024-05-07 08:05 Europe/Rome', None)
    >>> when({"clock": clock}, "ann/0/1…ann/0/3")
    'ann, Tue 2024-05-07 08:05 to 08:15 Europe/Rome'
    """
    clock = _parse_clock(provenance.get(CLOCK, ""))
    first, _, last = unit.partition("…")
    begin = _moment_of_step(clock, first)
    if begin is None:
        return None
    user = first.rsplit("/", 2)[0]
    text = f"{user}, {begin:%a %Y-%m-%d %H:%M}"
    end = _moment_of_step(clock, last) if last else None
    if end is not None:
        text += f" to {end:%H:%M}" if end.date() == begin.date() else f" to {end:%a %Y-%m-%d %H:%M}"
    return f"{text} {clock['zone']}"


@lru_cache(maxsize=4)
def _parse_clock(text: str) -> dict[str, Any]:
    """Return the clock, or nothing where a file has none or another's."""
    try:
        clock = json.loads(text) if text else {}
        float(clock["interval"]), dict(clock["starts"]), find_zone(str(clock["zone"]))
    except (ValueError, KeyError, TypeError):
        return {}
    return dict(clock)


def _moment_of_step(clock: Mapping[str, Any], unit: str) -> datetime | None:
    prefix, _, number = unit.rpartition("/")
    start = clock.get("starts", {}).get(prefix + "/")
    if start is None or not number.isdigit():
        return None
    try:
        seconds = float(start) + int(number) * float(clock["interval"])
        return datetime.fromtimestamp(seconds, tz=find_zone(str(clock["zone"])))
    except (OverflowError, ValueError, OSError, TypeError):
        return None


def hours_of_day(start: float, length: int, interval: float, zone: str = "UTC") -> Ints:
    """Return the hour of the day, in the zone, in which each of so many steps begins.

    Examples
    --------
    >>> [hours_of_day(1715061600, 3, 1800, zone).tolist() for zone in ("UTC", "+02:00")]
    [[6, 6, 7], [8, 8, 9]]
    """
    time = start + interval * np.arange(length)
    quarters, place = np.unique(np.floor(time / _QUARTER).astype(np.int64), return_inverse=True)
    tz = find_zone(zone)
    moments = (datetime.fromtimestamp(q * _QUARTER, tz=tz) for q in quarters.tolist())
    shift = [offset.total_seconds() if (offset := m.utcoffset()) else 0.0 for m in moments]
    local = np.floor((time + np.array(shift)[place]) / 3600.0).astype(np.int64)
    hours: Ints = local % 24
    return hours


# -- lengths and durations as people write them: 500m, 1.5km, 5min, 1h --------------------------------

_METRES = {"m": 1.0, "km": 1000.0}
_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def parse_length(text: str | float, name: str = "cell") -> float:
    """Return a length in metres; a bare number is metres.

    Examples
    --------
    >>> parse_length("500m"), parse_length("1.5 km")
    (500.0, 1500.0)
    """
    return _parse_quantity(text, name, _METRES, "m", "a length such as 500m or 1km")


def parse_duration(text: str | float, name: str = "interval") -> float:
    """Return a duration in seconds; a bare number is seconds.

    Examples
    --------
    >>> parse_duration("5min"), parse_duration("1h"), parse_duration(90)
    (300.0, 3600.0, 90.0)
    """
    return _parse_quantity(text, name, _SECONDS, "s", "a duration such as 30s, 5min or 1h")


def _parse_quantity(text: str | float, name: str, units: dict[str, float], base: str, what: str) -> float:
    if isinstance(text, str):
        match = _QUANTITY.fullmatch(text)
        unit = (match[2].lower() or base) if match else ""
        if match is None or unit not in units:
            raise InvalidArgument(f"{option(name)}: {text!r} is not {what}")
        value = float(match[1]) * units[unit]
    else:
        value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise InvalidArgument(f"{option(name)}: {text!r} must be positive and finite")
    return value


def many(count: int, thing: str) -> str:
    """Return a number and its noun.

    Examples
    --------
    >>> many(1, "cell"), many(3, "cell")
    ('1 cell', '3 cells')
    """
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def format_duration(seconds: float) -> str:
    """Return a duration in the unit a person would use.

    Examples
    --------
    >>> format_duration(300), format_duration(5400), format_duration(45), format_duration(172800)
    ('5 min', '1.5 h', '45 s', '2 d')
    """
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
