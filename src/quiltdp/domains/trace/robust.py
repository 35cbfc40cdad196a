"""Worst cases: the estimate may be wrong, and the noise must be enough all the same.

Two statements, each exact about what it promises.

**A family of estimates** (:func:`robust_models`, :func:`worst_case_leakage`).  The leakage is the
largest over the listed models.  Guaranteed: *if* the truth is one of them, the leakage is no larger.
Nothing is promised about chains outside the list; it guards against the choice of estimator.

**A confidence region** (:class:`RegionBound`).  The counts leave a box of transition matrices that
holds the truth with confidence 1 − δ.  The bound holds for every matrix in the box at once, even one
that changes from step to step.  Guaranteed: with confidence 1 − δ over the trace, if it is a
first-order chain.  Cells that were never seen to follow one another cannot be ruled out, so short
traces over many cells honestly get a bound near group privacy: use larger cells or more data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quiltdp.accountant import leakage as accounting
from quiltdp.accountant.bounds.chain_contraction import SetChainBound
from quiltdp.accountant.units import without_partial_answer
from quiltdp.chain import ChainModel
from quiltdp.domains.trace.build import LocationStudy, chain_from_steps, study_from_past
from quiltdp.domains.trace.estimate import Estimator, parse_estimator, transition_region
from quiltdp.domains.trace.points import Ints
from quiltdp.domains.trace.steps import Steps
from quiltdp.errors import InvalidArgument, InvalidModel, QuiltdpError, option

__all__ = [
    "ROBUST_ESTIMATORS",
    "RegionBound",
    "WorstCase",
    "robust_models",
    "robust_models_of_past",
    "worst_case_dp_epsilon",
    "worst_case_leakage",
]

ROBUST_ESTIMATORS = ("mle", "additive:0.1", "additive:1", "reversible")
"""The estimators that ``robust`` compares."""


def robust_models(
    steps: Steps, estimators: Sequence[str | Estimator] = ROBUST_ESTIMATORS, *, initial: str = "occupancy"
) -> tuple[ChainModel, ...]:
    """Return one model per estimator, over the same steps.

    An estimator that does not exist for these counts (``reversible`` on classes that do not all reach
    each other) is left out, and a note of every model that remains says so.

    Raises
    ------
    InvalidArgument
        If no estimator is left.
    """
    return _check_models_of_estimators(lambda how: chain_from_steps(steps, how, initial=initial), estimators)


def robust_models_of_past(
    past: LocationStudy, present: LocationStudy, estimators: Sequence[str], *, initial: str = "occupancy"
) -> tuple[ChainModel, ...]:
    """Return one model of the present steps per estimator, each fitted on the past.

    Also left out is an estimator that cannot have a cell that only the present has.
    """

    def fit(how: Estimator) -> ChainModel:
        return study_from_past(past, present, initial=initial, estimator=how).model

    return _check_models_of_estimators(fit, estimators, (InvalidModel, InvalidArgument))


def _check_models_of_estimators(
    fit: Callable[[Estimator], ChainModel],
    estimators: Sequence[str | Estimator],
    refusals: tuple[type[QuiltdpError], ...] = (InvalidModel,),
) -> tuple[ChainModel, ...]:
    models, gone = [], []
    for how in map(parse_estimator, estimators):
        try:
            models.append(fit(how))
        except refusals as error:
            gone.append(f"{how} left out of the robust family: {error.reason}")
    if not models:
        raise InvalidArgument(f"robust: no estimator exists for these counts ({'; '.join(gone)})")
    family = {"robust_family": ", ".join(m.provenance["estimator"] for m in models)}
    return tuple(
        ChainModel(
            m.segments, m.states[m.nodes[0]], notes=(*m.notes, *gone), provenance={**m.provenance, **family}
        )
        for m in models
    )


@dataclass(frozen=True, eq=False)
class WorstCase:
    """The model of a family that needs most.

    Attributes
    ----------
    value
        The largest certified leakage, or the smallest α: no member of the family needs more.
    model
        The member that attains it.
    by_model
        The same for each member, in the order of the family.
    """

    value: float
    model: ChainModel
    by_model: tuple[float, ...]


@without_partial_answer()
def worst_case_leakage(models: Sequence[ChainModel], dp_epsilon: float, **options: Any) -> WorstCase:
    """Return the largest leakage of an α-DP mechanism over a finite family of models.

        ε = max_m Leakage(m; α)

    Parameters
    ----------
    models
        The family, for example of :func:`robust_models`.
    dp_epsilon
        α.
    **options
        Passed to :func:`quiltdp.leakage` (``window``, ``adversary``, ``method``, …).

    Assumes
    -------
    The truth is a member of the family.
    """
    return _worst_case(models, max, lambda m: accounting.leakage(m, dp_epsilon, **options).epsilon)


@without_partial_answer()
def worst_case_dp_epsilon(models: Sequence[ChainModel], epsilon: float, **options: Any) -> WorstCase:
    """Return the largest α with which no member of a finite family leaks more than ``epsilon``.

        α = min_m dp_epsilon(m; ε)

    Which member is the worst depends on ε, so calibrate for the ε that is meant.  ``options`` are
    those of :func:`quiltdp.dp_epsilon` (``window``, ``adversary``, ``method``, …).

    Assumes
    -------
    The truth is a member of the family.
    """
    return _worst_case(models, min, lambda m: accounting.dp_epsilon(m, epsilon, **options))


def _worst_case(
    models: Sequence[ChainModel],
    choose: Callable[[Sequence[float]], float],
    value_of: Callable[[ChainModel], float],
) -> WorstCase:
    if not models:
        raise InvalidArgument("robust: the family of models is empty")
    values = tuple(map(value_of, models))
    worst = choose(values)
    return WorstCase(worst, models[values.index(worst)], values)


class RegionBound:
    """Leakage over the confidence region of the counts, informed adversary.

    Parameters
    ----------
    steps
        The discretised trace.
    confidence
        How sure the region is to hold the true matrix.
    window
        Protect any run of this many steps (1: single steps).
    max_distance
        The longest d-step table looked at; more is tighter and slower.
    counts
        The moves that the region is about, where they are not those of the steps (an earlier trace).
    """

    def __init__(
        self,
        steps: Steps,
        confidence: float = 0.95,
        *,
        window: int = 1,
        max_distance: int = 64,
        counts: Ints | None = None,
    ) -> None:
        self.confidence = confidence
        self.region = transition_region(steps.counts() if counts is None else counts, confidence)
        lengths = [len(s) for s in steps.stretches]
        self.bound = SetChainBound(self.region, lengths, window=window, max_distance=max_distance)

    @property
    def spreads(self) -> tuple[float, ...]:
        """ĉ_1, ĉ_2, …: no matrix of the region has a larger d-step spread."""
        return tuple(float(c) for c in self.bound.spreads)

    def leakage(self, dp_epsilon: float) -> float:
        """Return a leakage that no chain of the region exceeds when the mechanism is α-DP."""
        if not (math.isfinite(dp_epsilon) and dp_epsilon >= 0):
            raise InvalidArgument(f"{option('dp_epsilon')} must be finite and at least 0, not {dp_epsilon!r}")
        return float(self.bound.evaluate(np.array([dp_epsilon])).values.max())

    def dp_epsilon(self, epsilon: float) -> float:
        """Return the largest α found with leakage ≤ ``epsilon`` over the region, rounded down."""
        if not (math.isfinite(epsilon) and epsilon > 0):
            raise InvalidArgument(f"{option('epsilon')} must be positive and finite, not {epsilon!r}")
        return region_dp_epsilon(self.bound, epsilon)


def region_dp_epsilon(bound: SetChainBound, epsilon: float) -> float:
    """Return the largest α found whose leakage is at most ε for every chain of a region, rounded down."""

    def leakage_at(alpha: float) -> float:
        return float(bound.evaluate(np.array([alpha])).values.max())

    low, high = 0.0, float(epsilon)
    if leakage_at(high) <= epsilon:
        return high
    while high - low > 1e-9 * epsilon and high > 1e-12 * epsilon:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if leakage_at(middle) <= epsilon else (low, middle)
    return low  # its own certificate passed
