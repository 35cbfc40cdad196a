"""How much each relative's genotype tells about you, by exact inference.

The joint law of two genotypes needs only their ancestors: every other person sums to one.  So the
table of a pair is exact also in a pedigree far too wide for a clique tree of the whole.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from quiltdp.domains.pedigree.people import Pedigree
from quiltdp.domains.pedigree.relations import ancestors, kinship, kinship_matrix, relation
from quiltdp.errors import InvalidArgument, option
from quiltdp.inference.trees import junction_tree
from quiltdp.model import Model, Table

__all__ = ["Kin", "ancestral_model", "kin_table", "pair_table", "relatives"]

_MOST_IN_TABLE = 4_000  # people: a table of their kinships takes 128 MB
_MOST_WORK = 5_000_000  # relatives times ancestors: some minutes


@dataclass(frozen=True, slots=True)
class Kin:
    """What one relative's genotype says about a person.

    Attributes
    ----------
    relative, relation
        Who, and what they are to the person.
    kinship
        Kinship coefficient φ.
    influence
        Max-influence ln max P(g_relative | g) / P(g_relative | g'), ∞ where a genotype is ruled out.
    information
        Mutual information of the two genotypes, in bits.
    record
        Whether the relative is in the study.
    """

    relative: str
    relation: str
    kinship: float
    influence: float
    information: float
    record: bool


def ancestral_model(model: Model, nodes: Collection[str]) -> Model:
    """Return the part of a Bayesian network above ``nodes``: their joint law is the same in it."""
    model.require(nodes)
    parents = {f.scope[-1]: f for f in model.factors}
    keep = dict.fromkeys(nodes)
    frontier = list(keep)
    for n in frontier:  # grows while it is walked
        for p in parents[n].parents:
            if p not in keep:
                keep[p] = None
                frontier.append(p)
    order = [n for n in model.nodes if n in keep]
    states = {n: model.states[n] for n in order}
    return Model(states, [parents[n] for n in order], list(nodes))


def pair_table(model: Model, first: str, second: str) -> Table:
    """Return P(x_first, x_second) exactly.

    Raises
    ------
    ModelTooWide
        If the common ancestry alone is too wide.
    """
    return junction_tree(ancestral_model(model, [first, second])).marginal([first, second])


def kin_table(model: Model, family: Pedigree, person: str, *, limit: int | None = None) -> tuple[Kin, ...]:
    """Return every blood relative and partner of a person, the most telling first.

    Parameters
    ----------
    model
        The network of ``family`` (one locus).
    person
        Whose privacy it is about, by name, id or label.
    limit
        How many relatives at most, nearest by kinship; all by default.
    """
    me = family[family.find(person, f"{option('kin')}: ")].name
    if me not in model.states:
        raise InvalidArgument(f"{me!r} is not a node of the model; for several loci take one locus")
    above = relatives(family, me)
    deepest = max((family.generation[n] for n in above), default=0)
    if len(above) * (deepest + len(ancestors(family, me))) > _MOST_WORK:
        raise InvalidArgument(
            f"{me!r} has {len(above):,} relatives in {deepest + 1:,} generations, too many for a kin table:"
            " cut the pedigree to the generations that matter"
        )
    shared = _kinships(family, me, above)
    ranked = sorted(((shared[n], n) for n in above), key=lambda pair: (-pair[0], pair[1]))
    rows = []
    for phi, name in ranked[:limit]:
        joint = pair_table(model, me, name)
        rows.append(
            Kin(
                name,
                relation(family, me, name),
                phi,
                influence_of_pair(joint),
                information_of_pair(joint),
                model.is_record(name),
            )
        )
    return tuple(sorted(rows, key=lambda k: (-k.influence, -k.information, k.relative)))


def _kinships(family: Pedigree, me: str, others: Collection[str]) -> dict[str, float]:
    """Return the kinship of a person with each of some relatives, from one table where it fits."""
    lines = {a for n in (me, *others) for a in (n, *family[n].parents)}
    frontier = list(lines)
    for n in frontier:  # grows while it is walked
        for p in family[n].parents:
            if p not in lines:
                lines.add(p)
                frontier.append(p)
    if len(lines) > _MOST_IN_TABLE:
        return {n: kinship(family, me, n) for n in others}
    names = [p.name for p in family.ordered if p.name in lines]
    mine = kinship_matrix(family, names)[names.index(me)]
    place = {n: k for k, n in enumerate(names)}
    return {n: float(mine[place[n]]) for n in others}


def relatives(family: Pedigree, me: str) -> set[str]:
    """Return everybody else who shares an ancestor with a person: all descendants of all ancestors."""
    found = {me}
    frontier = [me]
    for n in frontier:
        for p in family[n].parents:
            if p not in found:
                found.add(p)
                frontier.append(p)
    frontier = list(found)
    for n in frontier:
        for c in family.children.get(n, ()):
            if c not in found:
                found.add(c)
                frontier.append(c)
    return found - {me}


def influence_of_pair(joint: Table) -> float:
    """Max-influence of the second variable on the first: rows with mass only, 0/0 skipped, p/0 = ∞."""
    mass = joint.sum(axis=1)
    rows = joint[mass > 0] / mass[mass > 0][:, None]
    best = 0.0
    for p in rows:
        for q in rows:
            if np.any((p > 0) & (q == 0)):
                return float("inf")
            seen = p > 0
            best = max(best, float(np.max(np.log(p[seen]) - np.log(q[seen]))))
    return best


def information_of_pair(joint: Table) -> float:
    """Mutual information in bits."""
    seen = joint > 0
    product = joint.sum(axis=1)[:, None] * joint.sum(axis=0)[None, :]
    return max(0.0, float(np.sum(joint[seen] * np.log2(joint[seen] / product[seen]))))
