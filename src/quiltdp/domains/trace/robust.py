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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quiltdp.accountant import leakage as accounting
from quiltdp.accountant.bounds.chain_contraction import SetChainBound
from quiltdp.accountant.units import all_or_nothing
from quiltdp.chain import ChainModel
from quiltdp.domains.trace.build import chain_from_steps, family_of
from quiltdp.domains.trace.estimate import Estimator, transition_region
from quiltdp.domains.trace.points import Ints
from quiltdp.domains.trace.steps import Steps
from quiltdp.errors import InvalidArgument, option

__all__ = [
    "ROBUST_ESTIMATORS",
    "RegionBound",
    "WorstCase",
    "WorstCost",
    "robust_models",
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
    models = family_of(lambda how: chain_from_steps(steps, how, initial=initial), estimators)
    family = {"robust_family": ", ".join(m.provenance["estimator"] for m in models)}
    return tuple(
        ChainModel(m.segments, steps.cells.names, notes=m.notes, provenance={**m.provenance, **family})
        for m in models
    )


@dataclass(frozen=True, eq=False)
class WorstCase:
    """The largest leakage over a family of models.

    Attributes
    ----------
    epsilon
        The largest certified leakage: no member of the family leaks more.
    model
        The member that attains it.
    by_model
        The leakage of each member, in the order given.
    """

    epsilon: float
    model: ChainModel
    by_model: tuple[float, ...]


@all_or_nothing()
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
    if not models:
        raise InvalidArgument("robust: the family of models is empty")
    leaks = tuple(accounting.leakage(m, dp_epsilon, **options).epsilon for m in models)
    worst = int(np.argmax(leaks))
    return WorstCase(leaks[worst], models[worst], leaks)


@dataclass(frozen=True, eq=False)
class WorstCost:
    """The smallest α over a family of models, for one target leakage.

    Attributes
    ----------
    dp_epsilon
        With this α every member of the family leaks at most the target.
    model
        The member that forces it.
    by_model
        The α of each member, in the order given.
    """

    dp_epsilon: float
    model: ChainModel
    by_model: tuple[float, ...]


@all_or_nothing()
def worst_case_dp_epsilon(models: Sequence[ChainModel], epsilon: float, **options: Any) -> WorstCost:
    """Return the largest α with which no member of a finite family leaks more than ``epsilon``.

        α = min_m dp_epsilon(m; ε)

    Which member is the worst depends on ε, so calibrate for the ε that is meant.  ``options`` are
    those of :func:`quiltdp.dp_epsilon` (``window``, ``adversary``, ``method``, …).

    Assumes
    -------
    The truth is a member of the family.
    """
    if not models:
        raise InvalidArgument("robust: the family of models is empty")
    costs = tuple(accounting.dp_epsilon(m, epsilon, **options) for m in models)
    worst = int(np.argmin(costs))
    return WorstCost(costs[worst], models[worst], costs)


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
        low, high = 0.0, epsilon
        if self.leakage(high) <= epsilon:
            return high
        while high - low > 1e-9 * epsilon:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.leakage(middle) <= epsilon else (low, middle)
            if low == 0.0 and high < 1e-12 * epsilon:
                break
        return low  # its own certificate passed
