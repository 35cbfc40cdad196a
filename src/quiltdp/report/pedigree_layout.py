"""Where each symbol of a pedigree drawing stands: generations in rows, couples side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from quiltdp.domains.pedigree.people import Pedigree

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
    """Return the rows: parents above children, couples in one row unless one descends from the other.

    Who has no parents here stands just above their first child.
    """
    parents = {p.name: [q for q in p.parents if q in chosen] for p in family.ordered if p.name in chosen}
    group = {n: n for n in parents}
    rank = _ranks(parents, group)
    assert rank is not None, "a pedigree has no loops of descent"
    for father, mother in sorted(family.couples):
        if father not in group or mother not in group or group[father] == group[mother]:
            continue
        merged = {n: group[father] if g == group[mother] else g for n, g in group.items()}
        found = _ranks(parents, merged)
        if found is not None:
            group, rank = merged, found
    above = {group[n] for n, own in parents.items() if own}
    lowest: dict[str, int] = {}
    for n, own in parents.items():
        for q in own:
            lowest[group[q]] = min(lowest.get(group[q], rank[group[n]]), rank[group[n]])
    level = {n: lowest[g] - 1 if g not in above and g in lowest else rank[g] for n, g in group.items()}
    low = min(level.values())
    return {n: k - low for n, k in level.items()}


def _ranks(parents: Mapping[str, Sequence[str]], group: Mapping[str, str]) -> dict[str, int] | None:
    """Return how many generations of groups are above each group; None if groups go round in a circle."""
    below: dict[str, set[str]] = {g: set() for g in group.values()}
    waits = dict.fromkeys(below, 0)
    for child, own in parents.items():
        for q in own:
            if group[q] == group[child]:
                return None
            if group[child] not in below[group[q]]:
                below[group[q]].add(group[child])
                waits[group[child]] += 1
    rank = {g: 0 for g, count in waits.items() if not count}
    ready = list(rank)
    for g in ready:  # grows while it is walked
        for child in below[g]:
            rank[child] = max(rank.get(child, 0), rank[g] + 1)
            waits[child] -= 1
            if not waits[child]:
                ready.append(child)
    return rank if len(ready) == len(below) else None


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
        partners = dict.fromkeys(q for c in children for q in family[c].parents if q != name and q in chosen)
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
