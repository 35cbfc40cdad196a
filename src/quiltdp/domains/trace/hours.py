"""A matrix for every hour of the day, where the data show that the hours differ.

The transition matrix at a step is that of the hour, in the time zone of the data, in which the step
begins.  A row that an hour never saw is the pooled one.  Whether the hours differ is judged by the
Bayesian information criterion: 24 matrices against one, on the same transitions; only moves that were
ever seen are parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quiltdp.chain import ChainModel, ChainSegment
from quiltdp.domains.trace.estimate import Estimate, Estimator, estimate_transitions, log_likelihood
from quiltdp.domains.trace.points import Floats, Ints
from quiltdp.domains.trace.steps import Steps
from quiltdp.domains.trace.times import CLOCK, clock_provenance, time_zone_of

_MOST_CELLS = 400  # a table of counts per hour stays below 32 MB


@dataclass(frozen=True, eq=False)
class HourlyFit:
    """Transition matrices by hour, and the criterion for one matrix and for twenty-four."""

    matrices: Floats
    pooled: Estimate
    bic_pooled: float
    bic_hourly: float

    @property
    def hours_differ(self) -> bool:
        """Whether the criterion prefers a matrix per hour."""
        return self.bic_hourly < self.bic_pooled


def fit_hours_of_steps(steps: Steps, estimator: str = "mle") -> HourlyFit:
    """Return the matrices of the hours of the day."""
    return fit_hours_of_counts(steps.counts(by_hour=True), estimator)


def fit_hours_of_counts(counts: Ints, estimator: str | Estimator = "mle") -> HourlyFit:
    """Return the matrices of the hours of the day from transitions counted by hour, 24 × cells × cells."""
    pooled = estimate_transitions(counts.sum(axis=0), estimator)
    matrices = np.empty(counts.shape, dtype=np.float64)
    for hour in range(24):
        own = np.asarray(estimate_transitions(counts[hour], estimator).matrix)
        seen = counts[hour].sum(axis=1) > 0
        matrices[hour] = np.where(seen[:, None], own, pooled.matrix)
    matrices.flags.writeable = False
    return HourlyFit(matrices, pooled, _bic_of_matrices(counts.sum(axis=0)[None]), _bic_of_matrices(counts))


def hours_hint(steps: Steps) -> str | None:
    """Return what to do where one matrix is used and the hours differ; ``None`` where they do not.

    Whole matrices need very many moves to be told apart; how often people move at all does not, so that
    is compared too: a share for every hour against one share (BIC).
    """
    if len(steps.cells.names) > _MOST_CELLS:
        return None
    counts = steps.counts(by_hour=True)
    all_moves = counts.sum(axis=(1, 2))
    stays = np.trace(counts, axis1=1, axis2=2)
    shares = np.stack([stays, all_moves - stays], axis=1)[:, None, :]  # 24 × one row × (stay, move)
    if _bic_of_matrices(counts) >= _bic_of_matrices(counts.sum(axis=0)[None]) and _bic_of_matrices(
        shares
    ) >= _bic_of_matrices(shares.sum(axis=0)[None]):
        return None
    seen = all_moves > 0
    moving = 100.0 * (1.0 - stays[seen] / all_moves[seen])
    return (
        f"the hours of the day differ (BIC): from one step to the next {moving.min():.0f} to"
        f" {moving.max():.0f} % move on; one matrix for all hours averages quiet ones, which remember longer,"
        " with busy ones; a matrix for every hour is safer (time_of_day, --time-of-day)"
    )


def hourly_chain(
    steps: Steps, fit: HourlyFit, initial: Floats, states: Sequence[str] | None = None
) -> ChainModel:
    """Return the model: one chain per stretch, at each step the matrix of its hour.

    ``states`` are the cells of the fit, where they are not those of the steps.
    """
    tables = [np.array(m) for m in fit.matrices]
    segments = []
    for s in steps.stretches:
        hours = steps.hours(s)
        moves = tuple(tables[h] for h in hours[:-1].tolist()) or (tables[0],)
        segments.append(ChainSegment(s.prefix, len(s), initial, moves))
    return ChainModel(
        segments,
        steps.cells.names if states is None else states,
        notes=(*steps.notes, *fit.pooled.notes, _note_on_hours(fit, time_zone_of(steps.provenance))),
        provenance={
            **steps.provenance,
            CLOCK: clock_provenance(steps),
            "domain": "location trace",
            "estimator": f"{fit.pooled.estimator}, by hour of the day",
            "initial": "given",
        },
    )


def _note_on_hours(fit: HourlyFit, zone: str) -> str:
    verdict = "the hours differ" if fit.hours_differ else "these data cannot tell them from one matrix"
    return f"a matrix for every hour of the day ({zone}); by BIC {verdict}"


def _bic_of_matrices(counts: Ints) -> float:
    """Return −2 ln L + k ln n over a stack of count tables.

    A row has one parameter less than moves were seen from its cell in any table: a move never seen is no
    parameter, or few data over many cells could never show anything.
    """
    moves = (counts.sum(axis=0) > 0).sum(axis=1)
    free = int(((counts.sum(axis=2) > 0) * np.maximum(moves - 1, 0)).sum())
    return float(-2.0 * log_likelihood(counts) + free * np.log(max(int(counts.sum()), 1)))
