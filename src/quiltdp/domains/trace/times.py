"""Times as files write them, turned into seconds since 1970 UTC; a missing time zone is named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo

import numpy as np

from quiltdp.domains.trace.points import Floats
from quiltdp.errors import FileFormatError, InvalidArgument, option

__all__ = ["find_zone", "parse_times"]

_SHORT_OFFSET = re.compile(r"([+-][0-9]{2})(?:([0-9]{2}))?$")
_FRACTION = re.compile(r"\.([0-9]+)")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_CLOCK = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?")
_DAY_FIRST = re.compile(r"([0-9]{1,2})[./-]([0-9]{1,2})[./-]([0-9]{4})")


def find_zone(name: str | None) -> tzinfo | None:
    """Return the named time zone (``UTC``, ``Europe/Rome``, ``+02:00``), or None for None."""
    if name is None:
        return None
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    from zoneinfo import ZoneInfo

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
        return _epoch(texts, lines, source)
    stamps = [_stamp(t, n, source, time_format) for t, n in zip(texts, lines, strict=True)]
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
    return np.array([_seconds(s, n, source) for s, n in zip(stamps, lines, strict=True)]), notes


def _seconds(stamp: datetime, line: int, source: object) -> float:
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
    said: tuple[str, ...] = (f"times without a zone read as {name}",)
    if doubtful:
        said += (
            f"{doubtful} times fall in an hour that a change of clocks repeats or skips: first one taken",
        )
    return said


def _stamp(text: str, line: int, source: object, time_format: str | None) -> datetime:
    """Parse one time or refuse it by line."""
    try:
        if time_format is not None:
            return datetime.strptime(text, time_format)
        return datetime.fromisoformat(_iso(text))
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


def _iso(text: str) -> str:
    """Spell an ISO time the way every supported Python reads it."""
    text = text.strip()
    for ending in (" UTC", " GMT", "Z", "z"):
        if text.endswith(ending):
            text = text[: -len(ending)] + "+00:00"
            break
    else:
        if len(text) > 10:
            found = _SHORT_OFFSET.search(text[10:])
            if found:
                text = text[: 10 + found.start()].rstrip() + f"{found[1]}:{found[2] or '00'}"
    return _FRACTION.sub(lambda m: "." + m[1][:6].ljust(6, "0"), text.replace("/", "-"), count=1)


def _epoch(texts: Sequence[str], lines: Sequence[int], source: object) -> tuple[Floats, tuple[str, ...]]:
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
