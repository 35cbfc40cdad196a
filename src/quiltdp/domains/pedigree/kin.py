"""How much each relative's genotype tells about you, by exact inference.

The joint law of two genotypes needs only their ancestors: every other person sums to one.  So the
table of a pair is exact also in a pedigree far too wide for a clique tree of the whole.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from quiltdp.domains.pedigree.relations import kinship, relation
from quiltdp.domains.pedigree.types import Pedigree
from quiltdp.errors import InvalidArgument
from quiltdp.inference.junction_tree import junction_tree
from quiltdp.model import Model, Table

__all__ = ["Kin", "ancestral_model", "kin_table", "pair_table"]


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
        Whose privacy it is about, by name.
    limit
        How many relatives at most, nearest by kinship; all by default.
    """
    me = family[person].name
    if me not in model.states:
        raise InvalidArgument(f"{me!r} is not a node of the model; for several loci take one locus")
    above = {a for a in _related(family, me) if a != me}
    ranked = sorted(((kinship(family, me, n), n) for n in above), key=lambda pair: (-pair[0], pair[1]))
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


def _related(family: Pedigree, me: str) -> set[str]:
    """Return everybody who shares an ancestor with a person: all descendants of all ancestors."""
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
    return found


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
