"""One quilt, every known set: b, the swings, and the values that attain them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np

from quiltdp.errors import ModelTooWide
from quiltdp.inference.extended import ExtendedMoves
from quiltdp.inference.marginals import extended_log_marginal, log_marginal
from quiltdp.inference.odds import other
from quiltdp.inference.region import Region, finite_or_infinite
from quiltdp.inference.types import Assignment, QuiltInfluence, Witness, Witnesses
from quiltdp.model import Model, Table

__all__ = ["rounded_up", "search", "subsets"]

_Swings: TypeAlias = dict[tuple[str, ...], tuple[float, float]]
_Best: TypeAlias = tuple[float, tuple[str, ...] | None]

_TOGETHER = 2**20  # entries up to which the marginals of all known sets are one table


def subsets(nodes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield every subset, small ones first."""
    for size in range(len(nodes) + 1):
        yield from combinations(nodes, size)


def rounded_up(value: float, error: float) -> float:
    """Return a double that is no less than the true value, given a bound on the error."""
    return value + error if error == 0 or value == math.inf else math.nextafter(value + error, math.inf)


def search(region: Region) -> QuiltInfluence:
    """Return b and the swing of a region over every known set."""
    moves = region.all_moves()
    swings, (b, b_known) = _one_by_one(region) if moves is None else _all_at_once(region, moves)
    exact = region.exact and b_known is not None
    swing_known = max(swings, key=lambda k: swings[k][0])
    swing = swings[swing_known][0]
    upper = {frozenset(k): rounded_up(*v) for k, v in swings.items()}
    sizes = range(len(region.known_records) + 1)
    return QuiltInfluence(
        b=min(b, swing),  # b ≤ swing always: it stands in for a b that is too wide to know
        swing=swing,
        swing_upper=max(upper.values()),
        exact=exact,
        swing_by_known=tuple(max(v for k, v in upper.items() if len(k) == n) for n in sizes),
        swing_of=upper,
        find=_Find(region.remade, swing_known, b_known if exact else None, region.exact),
    )


def _one_by_one(region: Region) -> tuple[_Swings, _Best]:
    """Return the swing and its error for every known set, and b with the set that attains it."""
    prior = _Prior(region)
    swings: _Swings = {}
    best: _Best = (-1.0, ())
    for known in subsets(region.known_records):
        moves = region.moves(known) if region.explicit(known) else None
        swings[known] = region.swing(known) if moves is None else moves.swing
        if best[1] is None:
            continue
        try:
            value = math.inf if moves is None else finite_or_infinite(taken_off(moves.table, prior.of(known)))
        except ModelTooWide:
            moves = None
        if moves is None:
            best = (math.inf, None)
        elif value > best[0]:
            best = (value, known)
    return swings, best


def _all_at_once(region: Region, moves: ExtendedMoves) -> tuple[_Swings, _Best]:
    """Return the same, read off one table with extended axes."""
    both = (moves.table + moves.table.swapaxes(0, 1)).max(axis=(0, 1))
    swings = {
        known: (finite_or_infinite(both[region.at(known)]), 2 * moves.error)
        for known in subsets(region.known_records)
    }
    try:
        ratios = taken_off(moves.table, _Prior(region).all()).max(axis=(0, 1))
    except ModelTooWide:
        return swings, (math.inf, None)
    at = np.unravel_index(int(ratios.argmax()), ratios.shape)
    sizes = zip(region.known_records, at, strict=True)
    return swings, (finite_or_infinite(ratios), tuple(n for n, k in sizes if k < region.model.cardinality(n)))


def taken_off(moves: Table, prior: Table) -> Table:
    """Return M(x, x', l) − ln P(x, l) + ln P(x', l), −∞ where x or x' is impossible with l."""
    with np.errstate(invalid="ignore"):
        odds = prior[:, None] - prior[None]
        return np.where(np.isfinite(odds), moves - odds, -np.inf)


class _Prior:
    """ln P(x_T, x_L) for every L: one marginal with evidence-extended axes, or one marginal per L."""

    def __init__(self, region: Region) -> None:
        self._model = region.model
        self._targets = region.targets
        self._records = region.known_records
        self._states = math.prod(self._model.cardinality(n) for n in self._targets)
        sizes = [self._model.cardinality(n) + 1 for n in self._records]
        self.together = self._states * math.prod(sizes) <= _TOGETHER
        self._table: Table | None = None

    def all(self) -> Table:
        """Return ln P(x_T, x_N) with x_T flattened and nearby axes extended."""
        if self._table is None:
            table = extended_log_marginal(self._model, (*self._targets, *self._records))
            self._table = self._flat(table[(slice(-1),) * len(self._targets)])
        return self._table

    def of(self, known: Sequence[str]) -> Table:
        """Return ln P(x_T, x_L) with x_T flattened."""
        if not self.together:
            return self._flat(log_marginal(self._model, (*self._targets, *known)))
        seen = (slice(-1) if n in known else -1 for n in self._records)
        return self.all()[(slice(None), *seen)]

    def _flat(self, logs: Table) -> Table:
        return logs.reshape(self._states, *logs.shape[len(self._targets) :])


# -- witnesses --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Find:
    """Looks up the witnesses of a region, making the region again so that none is kept in memory."""

    region: Callable[[], Region]
    swing_known: tuple[str, ...]
    b_known: tuple[str, ...] | None
    exact: bool

    def __call__(self) -> Witnesses:
        """Return the values that attain the swing and b."""
        region = self.region()
        swing = _swing_witness(region, self.swing_known) if self.exact else None
        b = _b_witness(region, self.b_known) if self.b_known is not None else None
        return swing, b


def _swing_witness(region: Region, known: Sequence[str]) -> Witness | None:
    values = region.swing_values(known)
    if values is None:
        return None
    return Witness(*_ends(region, known, values), _named(region.model, map(other, region.separator), values))


def _b_witness(region: Region, known: Sequence[str]) -> Witness | None:
    ratios = taken_off(region.moves(known).table, _Prior(region).of(known))
    chosen = region.chosen(known, ratios)
    if chosen is None:
        return None
    return Witness(*_ends(region, known, {**region.separator_values(known, chosen), **chosen}))


def _ends(
    region: Region, known: Sequence[str], values: Mapping[str, int]
) -> tuple[Assignment, Assignment, Assignment, Assignment]:
    model = region.model
    return (
        _named(model, known, values),
        _named(model, region.targets, values),
        _named(model, map(other, region.targets), values),
        _named(model, region.separator, values),
    )


def _named(model: Model, axes: Iterable[str], values: Mapping[str, int]) -> Assignment:
    """Return the nodes behind the axes with the names of their states."""
    return tuple((n.rstrip("\0"), model.states[n.rstrip("\0")][values.get(n, 0)]) for n in axes)
