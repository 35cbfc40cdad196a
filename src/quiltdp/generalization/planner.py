"""The planner: how many queries a holdout can answer, how accurately, with which noise.

Given a model of the correlation it returns Thresholdout's σ and T with two promises that hold for
different reasons: that every answer is accurate, and that the budget is spent on overfitted
queries only.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.errors import InvalidArgument, Refused, option
from quiltdp.generalization._checks import count, probability
from quiltdp.generalization.plan_accountant import ProfileAccountant
from quiltdp.generalization.plan_choice import Chosen, best_that_meets, candidates_for, choose, need_of
from quiltdp.generalization.plan_result import AccuracyPromise, Alternative, BudgetPromise, Plan
from quiltdp.generalization.plan_search import (
    Candidate,
    LeakageSketch,
    Need,
    NoCorrelation,
    best_accuracy,
    most_queries,
)
from quiltdp.generalization.published import NOT_VALID, published_chain_records, published_plan
from quiltdp.generalization.routes import LeakageAccountant, MaxInformationRoute, Task
from quiltdp.model import Model

__all__ = ["plan", "plan_length"]

LONGEST = 10**8


def plan(
    model: Model,
    *,
    queries: int | None = None,
    budget: int,
    accuracy: float | None = None,
    confidence: float = 0.95,
    threshold_share: float = 0.5,
    overfit: float | None = None,
    accountant: LeakageAccountant | None = None,
    time_limit: float = 30.0,
) -> Plan:
    """Plan a reusable holdout on correlated records.

    Give ``queries`` and ``accuracy`` and it says how to set the holdout; leave one out and it
    finds the best: the smallest τ, or the most queries.

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
        budget.  ``None``: whatever comes out.
    accountant
        Where leakages come from; default: the leakage profiles of the model.
    time_limit
        Seconds the default accountant may search, for each adversary.

    Returns
    -------
    Plan
        σ, T, the promises, the theorem, and the alternatives it beat.

    Raises
    ------
    Refused
        If no theorem covers the request; the message says what is possible.
    InvalidArgument
        For m < B, τ or 1 − β outside (0, 1), or neither ``queries`` nor ``accuracy``.

    Examples
    --------
    >>> import quiltdp as qd
    >>> chain = qd.markov_chain([[0.8, 0.2], [0.2, 0.8]], length=200_000)
    >>> found = qd.plan(chain, queries=1000, budget=10, accuracy=0.3)
    >>> found.route, found.threshold >= 0.15
    ('any joint law', True)
    >>> print(found.answers)
    every answer is within 0.3 of the population value, with probability at least 0.95
    """
    n = len(model.records)
    task = _checked_task(n, queries, budget, accuracy, confidence)
    asked = accountant if accountant is not None else ProfileAccountant(model, time_limit=time_limit)
    _refuse_the_hopeless(model, task, accuracy, threshold_share)
    candidates, refused = candidates_for(model, asked, LeakageSketch(asked))
    need = need_of(candidates, threshold_share, overfit)
    if queries is None and accuracy is not None:
        task, chosen = _with_most_queries(task, candidates, accuracy, need)
        tau = accuracy
    elif accuracy is None:
        tau, chosen = _with_best_accuracy(task, candidates, need)
    else:
        tau, chosen = accuracy, None
    found = best_that_meets(task, candidates, tau, need, chosen)
    if found is None:
        raise Refused(_best_instead(task, candidates, tau, need))
    others = [
        Alternative(c.exact.name, c.exact.theorem, _possible(best_accuracy(c, task, need)[0]), True)
        for c in candidates
        if c is not found.candidate
    ]
    others.sort(key=lambda a: a.accuracy if a.accuracy is not None else math.inf)
    others += [*refused, _published(model, task, tau, asked)]
    leak = float(asked.prior(task.dp_epsilon(found.sigma)).max())
    return _result(model, task, tau, found, candidates, leakage=leak, alternatives=tuple(others))


def plan_length(
    model: ChainModel,
    *,
    queries: int,
    budget: int,
    accuracy: float,
    confidence: float = 0.95,
    threshold_share: float = 0.5,
    time_limit: float = 30.0,
) -> Plan:
    """Find the shortest chain, with this model's transition matrix, that a plan exists for.

    Parameters
    ----------
    model
        One homogeneous chain; its length is ignored, the new one starts in its initial law.
    queries, budget, accuracy, confidence, threshold_share, time_limit
        As for :func:`plan`.

    Returns
    -------
    Plan
        With the smallest ``records`` found (to about 1 %); certified at that length.

    Examples
    --------
    >>> import quiltdp as qd
    >>> chain = qd.markov_chain([[0.6, 0.4], [0.4, 0.6]], length=10)
    >>> found = plan_length(chain, queries=10, budget=1, accuracy=0.3)
    >>> found.records < 20_000
    True
    """
    if len(model.segments) != 1 or not model.segments[0].homogeneous:
        raise InvalidArgument("the smallest length needs one homogeneous chain")

    segment = model.segments[0]
    sketches: list[LeakageSketch] = []  # a long chain leaks like a longer one: one sketch serves the search

    def grown(length: int) -> ChainModel:
        return ChainModel([ChainSegment(segment.prefix, length, segment.initial, segment.transitions)])

    def enough(length: int) -> bool:
        chain = grown(length)
        asked = ProfileAccountant(chain, time_limit=time_limit)
        if not sketches:
            sketches.append(LeakageSketch(asked))
        task = _checked_task(length, queries, budget, accuracy, confidence)
        candidates, _ = candidates_for(chain, asked, sketches[0])
        return choose(task, candidates, accuracy).threshold >= threshold_share * accuracy

    _checked_task(1, queries, budget, accuracy, confidence)
    probability("threshold_share", threshold_share, zero=True)
    return plan(
        grown(_shortest(enough)),
        queries=queries,
        budget=budget,
        accuracy=accuracy,
        confidence=confidence,
        threshold_share=threshold_share,
        time_limit=time_limit,
    )


def _shortest(enough: Callable[[int], bool]) -> int:
    """Grow until it is enough, then bisect to one percent."""
    low, high = 1, 4096
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
    if accuracy is not None:
        probability("accuracy", accuracy)
    return Task(n, m, b, 1 - probability("confidence", confidence))


def _refuse_the_hopeless(model: Model, task: Task, accuracy: float | None, threshold_share: float) -> None:
    """Refuse at once what even uncorrelated records could not do: the leakage is at least α."""
    least = NoCorrelation()
    candidates, _ = candidates_for(model, least, LeakageSketch(least))
    need = need_of(candidates, threshold_share, None)
    best = min(best_accuracy(c, task, need)[0] for c in candidates)
    if best >= 1:
        raise Refused(_hopeless(task, need))
    if accuracy is not None and best > 1.05 * accuracy:  # the search itself is good to a few percent
        raise Refused(
            f"no theorem promises accuracy {accuracy:g} for {task.queries:,.0f} queries with budget"
            f" {task.budget} on {task.records:,} records: the best is {best:.4g} even if they were"
            " uncorrelated; ask for less accuracy, fewer queries or a smaller budget, or use more records"
        )


def _with_best_accuracy(task: Task, candidates: list[Candidate], need: Need) -> tuple[float, Chosen]:
    """Return the smallest accuracy any theorem promises, and which one."""
    tried = [(best_accuracy(c, task, need), c) for c in candidates]
    (tau, sigma), candidate = min(tried, key=lambda item: item[0][0])
    if tau >= 1:
        raise Refused(_hopeless(task, need))
    return tau, Chosen(candidate, sigma)


def _with_most_queries(
    task: Task, candidates: list[Candidate], accuracy: float, need: Need
) -> tuple[Task, Chosen]:
    """Return the task with the most queries that some theorem covers, and which one."""
    tried = [(most_queries(c, task, accuracy, need), c) for c in candidates]
    (most, sigma), candidate = max(tried, key=lambda item: item[0][0])
    if not math.isfinite(most):
        smallest = min(best_accuracy(c, task, need)[0] for c in candidates)
        raise Refused(
            f"no theorem promises accuracy {accuracy:g} even for {task.budget} queries on"
            f" {task.records:,} records: "
            + (f"the best accuracy is {smallest:.4g}" if smallest < 1 else _hopeless(task, need))
        )
    asked = max(task.budget, math.floor(most * (1 - 1e-9)))
    return Task(task.records, asked, task.budget, task.failure), Chosen(candidate, sigma)


def _best_instead(task: Task, candidates: list[Candidate], accuracy: float, need: Need) -> str:
    best = min(best_accuracy(c, task, need)[0] for c in candidates)
    return (
        f"no theorem promises accuracy {accuracy:g} for {task.queries:,.0f} queries with budget"
        f" {task.budget} on {task.records:,} records: "
        + (f"the best is {best:.4g}" if best < 1 else "nothing below 1 is possible")
        + "; ask for less accuracy, fewer queries or a smaller budget, or use more records"
    )


def _hopeless(task: Task, need: Need) -> str:
    return (
        f"no accuracy below 1 can be promised on {task.records:,} records with budget {task.budget}"
        f" and T ≥ {need.share:g} τ: use more records or a smaller budget"
    )


def _result(
    model: Model,
    task: Task,
    accuracy: float,
    found: Chosen,
    candidates: list[Candidate],
    *,
    leakage: float,
    alternatives: tuple[Alternative, ...],
) -> Plan:
    """Put the plan together, with both promises."""
    strong = next((c.exact for c in candidates if isinstance(c.exact, MaxInformationRoute)), None)
    route = found.candidate.exact
    return Plan(
        records=task.records,
        queries=int(task.queries),
        budget=task.budget,
        accuracy=accuracy,
        confidence=1 - task.failure,
        sigma=found.sigma,
        threshold=found.threshold,
        dp_epsilon=task.dp_epsilon(found.sigma),
        leakage=leakage,
        effective_sample_size=strong.concentration.effective_sample_size if strong else None,
        route=route.name,
        answers=AccuracyPromise(accuracy, task.failure, route.theorem),
        budget_lasts=_budget_promise(task, found.sigma, found.threshold, strong),
        alternatives=alternatives,
        fingerprint=model.fingerprint,
    )


def _possible(accuracy: float) -> float | None:
    return accuracy if accuracy < 1 else None


def _budget_promise(
    task: Task, sigma: float, threshold: float, strong: MaxInformationRoute | None
) -> BudgetPromise:
    """Say how far a training value may be off before a query spends budget."""
    if strong is None:
        reason = "that needs concentration, which is computed for Bayesian networks only"
        return BudgetPromise(None, task.failure, "", reason)
    width = strong.untouched(task, sigma, threshold)
    if width < 0:
        reason = (
            f"the holdout's own deviation may reach {strong.deviation(task, sigma, task.failure / 2):.3g},"
            f" with its noise more than T = {threshold:.3g}"
        )
        return BudgetPromise(None, task.failure, strong.theorem, reason)
    return BudgetPromise(width, task.failure, strong.theorem)


def _published(model: Model, task: Task, accuracy: float, accountant: LeakageAccountant) -> Alternative:
    """Say what the published theorem would have asked for, with its warning."""
    asked = published_plan(queries=int(task.queries), accuracy=accuracy, failure=task.failure)
    parts = [f"n_* = {math.ceil(asked.records_needed):,}"]
    needed = asked.records_needed
    if isinstance(model, ChainModel):
        try:
            chain = published_chain_records(
                model, budget=task.budget, sigma=asked.sigma, leakage_allowed=asked.leakage_allowed
            )
            parts.append(f"n_# = {math.ceil(chain):,} (Markov-chain form)")
            needed = max(needed, chain)
        except InvalidArgument as error:
            parts.append(f"no chain form ({error})")
            needed = math.inf
    else:
        leak = accountant.published(task.dp_epsilon(asked.sigma))
        parts.append(f"published leakage {leak:.3g}, allowed {asked.leakage_allowed:.3g}")
        needed = needed if leak <= asked.leakage_allowed else math.inf
    covered = accuracy if needed <= task.records else None
    note = f"σ = {asked.sigma:.3g}, T = {asked.threshold:.3g}, {', '.join(parts)}; {NOT_VALID}"
    return Alternative("published", "Zhao (2017), Theorem 2", covered, False, note)
