"""Which bounds exist against an adversary, by name, and in which order they are taken.

A bound that holds against an adversary also holds against everybody who knows less, so for each adversary
there are its own bounds and those of every adversary that covers it; of two with one name, its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from importlib import import_module

from quiltdp.accountant.adversaries import INFORMED, Adversary, parse_adversary
from quiltdp.accountant.bounds.contract import Registered, registered
from quiltdp.accountant.bounds.table import (
    APPROXIMATE_BOUNDS,
    AUTOMATIC,
    ON_REQUEST,
    RENAMED,
    RENAMED_APPROXIMATE,
    Line,
)
from quiltdp.errors import InvalidArgument, option

_HOME = "quiltdp.accountant.bounds"


def _other_lines(but: str = "") -> tuple[Line, ...]:
    """Return lines for the pure bounds that other modules have registered, but for those of one kind."""
    indexed = {line[:2] for line in (*AUTOMATIC, *ON_REQUEST)}
    return tuple(
        Line(against, name, entry.make.__module__)
        for (approximate, against, name), entry in registered().items()
        if not approximate and (against, name) not in indexed and entry.kind != but
    )


def _lines_against(lines: Iterable[Line], adversary: Adversary) -> dict[str, Line]:
    """Return the lines that hold against an adversary, by name; its own hide namesakes."""
    found: dict[str, Line] = {}
    for line in lines:
        own = line.against == adversary.name
        if parse_adversary(line.against).covers(adversary) and (own or line.name not in found):
            found[line.name] = line
    return found


def automatic_stages(*adversaries: Adversary, approximate: bool = False, until: str = "") -> tuple[str, ...]:
    """Return the names that ``auto`` goes through, cheapest first: those that hold against one at least.

    The table is read up to the line ``until``, whomever that holds against.
    """
    lines = (
        APPROXIMATE_BOUNDS if approximate else (*AUTOMATIC[:1], *_other_lines("published"), *AUTOMATIC[1:])
    )
    names = [line.name for line in lines]
    until = RENAMED_APPROXIMATE.get(until, until) if approximate else RENAMED.get(until, until)
    if until in names:
        lines = lines[: len(names) - names[::-1].index(until)]
    holding: set[str] = set().union(*(_lines_against(lines, a) for a in adversaries))
    return tuple(dict.fromkeys(line.name for line in lines if line.name in holding))


def find_line(name: str, adversary: Adversary, *, approximate: bool = False) -> Line | None:
    """Return the line of a name that holds against an adversary; ``None`` if there is none."""
    lines = APPROXIMATE_BOUNDS if approximate else (*AUTOMATIC, *ON_REQUEST, *_other_lines())
    return _lines_against(lines, adversary).get(name)


def load_bound(line: Line, *, approximate: bool = False) -> Registered:
    """Return the bound of a line, loaded now."""
    key = (approximate, line.against, line.name)
    if key not in registered():
        import_module(line.module if "." in line.module else f"{_HOME}.{line.module}")
    return registered()[key]


def method_names(adversary: object = INFORMED) -> tuple[str, ...]:
    """Return the names a caller may give as ``method=``, ``auto`` first; nothing is loaded."""
    who = parse_adversary(adversary)
    return ("auto", *_lines_against((*AUTOMATIC, *ON_REQUEST, *_other_lines()), who))


def available_methods(adversary: object = INFORMED) -> dict[str, Registered]:
    """Return every pure bound that holds against ``adversary``, by name."""
    return {name: find_method(parse_adversary(adversary), name) for name in method_names(adversary)[1:]}


def find_method(adversary: Adversary, name: object) -> Registered:
    """Return the pure bound called ``name``.

    Raises
    ------
    InvalidArgument
        If there is none against this adversary, listing those that are.
    """
    name = _current_name(name, RENAMED)
    line = find_line(name, adversary) if isinstance(name, str) else None
    if line is None:
        names = ", ".join(method_names(adversary))
        raise InvalidArgument(
            f"{option('method')} {name!r} is not one of {names} (adversary {adversary.name!r})"
        )
    return load_bound(line)


def approximate_stages(adversary: Adversary, name: object) -> tuple[str, ...]:
    """Return the bounds on δ that a method means: group privacy and itself."""
    name = _current_name(name, RENAMED_APPROXIMATE)
    names = automatic_stages(adversary, approximate=True)
    if name not in names:
        known = ", ".join(names)
        raise InvalidArgument(f"{option('method')} for (ε, δ) must be 'auto' or one of {known}, not {name!r}")
    return tuple(n for n in names if n in ("group", name))


def _current_name(name: object, names: Mapping[str, str]) -> object:
    """Return what a method is called now, with a warning where that is another name."""
    if not isinstance(name, str) or name not in names:
        return name
    said = (
        f"{option('method')} {name!r} is now called {names[name]!r}; the old name goes with the next version"
    )
    warnings.warn(said, FutureWarning, stacklevel=3)
    return names[name]
