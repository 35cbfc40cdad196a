"""Relatives: what two people are to each other, and how much each one's genotype tells about you.

The joint law of two genotypes needs only their ancestors: every other person sums to one.  So the
table of a pair is exact also in a pedigree far too wide for a clique tree of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from quiltdp.domains.pedigree.people import Pedigree, reachable
from quiltdp.errors import InvalidArgument, option
from quiltdp.inference.trees import junction_tree
from quiltdp.model import Model, Table

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


def joint_table_of_pair(model: Model, first: str, second: str) -> Table:
    """Return P(x_first, x_second) exactly, from the part of the network above the two.

    Raises
    ------
    ModelTooWide
        If the common ancestry alone is too wide.
    """
    pair = [first, second]
    model.require(pair)
    tables = {f.scope[-1]: f for f in model.factors}
    above = reachable(pair, lambda n: tables[n].parents)
    order = [n for n in model.nodes if n in above]
    ancestral = Model({n: model.states[n] for n in order}, [tables[n] for n in order], pair)
    return junction_tree(ancestral).marginal(pair)


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
    shared = _kinship_coefficients(family, me, above)
    rows = []
    for name in sorted(above, key=lambda n: (-shared[n], n))[:limit]:
        joint = joint_table_of_pair(model, me, name)
        tells = (influence_of_pair(joint), mutual_information_of_pair(joint))
        rows.append(Kin(name, relation(family, me, name), shared[name], *tells, model.is_record(name)))
    return tuple(sorted(rows, key=lambda k: (-k.influence, -k.information, k.relative)))


def ancestors(family: Pedigree, name: str) -> dict[str, int]:
    """Return everybody above a person with the shortest number of generations, the person at 0."""
    return reachable([family[name].name], lambda n: family[n].parents)


def relatives(family: Pedigree, me: str) -> set[str]:
    """Return everybody else who shares an ancestor with a person: all descendants of all ancestors."""
    return reachable(ancestors(family, me), lambda n: family.children.get(n, ())).keys() - {me}


def kinship(family: Pedigree, first: str, second: str) -> float:
    """Probability that one allele of each is the same copy of an ancestral allele.

    Examples
    --------
    >>> from quiltdp.domains.pedigree import Pedigree, Person
    >>> sibs = Pedigree((Person("f"), Person("m"), Person("a", "f", "m"), Person("b", "f", "m")))
    >>> kinship(sibs, "a", "b"), kinship(sibs, "a", "f"), kinship(sibs, "f", "m")
    (0.25, 0.25, 0.0)
    """
    other = family[second].name
    return _kinship_coefficients(family, family[first].name, [other])[other]


def _kinship_coefficients(family: Pedigree, me: str, others: Iterable[str]) -> dict[str, float]:
    """Return the kinship of a person with each of the others.

    The classical recursion: φ(i, j) = ½(φ(father_i, j) + φ(mother_i, j)) for i not an ancestor of j,
    φ(i, i) = ½(1 + φ(father_i, mother_i)), founders unrelated.
    """
    rank = {p.name: k for k, p in enumerate(family.ordered)}
    known: dict[tuple[str, str], float] = {}

    def parent_pairs(pair: tuple[str, str]) -> list[tuple[str, str]]:
        earlier, later = sorted(pair, key=rank.__getitem__)
        parents = family[later].parents
        pairs = [parents] if earlier == later else [(p, earlier) for p in parents]
        return [(a, b) if rank[a] <= rank[b] else (b, a) for a, b in filter(None, pairs)]

    pairs = {name: (me, name) if rank[me] <= rank[name] else (name, me) for name in others}
    for wanted in pairs.values():
        stack = [wanted]
        while stack:
            pair = stack[-1]
            waiting = [p for p in parent_pairs(pair) if p not in known]
            if waiting:
                stack.extend(waiting)
            else:
                known[pair] = 0.5 * ((pair[0] == pair[1]) + sum(known[p] for p in parent_pairs(pair)))
                stack.pop()
    return {name: known[pair] for name, pair in pairs.items()}


def relation(family: Pedigree, person: str, relative: str) -> str:
    """Return what ``relative`` is to ``person``: parent, full sib, first cousin, partner and so on."""
    me, other = family[person], family[relative]
    if me.name == other.name:
        return "self"
    mine, theirs = ancestors(family, me.name), ancestors(family, other.name)
    if other.name in mine:
        return _grand_term(mine[other.name], "parent")
    if me.name in theirs:
        return _grand_term(theirs[me.name], "child")
    shared = set(mine) & set(theirs)
    if not shared:
        couples = {(me.name, other.name), (other.name, me.name)} & family.couples
        return "partner" if couples else "not related by blood"
    up, down = min((mine[a], theirs[a]) for a in shared)
    nearest = [a for a in shared if (mine[a], theirs[a]) == (up, down)]
    half = "half-" if len(nearest) < 2 else ""
    if (up, down) == (1, 1):
        return f"{half}sib" if half else "full sib"
    if up == 1:
        return f"{half}{_great_prefix(down - 2)}nibling"
    if down == 1:
        return f"{half}{_great_prefix(up - 2)}avuncular"
    removed = abs(up - down)
    nth = {2: "first", 3: "second", 4: "third"}.get(min(up, down), f"{min(up, down) - 1}th")
    times = {0: "", 1: " once removed", 2: " twice removed"}.get(removed, f" {removed} times removed")
    return f"{half}{nth} cousin{times}"


def _grand_term(steps: int, word: str) -> str:
    return word if steps == 1 else f"{_great_prefix(steps - 2)}grand{word}"


def _great_prefix(times: int) -> str:
    return "great-" * times if times <= 4 else f"{times} times great-"


def influence_of_pair(joint: Table) -> float:
    """Max-influence of the second variable on the first: rows with mass only, 0/0 skipped, p/0 = ∞."""
    mass = joint.sum(axis=1)
    rows = joint[mass > 0] / mass[mass > 0][:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(rows)
        ratios = logs[:, None] - logs[None, :]  # 0/0 is NaN here
    return float(np.nanmax(ratios, initial=0.0))


def mutual_information_of_pair(joint: Table) -> float:
    """Mutual information in bits."""
    seen = joint > 0
    product = joint.sum(axis=1)[:, None] * joint.sum(axis=0)[None, :]
    return max(0.0, float(np.sum(joint[seen] * np.log2(joint[seen] / product[seen]))))
