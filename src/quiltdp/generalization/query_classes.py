"""Query classes: what is known about how a statistic concentrates around its expectation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import count, positive, probability, round_up
from quiltdp.generalization.concentration import concentration, exact_sum_law
from quiltdp.model import Model

__all__ = [
    "QueryClass",
    "concentrated_queries",
    "exact_sum_query",
    "model_queries",
    "sensitive_queries",
    "subexponential_queries",
    "subgaussian_queries",
]


@dataclass(frozen=True)
class QueryClass:
    """Queries q with P[|q(X) − E q(X)| > radius(p)] ≤ p, however dependent the records are.

    Attributes
    ----------
    name
        What the class is, for people.
    radius
        p ↦ a; never too small.
    """

    name: str
    radius: Callable[[float], float]


def concentrated_queries(tail: Callable[[float], float], *, most: float = 1e12) -> QueryClass:
    """Return the class with P[|q − E q| ≥ t] ≤ ``tail(t)``, a falling function (γ_n-concentrated).

    Examples
    --------
    >>> cls = concentrated_queries(lambda t: 2 * math.exp(-t))
    >>> round(cls.radius(0.02), 4)        # ln 100
    4.6052
    """

    def radius(chance: float) -> float:
        p = probability("chance", chance)
        low, high = 0.0, 1.0
        while tail(high) > p:
            low, high = high, 2 * high
            if high > most:
                raise InvalidArgument(f"the tail does not fall below {p:g} before t = {most:g}")
        for _ in range(200):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (low, middle) if tail(middle) <= p else (middle, high)
        return round_up(high)

    return QueryClass("concentrated", radius)


def sensitive_queries(sensitivity: float, n: int) -> QueryClass:
    """Return the Δ-sensitive queries of n **independent** records: tail 2 exp(−2t²/(nΔ²)).

    The source (line 95) drops the factor 2 of the two-sided inequality; it is needed.

    Examples
    --------
    >>> round(sensitive_queries(0.01, 100).radius(0.05), 6)     # 0.1 √(ln 40 / 2)
    0.13581
    """
    delta, n = positive("sensitivity", sensitivity), count("n", n)

    def radius(chance: float) -> float:
        return round_up(delta * math.sqrt(n * math.log(2 / probability("chance", chance)) / 2))

    return QueryClass(f"{delta:g}-sensitive, {n} independent records", radius)


def subgaussian_queries(std: float) -> QueryClass:
    """Return the σ-subgaussian queries: tail 2 exp(−t²/2σ²)."""
    sigma = positive("std", std)

    def radius(chance: float) -> float:
        return round_up(sigma * math.sqrt(2 * math.log(2 / probability("chance", chance))))

    return QueryClass(f"{sigma:g}-subgaussian", radius)


def subexponential_queries(std: float, scale: float) -> QueryClass:
    """Return the (σ, b)-subexponential queries: tail 2 exp(−min(t²/2σ², t/2b)).

    Examples
    --------
    >>> cls = subexponential_queries(1.0, 3.0)
    >>> round(cls.radius(0.02), 4)                              # 2b ln 100 rules
    27.631
    """
    sigma, b = positive("std", std), positive("scale", scale)

    def radius(chance: float) -> float:
        logs = math.log(2 / probability("chance", chance))
        return round_up(max(sigma * math.sqrt(2 * logs), 2 * b * logs))

    return QueryClass(f"({sigma:g}, {b:g})-subexponential", radius)


def model_queries(model: Model, sensitivity: float | None = None) -> QueryClass:
    """Return the Δ-sensitive queries of correlated records, concentrated under this model.

    a = Δ √(Σ h_i² ln(2/p)/2) from :func:`~quiltdp.generalization.concentration`; Δ = 1/n unless given.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> cls = model_queries(markov_chain([[0.9, 0.1], [0.1, 0.9]], length=10_000))
    >>> round(cls.radius(0.05), 4)
    0.0679
    """
    found = concentration(model)
    return QueryClass(
        f"concentrated under this model (n_eff {found.effective_sample_size:.4g})",
        lambda chance: found.radius(chance, sensitivity=sensitivity),
    )


def exact_sum_query(model: Model, weights: Mapping[str, Sequence[int]], *, scale: float = 1.0) -> QueryClass:
    """Return the class of one sum query, scale · Σ w_j(X_j), with its exact radius.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> m = markov_chain([[0.01, 0.99], [0.99, 0.01]], length=1000)          # a rota that alternates
    >>> cls = exact_sum_query(m, {node: (0, 1) for node in m.nodes}, scale=1 / 1000)
    >>> round(cls.radius(0.005), 4)                                          # independent: 0.0443
    0.005
    """
    law = exact_sum_law(model, weights)
    factor = positive("scale", scale)
    distance = np.abs(law.values - law.mean)
    order = np.argsort(-distance)
    beyond = np.concatenate([[0.0], np.cumsum(law.chances[order])])

    def radius(chance: float) -> float:
        p = probability("chance", chance)
        # the mass strictly beyond the k-th largest distance; a hair of p pays for rounding
        k = int(np.searchsorted(beyond, p * (1 - 1e-9), side="right")) - 1
        return round_up(factor * float(distance[order[k]]) * (1 + 1e-9)) if k < len(order) else 0.0

    return QueryClass("one sum query, exact law", radius)
