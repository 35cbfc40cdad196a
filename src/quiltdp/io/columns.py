"""Which column of a table is which: by name, said by the caller, never guessed where two would fit.

One recogniser for every table that people bring: family files, location traces, allele frequencies,
genotypes.  A *role* is what a column is for; it is known by names, in ranks: a name of the first rank
decides before one of the second.  Names are compared by letters and digits alone, so that
``Location-Lat`` and ``location_lat`` are one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from quiltdp.errors import FileFormatError, InvalidArgument


@contextmanager
def as_file(table: Any) -> Iterator[Any]:
    """Yield a DataFrame as a CSV file, readable by its owner only and gone afterwards; else what it got."""
    if not hasattr(table, "to_csv"):
        yield table
        return
    with TemporaryDirectory() as folder:
        path = Path(folder, "DataFrame.csv")
        table.to_csv(path, index=False)
        yield path


@dataclass(frozen=True)
class Role:
    """What a column may be for: the words for people, and the names it goes by, best first.

    Examples
    --------
    >>> Role("latitude", "lat latitude", "y").rank("Latitude"), Role("latitude", "lat", "y").rank("Y")
    (0, 1)
    """

    says: str
    names: tuple[frozenset[str], ...]

    def __init__(self, says: str, *ranks: str) -> None:
        object.__setattr__(self, "says", says)
        object.__setattr__(self, "names", tuple(frozenset(rank.split()) for rank in ranks))

    def rank(self, column: str) -> int | None:
        """Return how good a name is for this role, 0 the best, ``None`` if it is another's."""
        name = plain(column)
        return next((k for k, names in enumerate(self.names) if name in names), None)


def plain(name: str) -> str:
    """Return the letters and digits of a column's name, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def recognise(
    header: Sequence[str],
    roles: Mapping[str, Role],
    given: Mapping[str, str | int],
    *,
    source: object,
    line: int,
    say: Callable[..., str],
) -> dict[str, int]:
    """Return role → position for every role that has a column.

    Parameters
    ----------
    header
        The names of the columns.
    roles
        What a column may be for.
    given
        Columns the caller named, by role: a name, or a position counted from 0.  They come first, and
        no other role takes them.
    source, line
        For messages.
    say
        How the caller names a column for a role: ``say(role)``, or ``say(role, name)`` as it was said.

    Raises
    ------
    FileFormatError
        If two columns could have one role.
    InvalidArgument
        If a column that was named is not there.
    """
    places = {role: find_column(header, column, source, say(role, column)) for role, column in given.items()}
    taken = set(places.values())
    for role, kind in roles.items():
        if role in places:
            continue
        ranked = [(r, k) for k, n in enumerate(header) if k not in taken and (r := kind.rank(n)) is not None]
        first = min((rank for rank, _ in ranked), default=0)
        best = [k for rank, k in ranked if rank == first]
        if len(best) > 1:
            several = " and ".join(repr(header[k]) for k in best[:3])
            raise FileFormatError(
                source, line, f"columns {several} could each be the {kind.says}: say which with {say(role)}"
            )
        if best:
            places[role] = best[0]
    return places


def find_column(header: Sequence[str], column: str | int, source: object, said: str) -> int:
    """Return the position of a column by its name (its case matters only between two), or by number."""
    if isinstance(column, int):
        if not 0 <= column < len(header):
            raise InvalidArgument(f"{said}: {source} has {len(header)} columns, counted from 0")
        return column
    exact = [k for k, name in enumerate(header) if name.strip() == column.strip()]
    alike = [k for k, name in enumerate(header) if name.strip().lower() == column.strip().lower()]
    for places in (exact, alike):
        if len(places) == 1:
            return places[0]
    what = "names several columns" if alike else "is not a column"
    raise InvalidArgument(f"{said} {what}; {source} has the columns {listed(header)}")


def listed(header: Sequence[str], most: int = 12) -> str:
    """Return the names of the columns for a message, the first few of many."""
    more = f", … ({len(header)} columns)" if len(header) > most else ""
    return ", ".join(repr(name.strip()) for name in header[:most]) + more
