"""(ε, δ) Bayesian DP from pure bounds: the transport behind a certified leakage, by the mechanism's profile.

Claim (``transport``).  Let L(λ) be a certified leakage of a unit when the mechanism is α-DP with
α_j = λ Δ_j, against some adversary, and δ_u the mechanism's profile for a group of total sensitivity u.  For
every λ > 0 and μ ≥ 0

    δ_BDP(ε) ≤ max_u [ δ_u( ε − L(λ) + λ u ) − μ ( e^{λ u} − e^{L(λ)} ) ],

u over the weights of what may change together: from that of one member of the unit to the whole component.

Why.  Fix two values x, x' of the unit and what is known; let p, q be the laws of the unknown records y, A_y
the law of the output, and D(y, y') = λ Σ_{j: y_j ≠ y'_j} Δ_j.  An α-DP likelihood is any h > 0 with ln h of
Lipschitz constant 1 for D (from possible states it extends to all), and D is a metric, so
max ln E_p h / E_q h over them is the lossy transport T(p, q; D).  With own the sensitivity of the members
in which x and x' differ, T ≤ m = L − λ own.  By duality of linear programs there are flows f ≥ 0 from y to y'
with Σ_{y'} f(y, ·) = p and Σ_y f e^D ≤ e^m q.  Put g = f e^{D − m}; because (Σ a)₊ ≤ Σ (a)₊,

    ∫ (Σ_y p A_y − e^ε Σ_{y'} q A_{y'})₊ ≤ Σ ∫ (f A_y − e^ε g A_{y'})₊ ≤ Σ f · δ_{own+w}( ε + ln g/f ),

w the sensitivities of the records in which y and y' differ, ln g/f = λ w − m: the profile grows with the
group and falls with ε.  With u = own + w the right side is Σ f(u) δ_u(ε − L + λ u), and the law f(u) is any
with Σ f = 1 and Σ f e^{λ u} ≤ e^L: at most the maximum above, whatever μ ≥ 0.

λ is free: the smallest δ over λ counts.  As λ → ∞ it is group privacy.  What the law of u really is, along a
chain or a tree, would lower σ by less than two per cent: the best λ has L(λ) just below ε.

*Assumes*: pure bounds that hold for every α-DP mechanism with α_j = λ Δ_j, and a profile that grows with u
and falls with ε; any model, any evidence.  *Cost*: the pure bounds at about a dozen λ, then one profile per
weight.  *Reference*: docs/theory.md, section 11.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds.contract import (
    ALL,
    APPROXIMATE,
    Bounds,
    Need,
    Problem,
    ProfileCost,
    Vector,
    register,
)
from quiltdp.accountant.component import Component
from quiltdp.accountant.methods import automatic_stages
from quiltdp.accountant.trade_offs import (
    LEAKAGES_APART,
    RATE_SPACING,
    RATES_APART,
    UNIT_PARTS,
    UNITS_APART,
    WEIGHTS_EXACT,
)
from quiltdp.errors import InvalidArgument
from quiltdp.inference.workspace import Workspace
from quiltdp.mechanisms import GroupProfile
from quiltdp.mechanisms.profiles import ScalarProfile
from quiltdp.numbers import EPS
from quiltdp.work import WorkBudget

Ints = NDArray[np.int64]

_LARGEST = 600.0  # beyond it e^{λu} is taken for smaller than it is, which only raises the bound
_HIGHEST = 50.0  # rate per unit: a record that costs more stays different next to never
_LEAST = 1e-9  # leakages below it are no guide to a rate
_FARTHEST = 80.0  # λu − L from which on all weights count as one, of δ = 1
_FEW_CUTS = (0, 1, 2, 3, 4, 6, 8, *(k << e for e in range(2, 14) for k in (3, 4)))  # between bins, at first
_HALVINGS = 50  # of the search for μ
_FAR = 4.0  # times as large or as small as is needed: the rate need not be the best


@register(
    "group", against=INFORMED, kind=APPROXIMATE, says="group privacy: every record of the component counts"
)
class GroupDelta:
    """δ of the whole component as one group, for every unit: whatever is known, all may change together."""

    def __init__(self, problem: Problem) -> None:
        self._count = problem.count

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Nothing is to be done."""

    def evaluate(self, cost: ProfileCost, need: Need = ALL) -> Bounds:
        """Return δ of the group; k records of sensitivity 1 count as k exactly."""
        weights, total = cost.weights, float(cost.weights.sum())
        whole = total < 2.0**52 and bool(np.all(weights == np.floor(weights)))
        delta = cost.profile.delta(cost.epsilon, total * (1.0 if whole else 1.0 + len(weights) * EPS))
        return Bounds(np.full(self._count, min(1.0, delta)), "group", APPROXIMATE)


@register(
    "transport",
    against=INFORMED,
    kind=APPROXIMATE,
    says="the transport behind a certified pure leakage at the best rate, by the mechanism's profile",
)
class TransportDelta:
    """δ of every unit from the pure bounds that ``auto`` takes for the same adversary.

    Raises
    ------
    InvalidArgument
        For one record alone: group privacy is exact.
    """

    def __init__(self, problem: Problem) -> None:
        if len(problem.model.nodes) < 2:
            raise InvalidArgument("one record alone is a group")
        self._problem = problem

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Prepare the pure bounds."""
        self._workspace = workspace
        self._pure = Component(self._problem, workspace, budget)
        self._pure.prepare_wanted(automatic_stages(self._problem.adversary))

    def evaluate(self, cost: ProfileCost, need: Need = ALL) -> Bounds:
        """Return δ of every unit, at about the best rate for the worst of them."""
        transports = self._workspace.keep(
            "transports", cost.weights.tobytes(), lambda: _LeakagesByRate.of(self._pure, cost.weights)
        )
        if not transports.units.any():
            values = np.full(self._problem.count, cost.profile.delta(cost.epsilon, 0.0))
        elif cost.epsilon <= 0.0:
            values = np.ones(self._problem.count)
        else:
            values = transports.deltas(cost.profile, cost.epsilon, need)[transports.where]
        return Bounds(values, "transport", APPROXIMATE)


@dataclass(frozen=True, eq=False)
class _LeakagesByRate:
    """Pure leakages for given sensitivities, kept by rate.

    Attributes
    ----------
    pure
        The pure bounds.
    unit, units
        A unit of weight, and every sensitivity in units.
    least, where
        Of every class of units the smallest sensitivity of a member, in units; the class of every unit.
    """

    pure: Component
    unit: float
    units: Ints
    least: Ints
    where: NDArray[np.intp]
    kept: dict[int, Vector] = field(default_factory=dict)

    @classmethod
    def of(cls, pure: Component, weights: Vector) -> _LeakagesByRate:
        """Return the transports for sensitivities; of many units those of equal sensitivity are one class."""
        unit, units = sensitivities_in_units(weights)
        least = _least_sensitivities(pure.problem, units)
        where = np.arange(len(least), dtype=np.intp)
        if len(least) > UNITS_APART:
            least, where = np.unique(least, return_inverse=True)
        return cls(pure, unit, units, least, where)

    def leakages(self, k: int) -> Vector:
        """Return L at the k-th rate, the largest of every class."""
        if k not in self.kept:
            self.pure.workspace.guard.check()
            alpha = _rate(k) * (1.0 + 4.0 * EPS) * self.units.astype(np.float64)
            largest = np.zeros(len(self.least))
            np.maximum.at(largest, self.where, self.pure.evaluate(alpha).values)
            self.kept[k] = largest
        return self.kept[k]

    def deltas(self, profile: GroupProfile, epsilon: float, need: Need) -> Vector:
        """Return δ of every class at about the best rate: each rate gives a sound δ."""
        found: dict[int, Vector] = {}

        def worst(k: int) -> float:
            if k not in found:
                found[k] = self._deltas_at_rate(k, profile, epsilon)
            return float(found[k].max())

        best, about = self._guess_best_rate(profile, epsilon)
        if need.low / _FAR <= about <= need.high * _FAR or worst(best) > _FAR * about:
            while self._largest_leakage(best) >= epsilon:
                best -= 1
            for _ in range(RATES_APART):
                nearby = min(best - 1, best + 1, key=worst)
                if worst(nearby) >= worst(best) * (1.0 - 1e-9):
                    break
                best = nearby
        worst(best)
        return np.asarray(np.minimum.reduce(list(found.values())))

    def _guess_best_rate(self, profile: GroupProfile, epsilon: float) -> tuple[int, float]:
        """Return about the best rate and its largest δ, by leakages between those of rates far apart."""
        best = self._highest_rate(epsilon)
        near = [best - RATES_APART, best, best + RATES_APART]
        logs = [math.log(max(self._largest_leakage(k), _LEAST)) for k in near]
        least = int(self.least.min())

        @cache
        def guess(k: int) -> float:
            leak = math.exp(float(np.interp(k, near, logs)))
            if leak >= epsilon or not near[0] <= k <= near[-1]:
                return 1.0 + leak
            return self._delta_at(_rate(k), leak, least, profile, epsilon)

        step = RATES_APART // 2
        while step:
            nearby = min(best - step, best + step, key=guess)
            best, step = (nearby, step) if guess(nearby) < guess(best) else (best, step // 2)
        return best, guess(best)

    def _highest_rate(self, epsilon: float) -> int:
        """Return the highest of the rates far apart whose largest leakage is below ε.

        A leakage is at most that of a group, λ Σ u, and grows about like λ.
        """

        def steps(leak: float) -> int:
            return RATES_APART * math.floor(math.log(epsilon / leak) / (RATES_APART * RATE_SPACING))

        low = k = steps(float(self.units.sum()) * (1.0 + 1e-9))
        high = max(low + RATES_APART, steps(epsilon / _HIGHEST))
        while high - low > RATES_APART:
            leak = max(self._largest_leakage(k), _LEAST)
            low, high = (k, high) if leak < epsilon else (low, k)
            k = max(low + RATES_APART, min(k + steps(leak), high - RATES_APART))
        return low

    def _largest_leakage(self, k: int) -> float:
        return float(self.leakages(k).max())

    def _deltas_at_rate(self, k: int, profile: GroupProfile, epsilon: float) -> Vector:
        """Return δ of every class at one rate; where leakages are many, some are raised to the next."""
        leaks = self.leakages(k)
        values = np.ones(len(leaks))
        for least in np.unique(self.least).tolist():
            who = np.flatnonzero((self.least == least) & (leaks < epsilon))
            if len(who):
                apart = np.unique(leaks[who])
                chosen = apart[np.unique(np.linspace(0, len(apart) - 1, LEAKAGES_APART).round().astype(int))]
                deltas = [self._delta_at(_rate(k), float(leak), least, profile, epsilon) for leak in chosen]
                values[who] = np.array(deltas)[np.searchsorted(chosen, leaks[who])]
        return values

    def _delta_at(self, rate: float, leak: float, least: int, profile: GroupProfile, epsilon: float) -> float:
        """Return the bound for one leakage; a bin is as heavy as its last weight and gains as its first.

        Where a weight may take a privacy-loss distribution, bins are joined, and only those that decide are
        taken apart again.
        """
        total = int(self.units.sum())
        last = min(total, least + math.ceil((leak + _FARTHEST) / rate))
        edges = _weight_bins(least, last + 1)
        end = len(edges) - 1
        cuts = [k for k in _FEW_CUTS if k < end] if isinstance(profile, ScalarProfile) else list(range(end))
        known: dict[tuple[int, int], float] = {}
        while True:
            self.pure.workspace.guard.check()
            pairs = list(itertools.pairwise([*cuts, end]))
            fresh = [pair for pair in pairs if pair not in known]
            gain = rate * edges[[i for i, _ in fresh]]
            at = epsilon - leak + gain - 16.0 * EPS * (epsilon + leak + gain)
            weight = (edges[[j for _, j in fresh]] - 1.0) * self.unit * (1.0 + 8.0 * EPS)
            known.update(zip(fresh, profile.deltas(at, weight).tolist(), strict=True))
            values, gains = [known[pair] for pair in pairs], rate * edges[cuts]
            if last < total:  # all that is heavier counts as δ = 1
                values, gains = [*values, 1.0], np.append(gains, rate * (last + 1))
            found, deciding = largest_mean(np.array(values), gains, leak)
            wide = [pairs[k] for k in deciding if k < len(pairs) and pairs[k][1] - pairs[k][0] > 1]
            if not wide:
                return min(1.0, found)
            cuts = sorted({*cuts, *((i + j) // 2 for i, j in wide)})


def _rate(k: int) -> float:
    """Return λ per unit of weight, on one grid: what is computed at a rate serves every noise and ε."""
    return math.exp(RATE_SPACING * k)


def _weight_bins(first: int, end: int) -> Vector:
    """Return the edges of bins of whole numbers from ``first`` to below ``end``: single ones, then wider."""
    exact = np.arange(first, min(first + WEIGHTS_EXACT, end), dtype=np.float64)
    count = math.ceil(max(0.0, math.log(end / max(1.0, exact[-1]))) * WEIGHTS_EXACT)
    wider = np.ceil(max(1.0, exact[-1]) * np.exp(np.arange(1, count + 1) / WEIGHTS_EXACT))
    return np.unique(np.concatenate([exact, wider[wider < end], [end]]))


def _least_sensitivities(problem: Problem, units: Ints) -> Ints:
    """Return the smallest sensitivity of a member of every unit."""
    if problem.window > 1:
        width = min(problem.window, len(units))
        return np.asarray(np.lib.stride_tricks.sliding_window_view(units, width).min(axis=1))
    model = problem.model
    if problem.units is None:
        everyone = len(model.records) == len(model.nodes)
        return units if everyone else units[[model.index[n] for n in model.records]]
    return np.array([min(units[model.index[n]] for n in u) for u in problem.units], dtype=np.int64)


def sensitivities_in_units(weights: Vector) -> tuple[float, Ints]:
    """Return a unit of weight and, for every record, its sensitivity in units, rounded up.

    Exact where all sensitivities are small multiples of one number; otherwise each is raised to the
    next 64th of the largest.
    """
    top = float(weights.max(initial=0.0))
    if top == 0.0:
        return 1.0, np.zeros(len(weights), dtype=np.int64)
    distinct = np.unique(weights[weights > 0.0])
    for parts in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16):
        unit = top / parts
        counts = np.round(distinct / unit)
        if np.all(np.abs(counts * unit - distinct) <= 4.0 * EPS * distinct):
            exact = bool(np.all(counts * unit == distinct))
            return unit * (1.0 if exact else 1.0 + 16.0 * EPS), np.round(weights / unit).astype(np.int64)
    unit = top / UNIT_PARTS
    return unit * (1.0 + 16.0 * EPS), np.ceil(weights / unit * (1.0 - 4.0 * EPS)).astype(np.int64)


def largest_mean(values: Vector, exponents: Vector, most: float) -> tuple[float, set[int]]:
    """Return, rounded up, max Σ f v over laws f with Σ f e^x ≤ e^most, by its dual: any μ ≥ 0 is a proof.

    Also the places of the one or two entries that decide it.

    Examples
    --------
    >>> import numpy as np
    >>> found, deciding = largest_mean(np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.log(1.5))
    >>> round(found, 6) == round(0.5 / (np.e - 1.0), 6), deciding
    (True, {0, 1})
    """
    x = np.minimum(exponents, _LARGEST)
    grown = np.exp(x)
    room = math.exp(most) * (1.0 + (8.0 + 4.0 * abs(most)) * EPS)
    error = (64.0 + 8.0 * x) * EPS

    def at(mu: float) -> tuple[float, int]:
        """Return the bound at μ, and the entry that gives it."""
        bound = values * (1.0 + 8.0 * EPS) - mu * grown * (1.0 - error) + mu * room
        bound = bound + 16.0 * EPS * (values + mu * room)
        place = int(np.argmax(bound))
        return float(bound[place]), place

    best, place = at(0.0)
    deciding = {False: place, True: place}  # by whether a larger μ lowers the bound
    low, high = -700.0, 50.0  # of ln μ; the bound is convex in μ
    for _ in range(_HALVINGS if grown[place] > room else 0):
        middle = 0.5 * (low + high)
        found, place = at(math.exp(middle))
        best, up = min(best, found), bool(grown[place] > room)
        deciding[up] = place
        low, high = (middle, high) if up else (low, middle)
    return max(best, 0.0), set(deciding.values())
