"""Who competes for a plan, and at which noise: every theorem that applies, searched for its best σ.

Any σ is valid, so a search needs no certificate: it runs on a sketch of the leakage, and only the numbers
reported for the σ it ends with are computed from the accountant itself.  A contender says the smallest
accuracy it can promise for a task, whether it can promise a given one, and for how many queries.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED, PRIOR, Adversary
from quiltdp.accountant.leakage import LeakageProfile
from quiltdp.accountant.shared_work import SharedWork, ask_within_guard
from quiltdp.errors import InvalidArgument, InvalidModel, QuiltdpError, WorkerLost, option
from quiltdp.generalization._checks import probability
from quiltdp.generalization.concentration import Concentration, additive_concentration, concentration
from quiltdp.generalization.routes import (
    GUESSING,
    Alternative,
    AnyLawRoute,
    DescriptionRoute,
    DeviationRoute,
    IidRoute,
    LeakageAccountant,
    MaxInformationRoute,
    Route,
    Task,
    any_law_transfer,
    best_scale,
    free_deviation,
)
from quiltdp.model import Model
from quiltdp.work import Limit, WorkBudget

if TYPE_CHECKING:
    from concurrent.futures import Executor

_Found = TypeVar("_Found")
_KEPT = 2**26  # bytes of leakages that are remembered


class ProfileAccountant:
    """Leakage of a model from its profiles, analysed on first use and remembered per α.

    Parameters
    ----------
    model
        The model of the correlation.
    work, time_limit
        How far searches go; seconds for every question (inside :meth:`SharedWork.answer`: for all).
    shared
        The same as one, where several accountants make one answer.
    executor
        Where components of the model are analysed, as for :func:`quiltdp.analyze`.
    """

    def __init__(
        self,
        model: Model,
        *,
        work: str | WorkBudget = "normal",
        time_limit: Limit = None,
        shared: SharedWork | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.model = model
        self._executor = executor
        self.shared = SharedWork(work, time_limit) if shared is None else shared
        self._budget = self.shared.budget
        self._profiles: dict[Adversary, LeakageProfile] = {}
        self._known: OrderedDict[tuple[Adversary, float], NDArray[np.float64]] = OrderedDict()

    def _profile_against(self, adversary: Adversary) -> LeakageProfile:
        """Return the analysis against an adversary with the budget of now."""
        if self._budget != self.shared.budget:
            self._profiles.clear()
            self._known.clear()
            self._budget = self.shared.budget
        if adversary not in self._profiles:
            try:
                self._profiles[adversary] = self._prepare_profile(adversary)
            except QuiltdpError as error:
                if adversary != PRIOR or isinstance(error, WorkerLost):
                    raise
                self._profiles[PRIOR] = self._profile_against(INFORMED)  # he knows more: his bound covers it
        return self._profiles[adversary]

    def _prepare_profile(self, adversary: Adversary) -> LeakageProfile:
        profile = LeakageProfile(
            self.model,
            adversary=adversary,
            work=self.shared.budget_up_to(),
            executor=self._executor,
        )
        ask_within_guard(self.shared.guard, profile, profile.prepare)
        return profile

    def _leakages(self, adversary: Adversary, dp_epsilon: float) -> NDArray[np.float64]:
        def question() -> NDArray[np.float64]:
            profile, key = self._profile_against(adversary), (adversary, dp_epsilon)
            if key not in self._known:
                found = self._ask_profile(
                    profile, lambda: profile.leakage(dp_epsilon)
                ).per_record.values_array
                self._known[key] = found
                while len(self._known) > 1 and len(self._known) * found.nbytes > _KEPT:
                    self._known.popitem(last=False)
            return self._known[key]

        return self.shared.answer(question)

    def _ask_profile(self, profile: LeakageProfile, question: Callable[[], _Found]) -> _Found:
        try:
            return ask_within_guard(self.shared.guard, profile, question)
        finally:
            if profile.reached:  # the next question begins anew
                self._profiles.clear()

    def prior(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return the leakage to the prior adversary, one number per record."""
        return self._leakages(PRIOR, dp_epsilon)

    def informed(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return the leakage to the informed adversary, one number per record."""
        return self._leakages(INFORMED, dp_epsilon)

    def dp_epsilon(self, epsilon: float) -> float:
        """Return the largest DP cost that leaks at most ε to the informed adversary."""

        def question() -> float:
            profile = self._profile_against(INFORMED)
            return self._ask_profile(profile, lambda: profile.dp_epsilon(epsilon))

        return self.shared.answer(question)


MOST_QUERIES = 10**15
ENOUGH = 1.01
"""A route that needs no noise takes the most noise that costs at most this factor."""


class NoCorrelation:
    """The least any model leaks, α about each record: what it refuses, every model refuses."""

    def prior(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return α."""
        return np.array([dp_epsilon])

    def informed(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return α."""
        return np.array([dp_epsilon])

    def dp_epsilon(self, epsilon: float) -> float:
        """Return ε."""
        return epsilon


class LeakageSketch:
    """An accountant interpolated between decades of α, for searching only: never for a promise."""

    def __init__(self, accountant: LeakageAccountant, low: int = -7, high: int = 1) -> None:
        self._accountant = accountant
        self._low, self._high = low, high
        self._known: dict[tuple[str, int], float] = {}

    def prior(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return one number that stands for all records in the mean of tanh(ε/4)."""
        return self._interpolate("prior", dp_epsilon)

    def informed(self, dp_epsilon: float) -> NDArray[np.float64]:
        """Return one number that stands for all records in the root mean square."""
        return self._interpolate("informed", dp_epsilon)

    def dp_epsilon(self, epsilon: float) -> float:
        """Return what the accountant says: this is asked once."""
        return self._accountant.dp_epsilon(epsilon)

    def _interpolate(self, adversary: str, dp_epsilon: float) -> NDArray[np.float64]:
        place = math.log10(dp_epsilon)
        if place > self._high:
            return np.array([math.inf])
        left = min(max(math.floor(place), self._low), self._high - 1)
        first, second = (self._leakage_at_decade(adversary, k) for k in (left, left + 1))
        if first <= 0 or math.isinf(second):
            return np.array([second])
        slope = math.log(second / first)
        return np.array([first * math.exp(slope * (place - left))])

    def _leakage_at_decade(self, adversary: str, decade: int) -> float:
        key = (adversary, decade)
        if key not in self._known:
            if adversary == "prior":
                bias = any_law_transfer(self._accountant.prior(10.0**decade))
                self._known[key] = 4 * math.atanh(bias) if bias < 1 else math.inf
            else:
                values = self._accountant.informed(10.0**decade)
                self._known[key] = float(np.sqrt(np.mean(values**2)))
        return self._known[key]


@dataclass(frozen=True)
class ThresholdNeed:
    """What the threshold must reach, and the least noise.

    A share of the accuracy; room for training values that are off by ``overfit``, by the best of the
    theorems that bound the holdout's own deviation; and the σ that privacy asks for.
    """

    share: float
    overfit: float | None = None
    exact: tuple[DeviationRoute, ...] = ()
    fast: tuple[DeviationRoute, ...] = ()
    least_sigma: float = 0.0

    def is_met(self, task: Task, sigma: float, threshold: float, accuracy: float, *, sketch: bool) -> bool:
        """Return whether this threshold is enough."""
        if not threshold >= self.share * accuracy * (1 - 1e-9) or sigma < self.least_sigma:
            return False
        if self.overfit is None:
            return True
        width = self.width(task, sigma, threshold, accuracy, sketch=sketch)
        return width >= self.overfit * (1 - 1e-9)

    def width(self, task: Task, sigma: float, threshold: float, accuracy: float, *, sketch: bool) -> float:
        """Return how far a training value may be off without spending budget; −∞ without concentration."""
        known = self.fast if sketch else self.exact
        resolution = task.resolution(accuracy)
        return max((free_deviation(r, task, sigma, threshold, resolution) for r in known), default=-math.inf)


def highest_scale(task: Task, accuracy: float) -> float:
    """Return a σ beyond which the noise alone exceeds the accuracy."""
    spends, asked = task.holdout_answers / task.failure, task.queries / task.failure
    return 2 * accuracy / (math.log(max(2.0, spends)) + 2 * math.log(max(2.0, asked)))


def accuracy_at(route: Route, task: Task, sigma: float, threshold: float) -> float:
    """Return the smallest τ that a theorem promises at this σ and this T; ∞ when none below ½ is."""
    return _smallest_accuracy(lambda accuracy: route.threshold(task, sigma, accuracy) >= threshold)


def _smallest_accuracy(enough: Callable[[float], bool]) -> float:
    top = GUESSING * (1 - 1e-9)
    return _bisect(enough, 0.0, top) if enough(top) else math.inf


def largest_enough_scale(enough: Callable[[float], bool], low: float, high: float) -> float:
    """Return the largest σ found, by bisection of its logarithm, that is still enough (``low`` is)."""
    if enough(high):
        return high
    for _ in range(16):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


def _bisect(true_above: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest point found where a monotone condition holds (it holds at ``high``)."""
    for _ in range(34):
        middle = (low + high) / 2
        low, high = (low, middle) if true_above(middle) else (middle, high)
    return high


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
    """A theorem about Thresholdout's noise that competes: as it is, and on the sketch."""

    exact: Route
    fast: Route

    def best_offer(self, task: Task, need: ThresholdNeed) -> Offer | None:
        """Return the smallest accuracy found, below ½."""
        accuracy, sigma = self._best_accuracy(task, need)
        return self._make_offer(task, sigma, accuracy, need) if accuracy < GUESSING else None

    def offer_at(self, task: Task, accuracy: float, need: ThresholdNeed) -> Offer | None:
        """Return the largest σ found whose threshold is enough: what accuracy leaves goes into the noise."""

        def threshold(sigma: float, sketch: bool) -> float:
            return self._choose_route(sketch).threshold(task, sigma, accuracy)

        def width(sigma: float) -> float:  # how far training values may be off without spending
            at = threshold(sigma, True)
            return (
                need.width(task, sigma, at, accuracy, sketch=True)
                if at >= need.share * accuracy
                else -math.inf
            )

        highest = highest_scale(task, accuracy)
        _, sigma = self._search_scale(threshold, highest, need)
        found = self._make_offer(task, sigma, accuracy, need)
        if found is None:  # where the budget is to last, or at the σ of the best accuracy
            sigma, _ = best_scale(width, highest, lowest=need.least_sigma)
            found = self._make_offer(task, sigma, accuracy, need)
        if found is None:
            best, sigma = self._best_accuracy(task, need)
            found = self._make_offer(task, sigma, accuracy, need) if best <= accuracy else None
        return self._with_more_noise(task, accuracy, need, found) if found is not None else None

    def most_queries(self, task: Task, accuracy: float, need: ThresholdNeed) -> float:
        """Return the most queries found (−∞: not even the budget)."""
        low, high = math.log(task.budget), math.log(MOST_QUERIES)

        def most(sigma: float, sketch: bool) -> float:
            def too_many(logarithm: float) -> bool:
                asked = Task(task.records, math.exp(logarithm), task.budget, task.failure)
                return not self._meets(asked, sigma, accuracy, need, sketch)

            if too_many(low):
                return -math.inf
            return high if not too_many(high) else _bisect(too_many, low, high) - 1e-9

        found, _ = self._search_scale(most, highest_scale(task, accuracy), need)
        if found >= high * (1 - 1e-9):
            return float(MOST_QUERIES)
        return math.exp(found) if math.isfinite(found) else found

    def _choose_route(self, sketch: bool) -> Route:
        return self.fast if sketch else self.exact

    def _meets(self, task: Task, sigma: float, accuracy: float, need: ThresholdNeed, sketch: bool) -> bool:
        threshold = self._choose_route(sketch).threshold(task, sigma, accuracy)
        return need.is_met(task, sigma, threshold, accuracy, sketch=sketch)

    def _search_scale(
        self, value: Callable[[float, bool], float], highest: float, need: ThresholdNeed, decades: float = 5
    ) -> tuple[float, float]:
        """Return the value of the theorem itself at the best σ found on the sketch, and that σ."""
        sigma, best = best_scale(lambda s: value(s, True), highest, decades=decades, lowest=need.least_sigma)
        if not self.exact.private and math.isfinite(best):
            least = best * ENOUGH if best < 0 else best / ENOUGH
            sigma = largest_enough_scale(lambda s: value(s, True) >= least, sigma, highest)
        return value(sigma, False), sigma

    def _best_accuracy(self, task: Task, need: ThresholdNeed) -> tuple[float, float]:
        """Return the smallest τ found whose threshold is enough, and its σ; ∞ when none below ½ is."""

        def value(sigma: float, sketch: bool) -> float:
            return -_smallest_accuracy(lambda tau: self._meets(task, sigma, tau, need, sketch))

        found, sigma = self._search_scale(value, highest_scale(task, 1.0), need, decades=7)
        return -found, sigma

    def _with_more_noise(self, task: Task, accuracy: float, need: ThresholdNeed, found: Offer) -> Offer:
        def enough(sigma: float) -> bool:
            return self._meets(task, sigma, accuracy, need, True)

        if not enough(found.sigma):
            return found
        sigma = largest_enough_scale(enough, found.sigma, highest_scale(task, accuracy))
        for factor in (1.0, 0.99, 0.95, 0.9):  # the sketch may be off by a little
            other = self._make_offer(task, max(found.sigma, factor * sigma), accuracy, need)
            if other is not None:
                return other
        return found

    def _make_offer(self, task: Task, sigma: float, accuracy: float, need: ThresholdNeed) -> Offer | None:
        threshold = self.exact.threshold(task, sigma, accuracy)
        if not need.is_met(task, sigma, threshold, accuracy, sketch=False):
            return None
        width = need.width(task, sigma, threshold, accuracy, sketch=False)
        return Offer(accuracy, sigma, threshold, width)


def contenders_for(
    model: Model, accountant: LeakageAccountant, sketch: LeakageAccountant
) -> tuple[list[Contender], list[Alternative]]:
    """Return the theorems that apply, and those that do not with their reasons."""
    found: list[Contender] = []  # what asks nothing of the accountant comes first
    refused: list[Alternative] = []
    tails: Concentration | None = None
    try:
        tails = concentration(model)
        found += [
            Contender(DescriptionRoute(tails), DescriptionRoute(tails)),
            Contender(MaxInformationRoute(accountant, tails), MaxInformationRoute(sketch, tails)),
        ]
    except QuiltdpError as error:
        refused += [_refused(kind, error.reason) for kind in (MaxInformationRoute, DescriptionRoute)]
    found.append(Contender(AnyLawRoute(accountant), AnyLawRoute(sketch)))
    try:
        adding = DescriptionRoute(
            additive_concentration(model),
            name="description length, additive queries",
            theorem="description length with concentration of sums under the model",
            covers="additive queries",
        )
        found.insert(0, Contender(adding, adding))
    except (InvalidArgument, InvalidModel):
        pass  # the form for all queries is there
    if tails is not None and not model.latents and tails.sum_of_squares <= tails.records * (1 + 1e-9):
        found.append(Contender(IidRoute(), IidRoute()))
    else:
        refused.append(_refused(IidRoute, "the records of this model are not independent"))
    return found, refused


def _refused(kind: Any, reason: str) -> Alternative:
    note = f"does not apply: {reason}"
    return Alternative(kind.name, kind.theorem, None, note=note, covers=kind.covers)


def threshold_need(
    contenders: list[Contender], threshold_share: float, overfit: float | None, least_sigma: float
) -> ThresholdNeed:
    """Return what the threshold must reach, with the theorems behind the second promise."""
    share = probability("threshold_share", threshold_share, zero=True)
    wanted = probability("overfit", overfit, zero=True) if overfit is not None else None
    exact: list[DeviationRoute] = []
    fast: list[DeviationRoute] = []
    for c in contenders:
        for route, known in ((c.exact, exact), (c.fast, fast)):
            if isinstance(route, (MaxInformationRoute, DescriptionRoute)):
                known.append(route)
    if wanted is not None and not exact:
        raise InvalidArgument(
            f"{option('overfit')} needs concentration, which is computed for Bayesian networks only"
        )
    return ThresholdNeed(share, wanted, tuple(exact), tuple(fast), least_sigma)
