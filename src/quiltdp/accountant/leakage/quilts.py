"""Bounds from quilts: the swing, and the swing with propagation beyond the separator.

For any set C ∋ i grown from the unit under attack, with separator Q = ∂C,

    swing:   Leakage(i) ≤ max_L { Σ_{C∖L} α + s_i(C, L) }
    quilts:  Leakage(i) ≤ max_L { Σ_{C∖L} α + Φ( s_i(C, L), Σ_{q∈Q} out_q(C) ) },
             out_q(C) = α_q + Σ_{g ∋ q, g ∩ C = ∅} Φ( c_{q,g}, Σ_{k ∈ g∖Q} o_{k→g} ),

where L ranges over the records near the unit that the adversary may know and o are certified
propagation messages.  The maximum over L is needed: L = ∅ alone is unsound.

Which quilts to look at is a search, not a sweep: a unit's best sets are grown by each of their
neighbours until that stops helping.  Sets that tie are grown together, so that records which look the
same get the same leakage.  The search is done at a few guiding strengths around α, on a fixed grid,
and every quilt it meets is used: the answer depends on α and the work budget only.  Swings and searches
are kept in the workspace, which makes the next question quicker and changes nothing.

*Assumes*: nothing: any model, any evidence.  *Cost*: one swing per quilt (a table of the unit, its nearby
records and the separator), as many quilts per unit and guide as the work budget says.  *Reference*:
docs/theory.md, sections 4 and 7.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np

from quiltdp.accountant.adversaries import INFORMED
from quiltdp.accountant.bounds import Bounds, Problem, Vector, never, register
from quiltdp.accountant.leakage.propagation import Messages, PropagationBound, propagation_of
from quiltdp.accountant.leakage.quilt_terms import QuiltTable, QuiltTerm, edges_beyond
from quiltdp.accountant.trade_offs import (
    QUILTS_ALL,
    QUILTS_NEARBY,
    QUILTS_PATH,
    QUILTS_PATIENCE,
    QUILTS_UNITS,
)
from quiltdp.errors import ModelTooWide
from quiltdp.graph.moral import moralize
from quiltdp.inference.batch import swings_of_many
from quiltdp.inference.plan import Limits
from quiltdp.inference.quilts import swings
from quiltdp.inference.workspace import Workspace, moral_graph
from quiltdp.work import WorkBudget

__all__ = ["QuiltTerm", "QuiltsBound", "SwingBound", "pairs_around"]

_TIE = 1e-9  # values this close (relatively) are one value
_GUIDES = (-1, 0, 1, 2, 3)  # half decades around α at which quilts are looked for: what pays at a
# larger α is often better than what a search at α itself gets stuck with
_WEAKEST, _STRONGEST = -6, 4  # half decades beyond which guides tell nothing new


Grown: TypeAlias = tuple[int, frozenset[int]]
"""A unit and a set that it has grown to."""
Search: TypeAlias = Generator[
    list[frozenset[int]], Sequence[QuiltTerm | None], dict[frozenset[int], QuiltTerm]
]


class _Quilt(NamedTuple):
    """A quilt of one record, by name."""

    target: str
    nearby: frozenset[str]
    separator: frozenset[str]


class _Parts(NamedTuple):
    """A closed set, by position: the unit, what is near it, its separator, and the records near it."""

    closed: frozenset[int]
    targets: list[int]
    nearby: list[int]
    separator: list[int]
    near: list[int]

    def quilt(self, names: Sequence[str]) -> _Quilt:
        """Return the quilt of a single record."""
        nearby, separator = (frozenset([names[j] for j in part]) for part in (self.nearby, self.separator))
        return _Quilt(names[self.targets[0]], nearby, separator)


def pairs_around(problem: Problem, entries: int) -> float:
    """Return how many pairs of a unit's values, given those of its neighbours, all units have.

    It predicts what looking at the quilts of every unit costs; no table is larger than ``entries``.
    """
    graph, sizes = moralize(problem.model), problem.model.cardinality
    total = 0.0
    for unit in problem.listed():
        around: frozenset[str] = frozenset().union(*map(graph.neighbors, unit)).difference(unit)
        own = min(math.prod(map(sizes, unit)), 2**31)
        total += float(own * (own - 1)) * min(math.prod(map(sizes, around)), entries)
    return total


def _worth_it(problem: Problem) -> bool:
    """Against the informed adversary, except on long paths."""
    if problem.adversary.knows_nothing:
        return False
    from quiltdp.inference.chains import path_of

    return len(problem.model.nodes) <= QUILTS_PATH or path_of(problem.model) is None


@register(
    "quilts",
    against=INFORMED,
    kind="certified bound",
    says="swing of the best quilt, propagation beyond it",
    auto=_worth_it,
)
class QuiltsBound:
    """Bound 4: quilts with propagation beyond the separator.

    Parameters
    ----------
    problem
        A connected model and its protected sets.
    """

    theorem = "quilts"
    _beyond = True

    def __init__(self, problem: Problem) -> None:
        self.model = problem.model
        self.units = problem.listed()
        self._problem = problem
        self._starts = [frozenset(self.model.index[n] for n in unit) for unit in self.units]

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Set up the propagation and the graph; swings are computed when a search asks for them."""
        self._workspace = workspace
        self._budget = budget
        self._most_separator = min(24, 8 + budget.quilts // 24)  # wide ones seldom pay, and cost most
        self._propagation = propagation_of(workspace)
        self._outside = PropagationBound(self._problem)
        self._outside.prepare(workspace, budget)
        self._graph = moral_graph(workspace)

    def evaluate(self, alpha: Vector) -> Bounds:
        """Return the best quilt bound of every unit."""
        return self.refine(alpha, np.full(len(self.units), np.inf), 0.0, math.inf)

    def refine(self, alpha: Vector, known: Vector, low: float, high: float) -> Bounds:
        """Return the best quilt bound of the units that decide whether all leak at most ``high``."""
        return self._best(alpha, known, low, high, len(self.units))

    def largest(self, alpha: Vector, known: Vector, count: int) -> Bounds:
        """Return the best quilt bound of the units that leak most."""
        return self._best(alpha, known, 0.0, math.inf, count)

    def _best(self, alpha: Vector, known: Vector, low: float, high: float, count: int) -> Bounds:
        messages = self._propagation.messages(alpha)
        values = np.minimum(self._initial(alpha, messages), known)
        witnesses: dict[int, dict[str, object]] = {}
        worst, looked, partial = low, 0, low > 0.0 or high < math.inf
        order = np.argsort(-values, kind="stable").tolist()
        searched: list[int] = []
        if not partial:
            self._tables(order[:count], alpha)  # so many are looked at in any case
        for most, tied in groupby(order, key=lambda k: float(f"{values[k]:.9e}")):
            if looked > QUILTS_UNITS * self._budget.quilts:
                break  # units that tie are all searched, or none of them
            if sum(values[k] > most * (1.0 + 1e-8) for k in searched) >= count:
                break
            for k in tied:
                if partial and (values[k] <= worst or worst > high):
                    break  # something else leaks as much
                searched.append(k)
                table = self._table(k, alpha)
                looked += len(table.terms)
                found, row = table.values(alpha, messages)
                best = int(np.argmin(found)) if len(found) else 0
                if len(found) and found[best] < values[k]:
                    values[k] = found[best]
                    witnesses[k] = self._describe(table.terms[best], int(row[best]))
                worst = max(worst, float(values[k]))
        return Bounds(values, self.theorem, witness=witnesses)

    def quilts_at(self, alpha: Vector, k: int) -> tuple[QuiltTerm, ...]:
        """Return the quilts of unit k that a search around ``alpha`` meets."""
        return self._table(k, alpha).terms

    def members(self, k: int) -> list[int]:
        """Return the nodes of unit k, by position."""
        return [self.model.index[n] for n in self.units[k]]

    def _initial(self, alpha: Vector, messages: Messages) -> Vector:
        """Where the search starts: what propagation says."""
        return self._outside.evaluate(alpha).values

    @property
    def _spreads(self) -> Vector | None:
        return self._propagation.spreads if self._beyond else None

    # -- the search ---------------------------------------------------------------------------

    def _table(self, k: int, alpha: Vector) -> QuiltTable:
        """Return the quilts met by the searches around α, kept for other α of the same half decade."""
        return self._tables([k], alpha)[0]

    def _tables(self, units: Sequence[int], alpha: Vector) -> list[QuiltTable]:
        """Return the same for several units, which are looked at together."""
        top = float(alpha.max())
        shape = np.round(alpha / top, 9)  # only a guide
        decade = min(max(round(2 * math.log10(top)), _WEAKEST), _STRONGEST)
        steps = [s for s in _GUIDES if _WEAKEST <= decade + s <= _STRONGEST or s == 0]
        guides = [shape * 10.0 ** ((decade + step) / 2) for step in steps]
        key = (self._beyond, self._budget.quilts, self._budget.entries, decade, shape.tobytes())
        known: dict[int, QuiltTable] = {k: self._workspace.kept("quilts", (*key, k)) for k in units}
        known |= self._searched([k for k, table in known.items() if table is None], guides)

        def kept(k: int) -> QuiltTable:
            return self._workspace.keep("quilts", (*key, k), lambda: known[k], _size)

        return [kept(k) for k in units]

    def _searched(self, units: Sequence[int], guides: Sequence[Vector]) -> dict[int, QuiltTable]:
        """Search around every guide for every unit, round by round; what a round asks for is made at once."""
        searches = [(k, self._search(k, guide)) for k in units for guide in guides]
        found: list[dict[frozenset[int], QuiltTerm]] = [{} for _ in searches]
        asked = {n: next(search) for n, (_, search) in enumerate(searches)}
        while asked:
            terms = self._examined(
                [(searches[n][0], closed) for n, fresh in asked.items() for closed in fresh]
            )
            for n, fresh in list(asked.items()):
                k, search = searches[n]
                try:
                    asked[n] = search.send([terms[k, closed] for closed in fresh])
                except StopIteration as ended:
                    found[n] = ended.value
                    del asked[n]
        tables = {}
        for at, k in enumerate(units):
            met: dict[frozenset[int], QuiltTerm] = {}
            for terms_met in found[at * len(guides) : (at + 1) * len(guides)]:
                met.update(terms_met)
            tables[k] = QuiltTable(tuple(met.values()), self._starts[k], self._spreads)
        return tables

    def _search(self, k: int, guide: Vector) -> Search:
        """Grow the unit's best sets by one neighbour each, round by round; return all that was met.

        Every round yields the sets to look at, and is sent their quilts.
        """
        messages = self._propagation.messages(guide)
        found: dict[frozenset[int], QuiltTerm] = {}
        seen = {self._starts[k]}
        waiting: dict[frozenset[int], float] = {}
        best = float(self._initial(guide, messages)[k])
        fresh = [self._starts[k]]
        most = 256 if len(self.model.nodes) <= QUILTS_ALL else QUILTS_PATIENCE
        patience = most + 1  # the unit alone is no disappointment
        while True:
            before = best
            terms = zip(fresh, (yield fresh), strict=True)
            usable = {closed: term for closed, term in terms if term is not None}
            table = QuiltTable(tuple(usable.values()), self._starts[k], self._spreads)
            values = table.values(guide, messages)[0].tolist()
            # what cannot be examined can still be grown, after everything else
            waiting.update({closed: 1e300 * (1 + len(closed)) for closed in fresh})
            waiting.update({c: min(v, 1e299) for c, v in zip(usable, values, strict=True)})
            found.update(usable)
            best = min([best, *values])
            patience = most if best < before else patience - 1
            if not patience or not waiting or len(seen) >= self._budget.quilts:
                return found
            least = min(waiting.values())
            chosen = [c for c, v in waiting.items() if v <= least * (1 + _TIE)]
            grown = [g for c in chosen for g in self._grown(c)]
            fresh = [g for g in dict.fromkeys(grown) if g not in seen]
            seen.update(fresh)
            for closed in chosen:
                del waiting[closed]

    def _grown(self, closed: frozenset[int]) -> list[frozenset[int]]:
        """Return the set with each one of its neighbours."""
        return [closed | {v} for v in self._boundary(closed)]

    def _boundary(self, closed: frozenset[int]) -> list[int]:
        graph = self._graph
        return sorted({v for u in closed for v in graph.neighbor_positions(u)} - closed)

    def _examined(self, asked: Sequence[Grown]) -> dict[Grown, QuiltTerm | None]:
        """Return quilts with their swings, ``None`` for one that is too large; kept in the workspace."""
        found: dict[Grown, QuiltTerm | None] = {}
        due: list[Grown] = []
        for grown in dict.fromkeys(asked):
            kept = self._workspace.kept("quilt", self._key(grown))
            if kept is None:
                due.append(grown)
            else:
                (found[grown],) = kept
        for grown, term in zip(due, self._quilts(due), strict=True):
            found[grown] = term
            self._keep(grown, term)
        return found

    def _keep(self, grown: Grown, term: QuiltTerm | None) -> None:
        size = 256 if term is None else term.size
        self._workspace.keep("quilt", self._key(grown), lambda: (term,), lambda _: size)

    def _key(self, grown: Grown) -> tuple[object, ...]:
        k, closed = grown
        return self._beyond, self._budget.entries, self._starts[k], closed

    def _quilts(self, asked: Sequence[Grown]) -> list[QuiltTerm | None]:
        """Return quilts with their swings, those of single records together; ``None`` if too large."""
        self._workspace.guard.check()
        parts = [self._parts(*grown) for grown in asked]
        single = [n for n, part in enumerate(parts) if part is not None and len(part.targets) == 1]
        quilts = [part.quilt(self.model.nodes) for n in single if (part := parts[n]) is not None]
        read = swings_of_many(self._workspace, quilts, Limits(self._budget.entries))
        rows = {single[place]: row for place, row in read.items()}
        terms: list[QuiltTerm | None] = []
        for n, part in enumerate(parts):
            if part is None:
                terms.append(None)
            elif n in rows:
                terms.append(self._term(part, _unknown(part.near, self.model.nodes), rows[n]))
            else:
                terms.append(self._alone(part))
        return terms

    def _parts(self, k: int, closed: frozenset[int]) -> _Parts | None:
        model, names = self.model, self.model.nodes
        separator, nearby = self._boundary(closed), sorted(closed - self._starts[k])
        near = [j for j in nearby if model.is_record(names[j])]
        if not separator or len(near) > QUILTS_NEARBY or len(separator) > self._most_separator:
            return None
        return _Parts(closed, sorted(self._starts[k]), nearby, separator, near)

    def _alone(self, part: _Parts) -> QuiltTerm | None:
        """Return one quilt that is not read off with others."""
        names = self.model.nodes
        self._workspace.guard.check()
        try:
            found = swings(
                self.model,
                [names[j] for j in part.targets],
                [names[j] for j in part.nearby],
                [names[j] for j in part.separator],
                max_entries=self._budget.entries,
                workspace=self._workspace,
            )
        except ModelTooWide:
            return None
        unknown = np.array([[0.0 if names[j] in known else 1.0 for j in part.near] for known in found])
        return self._term(part, unknown.reshape(len(found), len(part.near)), list(found.values()))

    def _term(self, part: _Parts, unknown: Vector, swing: Sequence[float]) -> QuiltTerm:
        return QuiltTerm(
            part.closed,
            tuple(part.separator),
            np.array(part.near, dtype=np.intp),
            unknown,
            np.array(swing, dtype=np.float64),
            edges_beyond(self._propagation, part.closed, part.separator) if self._beyond else (),
        )

    def _describe(self, term: QuiltTerm, row: int) -> dict[str, object]:
        """Name the quilt and the known records that attain its maximum."""
        names = self.model.nodes
        known = [names[int(j)] for j, u in zip(term.near, term.unknown[row], strict=True) if u == 0.0]
        return {
            "closed": sorted(names[j] for j in term.closed),
            "separator": sorted(names[j] for j in term.separator),
            "known": known,
            "swing": float(term.swing[row]),
        }


def _unknown(near: Sequence[int], names: Sequence[str]) -> Vector:
    """Return which nearby records are not known, for the sets in the order of :func:`swings_of_many`."""
    count = len(near)
    order = sorted(range(count), key=lambda a: names[near[a]])
    found = np.empty((2**count, count))
    found[:, order] = (np.arange(2**count)[:, None] >> np.arange(count)[::-1]) & 1
    return found


def _size(table: QuiltTable) -> int:
    return sum(t.size for t in table.terms)


@register("swing", against=INFORMED, kind="certified bound", says="swing of the best quilt", auto=never)
class SwingBound(QuiltsBound):
    """Bound 2: Leakage(i) ≤ max_L { Σ_{C∖L} α + s_i(C, L) }, the best quilt found, or group privacy."""

    theorem = "swing"
    _beyond = False

    def _initial(self, alpha: Vector, messages: Messages) -> Vector:
        """Where the search starts: group privacy, the trivial quilt."""
        labels = self._propagation.graph.component
        return np.array(
            [
                sum({int(labels[j]): float(messages.cap[j]) for j in members}.values())
                for members in self._starts
            ]
        )
