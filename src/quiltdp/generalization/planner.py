"""The planner: how many queries a holdout can answer, how accurately, with which noise.

Given a model of the correlation it returns Thresholdout's σ and T with two promises that hold for
different reasons: that every answer is accurate, and that the budget is spent on overfitted
queries only.  Every theorem that applies competes; the best is the answer, and says what its
answers leak about a record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from quiltdp.accountant.shared_work import SharedWork
from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.errors import InvalidArgument, Refused, option
from quiltdp.generalization._checks import count, positive, probability
from quiltdp.generalization.concentration import concentration
from quiltdp.generalization.plan_result import AccuracyPromise, BudgetPromise, Plan
from quiltdp.generalization.plan_search import (
    Contender,
    LeakageSketch,
    NoCorrelation,
    Offer,
    ProfileAccountant,
    ThresholdNeed,
    contenders_for,
    threshold_need,
)
from quiltdp.generalization.routes import (
    GUESSING,
    Alternative,
    LeakageAccountant,
    Task,
    baselines,
    default_resolution,
)
from quiltdp.interface import any_model
from quiltdp.mechanisms import Thresholdout
from quiltdp.model import Model
from quiltdp.numbers import format_up
from quiltdp.work import Limit, WorkBudget

if TYPE_CHECKING:
    from concurrent.futures import Executor

LONGEST = 10**8


@any_model
def plan(
    model: Model,
    *,
    queries: int | None = None,
    budget: int,
    accuracy: float | None = None,
    confidence: float = 0.95,
    threshold_share: float = 0.5,
    overfit: float | None = None,
    epsilon: float | None = None,
    accountant: LeakageAccountant | None = None,
    work: str | WorkBudget = "normal",
    time_limit: Limit = None,
    executor: Executor | None = None,
) -> Plan:
    """Plan a reusable holdout on correlated records.

    Give ``queries`` and ``accuracy`` and it says how to set the holdout with the most noise that keeps
    them; leave one out and it finds the best: the smallest τ, or the most queries.

    Parameters
    ----------
    model
        The joint law of the holdout's records.  The training set must carry no information about
        them; if it does, condition the model on it first.
    queries
        m, how many queries may be asked, adaptively; ``None``: as many as possible.
    budget
        B, how many answers may come from the holdout; at most m.
    accuracy
        τ, how far an answer may be from the population value; ``None``: as small as possible.
    confidence
        1 − β, for each of the two promises.
    threshold_share
        T is at least this share of τ: the higher, the longer the budget lasts.
    overfit
        Ask for the second promise too: queries whose training value is off by no more than this spend no
        budget.  ``None``: those whose training value is right spend none, where that can be promised.
    epsilon
        Ask for privacy too: whatever is answered, ε-Bayesian DP against the informed adversary.
    accountant
        Where leakages come from; default: the leakage profiles of the model.
    work
        How far the default accountant searches, as for :func:`quiltdp.analyze`; ``level:stage`` ends both
        adversaries at that place of one list of stages.
    time_limit
        Seconds for the whole plan; none by default.  When they are over,
        :class:`~quiltdp.errors.LimitReached` carries the plan that group privacy allows.
    executor
        Where the default accountant analyses components of the model, as for :func:`quiltdp.analyze`.

    Returns
    -------
    Plan
        σ, T, the promises, the theorem, and the alternatives it beat.

    Raises
    ------
    Refused
        If no theorem covers the request, or only worse than answering ½ to everything would (τ ≥ ½);
        the message says what is possible.
    InvalidArgument
        For m < B, τ or 1 − β outside (0, 1), or neither ``queries`` nor ``accuracy``.

    Examples
    --------
    >>> import quiltdp as qd
    >>> chain = qd.markov_chain([[0.8, 0.2], [0.2, 0.8]], length=200_000)
    >>> found = qd.plan(chain, queries=1000, budget=10)
    >>> found.route, found.accuracy < 0.1
    ('description length, additive queries', True)
    >>> print(qd.plan(chain, queries=1000, budget=10, epsilon=1.0).privacy)
    the answers say at most 1 about any record, whatever else is known
    """
    task = _checked_task(len(model.records), queries, budget, accuracy, confidence)
    _refuse_impossible(model, task, accuracy, threshold_share, epsilon)

    def plan_with(asked: LeakageAccountant) -> Plan:
        share, sketch = threshold_share, LeakageSketch(asked)
        field = _Competition(model, task, asked, sketch, share=share, overfit=overfit, epsilon=epsilon)
        if queries is None and accuracy is not None:
            most = _task_of_most_queries(field, accuracy)
            field = _Competition(model, most, asked, sketch, share=share, overfit=overfit, epsilon=epsilon)
        return field.make_plan(accuracy)

    if accountant is not None:
        return plan_with(accountant)
    shared = SharedWork(work, time_limit)
    own = ProfileAccountant(model, shared=shared, executor=executor)
    return shared.answer(lambda: _attach_work(plan_with(own), shared))


def _attach_work(found: Plan, shared: SharedWork) -> Plan:
    """Return the plan with how far the searches behind it went."""
    done = shared.done
    return replace(found, work=done.work.to_dict(), stage=done.stage or None, notes=done.notes)


class _Competition:
    """Every theorem that applies to one task, with its best offer: a budget that lasts if it can be had."""

    def __init__(
        self,
        model: Model,
        task: Task,
        accountant: LeakageAccountant,
        sketch: LeakageAccountant,
        *,
        share: float,
        overfit: float | None = None,
        epsilon: float | None = None,
    ) -> None:
        self.model, self.task, self.accountant, self.epsilon = model, task, accountant, epsilon
        self.contenders, self.refused = contenders_for(model, accountant, sketch)
        least = 0.0
        if epsilon is not None:  # the noise that privacy asks for
            allowed = accountant.dp_epsilon(positive("epsilon", epsilon))
            least = Thresholdout(budget=task.budget, sensitivity=1 / task.records).scale(allowed)
        self.need = need = threshold_need(self.contenders, share, overfit, least)
        lasting = need.overfit is None and need.exact
        self.needs = (replace(need, overfit=0.0), need) if lasting else (need,)
        self._known: dict[str, Offer | None] = {}

    def best_offer(self, contender: Contender) -> Offer | None:
        """Return the best offer of one theorem, found once."""
        name = contender.exact.name
        if name not in self._known:
            offers = (contender.best_offer(self.task, need) for need in self.needs)
            self._known[name] = next((o for o in offers if o is not None), None)
        return self._known[name]

    def best_offers(self) -> list[tuple[Contender, Offer]]:
        """Return the best offer of everybody who has one."""
        return [(c, o) for c in self.contenders if (o := self.best_offer(c)) is not None]

    def offers_at(self, accuracy: float, need: ThresholdNeed) -> list[tuple[Contender, Offer]]:
        """Return what everybody who keeps an accuracy offers."""
        return [(c, o) for c in self.contenders if (o := c.offer_at(self.task, accuracy, need)) is not None]

    def winner(self, accuracy: float | None) -> tuple[Contender, Offer]:
        """Return the smallest accuracy; with one given, who keeps it with the most noise."""
        if accuracy is None:
            if not self.best_offers():
                raise Refused(_impossible_text(self.task, self.need))
            return min(self.best_offers(), key=lambda item: item[1].accuracy)
        for need in self.needs:
            if found := self.offers_at(accuracy, need):
                return max(found, key=lambda item: (item[1].sigma, item[1].overfit))
        raise Refused(f"{_no_promise_text(self.task, accuracy)}{self.say_best_possible()}{_ASK_LESS}")

    def say_best_possible(self) -> str:
        """Say what is the best that can be promised."""
        offers = [o.accuracy for _, o in self.best_offers()]
        return f"the best is {min(offers):.4g}" if offers else "nothing better than answering ½ is possible"

    def leakage(self, sigma: float) -> float:
        """Return the largest leakage to the prior adversary; ∞ without noise."""
        return float(self.accountant.prior(self.task.dp_epsilon(sigma)).max()) if sigma > 0 else math.inf

    def losing_alternative(self, contender: Contender) -> Alternative:
        """Return a theorem that did not win, for the table of a plan."""
        route, offer = contender.exact, self.best_offer(contender)
        if offer is None:
            note = f"no promise below {GUESSING:g}"
            return Alternative(route.name, route.theorem, None, note=note, covers=route.covers)
        leaks = self.leakage(offer.sigma)
        return Alternative(route.name, route.theorem, offer.accuracy, covers=route.covers, leakage=leaks)

    def make_plan(self, accuracy: float | None) -> Plan:
        """Put the plan together, with both promises."""
        winner, offer = self.winner(accuracy)
        others = [self.losing_alternative(c) for c in self.contenders if c is not winner]
        others.sort(key=lambda a: a.accuracy if a.accuracy is not None else math.inf)
        task, route = self.task, winner.exact
        size = concentration(self.model).effective_sample_size if self.need.exact else None
        return Plan(
            records=task.records,
            queries=int(task.queries),
            budget=task.budget,
            accuracy=offer.accuracy,
            confidence=1 - task.failure,
            sigma=offer.sigma,
            threshold=offer.threshold,
            resolution=default_resolution(offer.accuracy),
            dp_epsilon=task.dp_epsilon(offer.sigma) if offer.sigma > 0 else math.inf,
            leakage=self.leakage(offer.sigma),
            epsilon=self.epsilon,
            effective_sample_size=size,
            route=route.name,
            covers=route.covers,
            answers=AccuracyPromise(offer.accuracy, task.failure, route.theorem),
            budget_lasts=self.budget_promise(offer),
            alternatives=(*others, *self.refused, *baselines(self.model, task)),
            fingerprint=self.model.fingerprint,
        )

    def budget_promise(self, offer: Offer) -> BudgetPromise:
        """Say how far a training value may be off before a query spends budget."""
        if not self.need.exact and offer.overfit < 0:
            reason = "that needs concentration, which is computed for Bayesian networks only"
            return BudgetPromise(None, self.task.failure, "", reason)
        theorem = "concentration under the model"
        if offer.overfit >= 0:
            return BudgetPromise(offer.overfit, self.task.failure, theorem)
        reason = (
            f"the holdout's own deviation, with the noise, may exceed T = {offer.threshold:.3g}"
            f" by {-offer.overfit:.3g}"
        )
        return BudgetPromise(None, self.task.failure, theorem, reason)


@any_model
def plan_length(
    model: Model,
    *,
    queries: int,
    budget: int,
    accuracy: float,
    confidence: float = 0.95,
    threshold_share: float = 0.5,
    epsilon: float | None = None,
    work: str | WorkBudget = "normal",
    time_limit: Limit = None,
) -> Plan:
    """Find the shortest chain, with this model's transition matrix, that a plan exists for.

    Parameters
    ----------
    model
        One homogeneous chain; its length is ignored, the new one starts in its initial law.
    queries, budget, accuracy, confidence, threshold_share, epsilon, work, time_limit
        As for :func:`plan`; the limit is for the whole search.

    Returns
    -------
    Plan
        With the smallest ``records`` found (to about 1 %); certified at that length.

    Examples
    --------
    >>> import quiltdp as qd
    >>> chain = qd.markov_chain([[0.6, 0.4], [0.4, 0.6]], length=10)
    >>> found = plan_length(chain, queries=10, budget=1, accuracy=0.3)
    >>> found.records < 500
    True
    """
    if not isinstance(model, ChainModel) or len(model.segments) != 1 or not model.segments[0].homogeneous:
        raise InvalidArgument("the smallest length needs one homogeneous chain (markov_chain, fit_chain)")
    segment = model.segments[0]
    shared = SharedWork(work, time_limit)

    def chain_of(length: int) -> ChainModel:
        return ChainModel([ChainSegment(segment.prefix, length, segment.initial, segment.transitions)])

    def enough(length: int, sketches: list[LeakageSketch]) -> bool:
        chain = chain_of(length)
        asked = ProfileAccountant(chain, shared=shared)
        if not sketches:
            sketches.append(LeakageSketch(asked))
        task = _checked_task(length, queries, budget, accuracy, confidence)
        field = _Competition(chain, task, asked, sketches[0], share=threshold_share, epsilon=epsilon)
        return any(c.offer_at(task, accuracy, field.need) is not None for c in field.contenders)

    def shortest() -> Plan:
        sketches: list[LeakageSketch] = []  # a long chain leaks like a longer one: one serves the search
        chain = chain_of(_shortest_length(lambda length: enough(length, sketches)))
        asked = ProfileAccountant(chain, shared=shared)
        task = _checked_task(chain.segments[0].length, queries, budget, accuracy, confidence)
        sketch = LeakageSketch(asked)
        return _Competition(chain, task, asked, sketch, share=threshold_share, epsilon=epsilon).make_plan(
            accuracy
        )

    _checked_task(1, queries, budget, accuracy, confidence)
    probability("threshold_share", threshold_share, zero=True)
    return shared.answer(lambda: _attach_work(shortest(), shared))


def _shortest_length(enough: Callable[[int], bool]) -> int:
    """Grow until it is enough, then bisect to one percent."""
    low, high = 1, 256
    while not enough(high):
        low, high = high, 4 * high
        if high > LONGEST:
            raise Refused(f"no chain of up to {LONGEST:,} steps is long enough: ask for less accuracy")
    while high - low > max(1, high // 100):
        middle = int(math.sqrt(low * high)) if high > 2 * low else (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _checked_task(
    n: int, queries: int | None, budget: int, accuracy: float | None, confidence: float
) -> Task:
    """Check the request and return it as a task (one query when the number is asked for)."""
    if queries is None and accuracy is None:
        raise InvalidArgument(
            f"give {option('queries')} or {option('accuracy')} (or both): one of them must be fixed"
        )
    b = count("budget", budget)
    m = count("queries", queries) if queries is not None else b
    if m < b:
        raise InvalidArgument(
            f"{option('queries')} {m} is below {option('budget')} {b}:"
            " a budget above the queries is never spent"
        )
    if accuracy is not None and probability("accuracy", accuracy) >= GUESSING:
        raise Refused(
            f"{option('accuracy')} {accuracy:g} is no promise for queries with values in [0, 1]:"
            " answering ½ to every one of them is as accurate; ask for less than 0.5"
        )
    return Task(n, m, b, 1 - probability("confidence", confidence))


def _refuse_impossible(
    model: Model, task: Task, accuracy: float | None, threshold_share: float, epsilon: float | None
) -> None:
    """Refuse at once what even uncorrelated records could not do: the leakage is at least α."""
    least = NoCorrelation()  # no analysis of the model is needed for this
    field = _Competition(model, task, least, LeakageSketch(least), share=threshold_share, epsilon=epsilon)
    best = math.inf
    for c in field.contenders:
        offer = c.best_offer(task, field.need)
        best = min(best, offer.accuracy if offer is not None else math.inf)
        if best <= (accuracy if accuracy is not None else GUESSING):
            return
    if math.isinf(best):
        raise Refused(_impossible_text(task, field.need))
    if accuracy is not None and best > 1.05 * accuracy:  # the search itself is good to a few percent
        raise Refused(
            f"{_no_promise_text(task, accuracy)}the best is {best:.4g} even if they leaked no more than"
            f" independent ones{_ASK_LESS}"
        )


def _task_of_most_queries(field: _Competition, accuracy: float) -> Task:
    """Return the task with the most queries that some theorem covers."""
    task = field.task
    most = max(c.most_queries(task, accuracy, field.need) for c in field.contenders)
    if not math.isfinite(most):
        raise Refused(f"{_no_promise_text(task, accuracy)}{field.say_best_possible()}")
    asked = math.floor(most * (1 - 1e-9))
    asked = max(task.budget, asked - asked % 10 ** max(0, len(str(asked)) - 6))  # six figures are enough
    return replace(task, queries=asked)


_ASK_LESS = "; ask for less accuracy, fewer queries or a smaller budget, or use more records"


def _no_promise_text(task: Task, accuracy: float) -> str:
    return (
        f"no theorem promises accuracy {accuracy:g} for {task.queries:,.0f} queries with budget"
        f" {task.budget} on {task.records:,} records: "
    )


def _impossible_text(task: Task, need: ThresholdNeed) -> str:
    privacy = f" and the noise for that privacy (σ ≥ {format_up(need.least_sigma, 3)})"
    return (
        f"no accuracy better than answering ½ to everything can be promised on {task.records:,} records with"
        f" budget {task.budget}, T ≥ {need.share:g} τ{privacy if need.least_sigma > 0 else ''}:"
        " use more records or a smaller budget"
    )
