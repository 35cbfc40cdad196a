"""Temporal privacy leakage of a Markov chain: the recursion of Cao et al., to compare with the project's own.

A value is released at every time t with an ε_t-DP mechanism.  What all releases up to t say about the value
at t is the *backward* leakage, α^B_t = L^B(α^B_{t−1}) + ε_t; what those from t on say is the *forward*
leakage, α^F_t = L^F(α^F_{t+1}) + ε_t.  Together they leak α^B_t + α^F_t − ε_t.  L^B is the loss of the
backward transitions P(x_{t−1} | x_t), L^F that of the forward ones.

References
----------
Y. Cao, M. Yoshikawa, Y. Xiao, L. Xiong, Quantifying Differential Privacy under Temporal Correlations,
ICDE 2017.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.chain import ChainSegment
from quiltdp.generalization._checks import non_negative, rows

MOST = 700.0
"""A leakage beyond this counts as infinite."""


def temporal_loss(transition: ArrayLike, leakage: float) -> float:
    """Return L(α) = max over rows q, d and sets S of ln( (q(S)(e^α − 1) + 1) / (d(S)(e^α − 1) + 1) ).

    The best S keeps the columns whose ratio q_j/d_j is largest: one sort per pair of rows.

    Examples
    --------
    >>> round(temporal_loss([[0.8, 0.2], [0.2, 0.8]], 0.1), 6)      # two states
    0.059968

    References
    ----------
    Cao et al. (2017), the optimum of their linear-fractional program.
    """
    table = rows("transition", transition)
    if non_negative("leakage", leakage) > MOST:
        return math.inf
    growth, best = math.expm1(leakage), 1.0
    for q in table:
        for d in table:
            with np.errstate(divide="ignore", invalid="ignore"):
                order = np.argsort(-np.nan_to_num(q / d, nan=0.0), kind="stable")
            sums = (np.cumsum(q[order]) * growth + 1) / (np.cumsum(d[order]) * growth + 1)
            best = max(best, float(sums.max()))
    return math.log(best)


def temporal_leakage(chain: ChainSegment, dp_epsilon: float) -> NDArray[np.float64]:
    """Return α^B_t + α^F_t − ε for every time t, the same ε-DP mechanism being used each time.

    Examples
    --------
    >>> from quiltdp import markov_chain
    >>> chain = markov_chain([[0.8, 0.2], [0.2, 0.8]], length=3).segments[0]
    >>> temporal_leakage(chain, 0.1).round(4).tolist()
    [0.1958, 0.2199, 0.1958]

    References
    ----------
    Cao et al. (2017), backward, forward and temporal privacy leakage.
    """
    n, law = chain.length, np.asarray(chain.initial)
    backward, forward = np.full(n, dp_epsilon), np.full(n, dp_epsilon)
    for t in range(1, n):
        joint = law[:, None] * chain.transition(t - 1)
        law = joint.sum(axis=0)
        backward[t] += temporal_loss((joint[:, law > 0] / law[law > 0]).T, backward[t - 1])
    for t in range(n - 2, -1, -1):
        forward[t] += temporal_loss(chain.transition(t), forward[t + 1])
    whole: NDArray[np.float64] = backward + forward - dp_epsilon
    return whole


def largest_temporal_leakage(forward: ArrayLike, backward: ArrayLike, dp_epsilon: float) -> float:
    """Return the supremum over time of the leakage of a stationary chain, ∞ if it grows without end.

    α = L(α) + ε has its smallest solution as the limit of either recursion.

    Examples
    --------
    >>> step = [[0.9, 0.1], [0.1, 0.9]]
    >>> round(largest_temporal_leakage(step, step, 0.1), 5)
    0.87244

    References
    ----------
    Cao et al. (2017), the supremum of backward and forward leakage over time.
    """
    ends = []
    for table in (backward, forward):
        leakage, before = dp_epsilon, 0.0
        while before < leakage < math.inf:
            before, leakage = leakage, temporal_loss(table, leakage) + dp_epsilon
            if leakage - before <= 1e-12 * leakage:
                break
        ends.append(leakage)
    return ends[0] + ends[1] - dp_epsilon
