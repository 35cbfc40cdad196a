"""The transition matrix of a discretised trace: maximum likelihood, additive smoothing, reversible.

Smoothing is never silent.  It adds moves nobody made, which makes the chain forget faster, the
leakage smaller and the noise smaller; the estimator is part of every result.

What the counts can and cannot rule out is a confidence region of the matrix.  From one state, the moves are
independent draws of that state's row, but how many there are depends on the trace itself.  The intervals are
therefore *time-uniform*: they hold for every number of draws at once (a mixture martingale and Ville's
inequality), so the random number is no matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import gcd
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from quiltdp.domains.trace.points import Floats, Ints
from quiltdp.domains.trace.times import many
from quiltdp.errors import InvalidArgument, InvalidModel, NoCertificate, option
from quiltdp.inference.uncertain import SetChain

__all__ = [
    "Diagnostics",
    "Estimate",
    "Estimator",
    "diagnose",
    "estimate_transitions",
    "first_step_law",
    "gap_by_estimator",
    "log_likelihood",
    "parse_estimator",
    "period_of_class",
    "row_intervals",
    "spectral_gap",
    "transition_region",
]

Kind = Literal["mle", "additive", "reversible"]

_NAMED = re.compile(r"(mle|additive|reversible)(?:[:+](\d+(?:\.\d*)?|\.\d+))?")
_REVERSIBLE_ROUNDS = 200_000


@dataclass(frozen=True)
class Estimator:
    """How counts become a matrix: the kind, and how much is added to every count.

    ``mle`` adds nothing; ``additive`` adds ``smoothing`` > 0 to every pair of cells; ``reversible``
    is the maximum likelihood under detailed balance, after adding ``smoothing`` ≥ 0.
    """

    kind: Kind = "mle"
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        """Refuse unknown kinds and negative or missing smoothing."""
        if self.kind not in ("mle", "additive", "reversible"):
            raise InvalidArgument(f"{option('estimator')} {self.kind!r} is not mle, additive or reversible")
        if not (np.isfinite(self.smoothing) and self.smoothing >= 0):
            raise InvalidArgument(f"smoothing must be at least 0, not {self.smoothing!r}")
        if self.kind == "mle" and self.smoothing:
            raise InvalidArgument("the maximum-likelihood estimator adds nothing: use additive:<smoothing>")
        if self.kind == "additive" and not self.smoothing:
            raise InvalidArgument("additive smoothing must be positive: additive:0.1, or use mle")

    def __str__(self) -> str:
        """Return ``mle``, ``additive:0.1``, ``reversible``."""
        return self.kind if not self.smoothing else f"{self.kind}:{self.smoothing:g}"


def parse_estimator(text: str | Estimator, smoothing: float | None = None) -> Estimator:
    """Return the estimator of a name such as ``mle``, ``additive:0.1``, ``reversible``, ``reversible:1``.

    Examples
    --------
    >>> parse_estimator("additive:0.1"), str(parse_estimator("additive", smoothing=1))
    (Estimator(kind='additive', smoothing=0.1), 'additive:1')
    """
    if isinstance(text, Estimator):
        return text
    match = _NAMED.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidArgument(
            f"{option('estimator')} {text!r} is not mle, additive:<smoothing> or reversible"
        )
    if match[2] is not None and smoothing is not None and float(match[2]) != smoothing:
        raise InvalidArgument(
            f"{option('estimator')} {text!r} and smoothing {smoothing:g} contradict each other"
        )
    added = float(match[2]) if match[2] is not None else (smoothing or 0.0)
    kind: Kind = match[1]  # type: ignore[assignment]  # the pattern has only these three
    return Estimator(kind, added)


@dataclass(frozen=True, eq=False)
class Estimate:
    """A transition matrix with the counts and the estimator it came from."""

    matrix: Floats
    counts: Ints
    estimator: Estimator
    dead_ends: tuple[int, ...]
    notes: tuple[str, ...]


def estimate_transitions(counts: Ints, estimator: str | Estimator = "mle") -> Estimate:
    """Return the transition matrix of counted moves.

    - ``mle``: P(x, y) = n(x, y) / n(x).  A cell that was never left (a dead end) has no estimate;
      it is made absorbing, P(x, x) = 1, an assumption the notes state (the confidence region of
      :func:`transition_region` takes its row as unknown instead).
    - ``additive:a``: P(x, y) = (n(x, y) + a) / (n(x) + a K) over the K cells seen.
    - ``reversible``: the maximum of Σ n(x, y) ln P(x, y) over matrices with π(x) P(x, y) =
      π(y) P(y, x).

    Raises
    ------
    InvalidArgument
        Unknown estimator.
    InvalidModel
        Counts that are not a square table of whole numbers; ``reversible`` on counts that are not
        one class of states that all reach each other (the maximum does not exist).
    """
    how = parse_estimator(estimator)
    table = np.asarray(counts)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not table.size or (table < 0).any():
        raise InvalidModel(f"counts must be a square table of numbers ≥ 0, not of shape {table.shape}")
    dead = tuple(int(k) for k in np.flatnonzero(table.sum(axis=1) == 0))
    if how.kind == "reversible":
        matrix = _fit_reversible(table.astype(np.float64) + how.smoothing)
    elif how.kind == "additive":
        matrix = _normalise_rows(table.astype(np.float64) + how.smoothing)
    else:
        filled = table.astype(np.float64)
        filled[list(dead), list(dead)] = 1.0
        matrix = _normalise_rows(filled)
    matrix.flags.writeable = False
    return Estimate(matrix, table, how, dead, _notes_on_estimator(how, dead, len(table)))


def log_likelihood(counts: Ints | Floats) -> float:
    """Return Σ n ln(n / Σ n) over the rows of one table of counts or of several."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = counts * np.log(counts / counts.sum(axis=-1, keepdims=True))
    return float(np.where(counts > 0, terms, 0.0).sum())


def first_step_law(
    wanted: str | ArrayLike, shares: Floats, matrix: Floats | None = None
) -> tuple[str | Floats, str, tuple[str, ...]]:
    """Return the law of the first step as a chain takes it, its name, and what there is to say about it.

    ``auto``, where there is a matrix, is the stationary law if every state is reached from every other,
    else the shares of the data.
    """
    if not isinstance(wanted, str):
        return np.asarray(wanted, dtype=np.float64), "given", ()
    if wanted == "auto" and matrix is not None:
        if _count_strong_classes(matrix) == 1:
            return "stationary", "stationary", ()
        said = "not every state is reached from every other: the first step follows the shares of the data"
        return shares, "occupancy", (said,)
    if wanted not in ("occupancy", "stationary", "uniform"):
        auto = "auto, " if matrix is not None else ""
        raise InvalidArgument(
            f"{option('initial')} must be {auto}stationary, occupancy, uniform or a vector, not {wanted!r}"
        )
    return shares if wanted == "occupancy" else wanted, wanted, ()


def _count_strong_classes(table: Floats) -> int:
    graph = scipy.sparse.csgraph.connected_components(table > 0, directed=True, connection="strong")
    return int(graph[0])


def _normalise_rows(table: Floats) -> Floats:
    matrix = table / table.sum(axis=1, keepdims=True)
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


def _notes_on_estimator(how: Estimator, dead: tuple[int, ...], size: int) -> tuple[str, ...]:
    """Say what the estimator did to the data."""
    notes = []
    if how.smoothing:
        notes.append(
            f"smoothed: {how.smoothing:g} added to each of {size}² counts; this makes memory look shorter"
            " and the noise smaller than the data alone say"
        )
    if dead and how.kind == "mle":
        notes.append(
            f"never left (dead ends): {many(len(dead), 'cell')}, taken as absorbing, which the data"
            " cannot confirm"
        )
    if dead and how.kind != "mle":
        notes.append(
            f"never left (dead ends): {many(len(dead), 'cell')}; smoothing alone decides where they lead"
        )
    if how.kind == "reversible":
        notes.append("forced reversible: the chain looks the same backwards in time")
    return tuple(notes)


def _fit_reversible(counts: Floats) -> Floats:
    """Maximise the likelihood under detailed balance (self-consistent iteration on π(x) P(x, y)).

    The fixed point x(i,j) = (n(i,j) + n(j,i)) / (n(i)/x(i) + n(j)/x(j)) of Bowman et al. (2009); the
    iteration raises the likelihood every round.

    Reference: Trendelkamp-Schroer, Wu, Paul, Noé, J. Chem. Phys. 143, 174101 (2015), eq. 25.
    """
    classes = _count_strong_classes(counts)
    if classes > 1:
        raise InvalidModel(
            f"reversible: the cells fall into {classes} classes that do not all reach each other, so the"
            " estimate does not exist; use mle, or smooth it openly (reversible:0.1)"
        )
    both, out = counts + counts.T, counts.sum(axis=1)
    flow = both / both.sum()
    for _ in range(_REVERSIBLE_ROUNDS):
        rate = out / flow.sum(axis=1)
        new = both / (rate[:, None] + rate[None, :])
        new /= new.sum()
        change = float(np.abs(new - flow).max())
        flow = new
        if change <= 1e-15 or change < 1e-12 * float(flow.max()):
            return _normalise_rows((flow + flow.T) / 2)
    raise NoCertificate("reversible: the iteration did not settle; use additive smoothing")


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
    s, n = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(trials, np.float64))
    log_mixture = scipy.special.betaln(s + 0.5, n - s + 0.5) - scipy.special.betaln(0.5, 0.5)
    level = log_level + 1e-9 * (1.0 + n)  # more than the rounding error of the two logarithms

    def log_excess(p: Floats) -> np.ndarray:
        return np.asarray(log_mixture - scipy.special.xlogy(s, p) - scipy.special.xlog1py(n - s, -p) >= level)

    centre = np.divide(s, n, out=np.full(s.shape, 0.5), where=n > 0)
    ends = []
    for far in (0.0, 1.0):
        out, inside = np.full(s.shape, far), centre.copy()
        for _ in range(200):
            middle = 0.5 * (out + inside)
            beyond = log_excess(middle)
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


# -- what a matrix looks like: zeros, dead ends, classes, period, spectral gap, memory -----------------

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
    closed, absorbing = _count_closed_classes(matrix)
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
        period=period_of_class(counts[np.ix_(largest, largest)]),
        closed_classes=closed,
        absorbing_states=absorbing,
        gap=spectral_gap(matrix),
        class_gap=spectral_gap(inner),
        memory_after=None if gap_steps is None else _row_distance_after(matrix, gap_steps),
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


def _count_closed_classes(matrix: Floats) -> tuple[int, int]:
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


def period_of_class(counts: Ints | Floats) -> int:
    """Return the period of one class: the common divisor of the lengths of its cycles (1 if none).

    Examples
    --------
    >>> import numpy as np
    >>> period_of_class(np.array([[0, 1], [1, 0]])), period_of_class(np.array([[1, 1], [1, 0]]))
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


def _row_distance_after(matrix: Floats, steps: int) -> float:
    """Return the largest total variation between two rows of the matrix power."""
    power = np.linalg.matrix_power(np.asarray(matrix), max(steps, 1))
    distances = scipy.spatial.distance.pdist(power, "cityblock")
    return float(min(1.0, distances.max(initial=0.0) / 2))
