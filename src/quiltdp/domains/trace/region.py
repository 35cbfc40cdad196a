"""What the counts can and cannot rule out: a confidence region of the transition matrix.

From one state, the moves are independent draws of that state's row, but how many there are depends
on the trace itself.  The intervals below are therefore *time-uniform*: they hold for every number of
draws at once (a mixture martingale and Ville's inequality), so the random number is no matter.
"""

from __future__ import annotations

import numpy as np

from quiltdp.domains.trace.points import Floats, Ints
from quiltdp.errors import InvalidArgument, option
from quiltdp.inference.uncertain import SetChain

__all__ = ["row_intervals", "transition_region"]


def row_intervals(successes: Ints, trials: Ints, log_level: float) -> tuple[Floats, Floats]:
    """Return intervals for probabilities, valid for all numbers of trials at once.

    For s successes in n trials with probability p,
    M_n(p) = B(s+½, n−s+½) / ( B(½, ½) p^s (1−p)^(n−s) ) is a martingale of mean 1, so
    P[ ∃n: M_n(p) ≥ e^level ] ≤ e^{−level} and { p : M_n(p) < e^level } covers p at every n.

    Parameters
    ----------
    successes, trials
        Whole numbers, broadcast against each other.
    log_level
        ln(1/δ) of each interval.

    Returns
    -------
    tuple
        Lower and upper ends, rounded outwards; [0, 1] without trials.

    Reference
    ---------
    Robbins, Ann. Math. Statist. 41 (1970) 1397; Ville (1939).

    Examples
    --------
    >>> import numpy as np
    >>> low, high = row_intervals(np.array([50]), np.array([100]), np.log(20))
    >>> round(float(low[0]), 3), round(float(high[0]), 3)
    (0.338, 0.662)
    """
    from scipy.special import betaln, xlog1py, xlogy

    s, n = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(trials, np.float64))
    log_mixture = betaln(s + 0.5, n - s + 0.5) - betaln(0.5, 0.5)
    level = log_level + 1e-9 * (1.0 + n)  # more than the rounding error of the two logarithms

    def outside(p: Floats) -> np.ndarray:
        return np.asarray(log_mixture - xlogy(s, p) - xlog1py(n - s, -p) >= level)

    centre = np.divide(s, n, out=np.full(s.shape, 0.5), where=n > 0)
    ends = []
    for far in (0.0, 1.0):
        out, inside = np.full(s.shape, far), centre.copy()
        for _ in range(200):
            middle = 0.5 * (out + inside)
            beyond = outside(middle)
            out, inside = np.where(beyond, middle, out), np.where(beyond, inside, middle)
        # where even the far end is inside, the interval reaches it: `out` never moved
        ends.append(out)
    return ends[0], ends[1]


def transition_region(counts: Ints, confidence: float = 0.95) -> SetChain:
    """Return the box that holds the true transition matrix with the stated confidence.

    Every entry gets the interval of :func:`row_intervals` at level (1 − confidence) / K², so that all
    K² hold together; rows without a move are unknown, [0, 1].

    Assumes
    -------
    The trace is a homogeneous first-order chain over the K cells, the same for all users, and whether
    a step is seen does not depend on the move into it.

    Raises
    ------
    InvalidArgument
        If the confidence is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise InvalidArgument(f"{option('confidence')} must lie between 0 and 1, not {confidence!r}")
    table = np.asarray(counts)
    size = len(table)
    if size == 1:
        return SetChain(np.ones((1, 1)), np.ones((1, 1)))
    level = float(np.log(size * size / (1.0 - confidence)))
    trials = np.broadcast_to(table.sum(axis=1, keepdims=True), table.shape)
    pairs, where = np.unique(np.stack([table.ravel(), trials.ravel()]), axis=1, return_inverse=True)
    low, high = row_intervals(pairs[0], pairs[1], level)  # equal counts have equal intervals
    where = where.reshape(table.shape)
    return SetChain(low[where], high[where])
