"""One side of a path, read from its end inwards: which messages there are, and the laws they couple.

Given what is known, the records on one side of a step depend on it through the nearest known record alone:
nothing (*free*), or the value v of one record s.  A :class:`Column` is all values of one such record (or
nothing), seen from a step further in.  Its tilt is g(x) = P(v | x) up to a constant, its laws are those of
the next priced step outwards given x and v, ∝ table(x, y) g(y).  Steps without a price (latent ones, and
records that cost nothing) are summed out between two priced ones; such a record may still be known.

Columns with the same tables, prices and evidence are one object: a homogeneous stretch has as many as it has
distances, whatever its length.  A column whose tilt differs from that of the free one by at most e^c and that
allows all successors of what it allows is *merged*: from there on the tail speaks for it.

*Assumes*: one path of tables.  *Cost*: states³ per column and step.  *Reference*: docs/theory.md, chains.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quiltdp.chain import MAX_STEPS
from quiltdp.errors import ModelTooWide
from quiltdp.inference import plan
from quiltdp.numbers import EPS

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
_LOST = 1e-250  # a positive tilt below it has lost digits
_STEP = 300.0  # what a step costs besides its messages
DRIFT = 1e-6  # by how much, in logarithms, the free tilt may move over the rest of the longest chain


@dataclass(frozen=True, eq=False)
class Column:
    """The values of one known record (or nothing known), seen from one step.

    Attributes
    ----------
    tilt
        g, shape (values, states), scaled by powers of two; 0 only where the evidence is impossible.
    laws
        Of the next priced step outwards, shape (values, states, its states); ``None``: none lies between.
    outer
        The same evidence seen from that step.
    price
        The class of that step's price.
    steps
        How many tables the tilt is a product of.
    """

    tilt: Array
    laws: Array | None = None
    outer: Column | None = None
    price: int = -1
    steps: int = 0

    @property
    def slack(self) -> float:
        """How much rounding of the laws may add to a coupling of two of them."""
        states = self.tilt.shape[1] if self.laws is None else max(self.laws.shape[1:])
        return 4.0 * (self.steps + 2) * (int(states) + 3) * EPS


@dataclass(frozen=True, eq=False)
class Step:
    """What there is at one step.

    ``new`` are the columns whose messages are computed here, ``merged`` those that the tail takes over.
    Alive are those of ``alive``, and with ``grown`` all that were alive at the step before.
    """

    free: Column
    new: tuple[Column, ...]
    alive: tuple[Column, ...]
    grown: bool
    merged: tuple[Column, ...]


@dataclass(eq=False)
class SideSchedule:
    """The steps of one side, from the end inwards.

    Attributes
    ----------
    steps
        Position 0 is the end of the path.
    period
        The last so many positions stand, phase by phase, for all that are not listed; 0: all are.  The free
        tilt of those is within e^DRIFT of that of their phase.
    alive
        The columns alive at each of them.
    near
        How far from the free tilt a merged column is at most.
    work
        What one evaluation takes, in transports of four states.
    """

    steps: list[Step]
    near: float = 0.0
    period: int = 0
    alive: Sequence[tuple[Column, ...]] = ()
    work: float = 0.0

    def place(self, position: int) -> int:
        """Return the place of a position: those beyond the listed ones share one per phase."""
        listed = len(self.steps)
        return position if position < listed else listed + (position - listed) % self.period


def side_schedule(
    table: Callable[[int], Array],
    end: Array,
    prices: NDArray[np.intp],
    *,
    known: Callable[[int], bool] | None,
    near: float,
    repeats: tuple[int, int] | None = None,
    most: float = np.inf,
    check: Callable[[], None] = lambda: None,
) -> SideSchedule:
    """Read one side of a path from its end inwards.

    Parameters
    ----------
    table
        ``table(j)``, j ≥ 1: from position j to position j − 1 (outwards), row = the state at j; equal
        tables must be the same object.
    end
        The weights of the states at position 0, the end of the path.
    prices
        The class of the price of every position; −1: it costs nothing.
    known
        Whether the record at a position may be known; ``None``: none may.
    near
        c: how far from the free tilt a column is merged.
    repeats
        (first, period): from position ``first`` on tables, prices and ``known`` repeat, and all cost.
    most
        The most work, in transports of four states.

    Raises
    ------
    ModelTooWide
        If the work would be more, or a possible state has a tilt that doubles do not hold.
    """
    kept: dict[Hashable, Column] = {}
    alive: tuple[Column, ...] = ()
    free, patterns = Column(_scale_rows(np.array(end, dtype=np.float64, ndmin=2))), set[bytes]()
    found, lives, far = SideSchedule([Step(free, (), (), False, ())]), [alive], set[int]()
    joint, probe = free.tilt, np.eye(free.tilt.shape[1])
    for j in range(1, len(prices)):
        check()
        outward, price = table(j), int(prices[j - 1])
        joint = outward if price >= 0 or j == 1 else _scale_rows(outward @ joint, axis=(0, 1))
        probe = _scale_rows(probe @ outward.T)  # evidence at the end, whoever may know it
        made: list[Column] = []

        def moved(
            column: Column, fresh: bool = False, by: Array = outward, price: int = price, joint: Array = joint
        ) -> Column:
            key = (id(column), id(by), price, fresh)
            if key not in kept:
                kept[key] = _step_inwards(column, by, joint, price, fresh)
                made.append(kept[key])  # noqa: B023  # called in this turn only
            return kept[key]

        before, free = free, moved(free)
        columns = [moved(c) for c in alive]
        possible = before.tilt[0] > 0
        if known is not None and known(j - 1):
            evidence = kept.setdefault(possible.tobytes(), Column(np.eye(len(possible))[possible]))
            columns.append(moved(evidence, fresh=True))
        reaching = [_predecessors(outward, np.frombuffer(p, bool), possible) for p in patterns]
        if any(r is None for r in reaching):
            raise ModelTooWide("what is possible given a record far away changes from step to step")
        far.update(map(id, made))
        further = table(j + 1) if j + 1 < len(prices) else np.zeros((0, outward.shape[0]))
        merged = tuple(
            c
            for c in columns
            if id(c) in far and (prices[j] >= 0 or c.laws is None) and _tail_covers(c, free, further, near)
        )
        far.difference_update(map(id, made))
        far.update(map(id, merged))  # may be near again; others are looked at when they are new
        found.near = max([found.near, *(_tilt_distance(c, free) for c in merged)])
        patterns = {r.tobytes() for r in reaching if r is not None}
        patterns |= {row.tobytes() for c in merged for row in c.tilt > 0}
        alive = tuple(c for c in columns if c not in merged)
        old = set(map(id, lives[-1]))
        fresh = tuple(c for c in alive if id(c) not in old)
        grown = bool(old) and len(fresh) + len(old) == len(alive)
        new = tuple(c for c in made if c.laws is not None)
        found.steps.append(Step(free, new, fresh if grown else alive, grown, merged))
        lives = [*lives, alive][-1 - (repeats or (0, 0))[1] :]
        found.work += _STEP + sum(map(_transport_work, new)) + (_transport_work(free) if patterns else 0.0)
        if found.work > most or (
            repeats is not None and j > repeats[0] + max(plan.POSITIONS_WALKED, 4 * repeats[1])
        ):
            raise ModelTooWide("messages on pairs of states would take more than the work budget allows")
        if repeats is not None and j >= repeats[0] + 3 * repeats[1] and lives[0] == alive:
            turns, then = MAX_STEPS / repeats[1], found.steps[j - repeats[1]].free  # the same for all lengths
            if not np.array_equal(free.tilt > 0, then.tilt > 0):
                continue  # some state has just died out, or will
            rounding = repeats[1] * (len(possible) + 6) * EPS  # of one product with each table
            drift = turns * (float(_tilt_ranges(free.tilt, then.tilt).max()) + rounding)
            settled = drift <= DRIFT and (_tilt_ranges(probe, free.tilt) <= near).all()
            if settled and (known is None or patterns):
                found.period, found.alive = repeats[1], lives[1:]
                return found
    return found


def repeating_end(kinds: NDArray[np.int64], prices: NDArray[np.intp], may: Flags) -> tuple[int, int] | None:
    """Return (first, period) from where tables, prices and what may be known repeat; ``None`` if they do not.

    ``kinds[j − 1]`` tells the table of position j (one for all: a single number); all positions must cost.
    """
    if len(kinds) == 1 and prices[0] >= 0 and (prices == prices[0]).all() and (may == may[0]).all():
        return 0, 1
    tables = np.concatenate([[0], np.broadcast_to(kinds, len(prices) - 1)])
    _, label = np.unique(np.stack([tables, prices, may]), axis=1, return_inverse=True)
    label = label.ravel()
    found = []
    for period in (len(label) - 1 - np.flatnonzero(label[:-1] == label[-1])[::-1][: plan.PERIODS]).tolist():
        differ = np.flatnonzero(label[period:] != label[:-period])
        first = int(differ[-1]) + 1 if len(differ) else 0
        if first + 4 * period <= len(label) and (prices[first:] >= 0).all():
            found.append((first + 4 * period, first, period))
            if first <= period:
                break  # a longer period would only repeat this one
    return min(found)[1:] if found else None


def _step_inwards(column: Column, outward: Array, joint: Array, price: int, fresh: bool) -> Column:
    """Return a column seen from one step further in; ``price`` is that of the step it was seen from."""
    tilt = column.tilt @ outward.T
    support = (column.tilt > 0).astype(np.float32) @ (outward.T > 0).astype(np.float32) > 0
    if np.any(support & (tilt < _LOST * tilt.max(axis=1, keepdims=True))):
        raise ModelTooWide("a possible state has a probability that doubles do not hold")
    outer, cost = (column, price) if price >= 0 else (column.outer, column.price)
    if fresh or outer is None:  # nothing that costs lies between
        return Column(_scale_rows(tilt), steps=column.steps + 1)
    weighed = joint[None] * outer.tilt[:, None, :]
    total = weighed.sum(axis=2, keepdims=True)
    laws = np.divide(weighed, total, out=np.zeros_like(weighed), where=total > 0)
    return Column(_scale_rows(tilt), laws, outer, cost, column.steps + 1)


def _scale_rows(rows: Array, axis: int | tuple[int, ...] = -1) -> Array:
    """Return rows divided by powers of two, so that the largest entry of each is about 1: without error."""
    top = rows.max(axis=axis, keepdims=True)
    return np.asarray(np.ldexp(rows, -np.frexp(np.where(top > 0, top, 1.0))[1]))


def _tilt_ranges(tilts: Array, free: Array) -> Array:
    """Return the range of ln(g / g_free) of every tilt, over the states it allows."""
    allowed = tilts > 0
    with np.errstate(divide="ignore"):
        moved = np.log(np.divide(tilts, free, out=np.ones_like(tilts), where=allowed))
    top, bottom = moved.max(1, where=allowed, initial=-np.inf), moved.min(1, where=allowed, initial=np.inf)
    return np.asarray(np.maximum(top - bottom, 0.0))


def _predecessors(
    outward: Array, pattern: NDArray[np.bool_], possible: NDArray[np.bool_]
) -> NDArray[np.bool_] | None:
    """Return the states from which a set of states is reached; ``None`` if some of them reach others too."""
    inside = (outward[:, pattern & possible] > 0).any(axis=1)
    return None if (outward[inside][:, ~pattern & possible] > 0).any() else np.asarray(inside)


def _tilt_distance(column: Column, free: Column) -> float:
    """Return how far a column's tilts are from the free one, in logarithms, rounded up."""
    return float(_tilt_ranges(column.tilt, free.tilt).max()) + column.slack + free.slack


def _tail_covers(column: Column, free: Column, further: Array, near: float) -> bool:
    """Return whether the tail may speak for a column: tilts near the free one, laws on the same states."""
    if column.steps < plan.EVIDENCE_LISTED or _tilt_distance(column, free) > near:
        return False
    return all(_predecessors(further, row, free.tilt[0] > 0) is not None for row in column.tilt > 0)


def _transport_work(column: Column) -> float:
    """Return the work of a column's message, in transports of four states."""
    if column.laws is None:
        return 0.0
    values, states, outer = column.laws.shape
    return float(values * states * (states - 1) * max(1.0, outer / 4.0) ** 3)
