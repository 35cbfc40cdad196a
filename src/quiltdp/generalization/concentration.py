"""Concentration without independence, and the effective sample size of correlated records.

For a Bayesian network in topological order, θ_{p→j} is the most parent p can move child j in total
variation.  Replacing node i moves node j with probability at most δ_j, where δ_i = 1 and
δ_j = min(1, Σ_{p ∈ pa(j)} θ_{p→j} δ_p).  With h_i = Σ_{records j} δ_j, every Δ-sensitive query has

    P[ |q(X) − E q(X)| ≥ t ] ≤ 2 exp( −2t² / (Δ² Σ_i h_i²) ),

the sum over **every** node, latent ones included.  Independent records give McDiarmid's inequality.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import count, non_negative, positive, probability, round_down, round_up
from quiltdp.interface import any_model
from quiltdp.model import Factor, Model, Table

Floats = NDArray[np.float64]
MOST_POWERS = 4096


@dataclass(frozen=True)
class Concentration:
    """What concentration promises about every Δ-sensitive query of ``records`` records.

    Attributes
    ----------
    records
        n, the number of records.
    sum_of_squares
        Σ h_i² over all nodes, rounded up.
    """

    records: int
    sum_of_squares: float

    def __post_init__(self) -> None:
        """Refuse a sum that no model has."""
        count("records", self.records)
        positive("sum_of_squares", self.sum_of_squares)

    @property
    def effective_sample_size(self) -> float:
        """n_eff = n² / Σ h_i²: as many independent records concentrate equally well; rounded down."""
        return round_down(self.records**2 / self.sum_of_squares)

    def tail(self, t: float, *, sensitivity: float | None = None) -> float:
        """Return 2 exp(−2t²/(Δ² Σ h_i²)), at most 1, rounded up; Δ = 1/n unless given."""
        delta = 1 / self.records if sensitivity is None else positive("sensitivity", sensitivity)
        exponent = 2 * (non_negative("t", t) / delta) ** 2 / self.sum_of_squares
        return min(1.0, round_up(2 * math.exp(-round_down(exponent))))

    def radius(self, chance: float, *, sensitivity: float | None = None) -> float:
        """Return a with P[|q − E q| > a] ≤ ``chance``: Δ √(Σ h_i² ln(2/chance)/2), rounded up."""
        delta = 1 / self.records if sensitivity is None else positive("sensitivity", sensitivity)
        return round_up(delta * self.records * self.deviation_at(math.log(2 / probability("chance", chance))))

    def deviation_at(self, nats: float) -> float:
        """Return t with P[|q − E q| > t] ≤ 2 e^{−nats} for Δ = 1/n, rounded up."""
        return round_up(math.sqrt(nats / (2 * self.effective_sample_size)))


@dataclass(frozen=True)
class GroupSums(Concentration):
    """What sums over independent groups of copied records promise; see :func:`additive_concentration`.

    ``groups`` counts the groups of size m whose records copy with probability c: (m, c) → how many.
    """

    groups: Mapping[tuple[int, float], int]

    @cached_property
    def _chernoff_costs(self) -> tuple[Floats, Floats]:
        """λ and Σ ln E exp(λ²(K² + m − K)/8) over the groups, K ~ Bin(m, c)."""
        scales = np.geomspace(1e-6, 10, 600)
        total = np.zeros(len(scales))
        for (size, chance), many in self.groups.items():
            copied = np.arange(size + 1.0)
            powers = scales[:, None] ** 2 * (copied**2 + size - copied) / 8 + _log_binomial(size, chance)
            top = powers.max(axis=1)
            total += many * (top + np.log(np.exp(powers - top[:, None]).sum(axis=1)))
        return scales, total * (1 + 1e-12)

    def deviation_at(self, nats: float) -> float:
        """Return t with P[|q − E q| > t] ≤ 2 e^{−nats}, by Chernoff's bound, rounded up."""
        scales, costs = self._chernoff_costs
        return round_up(float(((nats + costs) / scales).min()) / self.records)

    def tail(self, t: float, *, sensitivity: float | None = None) -> float:
        """Return 2 exp(−sup_λ (λnt − costs)), at most 1, rounded up."""
        delta = 1 / self.records if sensitivity is None else positive("sensitivity", sensitivity)
        scales, costs = self._chernoff_costs
        return min(
            1.0,
            round_up(2 * math.exp(-max(0.0, float((scales * non_negative("t", t) / delta - costs).max())))),
        )


def _log_binomial(size: int, chance: float) -> Floats:
    """Return ln P[Bin(m, c) = k] for k = 0, …, m."""
    if chance in (0.0, 1.0):
        return np.where(np.arange(size + 1) == chance * size, 0.0, -np.inf)
    k = np.arange(size + 1.0)
    log_factorial = np.cumsum(np.log(np.maximum(k, 1.0)))
    ways = log_factorial[-1] - log_factorial - log_factorial[::-1]
    return np.asarray(ways + k * math.log(chance) + (size - k) * math.log1p(-chance))


@any_model
def concentration(model: Model) -> Concentration:
    """Compute Σ h_i² of a model, and with it tail bounds and the effective sample size.

    For a homogeneous chain δ_j is the contraction of the whole (j − i)-step matrix (a maximal
    coupling of the two futures meets as fast as their laws do), so a chain that forgets in two
    steps is seen to, and a million steps cost a few matrix powers.

    Raises
    ------
    InvalidArgument
        For a Markov network: it has no conditional tables to walk along.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> found = concentration(markov_chain([[0.9, 0.1], [0.1, 0.9]], length=1_000_000))
    >>> round(found.effective_sample_size)        # a million records, correlation time 5
    40000
    >>> round(found.radius(0.05), 4)
    0.0068

    References
    ----------
    Kontorovich and Ramanan, "Concentration inequalities for dependent random variables via the
    martingale method" (2008), with the martingale differences bounded by a coupling.
    """
    if isinstance(model, ChainModel):
        total = math.fsum(_chain_sum(s) for s in model.segments)
    else:
        total = math.fsum(h * h for h in influence_sums(model).values())
    return Concentration(len(model.records), round_up(total))


@any_model
def additive_concentration(model: Model) -> Concentration:
    """Return Σ h² for *additive* queries of chains: n (1 + λ)/(1 − λ); or of groups of copies.

    Claim: for a stationary Markov chain and functions f_i with values in intervals of length c_i,
    P[|Σ f_i(X_i) − E| ≥ t] ≤ 2 exp(−2t² (1 − λ)/((1 + λ) Σ c_i²)), λ the norm of the transition operator on
    functions of mean zero; for a reversible chain that is its second largest |eigenvalue|.  Independent
    chains add.  Only for sums of one function per record: 1 + λ where :func:`concentration`, for every
    sensitive query, has (1 − λ)^{−1}.

    Claim: let the m records of a group each copy a hidden value with probability c, and else be drawn anew
    from its law π.  Given that K copy, Σ f_j(X_j) has the mean Σ π f_j and is a function of range K plus
    m − K independent ones of range 1, so that E exp(λ(Σ f_j − E)) ≤ E exp(λ²(K² + m − K)/8),
    K ~ Bin(m, c).  Groups add.

    Raises
    ------
    InvalidArgument
        Unless the model is made of homogeneous chains in their stationary law, or of such groups.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> chain = markov_chain([[0.8, 0.2], [0.2, 0.8]], length=100_000)
    >>> [round(c(chain).effective_sample_size) for c in (concentration, additive_concentration)]
    [16000, 25000]

    References
    ----------
    Fan, Jiang and Sun, "Hoeffding's inequality for general Markov chains and its applications to statistical
    learning", JMLR 22 (2021), arXiv:1802.00211: a stationary chain's Σ f_i(X_i), f_i in [a_i, b_i], is
    sub-Gaussian with variance proxy (1 + λ)/(1 − λ) · Σ (b_i − a_i)²/4, reversible or not.  León and Perron
    (2004) for one function of a reversible chain.
    """
    if not isinstance(model, ChainModel):
        groups = _copying_groups(model)
        total = math.fsum(many * size * (1 + (size - 1) * c * c) for (size, c), many in groups.items())
        return GroupSums(len(model.records), round_up(total), groups)
    total = 0.0
    for segment in model.segments:
        norm = 0.0 if segment.length == 1 else 1 - (1 - _operator_norm(segment)) * (1 - 1e-9)
        if norm >= 1:
            raise InvalidArgument("the chain does not mix")
        total += segment.length * (1 + norm) / (1 - norm)
    return Concentration(len(model.records), round_up(total))


def _operator_norm(segment: ChainSegment) -> float:
    """Return the norm of a stationary chain's transition operator on functions of mean zero."""
    if not segment.homogeneous:
        raise InvalidArgument("sums concentrate by the norm of one transition matrix")
    step, law = np.asarray(segment.transition(0)), np.asarray(segment.initial)
    if law.min() <= 0 or not np.allclose(law @ step, law, rtol=1e-9, atol=1e-12):
        raise InvalidArgument("sums concentrate for a chain in a positive stationary law")
    root = np.sqrt(law)
    values = np.linalg.svd(root[:, None] * step / root - np.outer(root, root), compute_uv=False)
    return float(values[0])


def _copying_groups(model: Model) -> Counter[tuple[int, float]]:
    """Return how many groups of m records there are that copy a hidden value with probability c."""
    laws = {f.scope[0]: f.table for f in model.factors if len(f.scope) == 1 and model.directed}
    copies: dict[str, list[float]] = {node: [] for node in laws}
    known: dict[tuple[int, int], float] = {}
    for factor in model.factors:
        if len(factor.scope) == 1 and model.is_record(factor.scope[0]):
            copies[factor.scope[0]].append(0.0)
        elif len(factor.scope) == 2 and factor.scope[0] in laws and model.is_record(factor.scope[1]):
            hub = factor.scope[0]
            if (key := (id(factor.table), id(laws[hub]))) not in known:
                known[key] = _copy_probability(np.asarray(factor.table), np.asarray(laws[hub]))
            copies[hub].append(known[key])
        elif len(factor.scope) > 1:
            raise InvalidArgument(
                "sums concentrate for Markov chains, and for groups that copy a hidden value"
            )
    if any(len(set(found)) != 1 for found in copies.values()):
        raise InvalidArgument("sums concentrate for groups whose records copy with one probability")
    return Counter((len(found), found[0]) for found in copies.values())


def _copy_probability(table: Floats, law: Floats) -> float:
    """Return c, rounded up, where the table is c times the identity plus 1 − c times the law."""
    if table.shape == (len(law), len(law)):
        chance = float(np.clip((np.trace(table) - 1) / max(len(law) - 1, 1), 0, 1))
        if np.allclose(table, chance * np.eye(len(law)) + (1 - chance) * law, rtol=0, atol=1e-12):
            return min(1.0, chance + 1e-10)
    raise InvalidArgument(
        "sums concentrate for groups whose records copy a hidden value or are drawn from its law"
    )


@any_model
def effective_sample_size(model: Model) -> float:
    """Return n_eff = n²/Σ h_i²: how many independent records concentrate as well as these.

    Examples
    --------
    >>> from quiltdp import Model
    >>> coin = {"C": ([], [0.5, 0.5])}
    >>> copies = {f"R{k}": (["C"], [[1, 0], [0, 1]]) for k in range(10)}
    >>> m = Model.from_tables({**coin, **copies}, records=list(copies))
    >>> round(effective_sample_size(m), 3)        # one latent coin copied ten times
    0.909
    """
    return concentration(model).effective_sample_size


@any_model
def influence_sums(model: Model) -> dict[str, float]:
    """Return h_i for every node, latent ones included (for a Bayesian network).

    h_i = Σ_{records j at or after i} δ_j, δ_i = 1, δ_j = min(1, Σ_{p ∈ pa(j)} θ_{p→j} δ_p).

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> m = markov_chain([[0.9, 0.1], [0.1, 0.9]], length=3)
    >>> {node: round(h, 6) for node, h in influence_sums(m).items()}
    {'X0': 2.44, 'X1': 1.8, 'X2': 1.0}
    """
    if not model.directed:
        raise InvalidArgument(
            "concentration needs a Bayesian network (conditional tables); this is a Markov network:"
            " give the model as conditional tables"
        )
    order = model.topological_order
    place = {node: k for k, node in enumerate(order)}
    children: list[list[tuple[int, float]]] = [[] for _ in order]
    seen: dict[int, tuple[float, ...]] = {}
    for f in model.factors:
        thetas = seen.get(id(f.table))
        if thetas is None:
            thetas = seen[id(f.table)] = parent_distances(f)
        for parent, theta in zip(f.parents, thetas, strict=True):
            if theta > 0:
                children[place[parent]].append((place[f.scope[-1]], theta))
    record = [model.is_record(node) for node in order]
    return {node: _influence_sum(k, children, record) for k, node in enumerate(order)}


def _influence_sum(start: int, children: list[list[tuple[int, float]]], record: Sequence[bool]) -> float:
    """Push δ from one node down to all it reaches, in topological order."""
    moved = {start: 1.0}
    queue = [start]
    total = 0.0
    while queue:
        k = heapq.heappop(queue)
        chance = min(1.0, moved[k])
        total += chance if record[k] else 0.0
        for child, theta in children[k]:
            if child not in moved:
                moved[child] = 0.0
                heapq.heappush(queue, child)
            moved[child] += theta * chance
    return round_up(total)


def _chain_sum(segment: ChainSegment) -> float:
    """Return Σ h_i² of one chain."""
    if not segment.homogeneous or segment.length <= 2:
        seen: dict[int, float] = {}
        h, total = 1.0, 1.0
        for t in range(segment.length - 2, -1, -1):
            table = segment.transition(t)
            if id(table) not in seen:
                seen[id(table)] = contraction(table)
            h = 1.0 + seen[id(table)] * h
            total += h * h
        return round_up(total)
    partial, limit = _contraction_sums(segment)
    # with m steps to go, h = 1 + τ_1 + … + τ_m; beyond the known powers min(m + 1, the limit)
    known = np.minimum(partial[: segment.length], limit)
    total = float(known @ known)
    beyond = segment.length - len(known)
    if beyond > 0:
        first = len(known) + 1
        growing = max(0, min(beyond, int(min(limit, 1e15)) - first + 1))  # m + 1 below the limit
        total += _sum_of_squares(first + growing - 1) - _sum_of_squares(first - 1)
        if beyond > growing:
            total += (beyond - growing) * limit * limit
    return round_up(total)


def _sum_of_squares(k: int) -> int:
    return k * (k + 1) * (2 * k + 1) // 6


def _contraction_sums(segment: ChainSegment) -> tuple[np.ndarray, float]:
    """Return the partial sums 1 + τ_1 + … + τ_m, and a bound on all of them.

    τ_d is the contraction of the d-step matrix.  It is submultiplicative, so with S = Σ_{d<D} τ_d
    the whole sum is at most S/(1 − τ_D).
    """
    step = np.asarray(segment.transition(0))
    power = step
    sums = [1.0]
    best = math.inf
    for d in range(1, min(segment.length, MOST_POWERS)):
        tau = min(1.0, contraction(power) + 1e-15 * d * len(step))
        if tau < 1:
            best = min(best, sums[-1] / (1 - tau))
        sums.append(sums[-1] + tau)
        if tau < 1e-12:
            break
        power = power @ step
    return np.array(sums), round_up(best)


ROUNDING = 1e-15


def parent_distances(factor: Factor) -> tuple[float, ...]:
    """Return θ_{p→j} for every parent p of a CPT, in the order of its axes, rounded up.

    θ_{p→j} is the largest total variation between two rows of j's table that differ only in p:
    all rows count, also those of impossible parent combinations.

    Examples
    --------
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.3, 0.7]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    >>> [round(theta, 9) for theta in parent_distances(m.factors[1])]
    [0.7]
    """
    table = factor.table
    found = []
    for axis in range(table.ndim - 1):
        rows = np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1, table.shape[-1])
        found.append(_row_distance(rows))
    return tuple(found)


def contraction(transition: Table) -> float:
    """Return the largest total variation between two rows of a transition matrix, rounded up.

    Examples
    --------
    >>> import numpy as np
    >>> round(contraction(np.array([[0.9, 0.1], [0.1, 0.9]])), 9)
    0.8
    """
    return _row_distance(transition[:, None])


def _row_distance(rows: Floats) -> float:
    """Return the largest total variation of two laws (last axis) that differ in the first; rounded up."""
    worst = 0.0
    for a in range(len(rows) - 1):
        worst = max(worst, float(np.abs(rows[a + 1 :] - rows[a]).sum(axis=-1).max()) / 2)
    return min(1.0, worst + ROUNDING * rows.shape[-1]) if worst > 0 else 0.0
