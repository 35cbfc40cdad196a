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
from quiltdp.generalization.baselines import baselines
from quiltdp.generalization.concentration import concentration
from quiltdp.generalization.plan_result import AccuracyPromise, BudgetPromise, Plan
from quiltdp.generalization.plan_search import (
    GUESSING,
    Contender,
    LeakageSketch,
    Need,
    NoCorrelation,
    Offer,
    ProfileAccountant,
    contenders_for,
    need_of,
)
from quiltdp.generalization.routes import Alternative, LeakageAccountant, Task, nice_resolution
from quiltdp.interface import any_model
from quiltdp.mechanisms import Thresholdout
from quiltdp.model import Model
from quiltdp.numbers import format_up
from quiltdp.work import Limit, WorkBudget

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["plan", "plan_length"]

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
    _refuse_the_hopeless(model, task, accuracy, threshold_share, epsilon)

    def planned(asked: LeakageAccountant) -> Plan:
        fixed = (queries is not None, accuracy, threshold_share, overfit, epsilon)
        return _planned(model, task, asked, *fixed)

    if accountant is not None:
        return planned(accountant)
    shared = SharedWork(work, time_limit)
    own = ProfileAccountant(model, shared=shared, executor=executor)
    return shared.answer(lambda: _with_work(planned(own), shared))


def _with_work(found: Plan, shared: SharedWork) -> Plan:
    """Return the plan with how far the searches behind it went."""
    done = shared.done
    return replace(found, work=done.work.to_dict(), stage=done.stage or None, notes=done.notes)


def _planned(
    model: Model,
    task: Task,
    asked: LeakageAccountant,
    counted: bool,
    accuracy: float | None,
    threshold_share: float,
    overfit: float | None,
    epsilon: float | None,
) -> Plan:
    """Let every theorem compete; ``counted`` says whether the number of queries is fixed."""
    contenders, refused = contenders_for(model, asked, LeakageSketch(asked))
    need = need_of(contenders, threshold_share, overfit, _least_sigma(asked, task, epsilon))
    if not counted and accuracy is not None:
        task = _with_most_queries(task, contenders, accuracy, need)
    best = _Bests(contenders, task, need)
    winner, offer = _choose(task, contenders, accuracy, need, best)
    others = [_alternative(c, task, best.of(c), asked) for c in contenders if c is not winner]
    others.sort(key=lambda a: a.accuracy if a.accuracy is not None else math.inf)
    others += [*refused, *baselines(model, task)]
    return _result(model, task, winner, offer, need, asked, epsilon, tuple(others))


class _Bests:
    """The best offer of every contender, each found once: with a budget that lasts if it can be had."""

    def __init__(self, contenders: list[Contender], task: Task, need: Need) -> None:
        self._task, self._need = task, need
        self._lasting = replace(need, overfit=0.0) if need.overfit is None and need.exact else need
        self._known: dict[str, Offer | None] = {}
        self.contenders = contenders

    @property
    def needs(self) -> tuple[Need, ...]:
        """What is tried, in this order."""
        return (self._need,) if self._lasting is self._need else (self._lasting, self._need)

    def of(self, contender: Contender) -> Offer | None:
        """Return its best offer."""
        if contender.name not in self._known:
            offers = (contender.best(self._task, need) for need in self.needs)
            self._known[contender.name] = next((o for o in offers if o is not None), None)
        return self._known[contender.name]

    def all(self) -> list[tuple[Contender, Offer]]:
        """Return everybody's who has one."""
        return [(c, o) for c in self.contenders if (o := self.of(c)) is not None]


def _choose(
    task: Task, contenders: list[Contender], accuracy: float | None, need: Need, best: _Bests
) -> tuple[Contender, Offer]:
    """Return the winner: the smallest accuracy; with one given, who keeps it with the most noise."""
    if accuracy is None:
        if not best.all():
            raise Refused(_hopeless(task, need))
        return min(best.all(), key=lambda item: item[1].accuracy)
    for wanted in best.needs:
        found = [(c, o) for c in contenders if (o := c.at(task, accuracy, wanted)) is not None]
        if found:
            return max(found, key=lambda item: (item[1].sigma, item[1].overfit))
    raise Refused(_best_instead(task, accuracy, best))


def _least_sigma(accountant: LeakageAccountant, task: Task, epsilon: float | None) -> float:
    """Return the noise that privacy asks for, 0 when it is not asked for."""
    if epsilon is None:
        return 0.0
    allowed = accountant.dp_epsilon(positive("epsilon", epsilon))
    return Thresholdout(budget=task.budget, sensitivity=1 / task.records).scale(allowed)


def _alternative(
    contender: Contender, task: Task, offer: Offer | None, accountant: LeakageAccountant
) -> Alternative:
    return Alternative(
        contender.name,
        contender.theorem,
        offer.accuracy if offer is not None else None,
        note="" if offer is not None else f"no promise below {GUESSING:g}",
        covers=contender.covers,
        leakage=_leakage(accountant, task, offer.sigma) if offer is not None else None,
    )


def _leakage(accountant: LeakageAccountant, task: Task, sigma: float) -> float:
    """Return the largest leakage to the prior adversary; ∞ without noise."""
    return float(accountant.prior(task.dp_epsilon(sigma)).max()) if sigma > 0 else math.inf


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

    def grown(length: int) -> ChainModel:
        return ChainModel([ChainSegment(segment.prefix, length, segment.initial, segment.transitions)])

    def enough(length: int, sketches: list[LeakageSketch]) -> bool:
        chain = grown(length)
        asked = ProfileAccountant(chain, shared=shared)
        if not sketches:
            sketches.append(LeakageSketch(asked))
        task = _checked_task(length, queries, budget, accuracy, confidence)
        contenders, _ = contenders_for(chain, asked, sketches[0])
        need = need_of(contenders, threshold_share, None, _least_sigma(asked, task, epsilon))
        return any(c.at(task, accuracy, need) is not None for c in contenders)

    def shortest() -> Plan:
        sketches: list[LeakageSketch] = []  # a long chain leaks like a longer one: one serves the search
        chain = grown(_shortest(lambda length: enough(length, sketches)))
        return plan(
            chain,
            queries=queries,
            budget=budget,
            accuracy=accuracy,
            confidence=confidence,
            threshold_share=threshold_share,
            epsilon=epsilon,
            accountant=ProfileAccountant(chain, shared=shared),
        )

    _checked_task(1, queries, budget, accuracy, confidence)
    probability("threshold_share", threshold_share, zero=True)
    return shared.answer(lambda: _with_work(shortest(), shared))


def _shortest(enough: Callable[[int], bool]) -> int:
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


def _refuse_the_hopeless(
    model: Model, task: Task, accuracy: float | None, threshold_share: float, epsilon: float | None
) -> None:
    """Refuse at once what even uncorrelated records could not do: the leakage is at least α."""
    least = NoCorrelation()  # no analysis of the model is needed for this
    contenders, _ = contenders_for(model, least, LeakageSketch(least))
    need = need_of(contenders, threshold_share, None, _least_sigma(least, task, epsilon))
    best = math.inf
    for c in contenders:
        offer = c.best(task, need)
        best = min(best, offer.accuracy if offer is not None else math.inf)
        if best <= (accuracy if accuracy is not None else GUESSING):
            return
    if math.isinf(best):
        raise Refused(_hopeless(task, need))
    if accuracy is not None and best > 1.05 * accuracy:  # the search itself is good to a few percent
        raise Refused(
            f"no theorem promises accuracy {accuracy:g} for {task.queries:,.0f} queries with budget"
            f" {task.budget} on {task.records:,} records: the best is {best:.4g} even if they"
            " leaked no more than independent ones; ask for less accuracy, fewer queries or a smaller"
            " budget, or use more records"
        )


def _with_most_queries(task: Task, contenders: list[Contender], accuracy: float, need: Need) -> Task:
    """Return the task with the most queries that some theorem covers."""
    most = max(c.most(task, accuracy, need) for c in contenders)
    if not math.isfinite(most):
        raise Refused(
            f"no theorem promises accuracy {accuracy:g} even for {task.budget} queries on"
            f" {task.records:,} records: {_best_of(_Bests(contenders, task, need))}"
        )
    asked = math.floor(most * (1 - 1e-9))
    asked = max(task.budget, asked - asked % 10 ** max(0, len(str(asked)) - 6))  # six figures are enough
    return Task(task.records, asked, task.budget, task.failure)


def _best_instead(task: Task, accuracy: float, best: _Bests) -> str:
    return (
        f"no theorem promises accuracy {accuracy:g} for {task.queries:,.0f} queries with budget"
        f" {task.budget} on {task.records:,} records: {_best_of(best)}"
        "; ask for less accuracy, fewer queries or a smaller budget, or use more records"
    )


def _best_of(best: _Bests) -> str:
    offers = [o.accuracy for _, o in best.all()]
    return f"the best is {min(offers):.4g}" if offers else "nothing better than answering ½ is possible"


def _hopeless(task: Task, need: Need) -> str:
    noise = (
        f" and the noise for that privacy (σ ≥ {format_up(need.least_sigma, 3)})"
        if need.least_sigma > 0
        else ""
    )
    return (
        f"no accuracy better than answering ½ to everything can be promised on {task.records:,} records with"
        f" budget {task.budget}, T ≥ {need.share:g} τ{noise}: use more records or a smaller budget"
    )


def _result(
    model: Model,
    task: Task,
    winner: Contender,
    offer: Offer,
    need: Need,
    accountant: LeakageAccountant,
    epsilon: float | None,
    alternatives: tuple[Alternative, ...],
) -> Plan:
    """Put the plan together, with both promises."""
    alpha = task.dp_epsilon(offer.sigma) if offer.sigma > 0 else math.inf
    size = concentration(model).effective_sample_size if need.exact else None
    return Plan(
        records=task.records,
        queries=int(task.queries),
        budget=task.budget,
        accuracy=offer.accuracy,
        confidence=1 - task.failure,
        sigma=offer.sigma,
        threshold=offer.threshold,
        resolution=nice_resolution(offer.accuracy),
        dp_epsilon=alpha,
        leakage=_leakage(accountant, task, offer.sigma),
        epsilon=epsilon,
        effective_sample_size=size,
        route=winner.name,
        covers=winner.covers,
        answers=AccuracyPromise(offer.accuracy, task.failure, winner.theorem),
        budget_lasts=_budget_promise(task, offer, need),
        alternatives=alternatives,
        fingerprint=model.fingerprint,
    )


def _budget_promise(task: Task, offer: Offer, need: Need) -> BudgetPromise:
    """Say how far a training value may be off before a query spends budget."""
    if offer.overfit >= 0:
        return BudgetPromise(offer.overfit, task.failure, "concentration under the model")
    if not need.exact:
        reason = "that needs concentration, which is computed for Bayesian networks only"
        return BudgetPromise(None, task.failure, "", reason)
    reason = (
        f"the holdout's own deviation, with the noise, may exceed T = {offer.threshold:.3g}"
        f" by {-offer.overfit:.3g}"
    )
    return BudgetPromise(None, task.failure, "concentration under the model", reason)
