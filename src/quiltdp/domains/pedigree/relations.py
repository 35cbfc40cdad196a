"""What two people are to each other: kinship coefficients, and the words for near relatives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quiltdp.domains.pedigree.people import Pedigree

__all__ = ["ancestors", "kinship", "kinship_matrix", "relation"]


def ancestors(family: Pedigree, name: str) -> dict[str, int]:
    """Return everybody above a person with the shortest number of generations, the person at 0."""
    found = {family[name].name: 0}
    frontier = list(found)
    for n in frontier:  # grows while it is walked
        for parent in family[n].parents:
            if parent not in found:
                found[parent] = found[n] + 1
                frontier.append(parent)
    return found


def kinship(family: Pedigree, first: str, second: str) -> float:
    """Probability that one allele of each is the same copy of an ancestral allele.

    The classical recursion: φ(i, j) = ½(φ(father_i, j) + φ(mother_i, j)) for i not an ancestor of j,
    φ(i, i) = ½(1 + φ(father_i, mother_i)), founders unrelated.

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person
    >>> sibs = Pedigree((Person("f"), Person("m"), Person("a", "f", "m"), Person("b", "f", "m")))
    >>> kinship(sibs, "a", "b"), kinship(sibs, "a", "f"), kinship(sibs, "f", "m")
    (0.25, 0.25, 0.0)
    """
    above = {*ancestors(family, first), *ancestors(family, second)}
    rank = {p.name: k for k, p in enumerate(q for q in family.ordered if q.name in above)}
    known: dict[tuple[str, str], float] = {}

    def parts(pair: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        later, other = pair if rank[pair[0]] >= rank[pair[1]] else pair[::-1]
        mine = family[later].parents
        if later == other:
            return ((mine[0], mine[1]),) if mine else ()
        return tuple((p, other) for p in mine)

    stack = [(family[first].name, family[second].name)]
    while stack:
        pair = stack[-1]
        waiting = [p for p in parts(pair) if p not in known]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        values = [known[p] for p in parts(pair)]
        if pair[0] == pair[1]:
            known[pair] = 0.5 * (1.0 + sum(values))
        else:
            known[pair] = 0.5 * sum(values)
    return known[family[first].name, family[second].name]


def kinship_matrix(
    family: Pedigree, people: Sequence[str], founder_inbreeding: float = 0.0
) -> NDArray[np.float64]:
    """Return φ for all pairs of ``people``, who must include all their ancestors, parents first.

    The tabular method: φ(i, j) = ½(φ(father_i, j) + φ(mother_i, j)) for j before i, and
    φ(i, i) = ½(1 + φ(father_i, mother_i)).
    """
    place = {name: k for k, name in enumerate(people)}
    phi = np.zeros((len(people), len(people)))
    for k, name in enumerate(people):
        parents = [place[q] for q in family[name].parents]
        if parents:
            f, m = parents
            phi[k, :k] = phi[:k, k] = 0.5 * (phi[f, :k] + phi[m, :k])
            phi[k, k] = 0.5 * (1.0 + phi[f, m])
        else:
            phi[k, k] = 0.5 * (1.0 + founder_inbreeding)
    return phi


def relation(family: Pedigree, person: str, relative: str) -> str:
    """Return what ``relative`` is to ``person``: parent, full sib, first cousin, partner and so on."""
    me, other = family[person], family[relative]
    if me.name == other.name:
        return "self"
    mine, theirs = ancestors(family, me.name), ancestors(family, other.name)
    if other.name in mine:
        return _line(mine[other.name], "parent")
    if me.name in theirs:
        return _line(theirs[me.name], "child")
    shared = set(mine) & set(theirs)
    if not shared:
        return _unrelated(family, me.name, other.name)
    up, down = min((mine[a], theirs[a]) for a in shared)
    nearest = [a for a in shared if (mine[a], theirs[a]) == (up, down)]
    half = "half-" if len(nearest) < 2 else ""
    if (up, down) == (1, 1):
        return f"{half}sib" if half else "full sib"
    if up == 1:
        return _generations(down - 1, "nibling", half)
    if down == 1:
        return _generations(up - 1, "avuncular", half)
    removed = abs(up - down)
    nth = {2: "first", 3: "second", 4: "third"}.get(min(up, down), f"{min(up, down) - 1}th")
    times = {0: "", 1: " once removed", 2: " twice removed"}.get(removed, f" {removed} times removed")
    return f"{half}{nth} cousin{times}"


def _line(steps: int, word: str) -> str:
    if steps == 1:
        return word
    return f"{_great(steps - 2)}grand{word}"


def _generations(steps: int, word: str, half: str) -> str:
    return half + _great(steps - 1) + word


def _great(times: int) -> str:
    return "great-" * times if times <= 4 else f"{times} times great-"


def _unrelated(family: Pedigree, me: str, other: str) -> str:
    if (me, other) in family.couples or (other, me) in family.couples:
        return "partner"
    return "not related by blood"
