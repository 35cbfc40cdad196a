"""(ε, δ) from pure bounds: every certified leakage carries a bound for mechanisms with a group profile.

Claim.  Let L(λ) be a certified leakage of a unit when the mechanism is α-DP with α_j = λ Δ_j, against some
adversary, and δ_u the mechanism's profile for a group of total sensitivity u.  For every λ > 0 and μ ≥ 0

    δ_BDP(ε) ≤ max_u [ δ_u( ε − L(λ) + λ u ) − μ ( e^{λ u} − e^{L(λ)} ) ],

u over the weights of what may change together: from those of one member of the unit to the whole component.

Why.  Fix two values x, x' of the unit and what is known; let p, q be the laws of the unknown records y,
and D(y, y') = λ Σ_{j: y_j ≠ y'_j} Δ_j.  An α-DP likelihood is any h > 0 with ln h of Lipschitz constant 1
for D (from possible states it extends to all), and D is a metric, so max ln E_p h / E_q h over them is the
lossy transport T(p, q; D).  With own the sensitivity of the members in which x and x' differ,
T ≤ m = L − λ own.  By duality of linear programs some f ≥ 0 has Σ_{y'} f(y, ·) = p and Σ_y f e^D ≤ e^m q: a
pairing of rate λ and toll m.  What is not known is the law of its weight w; but Σ f = 1 and
Σ f e^{λ w} ≤ e^m, and the bound of a pairing, Σ f(w) δ_{own+w}(ε − m + λ w), is linear in it.  With
u = own + w it reads Σ f(u) δ_u(ε − L + λ u) with Σ f(u) e^{λ u} ≤ e^L, at most the right side above,
whatever μ ≥ 0.

So the informed adversary on networks and families, too, has a bound that is not group privacy: σ is to
that of group privacy about as it is for Laplace noise.  Chains have pairings of their own, which are sharper.

*Assumes*: a pure bound that holds for every α-DP mechanism with α_j = λ Δ_j, and a group profile that grows
with u and falls with ε.  *Cost*: the pure bounds at each λ tried (of large components: those that
lower the largest leakage at a rate nearby), then one profile per weight.  *Reference*:
docs/theory.md, section 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds import Bound, Bounds, Problem, Registered, Vector
from quiltdp.accountant.delta_bounds import register_delta
from quiltdp.accountant.leakage.paired import units_of
from quiltdp.accountant.leakage.quilts import pairs_around
from quiltdp.accountant.stages import Component, SmallestBounds
from quiltdp.accountant.trade_offs import (
    CARRIED_AT_ONCE,
    CARRIED_LOWER,
    CARRIED_PAID,
    CARRIED_SPACING,
    CARRIED_UNITS,
    PAIRED_PATH,
)
from quiltdp.errors import InvalidArgument
from quiltdp.inference.chains import path_of
from quiltdp.inference.workspace import Workspace
from quiltdp.mechanisms import GroupProfile
from quiltdp.numbers import EPS
from quiltdp.work import WorkBudget

__all__ = ["CarriedBound", "largest_mean"]

_LOWEST, _HIGHEST = -60, 16
_HALVINGS = 60  # of the search for μ
_LARGEST = 600.0  # beyond it e^{λu} is taken for smaller than it is, which only raises the bound


@register_delta(
    "carried",
    against=INFORMED,
    says="a certified pure leakage at some rate, carried over to the profile of the mechanism",
    costly=True,
)
class CarriedBound:
    """δ of every unit of a network from the pure bounds for the same adversary.

    Raises
    ------
    InvalidArgument
        For a long path: the chain's own pairings are sharper.
    """

    def __init__(self, problem: Problem) -> None:
        path = path_of(problem.model)
        if len(problem.model.nodes) < 2 or (path is not None and len(path.nodes) > PAIRED_PATH):
            raise InvalidArgument("leakages are carried over on networks")
        self._problem = problem

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Say where the pure bounds will be kept; they are prepared when the first leakage is asked for."""
        self._workspace = workspace
        self._component = Component(self._problem, workspace, budget)

    def weigh(self, weights: Vector) -> WeighedCarried:
        """Return the bound for given sensitivities, each raised to whole units."""
        unit, units = units_of(np.asarray(weights, dtype=np.float64))
        index = self._problem.model.index
        least = np.array([min(int(units[index[n]]) for n in u) for u in self._problem.listed()])
        key = units.tobytes()
        kept = self._workspace.keep(
            "carried", key, lambda: _Leakages(self._component, units, self._workspace)
        )
        return WeighedCarried(kept, unit, least)


@dataclass(eq=False)
class _Leakages:
    """L(λ) of every unit for given sensitivities in units, kept by rate."""

    component: Component
    units: NDArray[np.int64]
    workspace: Workspace
    kept: dict[int, Vector] = field(default_factory=dict)
    paid: dict[int, Component] = field(default_factory=dict)

    def at(self, k: int) -> Vector:
        """Return L at λ = e^{k/4} per unit."""
        if k not in self.kept:
            self.workspace.guard.check()
            if not self.component.bounds:
                self._prepare()
            asked = self.component
            whole = CARRIED_PAID * round(k / CARRIED_PAID)
            if self.component.problem.count > CARRIED_UNITS and k != whole:
                self.at(whole)
                asked = self.paid[whole]
            alpha = rate(k) * (1.0 + 4.0 * EPS) * self.units.astype(np.float64)
            found = asked.evaluate(alpha, len(asked.bounds))
            if k == whole:
                self.paid[k] = replace(asked, bounds=_that_pay(asked, found))
            self.kept[k] = found.values
        return self.kept[k]

    def _prepare(self) -> None:
        """Prepare the pure bounds that ``auto`` takes."""
        from quiltdp.accountant.methods import candidates  # the registry of pure bounds

        budget = self.component.budget
        ready = Component(self.component.problem, self.workspace, budget)
        wide = pairs_around(ready.problem, budget.entries) > budget.pairs
        for entry in candidates(ready.problem.adversary):
            if ready.wants(entry) and not (wide and entry.name == "quilts"):  # every unit's are asked for
                self.workspace.guard.check()
                ready.offer(entry)
        self.component.bounds.extend(ready.bounds)


def _that_pay(component: Component, found: SmallestBounds) -> list[tuple[Registered, Bound]]:
    """Return the bounds that lower the largest leakage, asked one after the other."""
    best = np.full(component.problem.count, np.inf)
    paying = []
    for pair, (_, bounds) in zip(component.bounds, found.bounds, strict=True):
        better = np.minimum(best, bounds.values)
        if better.max(initial=0.0) < best.max(initial=0.0):
            paying.append(pair)
        best = better
    return paying or component.bounds[:1]


def rate(k: int) -> float:
    """Return the rate λ per unit of weight."""
    return math.exp(CARRIED_SPACING * k)


@dataclass(frozen=True, eq=False)
class WeighedCarried:
    """Pure leakages for given sensitivities; every unit is a class of its own."""

    leakages: _Leakages
    unit: float
    least: NDArray[np.int64]

    @property
    def where(self) -> NDArray[np.intp]:
        """Every unit by itself."""
        return np.arange(len(self.least), dtype=np.intp)

    def evaluate(self, profile: GroupProfile, epsilon: float) -> Bounds:
        """Return δ of every unit: the smallest over the rates that a climb looks at."""
        if not self.leakages.units.any():
            return Bounds(np.full(len(self.least), profile.delta(epsilon, 0.0)), "carried")
        if epsilon <= 0.0:
            return Bounds(np.ones(len(self.least)), "carried")
        found: dict[int, Vector] = {}

        def worst(k: int) -> float:
            if k not in found:
                if not _LOWEST <= k <= _HIGHEST:
                    return math.inf
                found[k] = self._at(k, profile, epsilon)
            return float(found[k].max(initial=0.0))

        # group privacy would leak λ Σ u: the best rate lies above the one where that is ε
        total = float(self.leakages.units.sum())
        start = max(_LOWEST, min(_HIGHEST, math.ceil(math.log(epsilon / total) / CARRIED_SPACING)))
        best = start
        if worst(start) >= 1.0:  # the leakage is about ε already: lower rates may still say something
            best = min((k for k in range(start, start - CARRIED_LOWER, -1) if k >= _LOWEST), key=worst)
        while best + 1 <= _HIGHEST and (
            worst(best + 1) < worst(best) or (worst(best) >= 1.0 and best < start + 12)
        ):
            best += 1
        while best - 1 >= _LOWEST and worst(best - 1) < worst(best):
            best -= 1
        return Bounds(np.minimum.reduce(list(found.values())), "carried")

    def _at(self, k: int, profile: GroupProfile, epsilon: float) -> Vector:
        leaks = self.leakages.at(k)
        values = np.ones(len(leaks))
        total = int(self.leakages.units.sum())
        known: dict[tuple[float, int], float] = {}
        for j, (leak, least) in enumerate(zip(leaks.tolist(), self.least.tolist(), strict=True)):
            if not leak < epsilon:  # the profile at a negative ε is no small number
                continue
            if (leak, least) not in known:
                u = np.arange(least, total + 1, dtype=np.float64)
                gain = rate(k) * u
                at = epsilon - leak + gain - 16.0 * EPS * (epsilon + leak + gain)
                deltas = self._deltas(profile, at, u * self.unit * (1.0 + 8.0 * EPS))
                known[leak, least] = largest_mean(deltas, gain, leak)
            values[j] = known[leak, least]
        return np.minimum(values, 1.0)

    def _deltas(self, profile: GroupProfile, epsilon: Vector, weight: Vector) -> Vector:
        """Return the profile, a few weights at a time: each may take a privacy-loss distribution."""
        found = []
        for k in range(0, len(weight), CARRIED_AT_ONCE):
            self.leakages.workspace.guard.check()
            found.append(profile.deltas(epsilon[k : k + CARRIED_AT_ONCE], weight[k : k + CARRIED_AT_ONCE]))
        return np.concatenate(found)


def largest_mean(values: Vector, exponents: Vector, most: float) -> float:
    """Return, rounded up, max Σ f v over laws f with Σ f e^x ≤ e^most, by its dual: any μ ≥ 0 is a proof.

    Examples
    --------
    >>> import numpy as np
    >>> found = largest_mean(np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.log(1.5))
    >>> round(found, 6) == round(0.5 / (np.e - 1.0), 6)
    True
    """
    x = np.minimum(exponents, _LARGEST)
    grown = np.exp(x)
    room = math.exp(most) * (1.0 + (8.0 + 4.0 * abs(most)) * EPS)
    error = (64.0 + 8.0 * x) * EPS

    def at(mu: float) -> tuple[float, bool]:
        """Return the bound at μ, and whether a larger μ lowers it."""
        bound = values * (1.0 + 8.0 * EPS) - mu * grown * (1.0 - error) + mu * room
        bound = bound + 16.0 * EPS * (values + mu * room)
        worst = int(np.argmax(bound))
        return float(bound[worst]), bool(grown[worst] > room)

    best, up = at(0.0)
    low, high = -700.0, 50.0  # of ln μ; the bound is convex in μ
    for _ in range(_HALVINGS if up else 0):
        middle = 0.5 * (low + high)
        found, up = at(math.exp(middle))
        best = min(best, found)
        low, high = (middle, high) if up else (low, middle)
    return max(best, 0.0)
