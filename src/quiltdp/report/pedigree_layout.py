"""Where each symbol of a pedigree drawing stands: generations in rows, couples side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from quiltdp.domains.pedigree.types import Pedigree

__all__ = ["MOST_DRAWN", "layout"]

_SWEEPS = 24
MOST_DRAWN = 400
"""How many people fit a drawing."""


def layout(family: Pedigree, people: Collection[str] | None = None) -> dict[str, tuple[float, float]]:
    """Return x and y of every person: y is minus the generation, x keeps sibs together and lines short.

    A founder who marries in stands beside the partner.  Rows are relaxed a few times towards the middle
    of parents and children, never closer than one unit.

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person
    >>> trio = Pedigree((Person("dad"), Person("mum"), Person("kid", "dad", "mum")))
    >>> layout(trio)
    {'dad': (0.0, 0.0), 'mum': (1.0, 0.0), 'kid': (0.5, -1.0)}
    """
    chosen = {p.name for p in family} if people is None else set(people)
    level = _levels(family, chosen)
    rows: dict[int, list[str]] = {}
    for name in _walk(family, chosen):
        rows.setdefault(level[name], []).append(name)
    x = {name: float(k) for row in rows.values() for k, name in enumerate(row)}
    for sweep in range(_SWEEPS):
        order = sorted(rows) if sweep % 2 == 0 else sorted(rows, reverse=True)
        for generation in order:
            row = rows[generation]
            wish = {n: _wish(family, chosen, x, n) for n in row}
            rows[generation] = row = _keep_couples(family, sorted(row, key=lambda n: (wish[n], x[n])))
            for n, place in zip(row, _spaced([wish[n] for n in row]), strict=True):
                x[n] = place
    left = min(x.values())
    return {p.name: (x[p.name] - left, 0.0 - level[p.name]) for p in family if p.name in chosen}


def _levels(family: Pedigree, chosen: Collection[str]) -> dict[str, int]:
    level = {n: g for n, g in family.generation.items() if n in chosen}
    for _ in range(2):
        for p in reversed(family.ordered):
            children = [c for c in family.children.get(p.name, ()) if c in level]
            if p.name in level and children and (p.founder or not set(p.parents) & set(level)):
                level[p.name] = min(level[c] for c in children) - 1
    low = min(level.values())
    return {n: g - low for n, g in level.items()}


def _walk(family: Pedigree, chosen: Collection[str]) -> list[str]:
    """Visit people so that partners and sibs come one after the other."""
    seen: dict[str, None] = {}
    for start in family.ordered:
        stack = [start.name]
        while stack:
            name = stack.pop()
            if name in seen or name not in chosen:
                continue
            seen[name] = None
            children = family.children.get(name, ())
            partners = dict.fromkeys(q for c in children for q in family[c].parents if q != name)
            stack.extend(reversed(children))
            stack.extend(reversed(list(partners)))
    return list(seen)


def _wish(family: Pedigree, chosen: Collection[str], x: Mapping[str, float], name: str) -> float:
    """Return the middle between the parents, the children and the partners."""
    person = family[name]
    places = []
    parents = [x[q] for q in person.parents if q in chosen]
    children = [c for c in family.children.get(name, ()) if c in chosen]
    if parents:
        places.append(float(np.mean(parents)))
    if children:
        places.append(float(np.mean([x[c] for c in children])))
        partners = {q for c in children for q in family[c].parents if q != name and q in chosen}
        places += [x[q] for q in partners]
    return float(np.mean(places)) if places else x[name]


def _keep_couples(family: Pedigree, row: Sequence[str]) -> list[str]:
    """Move each mother beside the father of her children, where both are in the row."""
    placed: dict[str, None] = {}
    inside = set(row)
    for name in row:
        if name in placed:
            continue
        placed[name] = None
        for father, mother in sorted(family.couples):
            other = mother if father == name else father if mother == name else None
            if other is not None and other in inside and other not in placed:
                placed[other] = None
    return list(placed)


def _spaced(wishes: Sequence[float]) -> list[float]:
    """Return the places nearest to the wishes, in order, at least 1 apart (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []
    for k, wish in enumerate(wishes):
        mean, size = wish - k, 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean = (mean * size + other * count) / (size + count)
            size += count
        blocks.append((mean, size))
    flat = [mean for mean, size in blocks for _ in range(size)]
    return [mean + k for k, mean in enumerate(flat)]
