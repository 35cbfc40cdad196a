"""What a transition matrix looks like: zeros, dead ends, classes, period, spectral gap, memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import gcd
from typing import Any

import numpy as np
import scipy

from quiltdp.domains.trace.estimate import estimate_transitions
from quiltdp.domains.trace.points import Floats, Ints
from quiltdp.domains.trace.units import many

__all__ = ["Diagnostics", "diagnose", "gap_by_estimator", "period_of", "spectral_gap"]

_EIGEN_LIMIT = 1000


@dataclass(frozen=True)
class Diagnostics:
    """Facts about the counted moves and the estimated matrix.

    Attributes
    ----------
    states, transitions
        Cells with a step, and moves counted (staying is a move to the same cell).
    zero_fraction
        Share of pairs of cells that were never seen one after the other.
    dead_ends
        Cells that were never left (their row of counts is zero).
    classes, largest_class
        Classes of cells that reach each other, by the counts; the size of the largest.
    period
        Of the largest class, by the counts: 1 unless the trace alternates strictly.
    closed_classes, absorbing_states
        Of the estimated matrix: classes that are never left, and those of one cell.
    gap
        1 − |λ₂| of the estimated matrix over all cells; 0 when it is reducible or periodic.
    class_gap
        The same for the largest class alone, its rows renormalised.
    memory_after
        The largest total variation between two rows of P^d, d = the steps in the shortest gap that
        split the trace: what splitting there ignores.  None without splits.
    """

    states: int
    transitions: int
    zero_fraction: float
    dead_ends: int
    classes: int
    largest_class: int
    period: int
    closed_classes: int
    absorbing_states: int
    gap: float
    class_gap: float
    memory_after: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the facts by name."""
        return asdict(self)

    def warnings(self) -> tuple[str, ...]:
        """Say, in a sentence each, what in this chain makes privacy expensive or the model doubtful."""
        says = []
        if self.states == 1:
            return ("one cell only: every step is the same, so a record tells nothing that is not public",)
        if self.closed_classes > 1:
            says.append(f"the chain has {self.closed_classes} closed classes: a user never changes class")
        if self.absorbing_states:
            says.append(f"absorbing: {many(self.absorbing_states, 'cell')}, once there always there")
        if self.period > 1:
            says.append(f"the largest class has period {self.period}: inside it the phase is never forgotten")
        if self.memory_after is not None and self.memory_after > 0.05:
            says.append(
                f"at the shortest gap that splits the trace the chain still remembers (total variation"
                f" {self.memory_after:.2g}): a longer gap (max_gap, --max-gap) is safer"
            )
        return tuple(says)


def diagnose(counts: Ints, matrix: Floats, *, gap_steps: int | None = None) -> Diagnostics:
    """Return the diagnostics of counted moves and of the matrix estimated from them."""
    size = len(counts)
    classes, label = scipy.sparse.csgraph.connected_components(counts > 0, directed=True, connection="strong")
    largest = np.flatnonzero(label == np.bincount(label).argmax())
    closed, absorbing = _closed(matrix)
    inner = matrix[np.ix_(largest, largest)]
    weight = inner.sum(axis=1, keepdims=True)
    inner = np.divide(inner, weight, out=np.eye(len(largest)), where=weight > 0)
    return Diagnostics(
        states=size,
        transitions=int(counts.sum()),
        zero_fraction=float((counts == 0).mean()),
        dead_ends=int((counts.sum(axis=1) == 0).sum()),
        classes=int(classes),
        largest_class=len(largest),
        period=period_of(counts[np.ix_(largest, largest)]),
        closed_classes=closed,
        absorbing_states=absorbing,
        gap=spectral_gap(matrix),
        class_gap=spectral_gap(inner),
        memory_after=None if gap_steps is None else _memory(matrix, gap_steps),
    )


def gap_by_estimator(
    counts: Ints, estimators: Sequence[str] = ("mle", "additive:0.1", "additive:1")
) -> dict[str, tuple[float, float]]:
    """Return estimator → (gap of the largest class, gap over all cells): what smoothing does to memory.

    Examples
    --------
    >>> import numpy as np
    >>> found = gap_by_estimator(np.array([[90, 10], [10, 90]]))
    >>> {name: round(gap, 3) for name, (gap, _) in found.items()}
    {'mle': 0.2, 'additive:0.1': 0.202, 'additive:1': 0.216}
    """
    gaps = {}
    for name in estimators:
        facts = diagnose(counts, estimate_transitions(counts, name).matrix)
        gaps[name] = (facts.class_gap, facts.gap)
    return gaps


def _closed(matrix: Floats) -> tuple[int, int]:
    """Return the number of closed classes, and of those with one state."""
    count, label = scipy.sparse.csgraph.connected_components(matrix > 0, directed=True, connection="strong")
    source, target = np.nonzero(matrix)
    leaves = np.zeros(count, dtype=np.bool_)
    leaves[label[source[label[source] != label[target]]]] = True
    return int((~leaves).sum()), int(((np.bincount(label) == 1) & ~leaves).sum()) if count > 1 else 0


def spectral_gap(matrix: Floats) -> float:
    """Return 1 − |λ₂|, λ₂ the second largest eigenvalue in modulus (1.0 for one state).

    Examples
    --------
    >>> import numpy as np
    >>> round(spectral_gap(np.array([[0.9, 0.1], [0.2, 0.8]])), 12)
    0.3
    >>> spectral_gap(np.eye(3))
    0.0
    """
    size = len(matrix)
    if size == 1:
        return 1.0
    values: Any = None
    if size > _EIGEN_LIMIT:
        linalg = scipy.sparse.linalg
        with suppress(linalg.ArpackNoConvergence):
            values = linalg.eigs(scipy.sparse.csr_array(matrix), k=4, which="LM", return_eigenvectors=False)
    if values is None:
        values = np.linalg.eigvals(matrix)
    second = float(np.sort(np.abs(values))[-2])
    return 0.0 if second > 1 - 1e-12 else 1.0 - second


def period_of(counts: Ints | Floats) -> int:
    """Return the period of one class: the common divisor of the lengths of its cycles (1 if none).

    Examples
    --------
    >>> import numpy as np
    >>> period_of(np.array([[0, 1], [1, 0]])), period_of(np.array([[1, 1], [1, 0]]))
    (2, 1)
    """
    level = np.full(len(counts), -1, dtype=np.int64)
    level[0] = 0
    period = 0
    queue = [0]
    for x in queue:  # grows while it is walked: breadth first
        for y in np.flatnonzero(counts[x]).tolist():
            if level[y] < 0:
                level[y] = level[x] + 1
                queue.append(y)
            else:
                period = gcd(period, int(level[x] + 1 - level[y]))
    return period or 1


def _memory(matrix: Floats, steps: int) -> float:
    """Return the largest total variation between two rows of the matrix power."""
    power = np.linalg.matrix_power(np.asarray(matrix), max(steps, 1))
    distances = scipy.spatial.distance.pdist(power, "cityblock")
    return float(min(1.0, distances.max(initial=0.0) / 2))
