"""Bounds from quilts: the swing, and the swing with propagation beyond the separator.

For any set C ∋ i grown from the unit under attack, with separator Q = ∂C,

    swing:      Leakage(i) ≤ max_L { Σ_{C∖L} α + s_i(C, L) }
    quilts:     Leakage(i) ≤ max_L { Σ_{C∖L} α + Φ( s_i(C, L), Σ_{q∈Q} out_q(C) ) },
                out_q(C) = α_q + Σ_{g ∋ q, g ∩ C = ∅} Φ( c_{q,g}, Σ_{k ∈ g∖Q} o_{k→g} ),

where L ranges over the records near the unit that the adversary may know and o are certified
propagation messages.  The maximum over L is needed: L = ∅ alone is unsound.  The prior adversary conditions
on nothing, so no known sets are needed:

    quilts:     Leakage(T) ≤ Σ_C α + Λ( P(x_Q | x_T), Σ_{q∈Q} out_q(C) )

with Λ of :mod:`.threshold`; Λ(·, ∞) = I, so it is never above the Markov Quilt Mechanism on the same quilt.
*Why.*  Σ_C α pays for the records of C whatever happens; after that only X_Q carries information, through a
function whose logarithm moves by at most Σ_q out_q(C).

Which quilts to look at is a search, not a sweep: a unit's best sets are grown by each of their
neighbours until that stops helping.  Sets that tie are grown together, so that records which look the
same get the same leakage.  The search is done at a few guiding strengths around α, on a fixed grid,
and every quilt it meets is used: the answer depends on α and the work budget only.  Swings and searches
are kept in the workspace, which makes the next question quicker and changes nothing.  The prior adversary's
quilts are simply the smallest ones.

*Assumes*: nothing: any model, any evidence.  *Cost*: one swing or one conditional per quilt (a table of the
unit, its nearby records and the separator), as many quilts per unit and guide as the work budget says.
*Reference*: docs/theory.md, sections 4 and 7; docs/prior_adversary.md, quilts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from quiltdp.accountant.adversaries import INFORMED, PRIOR
from quiltdp.accountant.bounds import Bounds, Problem, Vector, never, register
from quiltdp.accountant.leakage.contraction import phi
from quiltdp.accountant.leakage.propagation import Messages, Propagation, PropagationBound, propagation_of
from quiltdp.accountant.leakage.published import MarkovQuiltBound
from quiltdp.accountant.trade_offs import (
    PRIOR_QUILTS_NODES,
    PRIOR_QUILTS_UNITS,
    QUILTS_ALL,
    QUILTS_NEARBY,
    QUILTS_PATH,
    QUILTS_PATIENCE,
    QUILTS_UNITS,
)
from quiltdp.errors import ModelTooWide
from quiltdp.graph.moral import moralize
from quiltdp.inference.influence import swings
from quiltdp.inference.plan import Limits
from quiltdp.inference.workspace import Workspace, moral_graph
from quiltdp.numbers import EPS, up_array
from quiltdp.work import WorkBudget

__all__ = ["PriorQuiltsBound", "QuiltTable", "QuiltTerm", "QuiltsBound", "SwingBound", "pairs_around"]

_TIE = 1e-9  # values this close (relatively) are one value
_GUIDES = (-1, 0, 1, 2, 3)  # half decades around α at which quilts are looked for: what pays at a
# larger α is often better than what a search at α itself gets stuck with
_WEAKEST, _STRONGEST = -6, 4  # half decades beyond which guides tell nothing new


Ints = NDArray[np.intp]
Feed: TypeAlias = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class QuiltTerm:
    """One quilt of one unit, ready to be evaluated at any α.

    Attributes
    ----------
    closed, separator, near
        C, Q, and the records of C outside the unit, by position.
    unknown, swing
        For every set L of known records: which of ``near`` are not in L (1 or 0), and s_i(C, L).
    beyond
        For every q ∈ Q and factor g ∋ q away from C: the edge of q to g, and the edges of g∖Q.
    """

    closed: frozenset[int]
    separator: tuple[int, ...]
    near: Ints
    unknown: Vector
    swing: Vector
    beyond: tuple[Feed, ...]

    @property
    def size(self) -> int:
        """Its bytes, roughly."""
        return 512 + self.unknown.nbytes + self.swing.nbytes + 64 * (len(self.closed) + len(self.beyond))


class QuiltTable:
    """Quilts of one unit, evaluated together.

    Parameters
    ----------
    terms
        The quilts.
    members
        The nodes of the unit.
    spreads
        c for every edge of the factor graph, or ``None`` to ignore what lies beyond separators.
    """

    def __init__(self, terms: Sequence[QuiltTerm], members: frozenset[int], spreads: Vector | None) -> None:
        self.terms = tuple(terms)
        self._members = np.array(sorted(members), dtype=np.intp)
        counts = [len(t.swing) for t in self.terms]
        self._starts = np.cumsum([0, *counts])[:-1].astype(np.intp)
        self._of_row = np.repeat(np.arange(len(counts)), counts)
        self._swing = np.concatenate([np.zeros(0), *(t.swing for t in self.terms)])
        rows, nodes = [], []
        for start, term in zip(self._starts.tolist(), self.terms, strict=True):
            row, column = np.nonzero(term.unknown)
            rows.append(row + start)
            nodes.append(term.near[column])
        none = np.zeros(0, dtype=np.intp)
        self._near_row, self._near_node = np.concatenate([none, *rows]), np.concatenate([none, *nodes])
        self._most_near = max((len(t.near) for t in self.terms), default=0)
        self._reach: Reach | None = None
        if spreads is not None:
            self._reach = Reach([t.separator for t in self.terms], [t.beyond for t in self.terms], spreads)

    def values(self, alpha: Vector, messages: Messages | None) -> tuple[Vector, Ints]:
        """Return max_L of every quilt, rounded up, and the row of the L that attains it."""
        if not self.terms:
            return np.zeros(0), np.zeros(0, dtype=np.intp)
        own = float(alpha[self._members].sum()) * (1 + 8 * (1 + len(self._members)) * EPS)
        near = np.bincount(self._near_row, weights=alpha[self._near_node], minlength=len(self._swing))
        reach = np.full(len(self.terms), np.inf)
        if self._reach is not None and messages is not None:
            reach = self._reach(alpha, messages)
        reach = reach[self._of_row]
        total = (own + near) * (1 + 4 * (1 + self._most_near) * EPS) + phi(self._swing, reach)
        best = np.maximum.reduceat(total, self._starts)
        row = np.array(
            [
                int(np.argmax(total[s : s + len(t.swing)]))
                for s, t in zip(self._starts.tolist(), self.terms, strict=True)
            ],
            dtype=np.intp,
        )
        return up_array(best), row


class Reach:
    """Σ_{q∈Q} out_q(C) of some quilts: what the far sides of their separators can tell.

    Parameters
    ----------
    separators, beyond
        Q of every quilt, and what feeds its out_q (:func:`edges_beyond`).
    spreads
        c for every edge of the factor graph.
    """

    def __init__(
        self, separators: Sequence[Sequence[int]], beyond: Sequence[Sequence[Feed]], spreads: Vector
    ) -> None:
        self._count = len(separators)
        self._q = _flat(separators)
        self._q_term = np.repeat(np.arange(self._count), [len(q) for q in separators])
        feeds = [feed for found in beyond for feed in found]
        self._feed_term = np.repeat(np.arange(self._count), [len(found) for found in beyond])
        self._feed_spread = spreads[np.array([edge for edge, _ in feeds], dtype=np.intp)]
        self._edge = _flat(others for _, others in feeds)
        self._edge_feed = np.repeat(np.arange(len(feeds)), [len(others) for _, others in feeds])
        longest = max((len(others) for _, others in feeds), default=0)
        self._slack_in = 1 + (64 + longest) * EPS
        terms = [len(q) + len(found) for q, found in zip(separators, beyond, strict=True)]
        self._slack_out = 64.0 + 4 * max(terms, default=0)

    def __call__(self, alpha: Vector, messages: Messages) -> Vector:
        """Return it for every quilt, rounded up."""
        total = np.bincount(self._q_term, weights=alpha[self._q], minlength=self._count).astype(np.float64)
        arriving = np.bincount(
            self._edge_feed, weights=messages.out[self._edge], minlength=len(self._feed_spread)
        )
        given = phi(self._feed_spread, arriving * self._slack_in)
        total += np.bincount(self._feed_term, weights=given, minlength=self._count)
        return up_array(total, self._slack_out)


def _flat(parts: Iterable[Iterable[int]]) -> Ints:
    return np.array(list(chain.from_iterable(parts)), dtype=np.intp)


def edges_beyond(
    propagation: Propagation, closed: frozenset[int], separator: Sequence[int]
) -> tuple[Feed, ...]:
    """Return what feeds out_q: for q in Q and factors g ∋ q away from C, the edge of q and those of g∖Q."""
    inside, found = frozenset(separator), []
    for q in separator:
        for own, first, scope in propagation.factors_at(q):
            if closed.isdisjoint(scope):
                others = tuple([first + a for a, j in enumerate(scope) if j not in inside])
                if others:
                    found.append((own, others))
    return tuple(found)


# -- the informed adversary ----------------------------------------------------------------------------


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


def _informed_worth_it(problem: Problem) -> bool:
    """Against the informed adversary, except on long paths."""
    if problem.adversary.knows_nothing:
        return False
    from quiltdp.inference.chains import path_of

    return len(problem.model.nodes) <= QUILTS_PATH or path_of(problem.model) is None


_SAYS = "swing of the best quilt, propagation beyond it"


@register("quilts", against=INFORMED, kind="certified bound", says=_SAYS, auto=_informed_worth_it)
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
        top = float(alpha.max())
        shape = np.round(alpha / top, 9)  # only a guide
        decade = min(max(round(2 * math.log10(top)), _WEAKEST), _STRONGEST)
        steps = [s for s in _GUIDES if _WEAKEST <= decade + s <= _STRONGEST or s == 0]

        def make() -> QuiltTable:
            met: dict[frozenset[int], QuiltTerm] = {}
            for step in steps:
                met.update(self._search(k, shape * 10.0 ** ((decade + step) / 2)))
            return QuiltTable(tuple(met.values()), self._starts[k], self._spreads)

        key = (self._beyond, self._budget.quilts, self._budget.entries, decade, shape.tobytes(), k)
        return self._workspace.keep("quilts", key, make, lambda table: sum(t.size for t in table.terms))

    def _search(self, k: int, guide: Vector) -> dict[frozenset[int], QuiltTerm]:
        """Grow the unit's best sets by one neighbour each, round by round; return all that was met."""
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
            usable = {closed: term for closed in fresh if (term := self._term(k, closed)) is not None}
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
            grown = [c | {v} for c in chosen for v in self._boundary(c)]
            fresh = [g for g in dict.fromkeys(grown) if g not in seen]
            seen.update(fresh)
            for closed in chosen:
                del waiting[closed]

    def _boundary(self, closed: frozenset[int]) -> list[int]:
        graph = self._graph
        return sorted({v for u in closed for v in graph.neighbor_positions(u)} - closed)

    def _term(self, k: int, closed: frozenset[int]) -> QuiltTerm | None:
        """Return a quilt with its swings, ``None`` if it is too large; kept in the workspace."""
        names, start = self.model.nodes, self._starts[k]

        def make() -> QuiltTerm | None:
            self._workspace.guard.check()
            separator, nearby = self._boundary(closed), sorted(closed - start)
            near = [j for j in nearby if self.model.is_record(names[j])]
            if not separator or len(near) > QUILTS_NEARBY or len(separator) > self._most_separator:
                return None
            parts = [[names[j] for j in part] for part in (sorted(start), nearby, separator)]
            try:
                limits = Limits(self._budget.entries)
                found = swings(self.model, *parts, limits=limits, workspace=self._workspace)
            except ModelTooWide:
                return None
            unknown = np.array([[float(names[j] not in known) for j in near] for known in found])
            beyond = edges_beyond(self._propagation, closed, separator) if self._beyond else ()
            table = unknown.reshape(len(found), len(near)), np.array(list(found.values()))
            return QuiltTerm(closed, tuple(separator), np.array(near, dtype=np.intp), *table, beyond)

        key = (self._beyond, self._budget.entries, start, closed)
        return self._workspace.keep("quilt", key, make, lambda term: 256 if term is None else term.size)

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


# -- the prior adversary -------------------------------------------------------------------------------


def _prior_worth_it(problem: Problem) -> bool:
    """One quilt per record takes longer than it is worth on a large model."""
    return len(problem.model.nodes) <= PRIOR_QUILTS_NODES


@register("quilts", against=PRIOR, kind="certified bound", says="Λ of the best quilt", auto=_prior_worth_it)
class PriorQuiltsBound(MarkovQuiltBound):
    """One quilt with Λ (method ``"quilts"``, prior adversary).

    Parameters are those of :class:`MarkovQuiltBound`.

    Examples
    --------
    >>> import numpy as np
    >>> from quiltdp import Model
    >>> m = Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.6, 0.4], [0.4, 0.6]])})
    >>> from quiltdp.accountant.bounds import ready
    >>> ready(PriorQuiltsBound, m).evaluate(np.array([1.0, 1.0])).values.round(6).tolist()
    [1.185376, 1.185376]
    """

    theorem, kind = "quilts", "certified bound"

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Compute Λ of the smallest quilts of every unit, and the spreads beyond them."""
        self._propagation = propagation_of(workspace)
        super().prepare(workspace, budget)

    def _most_quilts(self) -> int:
        share = PRIOR_QUILTS_UNITS * self._budget.quilts // len(self.units)
        return min(max(share, 3), self._budget.quilts // 3)

    def _reach(self, closed: frozenset[int], separator: list[int]) -> Reach | None:
        """Return Σ_q out_q(C) as a function of α and the messages."""
        beyond = edges_beyond(self._propagation, closed, separator)
        return Reach([separator], [beyond], self._propagation.spreads)

    def _messages(self, alpha: Vector) -> Messages | None:
        return self._propagation.messages(alpha)
