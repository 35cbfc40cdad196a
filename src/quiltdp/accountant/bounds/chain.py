"""Chains by messages on pairs of states: the nearest known record on each side, listed.

Claim.  Given a unit's own values and all that is known, the two sides of it are independent, and of each side
only the nearest known record counts (s, its value v), or nothing is known there (free).  With T the lossy
transport of :mod:`.transport`, for each such evidence e

    M_t(x, x') = min over u of  prices between + T( P(x_u | x, e), P(x_u | x', e); price_u + M_u ),
    u a priced step outwards;   M = 0 at the known record, and never more than all prices before it,

bounds what the records of that side say about x against x', and

    Leakage(T) ≤ max over pairs of values of  Σ prices of T + max_e M at its last step + max_e M at its first.

*Far evidence.*  Columns whose tilt is within e^c of the free one share one message, the tail:

    U_t(x, x') = T( free laws; price_u + U_u ) + Φ(r, c) + Φ(s, c),      U ≥ M where a column joins,

r and s the ranges of price + U over the states of either law: tilting a law by e^c moves ln E H by at most
Φ(range of ln H, c).  On an endless homogeneous (or repeating) side any U that this step, going once around,
maps below itself is above all later ones: that U is the certificate, verified after rounding.

*Assumes*: a model that is one path; zeros, any start, unequal prices.  *Cost*: two sides × distances ×
states³ transports; where the work budget does not allow that, the scalar recursion of
:mod:`.chain_contraction`.  *Reference*: docs/theory.md, chains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds.chain_contraction import ContractionBound, PathUnits
from quiltdp.accountant.bounds.contract import ALL, Bound, Bounds, Need, Problem, Vector, register
from quiltdp.accountant.bounds.contraction import phi
from quiltdp.accountant.bounds.transport import transport
from quiltdp.accountant.trade_offs import CHAIN_MERGED, CHAIN_POSITIONS, CHAIN_TRANSPORTS, LIMIT_RECORDS
from quiltdp.errors import ModelTooWide
from quiltdp.inference.chain_schedule import DRIFT, Column, SideSchedule, Step, repeating_end, side_schedule
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import EPS, is_constant, up_array
from quiltdp.work import WorkBudget

if TYPE_CHECKING:
    from quiltdp.inference.uncertain import TableErrors

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Classes = NDArray[np.intp]

_SKIPPED = 16  # priced steps up to which cheap ones are passed over
_SHORT, _DISTANCES = 64, (2, 4, 8)  # on chains of so many steps, to these steps whatever the prices
_ROUNDS = 400  # of looking for a fixed point
_INFLATIONS = (1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5)


@register(
    "chain",
    against=INFORMED,
    kind="certified bound",
    says="messages on pairs of states along the chain",
)
class ChainBound:
    """The leakage of every step of a path, of runs of steps, and of sets (gaps of a set count as its own).

    Holds against the adversary of the problem: who knows nothing, any record, declared ones, or a few.

    Raises
    ------
    InvalidArgument
        If the model is not one path.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem, self._units = problem, PathUnits(problem)
        self._path, self._length, self._record = self._units.path, self._units.length, self._units.record
        self._first, self._last = self._units.first, self._units.last
        self._longest = float((self._last - self._first).max(initial=0))
        # shorter chains have an exact limit, and trees know what the gaps of a set say
        self.settles = self._length > LIMIT_RECORDS and not self._units.gaps
        self._tables = self._price_tables()
        self._plain = self._tables is None and all(
            (t > 0).all() for t in (*self._path.tables, self._path.start, self._path.end)
        )

    def _price_tables(self) -> tuple[Classes, list[Array | None]] | None:
        """Return which price table every position has, and the tables; ``None`` if all are flat."""
        if not self._problem.prices:
            return None
        each = [self._problem.prices.get(n) for n in self._path.nodes]
        kept = {id(t): k for k, t in reversed(list(enumerate(each)))}
        places = sorted(kept.values())
        label = {id(each[k]): j for j, k in enumerate(places)}
        possible = self._path.states
        tables = [
            t if t is None or possible is None else t[np.ix_(possible, possible)]
            for t in map(each.__getitem__, places)
        ]
        return np.array([label[id(t)] for t in each], dtype=np.intp), tables

    @classmethod
    def widened(cls, problem: Problem, errors: TableErrors) -> Bound:
        """Return the scalar recursion for every chain within the errors."""
        return ContractionBound(problem, errors=errors)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Read both sides for equal prices, and prepare the scalar recursion."""
        self._check, self._most = workspace.guard.check, CHAIN_TRANSPORTS[budget.level]
        self._sides: dict[bytes, tuple[SideSchedule, SideSchedule] | None] = {}
        self._scalar: ContractionBound | None = None
        self._workspace, self._budget = workspace, budget
        self._schedules(np.where(self._record, 0, -1))

    def evaluate(self, alpha: Vector, need: Need = ALL) -> Bounds:
        """Return the leakage of every unit; on a long chain, where only the largest decides, that of all."""
        a = self._units.costs(alpha)
        prices, classes = self._distinct_prices(a)
        sides = self._schedules(classes)
        if sides is not None:
            try:
                found = self._leakages_by_value_pairs(sides, prices, classes, need)
            except ModelTooWide:
                sides = None
        if sides is None:
            found = self._scalar_fallback().evaluate(alpha).values
        total = float(a.sum()) * (1.0 + (len(a) + 8.0) * EPS)
        worst = np.minimum(found[:1] if found.strides == (0,) else found, total)
        return Bounds(np.broadcast_to(worst, len(found)), "chain", partial=found.strides == (0,))

    def _distinct_prices(self, a: Vector) -> tuple[list[Price], Classes]:
        """Return the distinct prices, and for every position which it is; −1: it costs nothing."""
        if self._tables is None and is_constant(a):
            every = np.broadcast_to(np.intp(0 if a[0] else -1), len(a))
            return [Price(float(a[0]), None)], every
        kinds = np.zeros(len(a), dtype=np.intp) if self._tables is None else self._tables[0]
        met, classes = np.unique(np.stack([a, kinds]), axis=1, return_inverse=True)
        shapes = [None] if self._tables is None else self._tables[1]
        prices = [Price(float(top), shapes[int(kind)]) for top, kind in met.T]
        return prices, np.where(a > 0.0, classes.ravel(), -1)

    def _scalar_fallback(self) -> ContractionBound:
        """Return the scalar recursion, prepared when it is first needed."""
        if self._scalar is None:
            self._scalar = ContractionBound(self._problem, self._units)
            self._scalar.prepare(self._workspace, self._budget)
        return self._scalar

    def _schedules(self, prices: Classes) -> tuple[SideSchedule, SideSchedule] | None:
        """Return both sides for classes of prices, or ``None`` where they would take too much work."""
        key = prices.tobytes() if len(prices) <= CHAIN_POSITIONS or prices.any() else b""
        if key not in self._sides:
            self._sides[key] = None
            for near, share in CHAIN_MERGED:
                most = share * self._most
                try:
                    self._sides[key] = (
                        self._make_side(prices, near, most, True),
                        self._make_side(prices, near, most, False),
                    )
                    break
                except ModelTooWide:
                    continue
        return self._sides[key]

    def _make_side(self, prices: Classes, near: float, most: float, after: bool) -> SideSchedule:
        """Return the side after (or before) every step."""
        path, length = self._path, self._length
        may = self._knowable_positions()
        turned = {id(t): t if after else np.ascontiguousarray(t.T) for t in path.tables}
        kinds = np.array([id(t) for t in path.tables])
        if after:
            prices, may, kinds = prices[::-1], may[::-1], kinds[::-1]
        repeats = repeating_end(kinds, prices, may)
        if repeats is None and length > CHAIN_POSITIONS:
            raise ModelTooWide("the chain is too long to be read step by step")
        return side_schedule(
            lambda j: turned[id(path.table(length - 1 - j if after else j - 1))],
            path.end if after else path.start,
            prices,
            known=(lambda j: bool(may[j])) if may.any() else None,
            near=near,
            repeats=repeats,
            most=most,
            check=self._check,
        )

    def _knowable_positions(self) -> Flags:
        """Return which positions the adversary may know."""
        adversary = self._problem.adversary
        if adversary.knows_nothing:
            return np.zeros(self._length, dtype=bool)
        if adversary.records is None:
            return self._record
        return np.logical_and(self._record, [n in adversary.records for n in self._path.nodes])

    def _leakages_by_value_pairs(
        self, sides: tuple[SideSchedule, SideSchedule], prices: list[Price], classes: Classes, need: Need
    ) -> Vector:
        """Return own prices + what both sides say at worst about a pair of values, for every unit."""
        after, before = (_messages_of_side(side, prices, self._check) for side in sides)
        one_side = self._problem.adversary.at_most == 1

        def leakage(k: int) -> float:
            first, last = int(self._first[k]), int(self._last[k])
            r, b = sides[0].place(self._length - 1 - last), sides[1].place(first)
            choices = [(after.any[r], before.any[b])]
            if one_side:
                choices = [(after.any[r], before.free[b]), (after.free[r], before.any[b])]
            run = [prices[c] if c >= 0 else Price(0.0, None) for c in classes[first : last + 1].tolist()]
            possible = before.possible[b] & after.possible[r] if len(run) == 1 else before.possible[b]
            return max(self._word_pair(first, run, possible, *both) for both in choices)

        count, every = len(self._first), self._problem.units is None and self._units.order is None
        period = sides[0].period if every and sides[0].period == sides[1].period else 0
        edge = max(len(side.steps) for side in sides) + period
        if not period or count <= 2 * edge + 2 * period:
            worst = np.array([leakage(k) for k in range(count)])
        else:  # far from both ends units of one phase are alike
            ends = [leakage(k) for k in (*range(edge), *range(count - edge, count))]
            inside = [leakage(k) for k in range(edge, edge + period)]
            worst = np.array([max(*ends, *inside)])
            if not need.limited:
                middle = np.resize(inside, count - 2 * edge)
                worst = np.concatenate([ends[:edge], middle, ends[edge:]])
        worst = up_array(worst, 64.0 + self._longest)
        return np.broadcast_to(worst, count)

    def _word_pair(self, first: int, run: list[Price], possible: Flags, after: Array, before: Array) -> float:
        """Return the worst pair of different words of a run: its own prices, and both sides at its ends."""
        if len(run) > 1 and self._plain and len(set(run)) == 1:  # both ends are chosen apart
            return len(run) * run[0].top + float(after.max()) + float(before.max())
        worst = np.where(possible[:, None] & possible, run[0].add_to(before), -np.inf)
        for t, price in enumerate(
            run[1:], start=first
        ):  # over the states before: of one word, then the other
            leads = (self._path.table(t) > 0).T
            worst = np.where(leads[:, :, None], worst, -np.inf).max(axis=1)
            worst = np.where(leads[None], worst[:, None], -np.inf).max(axis=2)
            worst = price.add_to(worst)
        return max(float((worst + after).max()), 0.0)


@dataclass(frozen=True, eq=False)
class Price:
    """What a change of a record costs: at most ``top``, and that times ``table`` of its two values."""

    top: float
    table: Array | None

    def add_to(self, message: Array) -> Array:
        """Return a message plus what it costs to change the record."""
        table = ~np.eye(message.shape[-1], dtype=bool) if self.table is None else self.table
        return np.asarray(message + self.top * table)


@dataclass(frozen=True, eq=False)
class _SideMessages:
    """What one side says about pairs of states, by place: with nothing known on it, and at worst."""

    free: list[Array]
    any: list[Array]
    possible: list[Flags]


def _messages_of_side(side: SideSchedule, prices: list[Price], check: Callable[[], None]) -> _SideMessages:
    """Return the messages of one side; ``prices[c]`` is the price of class c."""
    walk = _InwardMessages(side, prices)
    for step in side.steps:
        check()
        walk.compute_step(step)
    if side.period:
        walk.close_phases()
    steps = [*side.steps, *side.steps[len(side.steps) - side.period :]]
    return _SideMessages(walk.free, walk.any, [step.free.tilt[0] > 0 for step in steps])


class _InwardMessages:
    """Messages from the end of a side inwards."""

    def __init__(self, side: SideSchedule, prices: list[Price]) -> None:
        self.side, self.prices = side, prices
        self.free: list[Array] = []
        self.any: list[Array] = []
        self._message: dict[int, Array] = {}
        self._between: dict[int, float] = {}
        self._tail: dict[int, Array] = {}  # by the free column of a step
        self._listed = np.zeros(1)  # the worst of the columns alive
        self._told = False  # whether the tail speaks for anything

    def compute_step(self, step: Step) -> None:
        """Compute what is new at one step."""
        self._transport_columns([step.free, *(c for c in step.new if c is not step.free)])
        free = self._message_of(step.free)[0]
        tail = self._tail_message(step.free) if self._told else None
        for column in step.merged:
            self._told = True
            worst = self._message_of(column).max(axis=0)
            tail = worst if tail is None else np.maximum(tail, worst)
        self._listed = self._listed if step.grown else np.zeros_like(free)
        for column in step.alive:
            self._listed = np.maximum(self._listed, self._message_of(column).max(axis=0))
        best = np.maximum(free, self._listed)
        if tail is not None:
            self._tail[id(step.free)] = tail
            best = np.maximum(best, tail)
        self.free.append(free)
        self.any.append(best)

    def _message_of(self, column: Column) -> Array:
        """Return a column's message; nothing that costs lies between where it has no laws."""
        if column.laws is None:
            values, states = column.tilt.shape
            return np.zeros((values, states, states))
        return self._message[id(column)]

    def _transport_terms(self, column: Column) -> Iterator[tuple[Column, Column, Array, float, float]]:
        """Yield (column, the one whose outer step is reached, the laws there, prices passed over, slack).

        Steps that together cost less than the next one are passed over.  Between equal prices that pays where
        a step is nearly determined: a third on some short chains, at most 2 % on long ones, which go without.
        """
        far, laws, passed, slack = column, column.laws, 0.0, column.slack
        short = len(self.side.steps) <= _SHORT and not self.side.period
        for d in range(1, _SKIPPED + 1 if short or len(self.prices) > 1 else 2):
            assert laws is not None
            if self.prices[far.price].top > passed or (short and d in _DISTANCES):
                yield column, far, laws, passed, slack
            passed += self.prices[far.price].top
            if far.outer is None or far.outer.laws is None:
                return
            far = far.outer
            laws, slack = laws @ far.laws, slack + far.slack  # type: ignore[operator]  # not None

    def _transport_columns(self, columns: Iterable[Column]) -> None:
        """Compute the messages of columns, transports of one shape together."""
        shapes: dict[tuple[int, ...], list[tuple[Column, Column, Array, float, float]]] = {}
        for column in columns:
            if column.laws is None:
                continue
            assert column.outer is not None
            between = self._between.get(id(column.outer), 0.0) + self.prices[column.price].top
            self._between[id(column)] = between = between * (1 + 4 * EPS)
            self._message[id(column)] = np.full((*column.laws.shape[:2], column.laws.shape[1]), between)
            for way in self._transport_terms(column):
                shapes.setdefault(way[2].shape[1:], []).append(way)
        for ways in shapes.values():
            laws = np.concatenate([way[2] for way in ways])
            slack = np.repeat([slack + passed for *_, passed, slack in ways], [len(way[2]) for way in ways])
            costs = [self.prices[far.price].add_to(self._message_of(far.outer)) for _, far, *_ in ways]  # type: ignore[arg-type]  # not None
            found, at = _transports_between_states(laws, np.concatenate(costs), slack), 0
            for column, _, own, *_ in ways:
                message = self._message[id(column)]
                np.minimum(message, found[at : at + len(own)], out=message)
                at += len(own)

    def _tail_message(self, free: Column) -> Array:
        """Return the tail's message at a step."""
        if free.outer is None or free.laws is None:
            return np.zeros((free.tilt.shape[1],) * 2)
        outer = self._tail.get(id(free.outer), np.zeros((free.laws.shape[2],) * 2))
        return _couple_tail(free, self.prices[free.price].add_to(outer), self.side.near)

    # -- a side that goes on for ever --------------------------------------------------------------

    def close_phases(self) -> None:
        """Append, phase by phase, what holds for all further positions.

        Raises
        ------
        ModelTooWide
            If no certificate is found.
        """
        last = self.side.steps[-self.side.period :]
        free = self._bound_phases(last, self.free[-1], [np.zeros(1)] * len(last), DRIFT)
        tails: list[Array] | list[None] = [None] * len(last)
        if self._told:
            floors = [
                np.max([self._message_of(c).max(axis=0) for c in step.merged], axis=0)
                if step.merged
                else np.zeros(1)
                for step in last
            ]
            start = np.maximum(self._tail[id(last[-1].free)], free[-1])
            tails = self._bound_phases(last, start, floors, self.side.near + DRIFT)
        for alive, own, tail in zip(self.side.alive, free, tails, strict=True):
            best = own if tail is None else np.maximum(own, tail)
            for column in alive:
                best = np.maximum(best, self._message_of(column).max(axis=0))
            self.free.append(own)
            self.any.append(best)

    def _bound_phases(self, steps: list[Step], start: Array, floors: list[Array], near: float) -> list[Array]:
        """Return a message for every phase that the step from phase to phase maps below itself."""

        def turn(u: Array) -> list[Array]:
            found = []
            for step, floor in zip(steps, floors, strict=True):
                u = np.maximum(_couple_tail(step.free, self.prices[step.free.price].add_to(u), near), floor)
                found.append(u)
            return found

        u, moved = start, np.inf
        for k in range(_ROUNDS):
            new = np.maximum(turn(u)[-1], u)
            before, moved = moved, float((new - u).max())
            if moved <= 1e-10 * float(new.max()):
                break
            if k % 8 == 7 and moved < before < np.inf:  # geometric from here on, nearly
                new = new + (new - u) * (0.999 * moved / (before - moved))
            u = new
        # v = Σ Jᵏ1 has J v < v: u + h v is mapped below itself as soon as h exceeds what is left to go
        more = room = np.array(~np.eye(len(u), dtype=bool), dtype=np.float64)
        here, scale = turn(u)[-1], float(u.max()) or 1e-6
        for _ in range(_ROUNDS):
            more = np.maximum(turn(u + 1e-6 * scale * more)[-1] - here, 0.0) / (1e-6 * scale)
            if more.max() <= 0.5:
                break
            room = room + more
        for step in _INFLATIONS:
            trial = u + step * scale * room
            found = turn(trial)
            if (found[-1] <= trial).all():
                return found
        raise ModelTooWide("no fixed point of the chain's messages could be certified")


def _transports_between_states(laws: Array, costs: Array, slack: Array) -> Array:
    """Return T(law of x, law of x'; costs) for all pairs of states of every problem; 0 for impossible ones.

    ``laws`` (problems, states, outer states), ``costs`` (problems, outer, outer).
    """
    possible = np.asarray(laws.any(axis=2))
    states = possible.shape[1]
    which, x, y = np.nonzero(possible[:, :, None] & possible[:, None, :] & ~np.eye(states, dtype=bool))
    found = np.zeros((len(laws), states, states))
    found[which, x, y] = transport(laws[which, x], laws[which, y], costs[which]) + slack[which]
    return found


def _couple_tail(free: Column, cost: Array, near: float) -> Array:
    """Return T of the free laws plus what tilting both of them by e^{near} may add."""
    assert free.laws is not None
    laws = free.laws[0]
    found = _transports_between_states(free.laws, cost[None], np.array([free.slack]))[0]
    inside = laws > 0
    most = np.where(inside[:, :, None], cost, -np.inf).max(axis=1)  # by x, over the states of its law
    least = np.where(inside[:, :, None], cost, np.inf).min(axis=1)
    sources = np.where(inside[None], (most - least)[:, None], 0.0).max(axis=2, initial=0.0)
    most = np.where(inside[:, None, :], cost, -np.inf).max(axis=2)
    least = np.where(inside[:, None, :], cost, np.inf).min(axis=2)
    sinks = np.where(inside[:, None], (most - least)[None], 0.0).max(axis=2, initial=0.0)
    found = found + phi(sources, np.full_like(found, near)) + phi(sinks, np.full_like(found, near))
    np.fill_diagonal(found, 0.0)
    return np.asarray(found)
