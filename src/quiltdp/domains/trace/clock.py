"""Steps by their time: the node ``ann/0/13`` is *ann, Tue 2024-05-07 08:05*, in the zone of the data.

A model keeps where its stretches begin in its provenance (``clock``), so that a chain that went through
a file still knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from quiltdp.domains.trace.times import find_zone

if TYPE_CHECKING:
    from quiltdp.domains.trace.points import Ints
    from quiltdp.domains.trace.steps import Steps

__all__ = ["CLOCK", "clock_of", "hours_of_day", "when", "zone_of"]

CLOCK = "clock"
"""The provenance under which a model keeps when its stretches begin."""

_QUARTER = 900  # time zones differ by multiples of a quarter of an hour


def zone_of(provenance: Mapping[str, str]) -> str:
    """Return the time zone in which the times of a trace are told."""
    return provenance.get("time_zone", "UTC")


def clock_of(steps: Steps) -> str:
    """Return the beginning of every stretch, the length of a step and the zone, as one line of JSON."""
    starts = {s.prefix: s.start for s in steps.stretches}
    told = {"interval": steps.interval, "zone": zone_of(steps.provenance), "starts": starts}
    return json.dumps(told, ensure_ascii=True)


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
    clock = _read(provenance.get(CLOCK, ""))
    first, _, last = unit.partition("…")
    begin = _moment(clock, first)
    if begin is None:
        return None
    user = first.rsplit("/", 2)[0]
    said = f"{user}, {begin:%a %Y-%m-%d %H:%M}"
    end = _moment(clock, last) if last else None
    if end is not None:
        said += f" to {end:%H:%M}" if end.date() == begin.date() else f" to {end:%a %Y-%m-%d %H:%M}"
    return f"{said} {clock['zone']}"


@lru_cache(maxsize=4)
def _read(text: str) -> dict[str, Any]:
    """Return the clock, or nothing where a file has none or another's."""
    try:
        clock = json.loads(text) if text else {}
        float(clock["interval"]), dict(clock["starts"]), find_zone(str(clock["zone"]))
    except (ValueError, KeyError, TypeError):
        return {}
    return dict(clock)


def _moment(clock: Mapping[str, Any], unit: str) -> datetime | None:
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
    shift = [_offset(datetime.fromtimestamp(q * _QUARTER, tz=tz)) for q in quarters.tolist()]
    local = np.floor((time + np.array(shift)[place]) / 3600.0).astype(np.int64)
    found: Ints = local % 24
    return found


def _offset(moment: datetime) -> float:
    offset = moment.utcoffset()
    return 0.0 if offset is None else offset.total_seconds()
