"""Who competes for a plan: every theorem that applies, with one way of being asked.

A contender says the smallest accuracy it can promise for a task, whether it can promise a given one, and
for how many queries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from quiltdp.errors import InvalidArgument, InvalidModel, QuiltdpError, option
from quiltdp.generalization._checks import probability
from quiltdp.generalization.concentration import Concentration, additive_concentration, concentration
from quiltdp.generalization.plan_result import Alternative
from quiltdp.generalization.plan_search import (
    GUESSING,
    Candidate,
    LeakageSketch,
    Need,
    best_accuracy,
    highest_scale,
    largest_threshold_of,
    most_queries,
    noisiest,
)
from quiltdp.generalization.published import NOT_VALID, published_plan
from quiltdp.generalization.routes import (
    AnyLawRoute,
    DescriptionRoute,
    Deviating,
    IidRoute,
    LeakageAccountant,
    MaxInformationRoute,
    Route,
    Task,
    best_scale,
)
from quiltdp.model import Model

__all__ = ["Contender", "Offer", "contenders_for", "need_of", "published_baseline"]


@dataclass(frozen=True)
class Offer:
    """What a contender promises for a task: τ and how the holdout is to be set.

    ``overfit`` is how far a training value may be off without spending, −∞ when nothing is promised.
    """

    accuracy: float
    sigma: float
    threshold: float
    overfit: float = -math.inf


@dataclass(frozen=True)
class Contender:
    """A theorem about Thresholdout's noise that competes."""

    candidate: Candidate

    @property
    def name(self) -> str:
        """What people call it."""
        return self.candidate.exact.name

    @property
    def theorem(self) -> str:
        """What it rests on."""
        return self.candidate.exact.theorem

    @property
    def covers(self) -> str:
        """Which queries it is about."""
        return self.candidate.exact.covers

    def best(self, task: Task, need: Need) -> Offer | None:
        """Return the smallest accuracy found, below ½."""
        accuracy, sigma = best_accuracy(self.candidate, task, need)
        return self._offer(task, sigma, accuracy, need) if accuracy < GUESSING else None

    def at(self, task: Task, accuracy: float, need: Need) -> Offer | None:
        """Return the largest σ found whose threshold is enough: what accuracy leaves goes into the noise."""
        _, sigma = largest_threshold_of(self.candidate, task, accuracy, need.least_sigma)
        found = self._offer(task, sigma, accuracy, need)
        if found is None:  # where the budget is to last, or at the σ of the best accuracy
            found = self._offer(task, self._budget_friendly(task, accuracy, need), accuracy, need)
        if found is None:
            best, sigma = best_accuracy(self.candidate, task, need)
            found = self._offer(task, sigma, accuracy, need) if best <= accuracy else None
        return self._noisier(task, accuracy, need, found) if found is not None else None

    def _noisier(self, task: Task, accuracy: float, need: Need, found: Offer) -> Offer:
        def enough(sigma: float) -> bool:
            threshold = self.candidate.fast.threshold(task, sigma, accuracy)
            return need.met(task, sigma, threshold, accuracy, sketch=True)

        if not enough(found.sigma):
            return found
        sigma = noisiest(enough, found.sigma, highest_scale(task, accuracy))
        for factor in (1.0, 0.99, 0.95, 0.9):  # the sketch may be off by a little
            other = self._offer(task, max(found.sigma, factor * sigma), accuracy, need)
            if other is not None:
                return other
        return found

    def _offer(self, task: Task, sigma: float, accuracy: float, need: Need) -> Offer | None:
        threshold = self.candidate.exact.threshold(task, sigma, accuracy)
        if not need.met(task, sigma, threshold, accuracy, sketch=False):
            return None
        width = need.width(task, sigma, threshold, accuracy, sketch=False)
        return Offer(accuracy, sigma, threshold, width)

    def _budget_friendly(self, task: Task, accuracy: float, need: Need) -> float:
        """Return the σ that lets training values be off furthest without spending."""
        share = need.share

        def width(sigma: float) -> float:
            threshold = self.candidate.fast.threshold(task, sigma, accuracy)
            if threshold < share * accuracy:
                return -math.inf
            return need.width(task, sigma, threshold, accuracy, sketch=True)

        return best_scale(width, highest_scale(task, accuracy), lowest=need.least_sigma)[0]

    def most(self, task: Task, accuracy: float, need: Need) -> float:
        """Return the most queries."""
        return most_queries(self.candidate, task, accuracy, need)[0]


def contenders_for(
    model: Model, accountant: LeakageAccountant, sketch: LeakageSketch
) -> tuple[list[Contender], list[Alternative]]:
    """Return the theorems that apply, and those that do not with their reasons."""
    found: list[Contender] = []  # what asks nothing of the accountant comes first
    refused: list[Alternative] = []
    tails: Concentration | None = None
    try:
        tails = concentration(model)
        found += [
            _thresholdout(DescriptionRoute(tails), DescriptionRoute(tails)),
            _thresholdout(MaxInformationRoute(accountant, tails), MaxInformationRoute(sketch, tails)),
        ]
    except QuiltdpError as error:
        refused += [_refused(kind, error.reason) for kind in (MaxInformationRoute, DescriptionRoute)]
    found.append(_thresholdout(AnyLawRoute(accountant), AnyLawRoute(sketch)))
    try:
        adding = DescriptionRoute(
            additive_concentration(model),
            name="description length, additive queries",
            theorem="description length with concentration of sums under the model",
            covers="additive queries",
        )
        found.insert(0, _thresholdout(adding, adding))
    except (InvalidArgument, InvalidModel):
        pass  # the form for all queries is there
    if tails is not None and not model.latents and tails.sum_of_squares <= tails.records * (1 + 1e-9):
        found.append(_thresholdout(IidRoute(), IidRoute()))
    else:
        refused.append(_refused(IidRoute, "the records of this model are not independent"))
    return found, refused


def _thresholdout(exact: Route, fast: Route) -> Contender:
    return Contender(Candidate(exact, fast))


def _refused(kind: Any, reason: str) -> Alternative:
    note = f"does not apply: {reason}"
    return Alternative(kind.name, kind.theorem, None, note=note, covers=kind.covers)


def need_of(
    contenders: list[Contender], threshold_share: float, overfit: float | None, least_sigma: float
) -> Need:
    """Return what the threshold must reach, with the theorems behind the second promise."""
    share = probability("threshold_share", threshold_share, zero=True)
    wanted = probability("overfit", overfit, zero=True) if overfit is not None else None
    exact: list[Deviating] = []
    fast: list[Deviating] = []
    for c in contenders:
        for route, known in ((c.candidate.exact, exact), (c.candidate.fast, fast)):
            if isinstance(route, (MaxInformationRoute, DescriptionRoute)):
                known.append(route)
    if wanted is not None and not exact:
        raise InvalidArgument(
            f"{option('overfit')} needs concentration, which is computed for Bayesian networks only"
        )
    return Need(share, wanted, tuple(exact), tuple(fast), least_sigma)


def published_baseline(model: Model, task: Task, offer: Offer, slack: float) -> Alternative:
    """Say what the published theorem would have asked for, with its warning."""
    asked = published_plan(
        model,
        queries=int(task.queries),
        budget=task.budget,
        accuracy=offer.accuracy,
        failure=task.failure,
        slack=min(slack, 0.99),
    )
    records = asked.records
    if records is None:
        raise InvalidArgument("a published plan for a model has its sample sizes")
    needed = f"n_* = {_count(records.n_star)} or n_# = {_count(records.n_sharp)} records"
    if records.n_chain is not None:
        needed += f" ({_count(records.n_chain)} by its Markov-chain form)"
    covered = min(records.n_star, records.n_sharp) <= task.records
    return Alternative(
        "published",
        "Zhao (2017), Theorem 2",
        offer.accuracy if covered else None,
        valid=False,
        note=f"Theorem 2 of Zhao asks for {needed}; {NOT_VALID}",
    )


def _count(records: float) -> str:
    return f"{math.ceil(records):,}" if math.isfinite(records) else "∞"
