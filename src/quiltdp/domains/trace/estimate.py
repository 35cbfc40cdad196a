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
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from quiltdp.domains.trace.points import Floats, Ints
from quiltdp.domains.trace.units import many
from quiltdp.errors import InvalidArgument, InvalidModel, NoCertificate, option
from quiltdp.inference.uncertain import SetChain

__all__ = [
    "Estimate",
    "Estimator",
    "estimate_transitions",
    "first_law",
    "log_likelihood",
    "parse_estimator",
    "row_intervals",
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
        matrix = _reversible(table.astype(np.float64) + how.smoothing)
    elif how.kind == "additive":
        matrix = _rows(table.astype(np.float64) + how.smoothing)
    else:
        filled = table.astype(np.float64)
        filled[list(dead), list(dead)] = 1.0
        matrix = _rows(filled)
    matrix.flags.writeable = False
    return Estimate(matrix, table, how, dead, _notes(how, dead, len(table)))


def log_likelihood(counts: Ints | Floats) -> float:
    """Return Σ n ln(n / Σ n) over the rows of one table of counts or of several."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = counts * np.log(counts / counts.sum(axis=-1, keepdims=True))
    return float(np.where(counts > 0, terms, 0.0).sum())


def first_law(
    wanted: str | ArrayLike, shares: Floats, matrix: Floats | None = None
) -> tuple[str | Floats, str, tuple[str, ...]]:
    """Return the law of the first step as a chain takes it, its name, and what there is to say about it.

    ``auto``, where there is a matrix, is the stationary law if every state is reached from every other,
    else the shares of the data.
    """
    if not isinstance(wanted, str):
        return np.asarray(wanted, dtype=np.float64), "given", ()
    if wanted == "auto" and matrix is not None:
        if _strong_classes(matrix) == 1:
            return "stationary", "stationary", ()
        said = "not every state is reached from every other: the first step follows the shares of the data"
        return shares, "occupancy", (said,)
    if wanted not in ("occupancy", "stationary", "uniform"):
        auto = "auto, " if matrix is not None else ""
        raise InvalidArgument(
            f"{option('initial')} must be {auto}stationary, occupancy, uniform or a vector, not {wanted!r}"
        )
    return shares if wanted == "occupancy" else wanted, wanted, ()


def _strong_classes(table: Floats) -> int:
    graph = scipy.sparse.csgraph.connected_components(table > 0, directed=True, connection="strong")
    return int(graph[0])


def _rows(table: Floats) -> Floats:
    matrix = table / table.sum(axis=1, keepdims=True)
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


def _notes(how: Estimator, dead: tuple[int, ...], size: int) -> tuple[str, ...]:
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


def _reversible(counts: Floats) -> Floats:
    """Maximise the likelihood under detailed balance (self-consistent iteration on π(x) P(x, y)).

    The fixed point x(i,j) = (n(i,j) + n(j,i)) / (n(i)/x(i) + n(j)/x(j)) of Bowman et al. (2009); the
    iteration raises the likelihood every round.

    Reference: Trendelkamp-Schroer, Wu, Paul, Noé, J. Chem. Phys. 143, 174101 (2015), eq. 25.
    """
    classes = _strong_classes(counts)
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
            return _rows((flow + flow.T) / 2)
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

    def outside(p: Floats) -> np.ndarray:
        return np.asarray(log_mixture - scipy.special.xlogy(s, p) - scipy.special.xlog1py(n - s, -p) >= level)

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
