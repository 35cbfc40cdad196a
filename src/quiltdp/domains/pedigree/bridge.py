r"""From one allele frequency to another: how far the leakage can differ, certified.

**Claim.** Let i be a person of a family at one locus, A = Σ α_j over the other records of the family,
and p, p₀ two frequencies of the alternative allele.  Against the prior adversary

    Leakage_p(i) ≤ Leakage_{p₀}(i) + 2 max_x ln( 1 + e^A (e^A − 1) [ τ(x) + δ C_i / A ] ),

δ = |p − p₀|, C_i = Σ_{j ≠ i} α_j c_ij, c_ij the expected number of j's alleles that are not copies of one
of i's own (where x may tell who passed what on, simply the number of j's alleles), and τ(x) the total
variation, between p and p₀, of what x_i = x says about i's own line (which of i's alleles mutated on the
way, whether both are copies of one ancestral allele, the true genotype behind a wrong call).  τ = 0 for
exact Mendel without inbreeding.

**Proof.** Draw the family as founder alleles, each alternative with probability p, and everything else R
(who passes which copy on, mutations, wrong calls), whose law does not know p.  Given R and i's own alleles,
all founder alleles that are not ancestral to them are still independent with probability p.  So couple
X_{−i} given x under p and under p₀: R and i's alleles together except with probability τ(x); every other
founder allele together except with probability δ.  Person j then differs with probability at most
τ + δ c_ij.  For a likelihood h > 0 of an α-DP mechanism, D = Σ α_j over the people that differ,

    E_p[h | x] ≤ E[e^D h(X⁰)] ≤ E_{p₀}[h | x] + E[e^D − 1] max h ≤ E_{p₀}[h | x] (1 + e^A E[e^D − 1]),

because max h ≤ e^A min h; and e^D − 1 ≤ D (e^A − 1)/A for 0 ≤ D ≤ A.  The same from p₀ to p at x'.  ∎

**Any frequency at all** (exact Mendel, no inbreeding): change i's own alleles and nothing else; j differs
only if j has a copy of one of them, with probability at most 4 φ_ij (kinship).  So for every p

    Leakage(i) ≤ α_i + ln( 1 + e^A (e^A − 1)/A · Σ_{j≠i} α_j min(1, 4 φ_ij) ).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.domains.pedigree.mendel import call_table
from quiltdp.domains.pedigree.network import Locus
from quiltdp.domains.pedigree.relations import kinship_matrix
from quiltdp.domains.pedigree.types import Pedigree
from quiltdp.numbers import up_array

__all__ = ["Bridge"]

Vector = NDArray[np.float64]

_MOST_PAIRS = 4_000_000  # beyond, kinship is not computed and c_ij is the number of j's alleles


@dataclass(frozen=True, eq=False)
class Bridge:
    """What the two claims need of a family at loci of one kind; see the module's text.

    Attributes
    ----------
    others
        Σ of weights over the other records of the person's family, for every record.
    free
        C_i per unit of α, for every record.
    shared
        Σ_j weight_j min(1, 4 φ_ij), for every record; NaN where the second claim does not hold.
    own
        The weight of the record itself.
    line
        For every record, which of ``lines`` describes the person's own line.
    lines
        (copies, inbreeding, chance that a paternal and a maternal allele mutated an odd number of times).
    """

    own: Vector
    others: Vector
    free: Vector
    shared: Vector
    line: NDArray[np.intp]
    lines: tuple[tuple[int, float, float, float], ...]
    error_rate: float

    @classmethod
    def of(cls, family: Pedigree, locus: Locus, weights: Mapping[str, float]) -> Bridge:
        """Look at a family once; ``weights`` maps each record (a person's name) to α per unit."""
        records = list(weights)
        own = np.array(list(weights.values()), dtype=np.float64)
        others, free, shared = np.zeros(len(own)), np.zeros(len(own)), np.full(len(own), np.nan)
        inbred = np.zeros(len(own))
        place = {record: k for k, record in enumerate(records)}
        exact = locus.mutation_rate == 0 and locus.error_rate == 0 and not locus.x_linked
        position = {p.name: k for k, p in enumerate(family.ordered)}
        for component in family.components:
            members = sorted(component, key=position.__getitem__)
            inside = [r for name in members for r in (name, *family[name].also) if r in place]
            at = np.array([place[r] for r in inside], dtype=np.intp)
            if not len(at):
                continue
            names = [family[r].name for r in inside]
            copies = np.array([locus.copies(family[n]) for n in names], dtype=np.float64)
            others[at] = own[at].sum() - own[at]
            if len(members) ** 2 > _MOST_PAIRS:
                free[at] = (own[at] * copies).sum() - own[at] * copies
                inbred[at] = np.nan
                continue
            phi = kinship_matrix(family, members, locus.inbreeding)
            rows = _rows(members, names)
            pairs = phi[np.ix_(rows, rows)]
            inbred[at] = np.maximum(0.0, 2.0 * np.diag(pairs) - 1.0)
            copied = not locus.x_linked and locus.mutation_rate == 0  # else x tells who passed what on
            known = 4.0 * pairs if copied else 0.0 * pairs
            known[inbred[at] > 0] = 0.0
            weight = own[at][None, :] * np.maximum(0.0, copies[None, :] - known)
            np.fill_diagonal(weight, 0.0)
            free[at] = weight.sum(axis=1)
            if exact:
                carried = own[at][None, :] * np.minimum(1.0, known)
                np.fill_diagonal(carried, 0.0)
                shared[at] = np.where(inbred[at] > 0, np.nan, carried.sum(axis=1))
        odd = _odd_mutations(family, locus)
        described = [
            (locus.copies(family[r]), float(inbred[k]), *odd[family[r].name]) for k, r in enumerate(records)
        ]
        lines = tuple(dict.fromkeys(described))
        index = {line: k for k, line in enumerate(lines)}
        which = np.array([index[d] for d in described], dtype=np.intp)
        return cls(own, others, up_array(free), up_array(shared), which, lines, locus.error_rate)

    def cost(self, scale: float, frequencies: Vector, node: float, counts: Vector | None = None) -> Vector:
        """Return Σ over loci of 2 max_x ln(1 + …) for every record, at α = scale · weights.

        ``counts`` tells how many loci have each of the frequencies.
        """
        many = np.ones(len(frequencies)) if counts is None else counts
        gap = np.abs(frequencies - node)
        if not gap.any():
            return np.zeros(len(self.own))
        a = self.others * scale
        growth = np.exp(a) * np.expm1(a)
        per_gap = np.divide(self.free, self.others, out=np.zeros_like(a), where=self.others > 0)
        total = np.zeros(len(a))
        for k, line in enumerate(self.lines):
            mine = self.line == k
            tau = _own_line(line, self.error_rate, frequencies, node)
            if not tau.any():  # ln is concave: equal gaps are the worst of their sum
                mean = float((gap * many).sum()) / float(many.sum())
                total[mine] = many.sum() * np.log1p(growth[mine] * per_gap[mine] * mean)
            else:
                step = tau[None, :] + per_gap[mine][:, None] * gap[None, :]
                total[mine] = (np.log1p(growth[mine][:, None] * step) * many).sum(axis=1)
        return up_array(2.0 * total, 4096.0)

    def any_frequency(self, scale: float) -> Vector:
        """Return a bound on the leakage of every record that holds for every frequency."""
        a = self.others * scale
        group = a + self.own * scale
        ratio = np.divide(np.expm1(a), a, out=np.ones_like(a), where=a > 0)
        copies = self.own * scale + np.log1p(np.exp(a) * ratio * self.shared * scale)
        return up_array(np.fmin(group, copies), 4096.0)

    @property
    def plain(self) -> bool:
        """Whether every τ is 0, so that the price of a way grows with its length alone."""
        return self.error_rate == 0 and all(f == 0 and max(m) == 0 for _, f, *m in self.lines)

    @property
    def holds(self) -> bool:
        """Whether the first claim can be evaluated: not for inbred people at loci that mutate."""
        return not any((f > 0 or np.isnan(f)) and max(m) > 0 for _, f, *m in self.lines)


def _rows(members: Sequence[str], names: Sequence[str]) -> NDArray[np.intp]:
    place = {name: k for k, name in enumerate(members)}
    return np.array([place[n] for n in names], dtype=np.intp)


def _odd_mutations(family: Pedigree, locus: Locus) -> dict[str, tuple[float, float]]:
    """Return, for each person, the chance that the father's and the mother's allele mutated oddly often.

    m = 0 for a founder; an allele of a parent is paternal or maternal with equal chance (always maternal
    in a male on the X), and one more mutation turns m into m (1 − μ) + (1 − m) μ.
    """
    mu = locus.mutation_rate
    found: dict[str, tuple[float, float]] = {}

    def passed(parent: str) -> float:
        paternal, maternal = found[parent]
        m = maternal if locus.copies(family[parent]) == 1 else 0.5 * (paternal + maternal)
        return m * (1.0 - mu) + (1.0 - m) * mu

    for person in family.ordered:
        parents = person.parents
        found[person.name] = (passed(parents[0]), passed(parents[1])) if parents else (0.0, 0.0)
    return found


def _own_line(
    line: tuple[int, float, float, float], error_rate: float, frequencies: Vector, node: float
) -> Vector:
    """Return max_x τ(x) for every frequency: total variation of the own line given x, to the node's."""
    copies, inbred, paternal, maternal = line
    if error_rate == 0.0 and inbred == 0.0 and max(paternal, maternal) == 0.0:
        return np.zeros(len(frequencies))
    if np.isnan(inbred):
        return np.ones(len(frequencies))
    here = _own_law(copies, inbred, paternal, maternal, error_rate, frequencies)
    there = _own_law(copies, inbred, paternal, maternal, error_rate, np.array([node]))
    tau = 0.5 * np.abs(here - there).sum(axis=-1)
    return up_array(tau.max(axis=0), 4096.0) + 1e-15


def _own_law(
    copies: int, inbred: float, paternal: float, maternal: float, error_rate: float, p: Vector
) -> Vector:
    """Return P(own line | x): axes called genotype, frequency, line (both one copy, parities, alleles)."""
    weights: list[tuple[int, Vector]] = []
    chance = (1.0 - p, p)
    if copies == 1:
        for odd in (0, 1):
            for value in (0, 1):
                weights.append((value, (maternal if odd else 1.0 - maternal) * chance[value ^ odd]))
    else:
        if inbred > 0:
            weights += [(2 * value, inbred * chance[value]) for value in (0, 1)]
        for odd in range(4):
            first, second = odd & 1, odd >> 1
            flips = (paternal if first else 1.0 - paternal) * (maternal if second else 1.0 - maternal)
            for a in (0, 1):
                for b in (0, 1):
                    law = (1.0 - inbred) * flips * chance[a ^ first] * chance[b ^ second]
                    weights.append((a + b, law))
    calls = call_table(error_rate, copies + 1)
    joint = np.stack([np.stack([calls[t, x] * w for t, w in weights], axis=-1) for x in range(copies + 1)])
    total = joint.sum(axis=-1, keepdims=True)
    given: Vector = np.divide(joint, total, out=np.zeros_like(joint), where=total > 0)
    return given
