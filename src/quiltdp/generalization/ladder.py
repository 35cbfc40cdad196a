"""The Ladder: a leaderboard that tells the best score so far, and only when it falls by a step.

A baseline for the planner.  It answers less than a holdout (no score of a query that is not the best),
hides nothing, and needs no noise: how little it says is what keeps it honest.
"""

from __future__ import annotations

import math

import numpy as np

from quiltdp.errors import InvalidArgument
from quiltdp.generalization._checks import probability, round_up
from quiltdp.generalization.concentration import Concentration

__all__ = ["ladder_accuracy", "log_transcripts"]

_STEPS = np.geomspace(0.25, 1e-5, 120)


def log_transcripts(queries: int, step: float) -> float:
    """Return ln of a bound on how many queries a Ladder can ever be asked, over all its transcripts.

    Claim: scores are multiples of the step η in [0, 1] rounded, V = ⌊1/η + ½⌋ + 1 of them, and every
    score told is smaller than the one before.  A transcript of m answers with j scores told is j of m
    places and j of V scores: at most m · Σ_j C(m, j) C(V, j) queries are ever asked.

    Examples
    --------
    >>> round(math.exp(log_transcripts(2, 0.5)))  # V = 3: 2 · (1 + 2·3 + 1·3)
    20
    """
    if queries < 1 or not 0.0 < step <= 1.0:
        raise InvalidArgument(f"a ladder needs queries and a step from 0 to 1, not {queries!r} and {step!r}")
    values = math.floor(1.0 / step + 0.5) + 1
    most = min(queries, values)
    terms = [_log_choose(queries, j) + _log_choose(values, j) for j in range(most + 1)]
    top = max(terms)
    return math.log(queries) + top + math.log(math.fsum(math.exp(t - top) for t in terms))


def ladder_accuracy(tails: Concentration, queries: int, failure: float) -> float:
    """Return how far the best score so far may be off the best population value, all along.

    Claim: queries depend on the transcript alone, so with N possible ones none deviates by t on the
    holdout except with probability 2N exp(−2t² n_eff); the score told is then within t + η of the
    smallest population value so far.  The best η is taken.

    Assumes: losses in [0, 1], means over the records; the records follow the model.

    Reference: Blum and Hardt, *The Ladder* (2015), Theorem 3.1; here with the count above and under the
    model's concentration.
    """
    beta = probability("failure", failure)
    best = math.inf
    for step in _STEPS.tolist():
        need = math.log(2.0 / beta) + log_transcripts(queries, step)
        best = min(best, step + math.sqrt(need / (2.0 * tails.effective_sample_size)))
    return round_up(best)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
