"""The transition matrix of a discretised trace: maximum likelihood, additive smoothing, reversible.

Smoothing is never silent.  It adds moves nobody made, which makes the chain forget faster, the
leakage smaller and the noise smaller; the estimator is part of every result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from quiltdp.domains.trace.points import Floats, Ints
from quiltdp.domains.trace.units import many
from quiltdp.errors import InvalidArgument, InvalidModel, NoCertificate, option

__all__ = ["Estimate", "Estimator", "estimate_transitions", "parse_estimator"]

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
      :mod:`~quiltdp.domains.trace.region` takes its row as unknown instead).
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


def _rows(table: Floats) -> Floats:
    matrix = table / table.sum(axis=1, keepdims=True)
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


def _notes(how: Estimator, dead: tuple[int, ...], size: int) -> tuple[str, ...]:
    """Say what the estimator did to the data."""
    said = []
    if how.smoothing:
        said.append(
            f"smoothed: {how.smoothing:g} added to each of {size}² counts; this makes memory look shorter"
            " and the noise smaller than the data alone say"
        )
    if dead and how.kind == "mle":
        said.append(
            f"never left (dead ends): {many(len(dead), 'cell')}, taken as absorbing, which the data"
            " cannot confirm"
        )
    if dead and how.kind != "mle":
        said.append(
            f"never left (dead ends): {many(len(dead), 'cell')}; smoothing alone decides where they lead"
        )
    if how.kind == "reversible":
        said.append("forced reversible: the chain looks the same backwards in time")
    return tuple(said)


def _reversible(counts: Floats) -> Floats:
    """Maximise the likelihood under detailed balance (self-consistent iteration on π(x) P(x, y)).

    The fixed point x(i,j) = (n(i,j) + n(j,i)) / (n(i)/x(i) + n(j)/x(j)) of Bowman et al. (2009); the
    iteration raises the likelihood every round.

    Reference: Trendelkamp-Schroer, Wu, Paul, Noé, J. Chem. Phys. 143, 174101 (2015), eq. 25.
    """
    from scipy.sparse.csgraph import connected_components

    classes = connected_components(counts > 0, directed=True, connection="strong")[0]
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
        if change <= 1e-15:
            return _rows((flow + flow.T) / 2)
        if change < 1e-12 * float(flow.max()):
            return _rows((flow + flow.T) / 2)
    raise NoCertificate("reversible: the iteration did not settle; use additive smoothing")
