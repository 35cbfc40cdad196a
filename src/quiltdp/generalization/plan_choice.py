"""Which theorem, at which noise scale: the planner's choice among the candidates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quiltdp.errors import InvalidArgument, QuiltdpError, option
from quiltdp.generalization._checks import probability
from quiltdp.generalization.concentration import Concentration, concentration
from quiltdp.generalization.plan_result import Alternative
from quiltdp.generalization.plan_search import (
    Candidate,
    LeakageSketch,
    Need,
    highest_scale,
    largest_threshold_of,
)
from quiltdp.generalization.routes import (
    AnyLawRoute,
    GibbsRoute,
    IidRoute,
    LeakageAccountant,
    MaxInformationRoute,
    Task,
    best_scale,
)
from quiltdp.inference.gibbs_dependence import gibbs_dependence
from quiltdp.model import Model

__all__ = ["Chosen", "best_that_meets", "candidates_for", "choose", "need_of"]


@dataclass(frozen=True)
class Chosen:
    """A theorem with its noise scale and the threshold that keeps its promise."""

    candidate: Candidate
    sigma: float
    threshold: float = -math.inf


def candidates_for(
    model: Model, accountant: LeakageAccountant, sketch: LeakageSketch
) -> tuple[list[Candidate], list[Alternative]]:
    """Return the theorems that apply, and those that do not with their reasons."""
    found = [Candidate(AnyLawRoute(accountant), AnyLawRoute(sketch))]
    refused: list[Alternative] = []
    spread: Concentration | None = None
    try:
        spread = concentration(model)
        found.append(Candidate(MaxInformationRoute(accountant, spread), MaxInformationRoute(sketch, spread)))
    except QuiltdpError as error:
        kind = MaxInformationRoute
        refused.append(Alternative(kind.name, kind.theorem, None, True, error.reason))
    try:
        gibbs = GibbsRoute(gibbs_dependence(model))
        found.append(Candidate(gibbs, gibbs))
    except QuiltdpError as error:
        refused.append(Alternative(GibbsRoute.name, GibbsRoute.theorem, None, True, error.reason))
    if spread is not None and not model.latents and spread.sum_of_squares <= spread.records * (1 + 1e-9):
        found.append(Candidate(IidRoute(), IidRoute()))
    else:
        note = "refused: the records of this model are not independent"
        refused.append(Alternative(IidRoute.name, IidRoute.theorem, None, True, note))
    return found, refused


def need_of(candidates: list[Candidate], threshold_share: float, overfit: float | None) -> Need:
    """Return what the threshold must reach, with the theorem behind the second promise."""
    share = probability("threshold_share", threshold_share, zero=True)
    wanted = probability("overfit", overfit, zero=True) if overfit is not None else None
    for c in candidates:
        if isinstance(c.exact, MaxInformationRoute) and isinstance(c.fast, MaxInformationRoute):
            return Need(share, wanted, c.exact, c.fast)
    if wanted is not None:
        raise InvalidArgument(
            f"{option('overfit')} needs concentration, which is computed for Bayesian networks only"
        )
    return Need(share)


def best_that_meets(
    task: Task, candidates: list[Candidate], accuracy: float, need: Need, hint: Chosen | None
) -> Chosen | None:
    """Return the choice that makes the budget last longest among those whose threshold is enough."""
    tried = [choose(task, candidates, accuracy)]
    if tried[0].threshold >= need.share * accuracy:
        tried.insert(0, _budget_friendly(task, accuracy, need, tried[0]))
    if hint is not None:
        threshold = hint.candidate.exact.threshold(task, hint.sigma, accuracy)
        tried.append(Chosen(hint.candidate, hint.sigma, threshold))
    enough = (c for c in tried if need.met(task, c.sigma, c.threshold, accuracy, sketch=False))
    return next(enough, None)


def choose(task: Task, candidates: list[Candidate], accuracy: float) -> Chosen:
    """Return the theorem with the largest threshold."""
    tried = []
    for candidate in candidates:
        threshold, sigma = largest_threshold_of(candidate, task, accuracy)
        tried.append(Chosen(candidate, sigma, threshold))
    return max(tried, key=lambda c: c.threshold)


def _budget_friendly(task: Task, accuracy: float, need: Need, found: Chosen) -> Chosen:
    """Return the same theorem at the σ that lets training values be off furthest without spending."""
    exact, fast, share = need.exact, need.fast, need.share
    if exact is None or fast is None:
        return found

    def width(sigma: float) -> float:
        threshold = found.candidate.fast.threshold(task, sigma, accuracy)
        return fast.untouched(task, sigma, threshold) if threshold >= share * accuracy else -math.inf

    sigma, value = best_scale(width, highest_scale(task, accuracy))
    if not math.isfinite(value):
        return found
    other = Chosen(found.candidate, sigma, found.candidate.exact.threshold(task, sigma, accuracy))
    better = exact.untouched(task, sigma, other.threshold) > exact.untouched(
        task, found.sigma, found.threshold
    )
    return other if better and other.threshold >= share * accuracy else found
