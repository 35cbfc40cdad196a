"""Approximate Bayesian DP of a whole model: δ at a given ε, and the noise scale or the ε to match."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quiltdp.accountant.analysis import Analysis, Evaluation, Stage
from quiltdp.accountant.bounds.contract import ProfileCost, Vector
from quiltdp.accountant.request import Request
from quiltdp.accountant.result import Certificate, Leakage, PerUnit
from quiltdp.accountant.units import alphas, largest_unit_weight, positive_epsilon
from quiltdp.mechanisms import GroupProfile, Mechanism
from quiltdp.model import Model
from quiltdp.numbers import format_up, round_up_digits

_SMALLEST_EPSILON = 1e-6


class DeltaProfile(Analysis):
    """δ_BDP(ε) of any mechanism with a group-privacy profile, for every unit of a model.

    It takes the options of :func:`quiltdp.analyze`; a protected set must lie in one connected component.
    Methods are ``auto`` (the smaller of both), ``group`` and ``transport``.

    Examples
    --------
    >>> import quiltdp as qd
    >>> from quiltdp.accountant.approximate import DeltaProfile
    >>> from quiltdp.mechanisms import GaussianProfile
    >>> m = qd.markov_chain([[0.6, 0.4], [0.4, 0.6]], length=1000)
    >>> delta = DeltaProfile(m).delta(GaussianProfile(8.0), epsilon=1.0)
    >>> 0 < delta < 1e-6
    True
    """

    def __init__(self, model: Model, **options: Any) -> None:
        super().__init__(Request(model, approximate=True, **options))

    def _evaluate_at(self, profile: GroupProfile, epsilon: float, weights: Vector | None) -> Evaluation:
        given = alphas(self.model, 1.0) if weights is None else np.asarray(weights, dtype=np.float64)
        cost = ProfileCost(given, profile, epsilon)
        return self.answer(lambda stage, before: self.evaluate(cost, stage, known=before))[0]

    def deltas(self, profile: GroupProfile, epsilon: float, weights: Vector | None = None) -> Vector:
        """Return δ of every unit; ``weights`` are sensitivities per node, 1 for records by default."""
        return self.require_complete(self._evaluate_at(profile, epsilon, weights).values)

    def delta(self, profile: GroupProfile, epsilon: float, weights: Vector | None = None) -> float:
        """Return the largest δ over all units; ε may be negative."""
        return self.require_complete(self._evaluate_at(profile, epsilon, weights).largest)

    def statement(self, found: Evaluation, stage: Stage) -> Certificate:
        """Return how the largest δ was obtained."""
        assert isinstance(found.cost, ProfileCost)
        says = self.binding(found)[1].says
        delta = f"δ ≤ {format_up(found.largest, 3)} at ε = {found.cost.epsilon:g}"
        return self.certificate(f"{delta}: {says}; rounded up", "certified bound", stage)

    def compared(self, mechanism: Mechanism, epsilon: float) -> dict[str, float]:
        """Return the noise scales of independent records and of group privacy."""
        weights = alphas(self.model, mechanism.deltas, "sensitivity")
        groups = [float(weights[np.asarray(c)].sum()) for copies in self._copies for c in copies]
        whole = max(max(groups, default=0.0), mechanism.max_sensitivity)
        heavy = largest_unit_weight(self.units, self.model, weights)
        alone = mechanism.with_sensitivity(heavy).scale(epsilon) if heavy > 0.0 else 0.0
        compared = {"independent": alone} if alone > 0.0 else {}
        return {**compared, "group": mechanism.with_sensitivity(whole).scale(epsilon)}


def smallest_scale(
    model: Model, epsilon: float, mechanism: Mechanism, **options: Any
) -> tuple[DeltaProfile, float, Evaluation, Stage]:
    """Return the smallest noise scale with certified δ_BDP(ε) ≤ δ, and how; it was itself checked."""
    analysis = DeltaProfile(model, **options)
    weights = alphas(model, mechanism.deltas, "sensitivity")

    def noise_scale(x: float) -> float:
        return round_up_digits(1.0 / x)

    def cost_at(x: float) -> ProfileCost:
        return ProfileCost(weights, mechanism.group_profile(noise_scale(x)), epsilon)

    known = analysis.compared(mechanism, epsilon)
    least = known.get("independent", mechanism.scale(epsilon) * 2.0**-20)
    solution, stage = analysis.solve(cost_at, mechanism.target_delta, 1.0 / known["group"], 1.0 / least)
    return analysis, noise_scale(solution.x), solution.found, stage


def approximate_leakage(
    model: Model, mechanism: Mechanism, scale: float, *, known: float = math.inf, **options: Any
) -> Leakage:
    """Return the smallest ε found with certified δ_BDP(ε) ≤ δ for noise of this scale.

    ``known`` is an ε that is looked at too: if it passes, the answer is no larger.  ``options`` are those
    of :class:`DeltaProfile`.
    """
    profile = mechanism.group_profile(positive_epsilon(scale, "scale"))
    analysis = DeltaProfile(model, **options)
    weights, target = alphas(model, mechanism.deltas, "sensitivity"), mechanism.target_delta
    heavy = largest_unit_weight(analysis.units, model, weights)
    least = _SMALLEST_EPSILON
    while heavy > 0.0 and profile.delta(2.0 * least, heavy) > target:
        least *= 2.0

    def cost_at(x: float) -> ProfileCost:
        return ProfileCost(weights, profile, round_up_digits(1.0 / x))

    solution, stage = analysis.solve(cost_at, target, 1.0 / least, 1.0 / least)
    found, epsilon = solution.found, round_up_digits(1.0 / solution.x)
    if known < epsilon:
        at_known = analysis.evaluate(ProfileCost(weights, profile, known), stage)
        if at_known.largest <= target:
            found, epsilon = at_known, known
    binding = analysis.binding(found)[0]
    answer = Leakage(
        epsilon=epsilon,
        dp_epsilon=math.inf,
        per_record=PerUnit(analysis.units.names, np.full(len(found.values), epsilon)),
        binding=type(binding)(binding.unit, epsilon, binding.method),
        method=binding.method,
        certificate=analysis.statement(found, stage),
        adversary=analysis.adversary.name,
        fingerprint=model.fingerprint,
        notes=(*analysis.notes(), "approximate DP: the same ε for every unit, at the stated δ"),
        protected=analysis.units.kind,
    )
    return analysis.require_complete(answer)
