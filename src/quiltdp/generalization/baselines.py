"""The usual ways to reuse a holdout, each with what it promises: they stand beside a plan, and hide nothing.

*Bonferroni*: all queries are written down before the first answer.  *Splitting*: every answer comes from a
fresh part of the holdout.  *The Ladder*: only the best score so far is told, when it falls by a step.
"""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np

from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.errors import InvalidArgument, QuiltdpError
from quiltdp.generalization._checks import probability, round_up
from quiltdp.generalization.concentration import (
    Concentration,
    additive_concentration,
    concentration,
    contraction,
)
from quiltdp.generalization.plan_search import GUESSING
from quiltdp.generalization.routes import Alternative, Task
from quiltdp.model import Model

__all__ = ["baselines", "ladder_accuracy", "log_transcripts", "split_accuracy"]

GAP_SHARE = 0.01
"""The share of the failure probability that pays for parts of a chain not being quite independent."""
MOST_STEPS = 4096
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


def split_accuracy(model: Model, task: Task) -> float:
    """Return the accuracy of a threshold without noise on B parts of a chain, a fresh part after each answer.

    Claim: on a part the queries are fixed while the training set answers, so at most B·m pairs of a part and
    a query are compared.  With g steps left out between parts their joint law is within total variation
    (B − 1) τ_{g+1} of independent ones, τ_d the contraction of the d-step matrix: the first step of a part is
    all that the past can tell it.  None deviates by t except with probability
    2Bm exp(−2t² n_eff(part)) + (B − 1) τ_{g+1}; with T = t every answer is within 2t.

    Assumes: one homogeneous chain in its stationary law; ∞ for any other model.
    """
    if not isinstance(model, ChainModel) or len(model.segments) != 1 or not model.segments[0].homogeneous:
        return math.inf
    segment = model.segments[0]
    step, law = np.asarray(segment.transition(0)), np.asarray(segment.initial)
    if np.abs(law @ step - law).max() > 1e-12:
        return math.inf
    parts, power = max(1, math.floor(task.spends)), step
    for gap in range(MOST_STEPS):
        tau = min(1.0, contraction(power) + 1e-15 * (gap + 1) * len(step))
        if (parts - 1) * tau <= GAP_SHARE * task.failure:
            break
        power = power @ step
    else:
        return math.inf
    length = (segment.length - (parts - 1) * gap) // parts
    if length < 1:
        return math.inf
    part = ChainModel([ChainSegment(segment.prefix, length, segment.initial, segment.transitions)])
    size = concentration(part).effective_sample_size
    with suppress(InvalidArgument):  # not reversible
        size = max(size, additive_concentration(part).effective_sample_size)
    inside = math.log(2 * parts * task.queries / ((1 - GAP_SHARE) * task.failure))
    return round_up(2 * math.sqrt(inside / (2 * size)))


def baselines(model: Model, task: Task) -> list[Alternative]:
    """Return what Bonferroni, splitting and the Ladder promise, each of something less."""
    try:
        tails = concentration(model)
    except QuiltdpError:
        return []
    fixed = round_up(math.sqrt(math.log(2 * task.queries / task.failure) / (2 * tails.effective_sample_size)))
    rows = [
        (
            "all queries fixed in advance",
            "Bonferroni, concentration under the model",
            fixed,
            "Bonferroni: only if every query is written down before the first answer",
            "any 1/n-sensitive queries",
        ),
        (
            "a fresh part after each answer",
            "splitting the holdout, concentration of each part under the model",
            split_accuracy(model, task),
            "answers exactly, so it hides nothing",
            "means of one function of a record",
        ),
        (
            "the Ladder",
            "few transcripts, concentration under the model",
            ladder_accuracy(tails, max(1, math.ceil(task.queries)), task.failure),
            "tells only the smallest loss so far, exactly: it hides nothing",
            "any 1/n-sensitive losses",
        ),
    ]
    return [
        Alternative(name, theorem, tau if tau < GUESSING else None, note=note, covers=covers)
        for name, theorem, tau, note, covers in rows
    ]
