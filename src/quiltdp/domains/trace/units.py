"""Lengths and durations as people write them: ``500m``, ``1.5km``, ``5min``, ``1h``."""

from __future__ import annotations

import math
import re

from quiltdp.errors import InvalidArgument, option

__all__ = ["many", "parse_duration", "parse_length", "say_duration"]

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
    return _quantity(text, name, _METRES, "m", "a length such as 500m or 1km")


def parse_duration(text: str | float, name: str = "interval") -> float:
    """Return a duration in seconds; a bare number is seconds.

    Examples
    --------
    >>> parse_duration("5min"), parse_duration("1h"), parse_duration(90)
    (300.0, 3600.0, 90.0)
    """
    return _quantity(text, name, _SECONDS, "s", "a duration such as 30s, 5min or 1h")


def _quantity(text: str | float, name: str, units: dict[str, float], base: str, what: str) -> float:
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


def say_duration(seconds: float) -> str:
    """Return a duration in the unit a person would use.

    Examples
    --------
    >>> say_duration(300), say_duration(5400), say_duration(45), say_duration(172800)
    ('5 min', '1.5 h', '45 s', '2 d')
    """
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
