"""Which bounds exist against an adversary, by name, and in which order ``auto`` takes them.

A bound that holds against an adversary also holds against everybody who knows less, so for each
adversary the registry offers its own bounds and those of every adversary that covers it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module

from quiltdp.accountant.adversaries import INFORMED, PRIOR, Adversary, adversary_from
from quiltdp.accountant.bounds import Registered, registered
from quiltdp.accountant.leakage import AUTOMATIC, ON_REQUEST, RENAMED
from quiltdp.errors import InvalidArgument, option

__all__ = ["METHODS", "available", "by_name", "candidates", "find_method", "method_names"]

_HOME = "quiltdp.accountant.leakage"


def _load(adversary: str, name: str, module: str) -> Registered:
    import_module(module if "." in module else f"{_HOME}.{module}")
    return registered()[adversary, name]


def _listed(adversary: Adversary) -> list[tuple[str, str, str]]:
    """Return the lines of the index that hold for ``adversary``; its own bounds hide namesakes."""
    indexed = [line for line in (*AUTOMATIC, *ON_REQUEST) if "@" not in line[1]]  # later stages have no name
    lines = [line for line in indexed if adversary_from(line[0]).covers(adversary)]
    own = {name for against, name, _ in lines if against == adversary.name}
    return [line for line in lines if line[0] == adversary.name or line[1] not in own]


def _elsewhere(adversary: Adversary) -> dict[str, Registered]:
    """Return what was registered by other modules."""
    indexed = {(against, name) for against, name, _ in (*AUTOMATIC, *ON_REQUEST)}
    return {
        name: found
        for (against, name), found in registered().items()
        if (against, name) not in indexed and found.against.covers(adversary)
    }


def method_names(adversary: object = INFORMED) -> tuple[str, ...]:
    """Return the names a caller may give as ``method=``, ``auto`` first; nothing is loaded."""
    who = adversary_from(adversary)
    return ("auto", *dict.fromkeys([name for _, name, _ in _listed(who)] + list(_elsewhere(who))))


def available(adversary: object = INFORMED) -> dict[str, Registered]:
    """Return every bound that holds against ``adversary``, by name."""
    who = adversary_from(adversary)
    return {name: _load(against, name, module) for against, name, module in _listed(who)} | _elsewhere(who)


def candidates(*adversaries: Adversary) -> Iterator[Registered]:
    """Yield the bounds that ``auto`` considers, cheapest first, each loaded when it is reached.

    Those that hold against one of the adversaries at least; namesakes are all considered: a bound for a
    stronger adversary may come first.
    """
    for against, name, module in AUTOMATIC:
        if any(adversary_from(against).covers(a) for a in adversaries):
            yield _load(against, name, module)
    elsewhere: dict[str, Registered] = {}
    for a in adversaries:
        elsewhere.update(_elsewhere(a))
    yield from elsewhere.values()


def by_name(against: str, name: str) -> Registered:
    """Return the bound registered against an adversary under a name, loaded if the index has it."""
    for line in (*AUTOMATIC, *ON_REQUEST):
        if line[:2] == (against, name):
            return _load(*line)
    found = registered().get((against, name))
    if found is None:
        raise InvalidArgument(f"the bound {name!r} is registered by a module that was not imported here")
    return found


def find_method(adversary: Adversary, name: object) -> Registered:
    """Return the bound called ``name``.

    Raises
    ------
    InvalidArgument
        If there is none against this adversary, listing those that are.
    """
    if isinstance(name, str) and name in RENAMED:
        now = RENAMED[name]
        said = f"{option('method')} {name!r} is now called {now!r}; the old name goes with the next version"
        warnings.warn(said, FutureWarning, stacklevel=2)
        name = now
    for against, known, module in _listed(adversary):
        if known == name:
            return _load(against, known, module)
    found = _elsewhere(adversary).get(name) if isinstance(name, str) else None
    if found is None:
        names = ", ".join(method_names(adversary))
        raise InvalidArgument(
            f"{option('method')} {name!r} is not one of {names} (adversary {adversary.name!r})"
        )
    return found


class _Methods(Mapping[str, Mapping[str, Registered]]):
    """The bounds of the two adversaries everybody knows, loaded when they are looked at."""

    def __getitem__(self, adversary: str) -> Mapping[str, Registered]:
        if adversary not in (INFORMED.name, PRIOR.name):
            raise KeyError(adversary)
        return available(adversary)

    def __iter__(self) -> Iterator[str]:
        return iter((INFORMED.name, PRIOR.name))

    def __len__(self) -> int:
        return 2


METHODS: Mapping[str, Mapping[str, Registered]] = _Methods()
