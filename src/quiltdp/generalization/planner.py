"""The planner: how many queries a holdout can answer, how accurately, with which noise.

Given a model of the correlation it returns Thresholdout's σ and T with two promises that hold for
different reasons: that every answer is accurate, and that the budget is spent on overfitted
queries only.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.errors import InvalidArgument, QuiltdpError, Refused
from quiltdp.generalization._checks import count, probability
from quiltdp.generalization.concentration import Concentration, concentration
from quiltdp.generalization.plan_accountant import ProfileAccountant
from quiltdp.generalization.plan_result import AccuracyPromise, Alternative, BudgetPromise, Plan
from quiltdp.generalization.published import NOT_VALID, published_chain_records, published_plan
from quiltdp.generalization.routes import (
    AnyLawRoute,
    GibbsRoute,
    IidRoute,
    LeakageAccountant,
    MaxInformationRoute,
    Route,
    Task,
    best_scale,
)
from quiltdp.inference.gibbs_dependence import gibbs_dependence
from quiltdp.model import Model

__all__ = ["plan", "plan_length"]

MOST_QUERIES = 10**15
LONGEST = 10**8


def plan(
    model: Model,
    *,
    queries: int | None = None,
    budget: int,
    accuracy: float | None = None,
    confidence: float = 0.95,
    threshold_share: float = 0.5,
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
    >>> found = qd.plan(chain, queries=1000, budget=10, accuracy=0.1)
    >>> found.route, found.threshold >= 0.05, found.answers.failure <= 0.05
    ('any joint law', True, True)
    """
    n = len(model.records)
    task = _checked_task(n, queries, budget, accuracy, confidence)
    share = probability("threshold_share", threshold_share, zero=True)
    asked = accountant if accountant is not None else ProfileAccountant(model, time_limit=time_limit)
    routes, refused = _routes(model, asked)
    tau, hint = accuracy, None
    if queries is None and accuracy is not None:
        task, hint = _most_queries(task, routes, accuracy, share)
    elif accuracy is None:
        tau, hint = min(
            ((value, (r, sigma)) for r in routes for value, sigma in [_best_accuracy(task, r, share)]),
            key=lambda item: item[0],
        )
        if tau >= 1:
            raise Refused(_hopeless(task, share))
    assert tau is not None
    route, sigma, threshold = _choose(task, routes, tau, hint)
    if threshold < share * tau * (1 - 1e-9):
        best = min(_best_accuracy(task, r, share)[0] for r in routes)
        raise Refused(
            f"no theorem promises accuracy {tau:g} for {task.queries:,.0f} queries with budget"
            f" {task.budget} on {n:,} records: "
            + (f"the best is {best:.4g}" if best < 1 else "nothing below 1 is possible")
            + "; ask for less accuracy, fewer queries or a smaller budget, or use more records"
        )
    return _result(model, task, tau, route, sigma, threshold, asked, routes, refused, share)


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
    >>> a, b = (plan_length(chain, queries=100, budget=5, accuracy=t).records for t in (0.2, 0.1))
    >>> 3.5 < b / a < 4.5                                   # half the error, four times the records
    True
    """
    if len(model.segments) != 1 or not model.segments[0].homogeneous:
        raise InvalidArgument("the smallest length needs one homogeneous chain")

    def at(length: int) -> Plan | None:
        segment = model.segments[0]
        grown = ChainModel([ChainSegment(segment.prefix, length, segment.initial, segment.transitions)])
        try:
            return plan(
                grown,
                queries=queries,
                budget=budget,
                accuracy=accuracy,
                confidence=confidence,
                threshold_share=threshold_share,
                time_limit=time_limit,
            )
        except Refused:
            return None

    return _shortest(at)


def _shortest(at: Callable[[int], Plan | None]) -> Plan:
    """Double until a plan exists, then bisect; the answer's own plan was computed at its length."""
    low, high = 1, 1024
    found = at(high)
    while found is None:
        low, high = high, 4 * high
        if high > LONGEST:
            raise Refused(f"no chain of up to {LONGEST:,} steps is long enough: ask for less accuracy")
        found = at(high)
    while high - low > max(1, high // 100):
        middle = int(math.sqrt(low * high)) if high > 2 * low else (low + high) // 2
        candidate = at(middle)
        if candidate is None:
            low = middle
        else:
            high, found = middle, candidate
    return found


def _checked_task(
    n: int, queries: int | None, budget: int, accuracy: float | None, confidence: float
) -> Task:
    """Check the request and return it as a task (one query when the number is asked for)."""
    if queries is None and accuracy is None:
        raise InvalidArgument("give queries or accuracy (or both): one of them must be fixed")
    b = count("budget", budget)
    m = count("queries", queries) if queries is not None else b
    if m < b:
        raise InvalidArgument(
            f"queries = {m} is below budget = {b}: a budget above the queries is never spent"
        )
    if accuracy is not None:
        probability("accuracy", accuracy)
    return Task(n, m, b, 1 - probability("confidence", confidence))


def _routes(model: Model, accountant: LeakageAccountant) -> tuple[list[Route], list[Alternative]]:
    """Return the theorems that apply, and those that do not with their reasons."""
    routes: list[Route] = [AnyLawRoute(accountant)]
    refused: list[Alternative] = []
    found: Concentration | None = None
    try:
        found = concentration(model)
        routes.append(MaxInformationRoute(accountant, found))
    except QuiltdpError as error:
        refused.append(
            Alternative(MaxInformationRoute.name, MaxInformationRoute.theorem, None, True, str(error))
        )
    try:
        routes.append(GibbsRoute(gibbs_dependence(model)))
    except QuiltdpError as error:
        refused.append(Alternative(GibbsRoute.name, GibbsRoute.theorem, None, True, str(error)))
    if found is not None and not model.latents and found.sum_of_squares <= found.records * (1 + 1e-9):
        routes.append(IidRoute())
    else:
        note = "refused: the records of this model are not independent"
        refused.append(Alternative(IidRoute.name, IidRoute.theorem, None, True, note))
    return routes, refused


def _highest_scale(task: Task, accuracy: float) -> float:
    """Return a σ beyond which the noise alone exceeds the accuracy."""
    logs = math.log(max(2.0, task.spends / task.failure)) + 2 * math.log(
        max(2.0, task.queries / task.failure)
    )
    return accuracy / (0.5 * logs)


def _choose(
    task: Task, routes: list[Route], accuracy: float, hint: tuple[Route, float] | None
) -> tuple[Route, float, float]:
    """Return the route with the largest threshold, its σ and the threshold; ``hint`` is tried too."""
    best: tuple[float, Route, float] | None = None
    if hint is not None:
        best = (hint[0].threshold(task, hint[1], accuracy), *hint)
    for route in routes:
        sigma, threshold = best_scale(
            lambda s, r=route: r.threshold(task, s, accuracy),  # type: ignore[misc]  # bound now, called now
            _highest_scale(task, accuracy),
        )
        if best is None or threshold > best[0]:
            best = (threshold, route, sigma)
    assert best is not None
    return best[1], best[2], best[0]


def _best_accuracy(task: Task, route: Route, share: float) -> tuple[float, float]:
    """Return the smallest τ with T ≥ share·τ, and its σ; τ ≥ 1 says nothing is possible."""

    def smallest(sigma: float) -> float:
        low, high = 0.0, 1.0
        if not route.threshold(task, sigma, high) >= share * high:
            return math.inf
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (
                (low, middle) if route.threshold(task, sigma, middle) >= share * middle else (middle, high)
            )
        return high

    sigma, value = best_scale(lambda s: -smallest(s), _highest_scale(task, 1.0), decades=7)
    return -value, sigma


def _most_queries(
    task: Task, routes: list[Route], accuracy: float, share: float
) -> tuple[Task, tuple[Route, float]]:
    """Return the task with the most queries that some route covers, and how."""

    def most(route: Route, sigma: float) -> float:
        def fits(m: float) -> bool:
            asked = Task(task.records, m, task.budget, task.failure)
            return route.threshold(asked, sigma, accuracy) >= share * accuracy

        if not fits(task.budget):
            return -math.inf
        low, high = math.log(task.budget), math.log(MOST_QUERIES)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if fits(math.exp(middle)) else (low, middle)
        return low

    best, hint = -math.inf, (routes[0], 1.0)
    for route in routes:
        sigma, value = best_scale(
            lambda s, r=route: most(r, s),  # type: ignore[misc]  # bound now, called now
            _highest_scale(task, accuracy),
        )
        if value > best:
            best, hint = value, (route, sigma)
    if not math.isfinite(best):
        smallest = min(_best_accuracy(task, r, share)[0] for r in routes)
        raise Refused(
            f"no theorem promises accuracy {accuracy:g} even for {task.budget} queries on"
            f" {task.records:,} records: "
            + (f"the best accuracy is {smallest:.4g}" if smallest < 1 else _hopeless(task, share))
        )
    found = max(task.budget, math.floor(math.exp(best) * (1 - 1e-6)))
    return Task(task.records, found, task.budget, task.failure), hint


def _hopeless(task: Task, share: float) -> str:
    return (
        f"no accuracy below 1 can be promised on {task.records:,} records with budget {task.budget}"
        f" and T ≥ {share:g} τ: use more records or a smaller budget"
    )


def _result(
    model: Model,
    task: Task,
    accuracy: float,
    route: Route,
    sigma: float,
    threshold: float,
    accountant: LeakageAccountant,
    routes: list[Route],
    refused: list[Alternative],
    share: float,
) -> Plan:
    """Put the plan together, with both promises and every alternative."""
    alpha = task.dp_epsilon(sigma)
    strong = next((r for r in routes if isinstance(r, MaxInformationRoute)), None)
    others = [
        Alternative(r.name, r.theorem, _possible(_best_accuracy(task, r, share)[0]), True)
        for r in routes
        if r is not route
    ]
    others.sort(key=lambda a: a.accuracy if a.accuracy is not None else math.inf)
    return Plan(
        records=task.records,
        queries=int(task.queries),
        budget=task.budget,
        accuracy=accuracy,
        confidence=1 - task.failure,
        sigma=sigma,
        threshold=threshold,
        dp_epsilon=alpha,
        leakage=float(accountant.prior(alpha).max()),
        effective_sample_size=strong.concentration.effective_sample_size if strong else None,
        route=route.name,
        answers=AccuracyPromise(accuracy, task.failure, route.theorem),
        budget_lasts=_budget_promise(task, sigma, threshold, strong),
        alternatives=(*others, *refused, _published(model, task, accuracy, accountant)),
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
    else:
        leak = accountant.published(task.dp_epsilon(asked.sigma))
        parts.append(f"published leakage {leak:.3g}, allowed {asked.leakage_allowed:.3g}")
        needed = needed if leak <= asked.leakage_allowed else math.inf
    covered = accuracy if needed <= task.records else None
    note = f"σ = {asked.sigma:.3g}, T = {asked.threshold:.3g}, {', '.join(parts)}; {NOT_VALID}"
    return Alternative("published", "Zhao (2017), Theorem 2", covered, False, note)
