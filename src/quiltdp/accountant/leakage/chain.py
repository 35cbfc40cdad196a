"""Chains by messages on pairs of states: the nearest known record on each side, listed.

Claim.  Given a unit's own values and all that is known, the two sides of it are independent, and of each side
only the nearest known record counts (s, its value v), or nothing is known there (free).  With T the lossy
transport of :mod:`.transport`, for each such evidence e

    M_t(x, x') = T( P(x_u | x_t = x, e), P(x_u | x_t = x', e); price_u + M_u ),
    u the next priced step outwards;   M = 0 at the known record;   M never more than the prices between,

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

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds import Bound, Bounds, Problem, Vector, register
from quiltdp.accountant.leakage.chain_contraction import ContractionBound, runs_of
from quiltdp.accountant.leakage.chain_prior import ChainPriorBound
from quiltdp.accountant.leakage.contraction import phi
from quiltdp.accountant.leakage.transport import transport
from quiltdp.accountant.trade_offs import CHAIN_MERGED, CHAIN_POSITIONS, CHAIN_TRANSPORTS, LIMIT_RECORDS
from quiltdp.chain import ChainModel
from quiltdp.errors import InvalidArgument, ModelTooWide
from quiltdp.inference.chain_schedule import DRIFT, Column, SideSchedule, Step, repeating_end, side_schedule
from quiltdp.inference.chains import path_of
from quiltdp.inference.workspace import Workspace
from quiltdp.numbers import EPS, up_array
from quiltdp.work import WorkBudget

if TYPE_CHECKING:
    from quiltdp.inference.uncertain import TableErrors

__all__ = ["ChainBound"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Classes = NDArray[np.intp]
Price = Callable[[int], float]

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
        path = path_of(problem.model)
        if path is None:
            raise InvalidArgument("the chain solver needs a model that is one connected path")
        self._problem, self._path, self._length = problem, path, len(path.nodes)
        model, where = problem.model, None
        self._order, self._record = None, np.ones(self._length, dtype=bool)
        if path.nodes is not model.nodes:
            self._order = np.array([model.index[n] for n in path.nodes], dtype=np.intp)
            self._record = np.array([model.is_record(n) for n in path.nodes])
            where = {n: k for k, n in enumerate(path.nodes)}
        self.settles = self._length > LIMIT_RECORDS  # shorter chains have an exact limit
        self._plain = all((t > 0).all() for t in (*path.tables, path.start, path.end))
        self._first, self._last = (np.asarray(ends) for ends in runs_of(model, where, problem.units))
        if problem.window > 1:
            self._first = np.arange(max(1, self._length - problem.window + 1))
            self._last = np.minimum(self._first + problem.window, self._length) - 1

    @classmethod
    def widened(cls, problem: Problem, errors: TableErrors) -> Bound:
        """Return the scalar recursion for every chain within the errors."""
        return ContractionBound.widened(problem, errors)

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Read both sides for equal prices, and prepare the scalar recursion."""
        self._check, self._most = workspace.guard.check, CHAIN_TRANSPORTS[budget.level]
        self._sides: dict[bytes, tuple[SideSchedule, SideSchedule] | None] = {}
        nothing, chain = self._problem.adversary.knows_nothing, isinstance(self._problem.model, ChainModel)
        self._scalar = (ChainPriorBound if nothing and chain else ContractionBound)(self._problem)
        self._scalar.prepare(workspace, budget)
        self._schedules(np.where(self._record, 0, -1))

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the leakage of every unit."""
        a = np.asarray(alpha if self._order is None else alpha[self._order], dtype=np.float64)
        if np.all(a == a[0]):
            values, classes = a[:1], np.zeros(self._length, dtype=np.intp)
        else:
            values, classes = np.unique(a, return_inverse=True)
            classes = classes.ravel()
        if values[0] == 0.0:
            values, classes = values[1:], classes - 1
        sides, found = self._schedules(classes), np.full(len(self._first), np.inf)
        if sides is not None:
            try:
                found = self._by_pairs(sides, a, values)
            except ModelTooWide:
                sides = None
        if sides is None or len(values) > 1:  # very unequal prices are better passed over than coupled
            found = np.minimum(found, np.asarray(self._scalar.evaluate(alpha).values))
        total = float(a.sum()) * (1.0 + (len(a) + 8.0) * EPS)
        return Bounds(np.minimum(found, total), "chain")

    def _schedules(self, prices: Classes) -> tuple[SideSchedule, SideSchedule] | None:
        """Return both sides for classes of prices, or ``None`` where they would take too much work."""
        key = prices.tobytes() if len(prices) <= CHAIN_POSITIONS or prices.any() else b""
        if key not in self._sides:
            self._sides[key] = None
            for near, share in CHAIN_MERGED:
                most = share * self._most
                try:
                    self._sides[key] = (
                        self._side(prices, near, most, True),
                        self._side(prices, near, most, False),
                    )
                    break
                except ModelTooWide:
                    continue
        return self._sides[key]

    def _side(self, prices: Classes, near: float, most: float, after: bool) -> SideSchedule:
        """Return the side after (or before) every step."""
        path, length = self._path, self._length
        may = self._may_know()
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

    def _may_know(self) -> Flags:
        """Return which positions the adversary may know."""
        adversary = self._problem.adversary
        if adversary.knows_nothing:
            return np.zeros(self._length, dtype=bool)
        if adversary.records is None:
            return self._record
        return np.logical_and(self._record, [n in adversary.records for n in self._path.nodes])

    def _by_pairs(self, sides: tuple[SideSchedule, SideSchedule], a: Vector, values: Vector) -> Vector:
        """Return own prices + what both sides say at worst about a pair of values, for every unit."""
        after, before = (_messages(side, lambda c: float(values[c]), self._check) for side in sides)
        right, left = sides[0].place(self._length - 1 - self._last), sides[1].place(self._first)
        alike = np.arange(len(right))  # units that cannot differ are looked at once
        if len(self._path.tables) == 1 and np.all(a == a[0]):
            alike = (right * (int(left.max(initial=0)) + 1) + left) * self._length + self._last - self._first
        _, chosen, which = np.unique(alike, return_index=True, return_inverse=True)
        one_side = self._problem.adversary.at_most == 1
        worst = np.empty(len(chosen))
        for place, k in enumerate(chosen.tolist()):
            r, b = int(right[k]), int(left[k])
            choices = [(after.any[r], before.any[b])]
            if one_side:
                choices = [(after.any[r], before.free[b]), (after.free[r], before.any[b])]
            run = range(int(self._first[k]), int(self._last[k]) + 1)
            possible = before.possible[b] & after.possible[r] if len(run) == 1 else before.possible[b]
            worst[place] = max(self._words(run, a, possible, *both) for both in choices)
        return up_array(worst[which.ravel()], 64.0 + float((self._last - self._first).max(initial=0)))

    def _words(
        self, run: range, a: Vector, possible: NDArray[np.bool_], after: Array, before: Array
    ) -> float:
        """Return the worst pair of different words of a run: its own prices, and both sides at its ends."""
        if len(run) > 1 and self._plain and np.all(a == a[0]):  # both ends are chosen apart
            return len(run) * float(a[0]) + float(after.max()) + float(before.max())
        worst = np.where(possible[:, None] & possible, _priced(before, float(a[run[0]])), -np.inf)
        for t in run[1:]:  # over the states before: of one word, then of the other
            leads = (self._path.table(t - 1) > 0).T
            worst = np.where(leads[:, :, None], worst, -np.inf).max(axis=1)
            worst = np.where(leads[None], worst[:, None], -np.inf).max(axis=2)
            worst = _priced(worst, float(a[t]))
        return max(float((worst + after).max()), 0.0)


@dataclass(frozen=True, eq=False)
class _SideMessages:
    """What one side says about pairs of states, by place: with nothing known on it, and at worst."""

    free: list[Array]
    any: list[Array]
    possible: list[Flags]


def _messages(side: SideSchedule, price: Price, check: Callable[[], None]) -> _SideMessages:
    """Return the messages of one side; ``price(c)`` is the price of class c."""
    walk = _Walk(side, price)
    for step in side.steps:
        check()
        walk.take(step)
    if side.period:
        walk.close()
    steps = [*side.steps, *side.steps[len(side.steps) - side.period :]]
    return _SideMessages(walk.free, walk.any, [step.free.tilt[0] > 0 for step in steps])


class _Walk:
    """Messages from the end of a side inwards."""

    def __init__(self, side: SideSchedule, price: Price) -> None:
        self.side, self.price = side, price
        self.free: list[Array] = []
        self.any: list[Array] = []
        self._message: dict[int, Array] = {}
        self._between: dict[int, float] = {}
        self._tail: dict[int, Array] = {}  # by the free column of a step
        self._listed = np.zeros(1)  # the worst of the columns alive
        self._told = False  # whether the tail speaks for anything

    def take(self, step: Step) -> None:
        """Compute what is new at one step."""
        self._couple([step.free, *(c for c in step.new if c is not step.free)])
        free = self._of(step.free)[0]
        tail = self._tail_at(step.free) if self._told else None
        for column in step.merged:
            self._told = True
            worst = self._of(column).max(axis=0)
            tail = worst if tail is None else np.maximum(tail, worst)
        self._listed = self._listed if step.grown else np.zeros_like(free)
        for column in step.alive:
            self._listed = np.maximum(self._listed, self._of(column).max(axis=0))
        best = np.maximum(free, self._listed)
        if tail is not None:
            self._tail[id(step.free)] = tail
            best = np.maximum(best, tail)
        self.free.append(free)
        self.any.append(best)

    def _of(self, column: Column) -> Array:
        """Return a column's message; nothing that costs lies between where it has no laws."""
        if column.laws is None:
            values, states = column.tilt.shape
            return np.zeros((values, states, states))
        return self._message[id(column)]

    def _cost(self, column: Column) -> Array:
        """Return the price of the next priced step plus the message there, for every value."""
        assert column.outer is not None
        return _priced(self._of(column.outer), self.price(column.price))

    def _couple(self, columns: Iterable[Column]) -> None:
        """Compute the messages of columns, those of one shape together."""
        shapes: dict[tuple[int, ...], list[Column]] = {}
        for column in columns:
            if column.laws is not None:
                shapes.setdefault(column.laws.shape[1:], []).append(column)
        for alike in shapes.values():
            laws = np.concatenate([c.laws for c in alike if c.laws is not None])
            slack = np.repeat([c.slack for c in alike], [len(c.tilt) for c in alike])
            found = _couplings(laws, np.concatenate([self._cost(c) for c in alike]), slack)
            at = 0
            for c in alike:
                assert c.outer is not None
                between = (self._between.get(id(c.outer), 0.0) + self.price(c.price)) * (1 + 4 * EPS)
                self._between[id(c)] = between
                self._message[id(c)] = np.minimum(found[at : at + len(c.tilt)], between)
                at += len(c.tilt)

    def _tail_at(self, free: Column) -> Array:
        """Return the tail's message at a step."""
        if free.outer is None or free.laws is None:
            return np.zeros((free.tilt.shape[1],) * 2)
        outer = self._tail.get(id(free.outer), np.zeros((free.laws.shape[2],) * 2))
        return _tail_step(free, _priced(outer, self.price(free.price)), self.side.near)

    # -- a side that goes on for ever --------------------------------------------------------------

    def close(self) -> None:
        """Append, phase by phase, what holds for all further positions.

        Raises
        ------
        ModelTooWide
            If no certificate is found.
        """
        last = self.side.steps[-self.side.period :]
        free = self._around(last, self.free[-1], [np.zeros(1)] * len(last), DRIFT)
        tails: list[Array] | list[None] = [None] * len(last)
        if self._told:
            floors = [
                np.max([self._of(c).max(axis=0) for c in step.merged], axis=0) if step.merged else np.zeros(1)
                for step in last
            ]
            start = np.maximum(self._tail[id(last[-1].free)], free[-1])
            tails = self._around(last, start, floors, self.side.near + DRIFT)
        for alive, own, tail in zip(self.side.alive, free, tails, strict=True):
            best = own if tail is None else np.maximum(own, tail)
            for column in alive:
                best = np.maximum(best, self._of(column).max(axis=0))
            self.free.append(own)
            self.any.append(best)

    def _around(self, steps: list[Step], start: Array, floors: list[Array], near: float) -> list[Array]:
        """Return a message for every phase that the step from phase to phase maps below itself."""

        def turn(u: Array) -> list[Array]:
            found = []
            for step, floor in zip(steps, floors, strict=True):
                u = np.maximum(_tail_step(step.free, _priced(u, self.price(step.free.price)), near), floor)
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


def _priced(message: Array, price: float) -> Array:
    """Return a message plus what it costs to change the record."""
    return np.asarray(message + price * ~np.eye(message.shape[-1], dtype=bool))


def _couplings(laws: Array, costs: Array, slack: Array) -> Array:
    """Return T(law of x, law of x'; costs) for all pairs of states of every problem; 0 for impossible ones.

    ``laws`` (problems, states, outer states), ``costs`` (problems, outer, outer).
    """
    possible = np.asarray(laws.any(axis=2))
    states = possible.shape[1]
    which, x, y = np.nonzero(possible[:, :, None] & possible[:, None, :] & ~np.eye(states, dtype=bool))
    found = np.zeros((len(laws), states, states))
    found[which, x, y] = transport(laws[which, x], laws[which, y], costs[which]) + slack[which]
    return found


def _tail_step(free: Column, cost: Array, near: float) -> Array:
    """Return T of the free laws plus what tilting both of them by e^{near} may add."""
    assert free.laws is not None
    laws = free.laws[0]
    found = _couplings(free.laws, cost[None], np.array([free.slack]))[0]
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
