"""Zhao (2017) as printed: Lemmas 1 and 4, the sample sizes of Theorem 1, σ and T of Theorem 2.

Lemma 1 applies McDiarmid's inequality to dependent records, so **it and the theorems are not valid** unless
the records are independent: see ``docs/errata``.  They are here because people will want to compare.
Lemmas 2 and 3 are bounds of the engine (``method="published"`` and ``"published-blanket"``); Theorem 3 is a
method of :func:`~quiltdp.generalization.bayesian_dp_max_information`.

n_* (7) goes through Lemma 3 (the Markov blanket of every record), n_# (8) through Lemma 2 (its best
quilt).  The second terms are 9B/(4σ ε'(τ/3)), with ε'(ε) the DP cost that the lemma allows for ε: the
paper says so itself, between (32) and (33).

**Lemma 4.**  With g the spectral gap, ρ the smallest stationary probability and any constant c in (0, 1/6),
on a chain of n ≥ 2d steps, ε-Bayesian DP follows from h-DP, where

    h = min{ (1 − 6c) ε / (2d − 1),  (1/3 − 2c) ε / (d + s) },
    d = ⌈(1/g) ln( (e^{cε} + 1) / (ρ (e^{cε} − 1)) )⌉,
    s = ⌈(1/g) ln( (e^{ε/6} + 1) / (ρ (e^{ε/6} − 1)) )⌉.

d is the half-width of the quilt {i − d, i + d} in the middle; s enters through d + s, at the ends of the
chain.  The lemma itself does not define s (its t and ξ are never used); the definition stands after (33).
The second term is always the smaller one, since 3(d + s) > 2d − 1.  The chain is homogeneous, aperiodic,
irreducible and reversible; it may start in any law.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from quiltdp.accountant.leakage import analyze
from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.errors import InvalidArgument, ModelTooWide, QuiltdpError, option
from quiltdp.generalization._checks import count, non_negative, positive, probability, round_up
from quiltdp.generalization.plan_result import Plan
from quiltdp.generalization.routes import Alternative
from quiltdp.inference.chains import spectral_gap
from quiltdp.inference.influence import blanket_influence
from quiltdp.inference.workspace import Workspace
from quiltdp.interface import any_model
from quiltdp.model import Model

_MOST_BLANKETS = 2_000
_LONG_CHAIN = 2_001  # more than twice as wide as the widest quilt that is looked at

NOT_VALID = "not valid for dependent records"
"""The proof uses McDiarmid's inequality without independence; erratum 4 has the counterexample."""


def published_tail(t: float, n: int, *, sensitivity: float | None = None) -> float:
    """Return 2 exp(−t²/(2nΔ²)), the tail that Lemma 1 gives *dependent* records: not valid.

    It is a concentration inequality for independent records.  n copies of one fair bit have
    |q − E q| = ½ always, whatever n.  Δ = 1/n unless given: then it is 2e^{−t²n/2}.

    Examples
    --------
    >>> round(published_tail(0.1, 1000), 6)
    0.013476

    References
    ----------
    Zhao (2017), proof of Lemma 1 (line 607).
    """
    delta = 1 / count("n", n) if sensitivity is None else positive("sensitivity", sensitivity)
    return min(1.0, 2 * math.exp(-(non_negative("t", t) ** 2) / (2 * n * delta**2)))


def published_deviation(
    epsilon: float, accuracy: float, n: int, *, sensitivity: float | None = None
) -> float:
    """Return 4 exp(−τ²/(9nΔ²)), Lemma 1's chance that |Y(X) − Y(P)| ≥ τ: not valid for dependent records.

    Examples
    --------
    >>> round(published_deviation(0.03, 0.1, 5000), 6)      # ε ≤ τ/(3nΔ) = τ/3
    0.015464

    Raises
    ------
    InvalidArgument
        If ε > τ/(3nΔ), which the lemma needs.

    References
    ----------
    Zhao (2017), Lemma 1 (line 223).
    """
    size, tau = count("n", n), positive("accuracy", accuracy)
    delta = 1 / size if sensitivity is None else positive("sensitivity", sensitivity)
    if non_negative("epsilon", epsilon) > tau / (3 * size * delta) * (1 + 1e-12):
        raise InvalidArgument(f"Lemma 1 needs ε ≤ τ/(3nΔ) = {tau / (3 * size * delta):g}, not {epsilon:g}")
    return min(1.0, 4 * math.exp(-(tau**2) / (9 * size * delta**2)))


def published_n_star(
    *, budget: int, sigma: float, accuracy: float, failure: float, influences: Iterable[float] = (0.0,)
) -> float:
    """Return n_* = max{ 9 ln(4/β)/τ², max_i 9B / (4σ (τ/3 − 4a_i)) }; ∞ where some 4a_i ≥ τ/3.

    Parameters
    ----------
    budget, sigma, accuracy, failure
        B, σ, τ, β.
    influences
        a_i of every record: the max-influence of its Markov blanket.

    Examples
    --------
    >>> round(published_n_star(budget=5, sigma=0.01, accuracy=0.1, failure=0.05))
    33750

    References
    ----------
    Zhao (2017), Theorem 1, (7) (line 179).
    """
    quilts = [[(1, non_negative("influences", a))] for a in influences]
    return published_n_sharp(budget=budget, sigma=sigma, accuracy=accuracy, failure=failure, quilts=quilts)


def published_n_sharp(
    *,
    budget: int,
    sigma: float,
    accuracy: float,
    failure: float,
    quilts: Iterable[Sequence[tuple[int, float]]],
) -> float:
    """Return n_# = max{ 9 ln(4/β)/τ², max_i min_Q 9B (|N| + 1) / (4σ (τ/3 − 4b)) }.

    Parameters
    ----------
    quilts
        For every record its quilts as (|N| + 1, b).  Those with 4b ≥ τ/3 say nothing; ∞ where a record
        has no other.

    Examples
    --------
    >>> one = [(1, 0.02), (5, 0.001)]                      # a blanket too influential, and a wider quilt
    >>> round(published_n_sharp(budget=5, sigma=0.01, accuracy=0.1, failure=0.05, quilts=[one]))
    191761

    References
    ----------
    Zhao (2017), Theorem 1, (8) (line 183).
    """
    b, scale = count("budget", budget), positive("sigma", sigma)
    tau = probability("accuracy", accuracy)
    needed = 9 * math.log(4 / probability("failure", failure)) / tau**2
    for record in quilts:
        usable = [(size, tau / 3 - 4 * influence) for size, influence in record if 4 * influence < tau / 3]
        least = min((9 * b * size / (4 * scale * room) for size, room in usable), default=math.inf)
        needed = max(needed, least)
    return round_up(needed)


@dataclass(frozen=True)
class PublishedRecords:
    """n_* and n_# of one model: each is the larger of the common first term and its own second one.

    Attributes
    ----------
    first
        9 ln(4/β)/τ².
    blankets, quilts
        The second terms of (7) and (8), with the model's own a_i and b_i; ∞ where the lemma says
        nothing.
    chain
        9B/(4σ h(τ/3)) with Lemma 4's h, for one homogeneous reversible chain; ``None`` for others.
    """

    first: float
    blankets: float
    quilts: float
    chain: float | None
    warning: str = NOT_VALID

    @property
    def n_star(self) -> float:
        """n_*, (7)."""
        return max(self.first, self.blankets)

    @property
    def n_sharp(self) -> float:
        """n_#, (8)."""
        return max(self.first, self.quilts)

    @property
    def n_chain(self) -> float | None:
        """The form for Markov chains, through Lemma 4."""
        return None if self.chain is None else max(self.first, self.chain)


@any_model
def published_records(
    model: Model, *, budget: int, sigma: float, accuracy: float, failure: float
) -> PublishedRecords:
    """Return n_* and n_# of Theorem 1 for this model (not valid for dependent records).

    n_# is implicit where |N| depends on n: it is evaluated at the model's own number of records.

    Examples
    --------
    >>> from quiltdp import Model
    >>> coins = Model.from_tables({f"R{k}": ([], [0.5, 0.5]) for k in range(6)})
    >>> found = published_records(coins, budget=5, sigma=0.01, accuracy=0.1, failure=0.05)
    >>> round(found.first), round(found.n_star), round(found.n_sharp)
    (3944, 33750, 33750)

    References
    ----------
    Zhao (2017), Theorem 1.
    """
    b, scale = count("budget", budget), positive("sigma", sigma)
    tau = probability("accuracy", accuracy)
    first = published_n_star(budget=b, sigma=scale, accuracy=tau, failure=failure, influences=())
    return PublishedRecords(
        first,
        _second_term(b, scale, tau / 3 - 4 * largest_blanket_influence(model)),
        _second_term(b, scale, _allowed_by_quilts(model, tau / 3)),
        _chain_records(model, b, scale, tau / 3),
    )


def _second_term(budget: int, sigma: float, allowed: float) -> float:
    return round_up(9 * budget / (4 * sigma * allowed)) if allowed > 0 else math.inf


def _allowed_by_quilts(model: Model, epsilon: float) -> float:
    """Return ε' of Lemma 2, (10): the largest DP cost that the best quilts allow for ε; 0 for none.

    On a stationary homogeneous chain the record in the middle forces it: a record near an end has every
    quilt of the middle, or a smaller one with the missing side left out.
    """
    try:
        if isinstance(model, ChainModel) and len(model.segments) == 1 and _is_stationary(model.segments[0]):
            short = ChainModel([_shorten_chain(model.segments[0], _LONG_CHAIN)])
            middle = [[short.nodes[len(short.nodes) // 2]]]
            profile = analyze(short, method="published", protect=middle)
            found = profile.dp_epsilon(epsilon)
            # on a longer chain the same quilt is the best one, unless it was the whole chain
            if len(short.nodes) == len(model.nodes) or found > 1.001 * epsilon / len(short.nodes):
                return found
        return analyze(model, method="published").dp_epsilon(epsilon)
    except QuiltdpError:
        return 0.0


def largest_blanket_influence(model: Model) -> float:
    """Return max_i a_i of Lemma 3; ∞ where a blanket is too wide, or there are too many to look at."""
    looked_at = model
    if isinstance(model, ChainModel) and len(model.nodes) > _MOST_BLANKETS:
        looked_at = ChainModel([_shorten_chain(segment, 5) for segment in model.segments])
    if len(looked_at.records) > _MOST_BLANKETS:
        return math.inf
    space = Workspace(looked_at)
    try:
        return max(
            (blanket_influence(looked_at, node, workspace=space) for node in looked_at.records), default=0.0
        )
    except ModelTooWide:
        return math.inf


def _shorten_chain(segment: ChainSegment, steps: int) -> ChainSegment:
    """Return fewer steps of a stationary homogeneous chain: its ends and its middle look the same."""
    if not _is_stationary(segment) or segment.length <= steps:
        return segment
    return ChainSegment(segment.prefix, steps, segment.initial, segment.transitions)


def _is_stationary(segment: ChainSegment) -> bool:
    law = np.asarray(segment.initial)
    if not segment.homogeneous or segment.length < 2:
        return False
    return bool(np.abs(law @ np.asarray(segment.transition(0)) - law).max() <= 1e-12)


def _chain_records(model: Model, budget: int, sigma: float, epsilon: float) -> float | None:
    if not isinstance(model, ChainModel) or len(model.segments) != 1:
        return None
    try:
        gap, rho = spectral_gap(model.segments[0])
    except InvalidArgument:
        return None
    length = len(model.nodes)
    allowed = lemma4_dp_epsilon(epsilon, gap=gap, rho=rho, length=length)[0] if gap > 0 else 0.0
    return _second_term(budget, sigma, allowed)


@dataclass(frozen=True)
class PublishedPlan:
    """What the published Theorem 2 prescribes, with the warning that belongs to it.

    Attributes
    ----------
    sigma, threshold
        σ = (1−c)τ/(12 ln(4m/β)) and T = (1+c)τ/2.
    accuracy, failure
        What goes into Theorem 1: (1−c)τ/4 and β/2m.
    slack
        c: queries whose training value is off by less than cτ are not counted as overfitted.
    records
        n_* and n_# at these, for one model; ``None`` without a model.
    """

    sigma: float
    threshold: float
    accuracy: float
    failure: float
    slack: float
    records: PublishedRecords | None = None
    warning: str = NOT_VALID

    @property
    def least_records(self) -> float:
        """The first term, which no model can be below: 144 ln(8m/β)/((1−c)²τ²)."""
        return round_up(9 * math.log(4 / self.failure) / self.accuracy**2)


def published_plan(
    model: object = None,
    *,
    queries: int,
    budget: int,
    accuracy: float,
    failure: float,
    slack: float,
) -> PublishedPlan:
    """Return σ, T, and n_* and n_# of the published Theorem 2 (not valid for dependent records).

    Theorem 1 with σ as below, τ → (1−c)τ/4 and β → β/2m; the paper's (31) forgets the last two.

    Parameters
    ----------
    model
        For n_* and n_#; without it only σ and T.
    slack
        c in (0, 1), an arbitrary constant of the theorem.

    Examples
    --------
    >>> p = published_plan(queries=100, budget=5, accuracy=0.1, failure=0.05, slack=0.5)
    >>> round(p.sigma, 7), round(p.threshold, 6), round(p.least_records)
    (0.0004636, 0.075, 557588)

    References
    ----------
    Zhao (2017), Theorem 2 (line 199).
    """
    m, b = count("queries", queries), count("budget", budget)
    if m < b:
        raise InvalidArgument(f"Theorem 2 needs m ≥ B: {m} queries, budget {b}")
    tau, beta = probability("accuracy", accuracy), probability("failure", failure)
    c = probability("slack", slack)
    sigma = (1 - c) * tau / (12 * math.log(4 * m / beta))
    inner, chance = (1 - c) * tau / 4, beta / (2 * m)
    records = None
    if model is not None:
        records = published_records(model, budget=b, sigma=sigma, accuracy=inner, failure=chance)
    return PublishedPlan(sigma, (1 + c) * tau / 2, inner, chance, c, records)


_STEPS = 10**7  # no chain the library takes is wider than so many steps of a quilt


def lemma4_distances(epsilon: float, *, gap: float, rho: float, c: float) -> tuple[int, int]:
    """Return (d, s) of Lemma 4.

    Examples
    --------
    >>> lemma4_distances(1.0, gap=0.2, rho=0.5, c=0.1)
    (19, 16)

    References
    ----------
    Zhao (2017), Lemma 4 (line 255) and (33) (line 420).
    """
    if not (epsilon > 0.0 and 0.0 < gap <= 1.0 and 0.0 < rho <= 1.0):
        raise InvalidArgument("Lemma 4 needs ε > 0, a spectral gap and a stationary probability in (0, 1]")
    if not 0.0 < c < 1 / 6:
        raise InvalidArgument(f"{option('c')} must lie strictly between 0 and 1/6, not {c!r}")
    return _distance(c * epsilon, gap, rho), _distance(epsilon / 6, gap, rho)


def _distance(share: float, gap: float, rho: float) -> int:
    """Return ⌈(1/g) ln((e^x + 1)/(ρ(e^x − 1)))⌉ for a share x of ε; tanh keeps small x exact."""
    return math.ceil(-(math.log(rho) + math.log(math.tanh(share / 2))) / gap)


def lemma4_dp_epsilon(
    epsilon: float, *, gap: float, rho: float, length: int, c: float | None = None
) -> tuple[float, float]:
    """Return (h, c): the DP cost that Lemma 4 allows for ε, and the constant it takes.

    With ``c=None`` the best constant is taken: for each whole d the smallest c that has it.  0 where
    the lemma does not apply (n < 2d for every c).

    Examples
    --------
    >>> h, c = lemma4_dp_epsilon(1.0, gap=0.2, rho=0.5, length=10_000, c=0.1)
    >>> round(h, 6), round(lemma4_dp_epsilon(1.0, gap=0.2, rho=0.5, length=10_000)[0], 6)
    (0.00381, 0.006912)

    References
    ----------
    Zhao (2017), Lemma 4, (11) (line 257).
    """
    if c is not None:
        d, s = lemma4_distances(epsilon, gap=gap, rho=rho, c=c)
        return (_lemma4_h(epsilon, c, d, s) if length >= 2 * d else 0.0), c
    _, s = lemma4_distances(epsilon, gap=gap, rho=rho, c=0.1)
    best, at = 0.0, 0.1
    for d in range(s, min(length // 2, s + _STEPS) + 1):
        grown = rho * math.exp(min(gap * d, 700.0))
        if grown <= 1.0:
            continue
        smallest = 2 * math.atanh(1 / grown) / epsilon * (1 + 1e-12)  # below it the half-width is d + 1
        if smallest < 1 / 6:
            found = _lemma4_h(epsilon, smallest, d, s)
            if found > best:
                best, at = found, smallest
        if epsilon / (3 * (d + s)) <= best:  # no larger d can do better
            break
    return best, at


def _lemma4_h(epsilon: float, c: float, d: int, s: int) -> float:
    return min((1 - 6 * c) * epsilon / (2 * d - 1), (1 / 3 - 2 * c) * epsilon / (d + s))


def lemma4_leakage(dp_epsilon: float, *, gap: float, rho: float, length: int) -> float:
    """Return the smallest ε whose h(ε) is at least ``dp_epsilon``, rounded up; ∞ where there is none.

    h grows with ε (d and s fall), so bisection finds it.

    Examples
    --------
    >>> round(lemma4_leakage(0.0069116, gap=0.2, rho=0.5, length=10_000), 3)
    1.0
    """
    if dp_epsilon <= 0.0:
        return 0.0

    def enough(epsilon: float) -> bool:
        return lemma4_dp_epsilon(epsilon, gap=gap, rho=rho, length=length)[0] >= dp_epsilon

    low, high = 0.0, 1e-6
    while not enough(high):
        low, high = high, 2 * high
        if high > 1e9:
            return math.inf
    for _ in range(100):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high * (1 + 1e-12)


def _noise_terms(a: float, sigma: float, threshold: float, queries: int, spends: int) -> tuple[float, float]:
    """Return the two halves of b(a) at the best split: threshold and comparison noise, answer noise."""
    room = a - threshold
    first = 2 * sigma / 3 * (math.log(2 * spends / queries) + room / (2 * sigma))
    first = min(max(first, 0.0), room)
    noise = 0.5 * spends * math.exp(-first / sigma) + 0.5 * queries * math.exp(-(room - first) / (2 * sigma))
    return noise, spends * math.exp(-a / (4 * sigma))


def sample_failure(a: float, *, sigma: float, threshold: float, queries: int, budget: int) -> float:
    """Return b(a), at the best s₁ + s₂ = a − T, at most 1, rounded up.

    Examples
    --------
    >>> round(sample_failure(0.1, sigma=0.002, threshold=0.05, queries=100, budget=10), 5)
    0.01058

    References
    ----------
    Theorem 2 of Zhao (2017), with every constant kept.
    """
    spends = _checked_answers(a, sigma, threshold, queries, budget)
    return min(1.0, round_up(sum(_noise_terms(a, sigma, threshold, queries, spends))))


def expected_excess(a: float, *, sigma: float, threshold: float, queries: int, budget: int) -> float:
    """Bound ∫_a^∞ b: the expected amount by which the worst answer is off by more than a; rounded up.

    Claim: when a grows by x, give a third of it to s₁ and two thirds to s₂: the first two terms of b fall
    like e^{−x/3σ} and the last like e^{−x/4σ}, so the integral is at most 3σ times the former plus
    4σ times the latter, which is at most 4σ b(a).

    Examples
    --------
    >>> excess = expected_excess(0.1, sigma=0.002, threshold=0.05, queries=100, budget=10)
    >>> excess <= 4 * 0.002 * sample_failure(0.1, sigma=0.002, threshold=0.05, queries=100, budget=10)
    True
    """
    spends = _checked_answers(a, sigma, threshold, queries, budget)
    noise, answers = _noise_terms(a, sigma, threshold, queries, spends)
    return round_up(3 * sigma * noise + 4 * sigma * answers)


def _checked_answers(a: float, sigma: float, threshold: float, queries: int, budget: int) -> int:
    positive("sigma", sigma)
    non_negative("threshold", threshold)
    m, b = count("queries", queries), count("budget", budget)
    if not a >= threshold:
        raise InvalidArgument(f"a = {a:g} must not be below the threshold {threshold:g}")
    return min(m, b)


def with_published(model: object, plan: Plan, *, overfit: float | None = None) -> Plan:
    """Return the plan with one more alternative: what Theorem 2 would have asked for, and its warning.

    c is the plan's ``overfit`` as a share of its accuracy, 0.05 without one.
    """
    sizes = published_plan(
        model,
        queries=plan.queries,
        budget=plan.budget,
        accuracy=plan.accuracy,
        failure=1 - plan.confidence,
        slack=min(overfit / plan.accuracy if overfit else 0.05, 0.99),
    ).records
    assert sizes is not None
    needed = f"n_* = {_format_records(sizes.n_star)} or n_# = {_format_records(sizes.n_sharp)} records"
    if sizes.n_chain is not None:
        needed += f" ({_format_records(sizes.n_chain)} by its Markov-chain form)"
    row = Alternative(
        "published",
        "Zhao (2017), Theorem 2",
        plan.accuracy if min(sizes.n_star, sizes.n_sharp) <= plan.records else None,
        valid=False,
        note=f"Theorem 2 of Zhao asks for {needed}; {NOT_VALID}",
    )
    return replace(plan, alternatives=(*plan.alternatives, row))


def _format_records(records: float) -> str:
    return f"{math.ceil(records):,}" if math.isfinite(records) else "∞"
