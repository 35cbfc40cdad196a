"""A Markov chain fitted to one column over time, with what the data cannot rule out.

The order is chosen by the Bayesian information criterion (named in the result); stationarity is
looked at by comparing the two halves of the series; mixing by the spectral gap.  The confidence
region of the transition matrix gives the answer that holds if the fit is off by its sampling error.
A panel (one series per machine) is one chain per group with one matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quiltdp.accountant.bounds.chain_contraction import SetChainBound
from quiltdp.chain import ChainModel, markov_chain, markov_chains
from quiltdp.domains.series.bins import Bins, find_bins
from quiltdp.domains.series.parts import UNSEEN, Part, make_parts, plain_values, windows
from quiltdp.domains.trace.estimate import (
    Diagnostics,
    Estimate,
    diagnose,
    estimate_transitions,
    first_step_law,
    log_likelihood,
    transition_region,
)
from quiltdp.domains.trace.robust import region_dp_epsilon
from quiltdp.errors import InvalidArgument, option
from quiltdp.inference.uncertain import SetChain

Ints = NDArray[np.int64]
_WARNING = "fit on public or past data: a model fitted on the records to be protected tells about them itself"
_ORDERS = 3


@dataclass(frozen=True, eq=False)
class ChainFit:
    """A fitted chain with its reasons.

    Attributes
    ----------
    model
        The first-order chain.
    bins
        The states and the rule that made them.
    counts
        Transitions counted.
    order, criterion, scores
        The order with the smallest criterion, the criterion's name, and its value for orders 0 to 3.
        The model is of first order; where a higher order is preferred the notes say so.
    stationarity
        The largest total variation between rows of the matrices of the two halves that were left at
        least thirty times in both; ``None`` if there is no such row.
    diagnostics
        Classes, period, spectral gap.
    """

    model: ChainModel
    bins: Bins
    counts: Ints
    order: int
    criterion: str
    scores: tuple[float, ...]
    stationarity: float | None
    diagnostics: Diagnostics

    def region(self, confidence: float = 0.95) -> SetChain:
        """Return the box of transition matrices that the counts cannot rule out."""
        return transition_region(self.counts, confidence)

    def robust_dp_epsilon(self, epsilon: float, confidence: float = 0.95, *, window: int = 1) -> float:
        """Return the largest α whose leakage is at most ε for every chain of the region, rounded down.

        Guaranteed with the stated confidence over the series, if it is a first-order chain.
        """
        lengths = [s.length for s in self.model.segments]
        return region_dp_epsilon(SetChainBound(self.region(confidence), lengths, window=window), epsilon)

    def _groups_phrase(self) -> str:
        count = len(self.model.segments)
        return f" in {count:,} groups" if count > 1 else ""

    def __str__(self) -> str:
        """Read as a short paragraph."""
        lines = [
            f"a chain of {len(self.bins.names)} states, {len(self.model.records):,} steps"
            f"{self._groups_phrase()},"
            f" from {int(self.counts.sum()):,} transitions",
            f"  states     {self.bins.rule}: {', '.join(self.bins.names)}",
            f"  order      {self.order} by {self.criterion}"
            + ("" if self.order <= 1 else "; the model is of order 1, see the notes"),
            f"  mixing     spectral gap {self.diagnostics.gap:.3g}",
        ]
        if self.stationarity is not None:
            lines.append(f"  halves     differ by at most {self.stationarity:.3g} in total variation")
        return "\n".join([*lines, *(f"  note       {n}" for n in self.model.notes)])


def fit_chain(
    series: Sequence[object],
    states: int = 8,
    *,
    binning: str = "quantile",
    edges: Sequence[float] | None = None,
    estimator: str = "mle",
    length: int | None = None,
    group: Sequence[object] | None = None,
    time: Sequence[object] | None = None,
    missing: str = "refuse",
    initial: str | ArrayLike = "auto",
    source: str = "a series",
) -> ChainModel:
    """Fit a first-order Markov chain to a series; its ``fit`` says what speaks for and against it.

    Parameters
    ----------
    series
        The values in the order of time.
    states, binning, edges
        How numbers become states; see :func:`~quiltdp.domains.series.bins.find_bins`.
    estimator
        ``mle``, ``additive:<smoothing>`` or ``reversible``.
    length
        The number of steps to be protected (of every group); default that of the series.
    group, time, missing
        Rows that come in groups, times with gaps, missing values; see
        :func:`~quiltdp.domains.series.parts.make_parts`.
    initial
        The law of the first step: ``stationary`` (a slice of something that has been going on),
        ``occupancy`` (the share of each state in the data), ``uniform`` or a vector.  ``auto`` takes the
        stationary law where every state is reached from every other, else the occupancy.

    Raises
    ------
    InvalidArgument
        If no value follows another, or an option makes no sense.

    Examples
    --------
    >>> import quiltdp as qd
    >>> chain = qd.fit_chain([0, 0, 1, 1, 0, 0, 1, 1, 0], states=2)
    >>> len(chain.nodes), chain.fit.counts.tolist(), chain.fit.criterion
    (9, [[2, 2], [2, 2]], 'BIC')
    """
    values = plain_values(series)
    parts, noticed = make_parts(values, group=group, time=time, missing=missing)
    seen = [v for v in values if v is not None]
    if len(seen) < 2:
        raise InvalidArgument(f"a chain needs at least two values, not {len(seen)}")
    bins = find_bins(seen, states, binning, edges)
    of_row = np.full(len(values), UNSEEN, dtype=np.int64)
    of_row[[v is not None for v in values]] = bins.states(seen)
    size = len(bins.names)
    occupied = np.bincount(of_row[of_row != UNSEEN], minlength=size)
    if size > 1 and not occupied.all():
        raise InvalidArgument(
            f"{int((occupied == 0).sum())} of {size} states have no value: use fewer {option('states')} or"
            " other edges"
        )
    counts = _count_transitions(windows(parts, of_row, 2), size)
    if not counts.any():
        raise InvalidArgument("no value follows another one step later: there is no move to count")
    estimate = estimate_transitions(counts, estimator)
    scores = tuple(
        _bic_of_order(windows(parts, of_row, _ORDERS + 1), size, order) for order in range(_ORDERS + 1)
    )
    order = int(np.argmin(scores))
    halves = _distance_of_halves(parts, of_row, size)
    law, named, said = first_step_law(initial, occupied / occupied.sum(), estimate.matrix)
    notes = (*noticed, *_notes_on_fit(estimate, order, halves), *said, _WARNING)
    provenance = {
        "source": source,
        "format": "fitted chain",
        "estimator": str(estimate.estimator),
        "states": f"{bins.rule}: {', '.join(bins.names)}",
        "order": f"{order} by BIC",
        "initial": named,
    }
    told: dict[str, Any] = {"states": bins.names, "notes": notes, "provenance": provenance}
    lengths = {p.name: len(p.rows) if length is None else length for p in parts}
    if group is None:
        model = markov_chain(estimate.matrix, length=lengths[""], initial=law, **told)
    else:
        named_lengths = {f"{name}/": steps for name, steps in lengths.items()}
        model = markov_chains(estimate.matrix, named_lengths, law, **told)
    seen_of = diagnose(counts, np.asarray(estimate.matrix))
    return model._attach_fit(ChainFit(model, bins, counts, order, "BIC", scores, halves, seen_of))


def _count_transitions(pairs: Ints, size: int) -> Ints:
    table = np.zeros((size, size), dtype=np.int64)
    np.add.at(table, (pairs[:, 0], pairs[:, 1]), 1)
    return table


def _bic_of_order(runs: Ints, size: int, order: int) -> float:
    """Return −2 ln L + k ln n of a chain of this order, on the same transitions for every order.

    k = contexts seen × (states − 1): contexts that never occur have no parameters to fit.
    """
    n = len(runs)
    if n < 2:
        return 0.0 if order == min(1, size - 1) else float("inf")
    context = np.zeros(n, dtype=np.int64)
    for back in range(order, 0, -1):
        context = context * size + runs[:, _ORDERS - back]
    seen, label = np.unique(context, return_inverse=True)
    table = np.zeros((len(seen), size))
    np.add.at(table, (label, runs[:, _ORDERS]), 1.0)
    return -2.0 * log_likelihood(table) + len(seen) * (size - 1) * float(np.log(n))


def _distance_of_halves(parts: Sequence[Part], of_row: Ints, size: int) -> float | None:
    """Return the largest total variation between rows of the two halves' matrices, or ``None``."""
    early = [Part(p.name, p.rows[: len(p.rows) // 2]) for p in parts]
    late = [Part(p.name, p.rows[len(p.rows) // 2 :]) for p in parts]
    first, second = (_count_transitions(windows(half, of_row, 2), size) for half in (early, late))
    enough = (first.sum(axis=1) >= 30) & (second.sum(axis=1) >= 30)
    if not enough.any():
        return None
    p, q = (t[enough] / t[enough].sum(axis=1, keepdims=True) for t in (first, second))
    return float(np.abs(p - q).sum(axis=1).max() / 2)


def _notes_on_fit(estimate: Estimate, order: int, halves: float | None) -> tuple[str, ...]:
    said = list(estimate.notes)
    if order == 0:
        said.append("BIC prefers independent steps (order 0): the chain may show memory that is chance")
    if order > 1:
        said.append(
            f"BIC prefers order {order}: a first-order chain forgets too quickly, and the noise may be too"
            " small; fit a coarser or a slower series, or give runs of steps as the protected unit"
        )
    if halves is not None and halves > 0.1:
        said.append(
            f"the two halves of the series differ (total variation {halves:.2g} in a row): the chain may"
            " change over time"
        )
    return tuple(said)
