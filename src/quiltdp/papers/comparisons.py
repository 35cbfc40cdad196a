"""What other papers say of the same chains: Zhao's Lemma 4, Lange et al., Ghosh and Kleinberg, Song et al.

Each is a function that reads like its theorem, and a bound of the same name.  They are for comparison:
``auto`` never takes one, ``method="lange"`` and its like ask for it.

*Assumes*: what each paper prints.  *Cost*: one eigenvalue problem or one banded system.

References
----------
J. Zhao, WPES 2017, Lemma 4.  M. Lange, P. Guerra-Balboa, J. Parra-Arnau, T. Strufe, PVLDB 2025.
A. Ghosh, R. Kleinberg, Inferential Privacy Guarantees for Differentially Private Mechanisms, 2016.
S. Song, Y. Wang, K. Chaudhuri, Pufferfish Privacy Mechanisms for Correlated Data, SIGMOD 2017.
"""

from __future__ import annotations

import math

import numpy as np

from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.bounds.chain_contraction import PathUnits
from quiltdp.accountant.bounds.contract import ALL, Bounds, Need, Problem, Vector, register
from quiltdp.accountant.bounds.mqm_chain import ChainInfluences, MarkovQuiltChainBound
from quiltdp.chain import ChainModel, ChainSegment, as_chain, stationary_distribution
from quiltdp.errors import InvalidArgument
from quiltdp.inference.chains import spectral_gap
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import up, up_array
from quiltdp.papers.zhao import lemma4_leakage
from quiltdp.work import WorkBudget


def lange_addend(segment: ChainSegment) -> float:
    """Return 4 ln γ, γ the largest over the smallest transition probability: what a neighbour can add to α.

    Claim: on a Markov chain with positive transitions an α-DP mechanism leaks at most α + 4 ln γ, because
    each neighbour moves the odds of a record by at most γ².  ∞ where a transition is impossible.

    References
    ----------
    Lange et al. (2025).  Their other form, m α for m correlated records, is the method ``group``.
    """
    if segment.length == 1:
        return 0.0
    smallest = min(float(np.min(t)) for t in segment.transitions)
    largest = max(float(np.max(t)) for t in segment.transitions)
    return up(4.0 * math.log(largest / smallest)) if smallest > 0.0 else math.inf


def gk16_factor(segment: ChainSegment) -> float:
    """Return the largest row sum of 2 (I − Γ)^{−1}: ε = α times that, the influence-matrix method.

    Γ is tridiagonal with γ = ½ ln of the largest ratio of P(x_i | x_{i−1}, x_{i+1}) when one neighbour
    changes.  ∞ when ‖Γ‖₂ ≥ 1.

    References
    ----------
    Ghosh and Kleinberg (2016), on a homogeneous chain.
    """
    if not segment.homogeneous:
        raise InvalidArgument("gk16 needs a homogeneous chain")
    n, p = segment.length, np.asarray(segment.transitions[0])
    if n == 1:
        return 2.0
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = p[:, :, None] * p[None, :, :]  # axes x_{i−1}, x_i, x_{i+1}
        logs = np.log(inner / inner.sum(axis=1, keepdims=True))
        ratios = (logs[:, None] - logs[None, :], logs[..., :, None] - logs[..., None, :])
    gamma = 0.5 * float(max(r.max() for r in ratios))  # NaN, an impossible triple, fails the comparison
    if not 2 * gamma * np.cos(np.pi / (n + 1)) < 1:
        return math.inf
    from scipy.linalg import solve_banded

    size = min(n, 4001)  # the middle row sums of a longer chain no longer move
    band = np.array([np.full(size, -gamma), np.ones(size), np.full(size, -gamma)])
    largest = float(solve_banded((1, 1), band, np.ones(size)).max())
    return 2.0 * (largest if size == n or gamma >= 0.5 else 1.0 / (1.0 - 2 * gamma))


def mqm_approx_influences(segment: ChainSegment) -> ChainInfluences:
    """Return I({i − a, i + b}) ≤ 2 ln((1 + Δ_a)/(1 − Δ_a)) + ln((1 + Δ_b)/(1 − Δ_b)), Δ_t = e^{−gt}/π_min.

    g is the spectral gap; distances with Δ ≥ 1 are not usable.

    References
    ----------
    Song, Wang and Chaudhuri (2017), MQMApprox, for a reversible chain in its stationary law.
    """
    gap, rho = spectral_gap(segment)
    if not np.allclose(
        segment.initial, stationary_distribution(segment.transitions[0]), rtol=1e-9, atol=1e-12
    ):
        raise InvalidArgument("mqm-approx needs a chain in its stationary law")
    width = min(segment.length - 1, 20_000)
    delta = np.exp(-gap * np.arange(1, width + 1)) / rho
    with np.errstate(divide="ignore", invalid="ignore"):
        side = np.where(delta < 1, np.log1p(delta) - np.log1p(-delta), np.inf)
    keep = min(width, int(np.searchsorted(-delta, -1.0)) + 1500)
    side = np.concatenate([[0.0], side[:keep]])
    return ChainInfluences(2 * side[None], side[None])


class _UnpreparedBound:
    """A comparison that needs no preparation."""

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Nothing is left to be done."""


@register(
    "lange", against=INFORMED, kind="published", says="α + 4 ln(largest / smallest transition probability)"
)
class LangeBound(_UnpreparedBound):
    """Leakage(i) ≤ α_i + 4 ln γ on a Markov chain with positive transitions."""

    def __init__(self, problem: Problem) -> None:
        model = as_chain(problem.model)
        self._places = np.array([model.index[r] for r in problem.single_records("lange")], dtype=np.intp)
        self._added = max(map(lange_addend, model.segments))

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return α + 4 ln γ for every record."""
        return Bounds(up_array(alpha[self._places] + self._added), "lange", "published")


@register("lemma4", against=INFORMED, kind="published", says="Lemma 4: spectral gap of a reversible chain")
class Lemma4Bound(_UnpreparedBound):
    """Lemma 4: the smallest ε whose h(ε) is at least α, at the best constant c, as printed.

    Raises
    ------
    InvalidArgument
        Unless the model is one homogeneous, reversible chain; it may start in any law.
    """

    def __init__(self, problem: Problem) -> None:
        model = problem.model
        self._count = len(problem.single_records("lemma4"))
        if not isinstance(model, ChainModel) or len(model.segments) != 1:
            raise InvalidArgument("lemma4 is stated for one Markov chain")
        self._length = len(model.nodes)
        self._gap, self._rho = spectral_gap(model.segments[0])

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return ε for the largest α (the lemma knows only equal ones)."""
        value = math.inf
        if self._gap > 0.0:
            value = lemma4_leakage(float(alpha.max()), gap=self._gap, rho=self._rho, length=self._length)
        return Bounds(np.full(self._count, up(value)), "lemma4", "published")


@register("gk16", against=PRIOR, kind="published", says="the influence-matrix method")
class GK16Bound(_UnpreparedBound):
    """The influence-matrix method on homogeneous chains; a window is charged for each of its records."""

    def __init__(self, problem: Problem) -> None:
        self._factor = gk16_factor(as_chain(problem.model).segments[0])
        self._units = PathUnits(problem)

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return the factor times α and the number of records."""
        records = (self._units.last - self._units.first + 1).astype(np.float64)
        return Bounds(self._factor * float(np.max(alpha)) * records, "gk16", "published")


@register("mqm-approx", against=PRIOR, kind="published", says="the Markov Quilt Mechanism's spectral form")
class MarkovQuiltApproxBound(MarkovQuiltChainBound):
    """MQM-approx: the Markov Quilt Mechanism with the spectral form of its influences."""

    name = "mqm-approx"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._influences = mqm_approx_influences(self._segment)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Nothing is left to be done."""
        self._check = workspace.guard.check
